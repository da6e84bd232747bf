"""Compaction against a dictionary, and with a power cut at every disk call."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvorum.runtime.memory_disk import MemoryDisk, PowerCut
from kvorum.storage.format.compression import Codec
from kvorum.storage.log.log import Log, LogConfig
from tests.test_storage.cleaning_steps import as_dictionary, clean, records
from tests.test_storage.compacted import COMPACTION, DAY_MS, KEYS, kept, opened, put, seal
from tests.test_storage.small_logs import DIRECTORY, new_disk

# --- against a dictionary -------------------------------------------------------------------------

PAIR = st.tuples(st.sampled_from(KEYS), st.one_of(st.none(), st.binary(min_size=1, max_size=40)))
STEP = st.one_of(
    st.tuples(st.just("put"), st.lists(PAIR, min_size=1, max_size=6), st.sampled_from(list(Codec))),
    st.tuples(st.just("seal")),
    st.tuples(st.just("clean"), st.integers(0, 3)),
    st.tuples(st.just("reopen"), st.booleans()),
)


@settings(max_examples=120, deadline=None)
@given(steps=st.lists(STEP, min_size=3, max_size=25), seed=st.integers(0, 1000))
def test_a_cleaned_log_says_what_the_dictionary_says(steps, seed) -> None:
    disk = new_disk(seed)
    log = opened(disk)
    model: dict[bytes, bytes] = {}
    appended: dict[int, tuple[bytes | None, bytes | None, int]] = {}
    now_ms, checkpoint = 1000, None
    for kind, *step in steps:
        now_ms += 10
        if kind == "put":
            pairs, codec = step
            base = put(log, *pairs, timestamp_ms=now_ms, compression=codec)
            for at, (key, value) in enumerate(pairs):
                appended[base + at] = (key, value, now_ms)
                model.pop(key, None)
                if value is not None:
                    model[key] = value
        elif kind == "seal":
            seal(log)
        elif kind == "clean":
            now_ms += step[0] * DAY_MS // 2
            end_offset = log.end_offset
            job = clean(log, now_ms=now_ms, checkpoint=checkpoint)
            checkpoint = checkpoint if job is None else job.end_offset
            assert log.end_offset == end_offset
        elif step[0]:
            log.close()
            log = opened(disk, is_clean=True)
        else:
            log = opened(disk, recovery_point=log.durable_end_offset)
        found = records(log)
        assert as_dictionary(found) == model
        offsets = [record.offset for record in found]
        assert offsets == sorted(set(offsets))
        for record in found:
            assert appended[record.offset] == (record.key, record.value, record.timestamp_ms)
        if checkpoint:
            dirty = [record.key for record in found if record.offset < checkpoint]
            assert len(dirty) == len(set(dirty))


# --- with the power cut at every disk call --------------------------------------------------------


def log_to_clean(disk: MemoryDisk) -> tuple[Log, dict[bytes, bytes]]:
    """Three groups of segments, with tombstones whose horizon is set and will have passed."""
    rng = random.Random(5)
    log = opened(disk)
    for at in range(14):
        pairs = [
            (rng.choice(KEYS), None if rng.random() < 0.3 else bytes([at] * 40)) for _ in range(5)
        ]
        put(log, *pairs, producer_id=at % 3, producer_epoch=0, base_sequence=at)
        if at % 2:
            seal(log)
    clean(log, now_ms=0)
    for at in range(8):
        put(log, (KEYS[at % 4], bytes(130)), (KEYS[5], None), (b"only%d" % at, bytes(60)))
        seal(log)
    log.flush()
    return log, as_dictionary(records(log))


def test_a_power_cut_at_any_call_of_a_clean_loses_and_revives_nothing() -> None:
    seeds, cuts = 4, 0
    for seed in range(seeds):
        calls = 0
        while True:
            disk = new_disk(seed * 1000 + calls)
            log, model = log_to_clean(disk)
            end_offset = log.end_offset
            disk.cut_power_after(calls)
            try:
                job = clean(log, now_ms=2 * DAY_MS, checkpoint=70)
            except PowerCut:
                disk.crash()
            else:
                assert job is not None
                break
            cuts += 1
            again = opened(disk, recovery_point=end_offset)
            assert again.torn_tail is None
            assert again.end_offset == end_offset
            assert as_dictionary(records(again)) == model
            names = disk.list_dir(DIRECTORY)
            assert not any(n.endswith((".swap", ".cleaned", ".deleted")) for n in names)
            again = opened(disk)
            assert again.torn_tail is None
            clean(again, now_ms=2 * DAY_MS, checkpoint=70)
            assert as_dictionary(records(again)) == model
            calls += 1
    assert cuts > seeds * 30


def test_a_power_cut_during_the_recovery_of_a_swap_is_recovered_as_well() -> None:
    for calls in range(0, 60, 2):
        for later in range(0, 40, 3):
            disk = new_disk(calls * 100 + later)
            log, model = log_to_clean(disk)
            end_offset = log.end_offset
            disk.cut_power_after(calls)
            try:
                clean(log, now_ms=2 * DAY_MS, checkpoint=70)
            except PowerCut:
                disk.crash()
            disk.cut_power_after(later)
            try:
                opened(disk, recovery_point=end_offset)
            except PowerCut:
                disk.crash()
            disk.calm()
            again = opened(disk)
            assert again.torn_tail is None
            assert (again.end_offset, as_dictionary(records(again))) == (end_offset, model)


@pytest.mark.parametrize("seed", range(10))
def test_a_power_cut_during_recovery_takes_no_gap_for_a_torn_tail(seed: int) -> None:
    config = LogConfig(segment_bytes=1000, retention_ms=-1, compaction=COMPACTION)
    disk = new_disk(seed)
    log = opened(disk, config)
    for keys in ((b"a", b"b"), (b"b", b"c")):
        for key in keys:
            put(log, (key, bytes(400)))
        seal(log)
    put(log, (b"d", b"1"))
    log.flush()
    clean(log, now_ms=0)
    assert [offset for offset, _, _ in kept(log)] == [0, 2, 3, 4]
    assert log.segments.bases == [0, 2, 4]
    disk.crash()
    saved = disk.save()
    for calls in range(1000):
        disk.restore(saved)
        disk.cut_power_after(calls)
        try:
            opened(disk, config)
        except PowerCut:
            disk.crash()
        else:
            break
        again = opened(disk, config)
        assert again.torn_tail is None
        assert [offset for offset, _, _ in kept(again)] == [0, 2, 3, 4]
    assert calls > 5
