"""Compaction rule by rule."""

from __future__ import annotations

import pytest

from kvorum.runtime.errors import CorruptData
from kvorum.storage.cleaning.cleanable_range import CleaningPlan, group_segments, plan_cleaning
from kvorum.storage.cleaning.cleaner import CleanerConfig
from kvorum.storage.cleaning.offset_map import ENTRY_BYTES, OffsetMap
from kvorum.storage.files.model import CompactionConfig
from kvorum.storage.format.batch import check_crc
from kvorum.storage.format.compression import Codec
from kvorum.storage.log import log_cleaning
from kvorum.storage.log.log import LogConfig
from kvorum.storage.log.retention import apply_retention
from kvorum.storage.log.timestamp_lookup import find_by_timestamp, find_max_timestamp
from tests.test_storage.cleaning_steps import as_dictionary, batches, clean, records
from tests.test_storage.compacted import COMPACTION, DAY_MS, kept, opened, put, seal
from tests.test_storage.small_logs import DIRECTORY, new_disk

# --- what stays -----------------------------------------------------------------------------------


def test_the_latest_record_of_each_key_stays_and_offsets_with_it() -> None:
    log = opened(new_disk())
    put(log, (b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
    put(log, (b"a", b"3"), (b"c", b"1"))
    seal(log)
    put(log, (b"b", b"2"))
    job = clean(log, now_ms=1000)
    assert job is not None and job.end_offset == 5
    assert kept(log) == [(1, b"b", b"1"), (3, b"a", b"3"), (4, b"c", b"1"), (5, b"b", b"2")]
    found = [(h.base_offset, h.last_offset, h.record_count) for _, _, h in batches(log)]
    assert found == [(0, 2, 1), (3, 4, 2), (5, 5, 1)]
    assert all(check_crc(data, at, header) for data, at, header in batches(log))


def test_the_active_segment_is_never_cleaned() -> None:
    log = opened(new_disk())
    put(log, (b"a", b"1"), (b"a", b"2"))
    assert clean(log, now_ms=0) is None


def test_a_segment_is_not_cleaned_before_it_was_fsynced() -> None:
    log = opened(new_disk())
    put(log, (b"a", b"1"), (b"a", b"2"))
    log.roll(now_ms=0)
    assert clean(log, now_ms=0) is None
    log.flush()
    assert clean(log, now_ms=0) is not None


def test_nothing_at_or_above_the_high_watermark_is_cleaned() -> None:
    log = opened(new_disk())
    for at in range(3):
        put(log, (b"a", b"%d" % at))
        seal(log)
    job = clean(log, now_ms=0, high_watermark=2)
    assert job is not None and job.end_offset == 2
    assert kept(log) == [(1, b"a", b"1"), (2, b"a", b"2")]


def test_a_tombstone_gets_a_horizon_first_and_goes_in_a_clean_after_it() -> None:
    log = opened(new_disk())
    put(log, (b"a", b"1"), (b"b", b"1"), timestamp_ms=500)
    put(log, (b"a", None), (b"b", b"2"), timestamp_ms=600)
    seal(log)
    clean(log, now_ms=1000)
    assert kept(log) == [(2, b"a", None), (3, b"b", b"2")]
    (_, _, header), *_ = batches(log)
    assert header.has_delete_horizon and header.base_timestamp_ms == 1000 + DAY_MS
    assert [r.timestamp_ms for r in records(log)] == [600, 600]
    assert header.max_timestamp_ms == 600
    put(log, (b"c", b"1"))
    seal(log)
    clean(log, now_ms=999 + DAY_MS, checkpoint=4)
    assert kept(log)[0] == (2, b"a", None)
    put(log, (b"d", b"1"))
    seal(log)
    clean(log, now_ms=1000 + DAY_MS, checkpoint=5)
    assert kept(log) == [(3, b"b", b"2"), (4, b"c", b"1"), (5, b"d", b"1")]


@pytest.mark.parametrize("codec", list(Codec))
def test_a_rebuilt_batch_keeps_its_codec(codec: Codec) -> None:
    log = opened(new_disk(), LogConfig(compaction=COMPACTION))
    pairs = [(b"key%d" % (at % 40), bytes(50)) for at in range(80)]
    put(log, *pairs, compression=codec)
    seal(log)
    clean(log, now_ms=0)
    ((_, _, header),) = batches(log)
    assert (header.compression_code, header.record_count) == (codec, 40)
    assert [r.offset for r in records(log)] == list(range(40, 80))


def test_records_without_key_go() -> None:
    log = opened(new_disk())
    put(log, (None, b"x"), (b"a", b"1"))
    seal(log)
    clean(log, now_ms=0)
    assert kept(log) == [(1, b"a", b"1")]


def test_the_last_batch_of_a_producer_stays_empty_and_its_sequence_is_known_after_a_crash() -> None:
    disk = new_disk()
    log = opened(disk)
    put(log, (b"a", b"1"), producer_id=7, producer_epoch=0, base_sequence=0)
    put(log, (b"a", b"2"), producer_id=7, producer_epoch=0, base_sequence=1)
    put(log, (b"a", b"3"))
    seal(log)
    clean(log, now_ms=0)
    found = [(h.base_offset, h.record_count, h.base_sequence) for _, _, h in batches(log)]
    assert found == [(1, 0, 1), (2, 1, -1)]
    for name in disk.list_dir(DIRECTORY):
        if name.endswith(".snapshot"):
            disk.remove(f"{DIRECTORY}/{name}")
    again = opened(disk)
    assert again.producers.entries[7].batches[-1].last_sequence == 1


def test_the_timestamp_of_an_emptied_batch_is_nobodys() -> None:
    disk = new_disk()
    log = opened(disk)
    put(log, (b"a", b"1"), timestamp_ms=9000, producer_id=7, producer_epoch=0, base_sequence=0)
    put(log, (b"a", b"2"), timestamp_ms=50)
    seal(log)
    clean(log, now_ms=0)
    assert [h.record_count for _, _, h in batches(log)] == [0, 1]
    for _ in range(2):
        assert find_by_timestamp(log, 60, end_offset=2) is None
        assert find_max_timestamp(log, end_offset=2) == (50, 1, 0)
        log = opened(disk)


def test_a_clean_gets_to_the_end_of_the_dirty_part_even_if_that_is_a_gap() -> None:
    log = opened(new_disk(), LogConfig(segment_bytes=1000, compaction=COMPACTION))
    for keys in ((b"a", b"b"), (b"b", b"c")):
        for key in keys:
            put(log, (key, bytes(400)))
        seal(log)
    clean(log, now_ms=0)
    assert [offset for offset, _, _ in kept(log)] == [0, 2, 3]
    log.advance_start_offset(1)
    job = clean(log, now_ms=0, high_watermark=2)
    assert job is not None and job.end_offset == 2


def test_small_cleaned_segments_are_joined() -> None:
    log = opened(new_disk())
    for at in range(12):
        put(log, (b"a", bytes(120)), (b"key%d" % at, b""))
        seal(log)
    job = clean(log, now_ms=0)
    assert job is not None
    assert (job.stats.segments_before, log.segment_count) == (12, job.stats.segments_after + 1)
    assert log.segment_count < 6


# --- the map --------------------------------------------------------------------------------------


def test_a_clean_stops_where_the_map_is_full_and_the_next_goes_on_there() -> None:
    log = opened(new_disk())
    for at in range(10):
        put(log, (b"a", b"%d" % at), (b"key%d" % at, b"x"))
        seal(log)
    small = CleanerConfig(dedupe_buffer_bytes=ENTRY_BYTES * 4, load_factor=1.0)
    checkpoint, rounds = 0, 0
    while checkpoint < log.end_offset:
        job = clean(log, now_ms=0, checkpoint=checkpoint, config=small)
        assert job is not None and checkpoint < job.end_offset
        assert job.stats.keys <= 4
        checkpoint = job.end_offset
        rounds += 1
    assert rounds > 2
    assert [key for _, key, _ in kept(log)].count(b"a") == 1
    assert len(kept(log)) == 11


def test_a_batch_of_more_keys_than_the_map_holds_is_taken_all_the_same() -> None:
    log = opened(new_disk())
    put(log, *((b"key%d" % at, b"1") for at in range(9)))
    seal(log)
    tiny = CleanerConfig(dedupe_buffer_bytes=1)
    job = clean(log, now_ms=0, config=tiny)
    assert job is not None and job.end_offset == 9


def test_a_tombstone_above_the_map_stays_even_after_its_horizon() -> None:
    """1. A clean whose offset map ends below the tombstone sets its delete horizon. 2. The next
    clean comes after the horizon, and its map ends below the tombstone too: the value that the
    tombstone hides is still in the log."""
    log = opened(new_disk())
    small = CleanerConfig(dedupe_buffer_bytes=ENTRY_BYTES * 2, load_factor=1.0)
    put(log, (b"a", b"1"))
    put(log, (b"b", b"1"), (b"c", b"1"))
    put(log, (b"d", b"1"), (b"e", b"1"))
    put(log, (b"a", None))
    seal(log)
    first = clean(log, now_ms=0, config=small)
    assert first is not None and first.end_offset == 1
    second = clean(log, now_ms=2 * DAY_MS, checkpoint=1, config=small)
    assert second is not None and second.end_offset == 3
    assert b"a" not in as_dictionary(records(log))


def test_the_map_is_bounded_by_its_buffer() -> None:
    assert OffsetMap(buffer_bytes=ENTRY_BYTES * 10, load_factor=0.5).capacity == 5


# --- damage ---------------------------------------------------------------------------------------


def test_a_damaged_batch_stops_the_clean_with_file_and_position() -> None:
    disk = new_disk()
    log = opened(disk)
    put(log, (b"a", b"1"))
    second = log.size_bytes
    put(log, (b"a", b"2"))
    seal(log)
    before = disk.list_dir(DIRECTORY)
    disk.flip_bits(f"{DIRECTORY}/{0:020d}.log", second + 65)
    plan = log_cleaning.plan(log, checkpoint=None, high_watermark=2, now_ms=0)
    assert plan is not None
    job = log_cleaning.begin(log, plan, CleanerConfig(), now_ms=0)
    with pytest.raises(CorruptData) as caught:
        while not job.is_done:
            job.advance()
    assert (caught.value.path, caught.value.position) == (f"{DIRECTORY}/{0:020d}.log", second)
    job.discard()
    log_cleaning.end(log, job)
    assert disk.list_dir(DIRECTORY) == before


def test_a_truncation_cancels_the_clean_under_way() -> None:
    disk = new_disk()
    log = opened(disk)
    for at in range(6):
        put(log, (b"a", b"%d" % at))
        seal(log)
    plan = log_cleaning.plan(log, checkpoint=None, high_watermark=6, now_ms=0)
    assert plan is not None
    job = log_cleaning.begin(log, plan, CleanerConfig(), now_ms=0)
    while job.pending is None:
        job.advance()
    log.truncate_to(2)
    job.swap()
    log_cleaning.apply_swap(log, 0)
    job.advance()
    assert job.is_done
    job.discard()
    log_cleaning.end(log, job)
    assert kept(log) == [(0, b"a", b"0"), (1, b"a", b"1")]
    assert not any(name.endswith(".cleaned") for name in disk.list_dir(DIRECTORY))
    assert opened(disk).end_offset == 2


@pytest.mark.parametrize("steps", range(12))
def test_a_truncation_at_any_step_of_a_clean_leaves_what_lies_below_it(steps: int) -> None:
    disk = new_disk()
    log = opened(disk)
    for at in range(6):
        put(log, (b"a" if at % 2 else b"b", b"%d" % at + bytes(300)))
        seal(log)
    plan = log_cleaning.plan(log, checkpoint=None, high_watermark=6, now_ms=0)
    assert plan is not None
    job = log_cleaning.begin(log, plan, CleanerConfig(io_buffer_bytes=1), now_ms=0)
    expected = {}
    for step in range(100):
        if step == steps:
            log.truncate_to(3)
            expected = as_dictionary(records(log))
            put(log, (b"new", b"1"))
        if job.is_done:
            break
        job.advance()
        if job.pending is not None:
            job.swap()
            log_cleaning.apply_swap(log, 0)
    job.discard()
    log_cleaning.end(log, job)
    if not expected:
        return
    assert as_dictionary(records(log)) == {**expected, b"new": b"1"}
    assert as_dictionary(records(opened(disk))) == {**expected, b"new": b"1"}


def test_a_truncation_after_the_swap_on_disk_works_on_the_new_segment() -> None:
    disk = new_disk()
    log = opened(disk)
    for at in range(6):
        put(log, (b"a" if at < 4 else b"b", b"%d" % at))
        seal(log)
    plan = log_cleaning.plan(log, checkpoint=None, high_watermark=6, now_ms=0)
    assert plan is not None
    job = log_cleaning.begin(log, plan, CleanerConfig(), now_ms=0)
    while job.pending is None:
        job.advance()
    job.swap()
    log.truncate_to(4)
    log_cleaning.end(log, job)
    assert kept(log) == [(3, b"a", b"3")]
    assert opened(disk).end_offset == 4


def test_retention_waits_for_the_clean() -> None:
    log = opened(new_disk(), LogConfig(segment_bytes=900, retention_bytes=0, compaction=COMPACTION))
    put(log, (b"a", b"0"))
    seal(log)
    plan = log_cleaning.plan(log, checkpoint=None, high_watermark=1, now_ms=0)
    assert plan is not None
    job = log_cleaning.begin(log, plan, CleanerConfig(), now_ms=0)
    assert apply_retention(log, now_ms=0, high_watermark=1) == []
    log_cleaning.end(log, job)
    assert apply_retention(log, now_ms=0, high_watermark=1) == [0]


# --- decisions ------------------------------------------------------------------------------------


class Facts:
    def __init__(self, base_offset: int, size_bytes: int = 100, timestamp_ms: int = 50) -> None:
        self.base_offset = base_offset
        self.size_bytes = size_bytes
        self.max_timestamp_ms = self.first_batch_timestamp_ms = timestamp_ms
        self.offset_index_bytes = self.time_index_bytes = 8


def planned(segments: list[Facts], **changes) -> CleaningPlan | None:
    facts = {
        "checkpoint": None,
        "start_offset": 0,
        "stable_offset": 1000,
        "config": COMPACTION,
        "now_ms": 100,
    }
    return plan_cleaning(segments, **{**facts, **changes})


SEGMENTS = [Facts(0), Facts(10), Facts(20), Facts(30)]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, (0, 30, 0, 300)),
        ({"checkpoint": 10}, (10, 30, 100, 200)),
        ({"checkpoint": 15}, (15, 30, 100, 200)),
        ({"checkpoint": 5, "start_offset": 12}, (12, 30, 100, 200)),
        ({"checkpoint": 99}, (0, 30, 0, 300)),
        ({"stable_offset": 20}, (0, 20, 0, 200)),
        ({"stable_offset": 29}, (0, 20, 0, 200)),
        ({"config": CompactionConfig(min_lag_ms=49)}, (0, 30, 0, 300)),
    ],
)
def test_the_cleanable_part_begins_and_ends_as_in_kafka(changes, expected) -> None:
    plan = planned(SEGMENTS, **changes)
    assert plan is not None
    assert (
        plan.first_dirty_offset,
        plan.first_uncleanable_offset,
        plan.clean_bytes,
        plan.dirty_bytes,
    ) == expected


@pytest.mark.parametrize(
    "changes",
    [
        {"checkpoint": 30},
        {"stable_offset": 9},
        {"config": CompactionConfig(min_lag_ms=51)},
    ],
)
def test_nothing_may_be_cleaned(changes) -> None:
    assert planned(SEGMENTS, **changes) is None


def test_a_clean_is_due_above_the_ratio_or_beyond_the_lag() -> None:
    half = planned(SEGMENTS, checkpoint=20)
    assert half is not None and not half.is_due(COMPACTION)
    assert half.is_due(CompactionConfig(min_cleanable_dirty_ratio=0.3))
    late = CompactionConfig(max_lag_ms=40)
    overdue = planned(SEGMENTS, checkpoint=20, config=late)
    assert overdue is not None and overdue.is_overdue and overdue.is_due(late)
    on_time = planned(SEGMENTS, checkpoint=20, config=CompactionConfig(max_lag_ms=50))
    assert on_time is not None and not on_time.is_overdue


def test_groups_fit_into_segment_index_and_offsets() -> None:
    def bases(**limits):
        facts = {"end_offset": 40, "segment_bytes": 250, "index_bytes_max": 1000, **limits}
        return [[s.base_offset for s in group] for group in group_segments(SEGMENTS, **facts)]

    assert bases() == [[0, 10], [20, 30]]
    assert bases(segment_bytes=1000) == [[0, 10, 20, 30]]
    assert bases(segment_bytes=1) == [[0], [10], [20], [30]]
    assert bases(segment_bytes=1000, index_bytes_max=24) == [[0, 10, 20], [30]]
    assert bases(segment_bytes=1000, end_offset=1 << 31) == [[0, 10, 20, 30]]
    assert bases(segment_bytes=1000, end_offset=(1 << 31) + 1) == [[0, 10, 20], [30]]
