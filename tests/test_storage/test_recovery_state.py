"""An unclean start reads only what lies behind the recovery point, and finds the same state as a
start that reads everything."""

from __future__ import annotations

import contextlib
import copy
import random
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvorum.runtime.errors import CorruptData
from kvorum.runtime.memory_disk import MemoryDisk, PowerCut
from kvorum.storage.files.producer_state import ProducerEntry
from kvorum.storage.files.segment import Segment
from kvorum.storage.format.batch import build_batch
from kvorum.storage.format.markers import build_marker
from kvorum.storage.log.log import Log, LogConfig
from kvorum.storage.log.retention import apply_retention
from kvorum.storage.recovery.recovery_state import verify_recovery_state
from kvorum.storage.tools.verify import verify_log
from tests.test_storage.small_logs import DIRECTORY, FIRST, new_disk

CONFIG = LogConfig(
    segment_bytes=1500, index_interval_bytes=150, retention_ms=-1, keeps_recovery_state=True
)
ONE_SEGMENT = replace(CONFIG, segment_bytes=1 << 20)
STATE = FIRST.replace(".log", ".recovery")


def opened(disk: MemoryDisk, config: LogConfig = ONE_SEGMENT, **options) -> Log:
    return Log.open(disk, DIRECTORY, config, now_ms=0, **options)


def append(
    log: Log, count: int, *, producer_id: int = 8, epoch: int = 1, is_transactional: bool = False
) -> None:
    for _ in range(count):
        known = log.producers.entries.get(producer_id)
        sequence = known.batches[-1].last_sequence + 1 if known and known.batches else 0
        data = build_batch(
            [(None, bytes(50))],
            timestamp_ms=1000 + log.end_offset * 37 % 50,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            is_transactional=is_transactional,
        )
        log.append_as_leader(data, leader_epoch=epoch, now_ms=0)


def end_transaction(log: Log, producer_id: int, *, is_commit: bool, epoch: int) -> None:
    marker = build_marker(
        producer_id=producer_id,
        producer_epoch=0,
        is_commit=is_commit,
        coordinator_epoch=1,
        timestamp_ms=2000,
    )
    log.append_as_leader(marker, leader_epoch=epoch, now_ms=0)


def state_of(log: Log) -> dict[str, object]:
    """All state that a start has to find, except the producers."""
    return {
        "ends": (log.start_offset, log.end_offset),
        # A start cannot know the epoch of an empty log.
        "epochs": log.epochs.entries if log.start_offset < log.end_offset else None,
        "ongoing": log.producers.ongoing,
        "segments": [
            (
                segment.base_offset,
                segment.end_offset,
                segment.size_bytes,
                segment.indexes[0].to_bytes(),
                segment.max_timestamp,
                segment.aborted,
                segment.first_batch_timestamp_ms,
            )
            for segment in log.segments.items
        ],
    }


def sequences(entry: ProducerEntry) -> list[tuple[int, int, int]]:
    """The batches of a producer without timestamps, which a snapshot does not keep for each
    batch."""
    return [(b.first_sequence, b.last_sequence, b.last_offset) for b in entry.batches]


def time_entries(segment: Segment) -> set[tuple[int, int]]:
    index = segment.indexes[1]
    return set(zip(index.timestamps_ms, index.relative_offsets, strict=True))


def assert_as_walked(log: Log, disk: MemoryDisk, recovery_point: int, config: LogConfig) -> None:
    """Assert that `log` has the state that a start without recovery state finds, which reads the
    whole segment."""
    walked = Log.open(
        disk,
        DIRECTORY,
        replace(config, keeps_recovery_state=False),
        now_ms=0,
        recovery_point=recovery_point,
        log_start_offset=log.start_offset,
    )
    assert state_of(log) == state_of(walked)
    for segment, other in zip(log.segments.items, walked.segments.items, strict=True):
        # The log may have one entry more: an orderly stop adds one to the time index.
        assert time_entries(other) <= time_entries(segment)
    assert log.producers.entries.keys() == walked.producers.entries.keys()
    for producer_id, entry in walked.producers.entries.items():
        known = log.producers.entries[producer_id]
        # A snapshot knows only one batch of each producer. The state of a later segment, and of a
        # cleanly closed log, begins with a snapshot.
        pairs = zip(reversed(sequences(known)), reversed(sequences(entry)), strict=False)
        assert all(one == other for one, other in pairs)
        assert known.epoch == entry.epoch
        assert known.coordinator_epoch == entry.coordinator_epoch
        assert known.last_timestamp_ms == entry.last_timestamp_ms


class CountingDisk(MemoryDisk):
    """Counts the bytes read from .log files."""

    read_bytes_of_logs = 0

    def open(self, path: str):
        file = super().open(path)
        if not path.endswith(".log"):
            return file
        pread = file.pread
        disk = self

        class Counted:
            def __getattr__(self, name: str):
                return getattr(file, name)

            def pread(self, length: int, position: int) -> bytes:
                data = pread(length, position)
                disk.read_bytes_of_logs += len(data)
                return data

        return Counted()


def test_a_start_reads_what_lies_past_the_recovery_point() -> None:
    disk = CountingDisk(random.Random(1))
    log = opened(disk)
    append(log, 1000)
    log.flush()
    append(log, 2)
    again = opened(disk, recovery_point=1000)
    assert again.end_offset == 1002
    # The header of the first batch, the last index interval, and the two batches behind.
    assert disk.read_bytes_of_logs < 20_000 < log.size_bytes // 5


def test_a_start_without_the_file_walks_over_the_segment() -> None:
    disk = CountingDisk(random.Random(1))
    log = opened(disk)
    append(log, 400)
    log.flush()
    disk.remove(STATE)
    assert opened(disk, recovery_point=400).end_offset == 400
    assert disk.read_bytes_of_logs >= log.size_bytes


def test_a_second_start_does_not_walk_again_what_the_first_one_did() -> None:
    disk = CountingDisk(random.Random(1))
    append(opened(disk), 1000)
    first = opened(disk)
    disk.read_bytes_of_logs = 0
    assert opened(disk, recovery_point=first.durable_end_offset).end_offset == 1000
    assert disk.read_bytes_of_logs < 20_000


def test_all_batches_that_tell_a_repeat_from_news_outlive_a_kill() -> None:
    disk = new_disk()
    log = opened(disk)
    append(log, 9)
    log.flush()
    again = opened(disk, recovery_point=9)
    batches = [batch.last_offset for batch in again.producers.entries[8].batches]
    assert batches == [4, 5, 6, 7, 8]


def test_a_marker_that_was_not_replicated_holds_readers_back_after_a_kill() -> None:
    disk = new_disk()
    log = opened(disk)
    append(log, 3, is_transactional=True)
    end_transaction(log, 8, is_commit=True, epoch=1)
    log.flush()
    again = opened(disk, recovery_point=4)
    assert again.last_stable_offset(3) == 0
    assert again.last_stable_offset(4) == 4


def test_a_follower_forgets_the_markers_below_the_watermark() -> None:
    log = opened(new_disk())
    for _ in range(3):
        append(log, 1, is_transactional=True)
        end_transaction(log, 8, is_commit=True, epoch=1)
    log.producers.forget_replicated(4)
    assert log.producers.unreplicated == {5: 4}


def test_an_entry_above_the_recovery_point_is_not_believed() -> None:
    """A cut lowers the recovery point first. A crash right after finds the file still there."""
    disk = new_disk()
    log = opened(disk)
    append(log, 4)
    log.flush()
    append(log, 4)
    log.flush()
    disk.flip_bits(FIRST, log.size_bytes * 5 // 8)
    assert opened(copy.deepcopy(disk), recovery_point=8).end_offset == 8
    with pytest.raises(CorruptData, match="a valid batch follows"):
        opened(disk, recovery_point=4)


def test_a_cut_log_is_not_taken_for_what_it_was() -> None:
    disk = new_disk()
    log = opened(disk)
    append(log, 8, epoch=1)
    log.flush()
    log.truncate_to(4)
    assert verify_recovery_state(disk, DIRECTORY, 0) == []
    append(log, 8, producer_id=9, epoch=2)
    log.flush()
    disk.crash()
    again = opened(disk, recovery_point=12)
    assert_as_walked(again, disk, 12, ONE_SEGMENT)
    assert set(again.producers.entries) == {8, 9}


def test_a_start_after_a_cut_reads_what_lies_past_it() -> None:
    # A broker comes back from a kill, truncates its log, and is killed again before the next
    # checkpoint.
    disk = CountingDisk(random.Random(1))
    log = opened(disk)
    append(log, 1000)
    log.flush()
    log.truncate_to(900)
    append(log, 2, producer_id=9, epoch=2)
    disk.kill_process()
    disk.read_bytes_of_logs = 0
    again = opened(disk, recovery_point=900)
    assert again.end_offset == 902
    assert disk.read_bytes_of_logs < 20_000 < log.size_bytes // 5
    assert_as_walked(again, disk, 900, ONE_SEGMENT)


def test_no_older_state_comes_back_with_a_power_cut() -> None:
    """The log was emptied, and its recovery file removed. The power cut undoes the removal
    alone."""
    for seed in range(20):
        disk = new_disk(seed)
        log = opened(disk)
        append(log, 3, producer_id=8)
        log.flush()
        file = disk.open(FIRST)
        file.truncate(0)
        file.sync()
        log = opened(disk)
        append(log, 3, producer_id=9)
        log.flush()
        disk.crash()
        assert set(opened(disk, recovery_point=3).producers.entries) == {9}


def test_a_flush_that_a_cut_overtakes_writes_nothing_of_what_was() -> None:
    disk = new_disk()
    log = opened(disk)
    append(log, 8)
    ticket = log.begin_flush()
    log.truncate_to(4)
    append(log, 1, producer_id=9, epoch=2)
    ticket.run()
    log.complete_flush(ticket)
    assert verify_recovery_state(disk, DIRECTORY, 0) == []
    log.flush()
    assert_as_walked(opened(copy.deepcopy(disk), recovery_point=5), disk, 5, ONE_SEGMENT)


def test_a_flush_that_retention_overtakes_leaves_no_hole_in_the_entries() -> None:
    disk = CountingDisk(random.Random(1))
    log = opened(disk)
    append(log, 4)
    log.roll(now_ms=0)
    append(log, 1000)
    log.flush()
    append(log, 1)
    ticket = log.begin_flush()
    log.advance_start_offset(4)
    assert apply_retention(log, now_ms=0, high_watermark=1000) == [0]
    ticket.run()
    log.complete_flush(ticket)
    append(log, 1000)
    log.flush()
    again = opened(copy.deepcopy(disk), recovery_point=2005, log_start_offset=4)
    assert_as_walked(again, copy.deepcopy(disk), 2005, ONE_SEGMENT)
    opened(disk, recovery_point=2005, log_start_offset=4)
    assert disk.read_bytes_of_logs < 40_000, "the last entry is as good as the first"


def test_a_flush_that_the_end_of_a_topic_overtakes_writes_nothing_for_the_next_of_its_name() -> (
    None
):
    disk = new_disk()
    log = opened(disk)
    append(log, 3)
    ticket = log.begin_flush()
    log.delete()
    log = Log.new(disk, DIRECTORY, ONE_SEGMENT)
    append(log, 1, producer_id=9)
    ticket.run()
    names = disk.list_dir(DIRECTORY)
    assert names == [FIRST.rpartition("/")[2]]


def test_a_sealed_segment_keeps_no_state() -> None:
    disk = new_disk()
    log = opened(disk, CONFIG)
    append(log, 5)
    log.flush()
    append(log, 40)
    log.flush()
    names = [name for name in disk.list_dir(DIRECTORY) if name.endswith(".recovery")]
    assert names == [f"{log.segments.bases[-1]:020d}.recovery"]


def test_the_state_of_a_sealed_segment_is_a_leftover() -> None:
    """A crash between the write of the index and the removal of the recovery file leaves it; a
    clean may follow."""
    disk = new_disk()
    log = opened(disk, CONFIG)
    append(log, 5)
    log.flush()
    leftover = disk.read_bytes(STATE)
    append(log, 40)
    log.flush()
    disk.write_atomic(STATE, leftover)
    disk.flip_bits(FIRST, 70)
    with pytest.raises(CorruptData, match="the CRC of batch 0"):
        opened(copy.deepcopy(disk), CONFIG, recovery_point=5)
    assert opened(disk, CONFIG, recovery_point=45).end_offset == 45
    assert not disk.exists(STATE)


def test_a_torn_entry_costs_no_more_than_time() -> None:
    disk = new_disk()
    log = opened(disk)
    for _ in range(3):
        append(log, 20)
        log.flush()
    size = len(disk.read_bytes(STATE))
    for kept in range(0, size, 7):
        other = copy.deepcopy(disk)
        other.open(STATE).truncate(kept)
        again = opened(other, recovery_point=60)
        assert_as_walked(again, copy.deepcopy(disk), 60, ONE_SEGMENT)
    for at in range(0, size, 5):
        other = copy.deepcopy(disk)
        other.flip_bits(STATE, at)
        again = opened(other, recovery_point=60)
        assert_as_walked(again, copy.deepcopy(disk), 60, ONE_SEGMENT)


@pytest.mark.parametrize("values", [[bytes(61)], [bytes(20), bytes(23)], [b"x" * 50]])
def test_a_state_that_is_of_another_log_is_not_believed(values: list[bytes]) -> None:
    disk, other = new_disk(), new_disk()
    sizes = []
    for which, written in ((other, values), (disk, [bytes(50)])):
        log = opened(which)
        for at in range(30):
            data = build_batch([(None, value) for value in written], timestamp_ms=at)
            log.append_as_leader(data, leader_epoch=1, now_ms=0)
        log.flush()
        sizes.append(log.size_bytes)
    is_harder = values != [bytes(61)]
    assert (sizes[0] == sizes[1]) == is_harder, "batches of one size are the harder case"
    append(log, 30)
    disk.write_atomic(STATE, other.read_bytes(STATE))
    assert "does not fit the log" in str(verify_log(disk, DIRECTORY).problems)
    assert_as_walked(opened(copy.deepcopy(disk), recovery_point=60), disk, 60, ONE_SEGMENT)


def test_the_file_does_not_grow_for_ever() -> None:
    disk = new_disk()
    log = opened(disk)
    for producer_id in range(100):
        append(log, 1, producer_id=producer_id)
    log.flush()
    sizes = []
    for _ in range(200):
        append(log, 1)
        log.flush()
        sizes.append(len(disk.read_bytes(STATE)))
    assert max(sizes) < 2 * sizes[0] + (1 << 16) + 10_000
    assert any(after < before for before, after in pairwise(sizes))
    assert_as_walked(opened(copy.deepcopy(disk), recovery_point=300), disk, 300, ONE_SEGMENT)


def test_damage_behind_the_recovery_point_is_still_found() -> None:
    disk = new_disk()
    log = opened(disk)
    append(log, 8)
    log.flush()
    size = log.size_bytes
    append(log, 3)
    disk.flip_bits(FIRST, size + 70)
    with pytest.raises(CorruptData, match="a valid batch follows"):
        opened(disk, recovery_point=8)


def test_a_log_that_lost_its_end_below_the_recovery_point_is_damaged() -> None:
    disk = new_disk()
    log = opened(disk)
    append(log, 8)
    log.flush()
    disk.open(FIRST).truncate(log.size_bytes - 5)
    with pytest.raises(CorruptData, match="below the recovery point 8"):
        opened(disk, recovery_point=8)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 6), st.integers(0, 2)),
        st.tuples(st.just("transaction"), st.integers(1, 3), st.integers(3, 4)),
        st.tuples(st.just("end"), st.booleans(), st.integers(3, 4)),
        st.tuples(st.just("flush"), st.none(), st.none()),
        st.tuples(st.just("kill"), st.none(), st.none()),
        st.tuples(st.just("restart"), st.none(), st.none()),
        st.tuples(st.just("power cut"), st.integers(0, 20), st.none()),
        st.tuples(st.just("cut"), st.floats(0, 1), st.none()),
        st.tuples(st.just("roll"), st.none(), st.none()),
        st.tuples(st.just("delete"), st.floats(0, 1), st.none()),
        st.tuples(st.just("epoch"), st.none(), st.none()),
    ),
    max_size=40,
)


@settings(max_examples=300, deadline=None)
@given(steps=STEPS, seed=st.integers(0, 1 << 32), config=st.sampled_from([CONFIG, ONE_SEGMENT]))
def test_a_start_finds_what_a_walk_over_all_finds(steps, seed: int, config: LogConfig) -> None:
    disk = new_disk(seed)
    log = opened(disk, config)
    epoch = 1
    for name, argument, producer_id in [*steps, ("kill", None, None)]:
        match name:
            case "append":
                append(log, argument, producer_id=producer_id, epoch=epoch)
            case "transaction":
                append(log, argument, producer_id=producer_id, epoch=epoch, is_transactional=True)
            case "end":
                if log.producers.is_open(producer_id, 0):
                    end_transaction(log, producer_id, is_commit=argument, epoch=epoch)
            case "epoch":
                epoch += 1
            case "flush":
                log.flush()
            case "roll":
                log.roll(now_ms=0)
            case "cut":
                start, end = log.start_offset, log.end_offset
                log.truncate_to(start + int(argument * (end - start)))
            case "delete":
                start, end = log.start_offset, log.end_offset
                log.advance_start_offset(start + int(argument * (end - start)))
            case "restart":
                log.close()
                log = opened(disk, config, is_clean=True, log_start_offset=log.start_offset)
            case "kill" | "power cut":
                log = started_again(disk, log, config, argument)


def started_again(disk: MemoryDisk, log: Log, config: LogConfig, operations: int | None) -> Log:
    """Killed, or the power cut within so many disk calls of a flush."""
    if operations is not None:
        disk.cut_power_after(operations)
        with contextlib.suppress(PowerCut):
            log.flush()
        disk.crash()
    point, start = log.durable_end_offset, log.start_offset
    other = copy.deepcopy(disk)
    again = opened(disk, config, recovery_point=point, log_start_offset=start)
    assert_as_walked(again, other, point, config)
    return again
