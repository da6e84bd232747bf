"""Rules of append, read, roll and retention."""

from __future__ import annotations

import itertools
import random

import pytest

from kvorum.runtime.errors import CorruptData, ErrorCode, InvariantViolated
from kvorum.runtime.memory_disk import MemoryDisk
from kvorum.storage.files.model import CompactionConfig
from kvorum.storage.files.segment import RECENT_BATCHES_MAX
from kvorum.storage.format.batch import BatchError, build_batch, iter_headers, read_header
from kvorum.storage.log.log import Log, LogConfig, OffsetOutOfRange, OutOfOrderAppend
from kvorum.storage.log.retention import apply_retention, remove_deleted
from kvorum.storage.log.timestamp_lookup import find_by_timestamp, find_max_timestamp

DIRECTORY = "t-0"
DAY_MS = 86_400_000


def opened(**config: int) -> Log:
    return Log.open(MemoryDisk(random.Random(1)), DIRECTORY, LogConfig(**config), now_ms=0)


def batch(count: int = 1, timestamp_ms: int = 1000, size: int = 50) -> bytearray:
    return build_batch([(None, bytes(size))] * count, timestamp_ms=timestamp_ms)


def append(log: Log, count: int = 1, *, timestamp_ms: int = 1000, now_ms: int = 1000) -> None:
    log.append_as_leader(batch(count, timestamp_ms), leader_epoch=1, now_ms=now_ms)


def test_leader_append_stamps_offsets_and_epoch_in_place() -> None:
    log = opened()
    data = batch(3) + batch(2)
    done = log.append_as_leader(memoryview(data), leader_epoch=7, now_ms=0)
    assert (done.base_offset, done.last_offset, done.size_bytes) == (0, 4, len(data))
    headers = [header for _, header in iter_headers(data)]
    assert [(h.base_offset, h.leader_epoch) for h in headers] == [(0, 7), (3, 7)]
    assert log.read(0, bytes_max=1 << 20, end_offset=5).read() == data


def test_an_older_leader_epoch_is_a_bug_of_the_caller() -> None:
    log = opened()
    log.append_as_leader(batch(), leader_epoch=7, now_ms=0)
    with pytest.raises(InvariantViolated):
        log.append_as_leader(batch(), leader_epoch=6, now_ms=0)


def test_a_batch_above_segment_bytes_is_refused_with_kafkas_code() -> None:
    log = opened(segment_bytes=100)
    with pytest.raises(BatchError) as caught:
        append(log)
    assert caught.value.code is ErrorCode.RECORD_LIST_TOO_LARGE
    assert log.end_offset == 0 and log.segment_count == 0


def test_a_follower_takes_what_continues_its_log_and_nothing_else() -> None:
    leader, follower = opened(), opened()
    leader.append_as_leader(batch(2), leader_epoch=3, now_ms=0)
    leader.append_as_leader(batch(2), leader_epoch=4, now_ms=0)
    data = leader.read(0, bytes_max=1 << 20, end_offset=4).read()
    done = follower.append_as_follower(data + data[:40], now_ms=0)
    assert (done.last_offset, follower.epochs.entries) == (3, [(3, 0), (4, 2)])
    with pytest.raises(OutOfOrderAppend):
        follower.append_as_follower(data, now_ms=0)
    again = leader.read(2, bytes_max=1 << 20, end_offset=4).read()
    with pytest.raises(OutOfOrderAppend, match="at end offset 4"):
        follower.append_as_follower(again, now_ms=0)
    older = build_batch([(None, b"")], timestamp_ms=0, base_offset=4, leader_epoch=3)
    with pytest.raises(OutOfOrderAppend, match="epoch 3 after epoch 4"):
        follower.append_as_follower(bytes(older), now_ms=0)
    damaged = build_batch([(None, b"x")], timestamp_ms=0, base_offset=4, leader_epoch=4)
    damaged[-2] ^= 1
    with pytest.raises(BatchError) as caught:
        follower.append_as_follower(bytes(damaged), now_ms=0)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    with pytest.raises(BatchError):
        follower.append_as_follower(data[:40], now_ms=0)
    assert follower.end_offset == 4


def test_reads_outside_the_log_are_refused() -> None:
    log = opened()
    append(log, 5)
    log.advance_start_offset(2)
    for offset in (1, 6):
        with pytest.raises(OffsetOutOfRange):
            log.read(offset, bytes_max=1, end_offset=5)
    with pytest.raises(OffsetOutOfRange):
        log.advance_start_offset(6)
    assert log.read(5, bytes_max=1, end_offset=5).length == 0


def test_a_read_never_passes_the_given_end_offset() -> None:
    log = opened()
    for _ in range(4):
        append(log, 2)
    size = len(batch(2))
    assert log.read(0, bytes_max=1 << 20, end_offset=4).length == 2 * size
    assert log.read(0, bytes_max=1 << 20, end_offset=3).length == size
    assert log.read(0, bytes_max=1 << 20, end_offset=1).length == 0
    assert log.read(3, bytes_max=1 << 20, end_offset=99).first_offset == 2


def test_the_first_batch_is_served_whole_unless_refused() -> None:
    log = opened()
    append(log)
    append(log)
    size = len(batch())
    assert log.read(0, bytes_max=1, end_offset=2).length == size
    assert log.read(0, bytes_max=1, end_offset=2, at_least_one_batch=False).length == 0
    assert log.read(0, bytes_max=2 * size - 1, end_offset=2).length == size


def test_reads_by_index_equal_reads_from_the_tail_memory() -> None:
    log = opened(index_interval_bytes=300)
    count = RECENT_BATCHES_MAX + 500
    for at in range(count):
        append(log, 1 + at % 2, timestamp_ms=at)
    rng = random.Random(5)
    bounds = []
    for position, header in log.segments.items[0].headers(0):
        bounds.append((header.base_offset, header.end_offset, position, header.size_bytes))
    for _ in range(300):
        first = rng.randrange(len(bounds))
        base, end, position, size = bounds[first]
        limit = rng.randrange(1, 3000)
        high_watermark = rng.choice([log.end_offset, min(end + rng.randrange(60), log.end_offset)])
        expected = 0
        for b, e, p, s in bounds[first : first + 60]:
            if e > high_watermark or (p + s - position > limit and b != base):
                break
            expected = p + s - position
        found = log.read(rng.randrange(base, end), bytes_max=limit, end_offset=high_watermark)
        assert (found.position, found.length) == (
            position,
            expected,
        ) or expected == found.length == 0
        assert size > 0


INDEXED = LogConfig(index_interval_bytes=300, segment_bytes=20_000)


def closed_with_three_segments() -> MemoryDisk:
    """A log with config INDEXED."""
    disk = MemoryDisk(random.Random(1))
    log = Log.open(disk, DIRECTORY, INDEXED, now_ms=0)
    while len(log.segments.bases) < 3:
        append(log)
    log.close()
    return disk


def test_an_index_that_misleads_is_made_anew_and_the_log_is_sound() -> None:
    disk = closed_with_three_segments()
    path = f"{DIRECTORY}/{0:020d}.index"
    sound = disk.read_bytes(path)
    rng = random.Random(7)
    wrong = 0
    for _ in range(60):
        at = rng.randrange(len(sound))
        flipped = bytearray(sound)
        flipped[at] ^= 1 << rng.randrange(8)
        disk.write_atomic(path, bytes(flipped))
        log = Log.open(disk, DIRECTORY, INDEXED, now_ms=0, is_clean=True)
        for offset in range(log.segments.bases[1]):
            found = log.read(offset, bytes_max=100, end_offset=log.end_offset).read()
            assert read_header(memoryview(found), 0).base_offset == offset
        wrong += disk.read_bytes(path) == sound
        log.close()
    assert wrong > 5


def test_a_time_index_that_was_emptied_is_made_anew() -> None:
    disk = closed_with_three_segments()
    disk.write_atomic(f"{DIRECTORY}/{0:020d}.timeindex", b"")
    log = Log.open(disk, DIRECTORY, INDEXED, now_ms=0, is_clean=True)
    found = find_by_timestamp(log, 0, end_offset=log.end_offset)
    assert found is not None
    assert found[1] == 0, "a search by time passed the segment over"


def test_damage_of_the_batches_is_no_fault_of_the_index() -> None:
    disk = closed_with_three_segments()
    path = f"{DIRECTORY}/{0:020d}.log"
    data = bytearray(disk.read_bytes(path))
    positions = [position for position, _ in iter_headers(bytes(data))]
    data[positions[40] + 16] ^= 0xFF  # the magic byte
    disk.write_atomic(path, bytes(data))
    log = Log.open(disk, DIRECTORY, INDEXED, now_ms=0, is_clean=True)
    with pytest.raises(CorruptData, match=f"byte {positions[40]}: no batch header"):
        log.read(40, bytes_max=100, end_offset=log.end_offset)


def test_time_index_and_offset_index_entries_mean_what_kafka_means() -> None:
    log = opened(index_interval_bytes=200)
    for at in range(12):
        append(log, 2, timestamp_ms=1000 + (at % 5) * 10)
    offset_index, time_index = log.segments.items[0].indexes
    size = len(batch(2))
    # An entry is due once more than 200 bytes lie since the last: 2 batches of 180 bytes.
    positions = list(offset_index.positions)
    assert positions == [at * size for at in (2, 4, 6, 8, 10)]
    assert [offset + 1 for offset in offset_index.relative_offsets] == [
        2 * (position // size + 1) for position in positions
    ]
    assert list(zip(time_index.timestamps_ms, time_index.relative_offsets, strict=True)) == [
        (1020, 5),
        (1040, 9),
    ]


def test_a_segment_rolls_by_size_time_index_and_relative_offset() -> None:
    by_size = opened(segment_bytes=300)
    for _ in range(5):
        append(by_size)
    assert by_size.segments.bases == [0, 2, 4]
    by_time = opened(segment_ms=100)
    for timestamp_ms in (1000, 1100, 1101, 1150):
        append(by_time, timestamp_ms=timestamp_ms)
    assert by_time.segments.bases == [0, 2]
    by_age = opened(segment_ms=100)
    for now_ms in (0, 50, 101):
        append(by_age, timestamp_ms=-1, now_ms=now_ms)
    assert by_age.segments.bases == [0, 2]
    jittered = opened(segment_ms=100, segment_jitter_ms=60)
    for timestamp_ms in range(1000, 1202, 2):
        append(jittered, timestamp_ms=timestamp_ms)
    first, second = (
        (high - low) * 2 for low, high in itertools.pairwise(jittered.segments.bases[:3])
    )
    assert first != second
    assert all(40 < age_ms <= 102 for age_ms in (first, second))
    by_index = opened(index_interval_bytes=1, index_bytes_max=36)
    for _ in range(7):
        append(by_index)
    # 4 offset entries fit; the first batch of a segment has none.
    assert by_index.segments.bases == [0, 5]
    by_offset = opened()
    append(by_offset)
    for offset in (1 << 31, 1 << 33):
        far = build_batch([(None, b"")], timestamp_ms=0, base_offset=offset, leader_epoch=1)
        by_offset.append_as_follower(bytes(far), now_ms=0)
    # A rolled segment is named after the log's end, unless the batch's offset is too far from there
    # for the index.
    assert by_offset.segments.bases == [0, 1, 1 << 33]


def test_batches_of_one_append_spread_over_segments() -> None:
    log = opened(segment_bytes=300)
    data = bytearray().join(batch() for _ in range(7))
    log.append_as_leader(data, leader_epoch=1, now_ms=0)
    assert log.segments.bases == [0, 2, 4, 6]
    assert [log.read(at, bytes_max=1, end_offset=7).first_offset for at in range(7)] == [*range(7)]


def test_offset_of_max_timestamp_is_its_first_record_below_the_bound() -> None:
    log = opened(segment_bytes=400)
    stamps = [5, 9, 3, 9, 12, 1, 2, 12]
    for timestamp_ms in stamps:
        append(log, timestamp_ms=timestamp_ms)
    for end_offset in range(1, 9):
        best = max(stamps[:end_offset])
        assert find_max_timestamp(log, end_offset=end_offset) == (best, stamps.index(best), 1)
    assert find_max_timestamp(log, end_offset=0) is None


def test_truncating_at_the_end_still_forgets_an_epoch_without_batches() -> None:
    log = opened()
    append(log)
    log.epochs.assign(9, 1)
    log.truncate_to(1)
    assert log.epochs.entries == [(1, 0)]


def test_producer_state_is_rebuilt_by_truncation() -> None:
    log = opened(segment_bytes=300)
    for at in range(6):
        data = build_batch(
            [(None, bytes(50))],
            timestamp_ms=at,
            producer_id=8,
            producer_epoch=0,
            base_sequence=at,
        )
        log.append_as_leader(data, leader_epoch=1, now_ms=0)
    log.flush()
    log.truncate_to(3)
    assert log.producers.entries[8].batches[-1].last_sequence == 2
    log.truncate_fully_and_start_at(0)
    assert len(log.producers) == 0


def test_needs_flush_when_the_oldest_unsynced_record_is_flush_ms_old() -> None:
    log = opened(flush_ms=100)
    assert not log.needs_flush(1000)
    log.append_as_leader(batch(), leader_epoch=1, now_ms=1000)
    log.append_as_leader(batch(), leader_epoch=1, now_ms=1080)
    assert not log.needs_flush(1099)
    assert log.needs_flush(1100)
    log.flush()
    assert not log.needs_flush(5000)


def test_needs_flush_after_a_roll_or_flush_messages() -> None:
    log = opened(segment_bytes=300)
    append(log)
    assert not log.needs_flush(0)
    append(log)
    append(log)
    assert log.needs_flush(0)
    log.flush()
    assert not log.needs_flush(0)
    counting = opened(flush_messages=2)
    append(counting)
    assert not counting.needs_flush(0)
    append(counting)
    assert counting.needs_flush(0)


# --- retention -----------------------------------------------------------------------------------


def retained(log: Log, now_ms: int = 0, high_watermark: int = 1 << 40) -> list[int]:
    # Every removed segment has been flushed, the last one after it was rolled.
    for _ in range(2):
        log.flush()
        apply_retention(log, now_ms=now_ms, high_watermark=high_watermark)
    return list(log.segments.bases)


def test_retention_by_size_keeps_at_least_retention_bytes() -> None:
    size = len(batch())
    log = opened(segment_bytes=2 * size, retention_bytes=3 * size, retention_ms=-1)
    for _ in range(7):
        append(log)
    # 7 batches in segments of 2: deleting two leaves 3 batches, deleting three would leave 1.
    assert retained(log) == [4, 6]
    assert log.start_offset == 4


def test_retention_by_time_takes_the_active_segment_too() -> None:
    log = opened(segment_bytes=300, retention_ms=DAY_MS)
    for _ in range(3):
        append(log, timestamp_ms=1000)
    assert retained(log, now_ms=1000 + DAY_MS) == [0, 2]
    assert retained(log, now_ms=1001 + DAY_MS) == [3]
    assert (log.start_offset, log.end_offset, log.size_bytes) == (3, 3, 0)
    append(log)
    assert log.segments.bases == [3]


def test_retention_never_touches_what_is_above_the_high_watermark() -> None:
    log = opened(segment_bytes=300, retention_ms=DAY_MS)
    for _ in range(5):
        append(log, timestamp_ms=1000)
    assert retained(log, now_ms=9 * DAY_MS, high_watermark=3) == [2, 4]


def test_delete_records_frees_the_segments_below_the_start() -> None:
    log = opened(segment_bytes=300, retention_ms=-1)
    for _ in range(5):
        append(log)
    log.advance_start_offset(3)
    assert retained(log) == [2, 4]
    assert log.start_offset == 3


def test_a_segment_without_timestamps_is_as_old_as_its_files_last_write() -> None:
    log = opened(segment_bytes=300, retention_ms=DAY_MS)
    for _ in range(3):
        append(log, timestamp_ms=-1)
    disk = log.disk
    disk.clock_ms = 5000
    assert retained(log, now_ms=5000 + DAY_MS) == [0, 2]
    assert retained(log, now_ms=5001 + DAY_MS) == [3]


def test_retention_by_time_stops_at_the_first_young_segment() -> None:
    log = opened(segment_bytes=150, retention_ms=DAY_MS)
    for timestamp_ms in (1000, 9000, 1000, 1000):
        append(log, timestamp_ms=timestamp_ms)
    assert len(log.segments.bases) > 1
    left = retained(log, now_ms=1001 + DAY_MS)
    assert left[0] <= 1


def test_a_log_that_is_only_compacted_loses_segments_below_its_start_only() -> None:
    log = opened(segment_bytes=300, retention_ms=-1, compaction=CompactionConfig())
    for _ in range(5):
        append(log, timestamp_ms=1)
    assert retained(log, now_ms=99 * DAY_MS) == [0, 2, 4]
    log.advance_start_offset(2)
    assert retained(log, now_ms=99 * DAY_MS) == [2, 4]


def test_files_that_a_crash_left_deleted_go_at_the_next_start() -> None:
    log = opened(segment_bytes=300, retention_bytes=0, retention_ms=-1)
    disk = log.disk
    for _ in range(5):
        append(log)
    log.flush()
    assert retained(log) == [5]
    kinds = {name.partition(".")[2] for name in disk.list_dir(DIRECTORY)}
    assert {"log.deleted", "index.deleted", "timeindex.deleted"} <= kinds
    disk.kill_process()
    again = Log.open(disk, DIRECTORY, LogConfig(), now_ms=0, recovery_point=5)
    assert (again.start_offset, again.end_offset) == (5, 5)
    assert not any(name.endswith(".deleted") for name in disk.list_dir(DIRECTORY))


def test_deleted_files_stay_readable_until_their_delay_is_over() -> None:
    log = opened(segment_bytes=300, retention_bytes=0, retention_ms=-1, file_delete_delay_ms=60)
    append(log)
    handed_out = log.read(0, bytes_max=1 << 20, end_offset=1)
    assert retained(log, now_ms=100) == [1]
    assert remove_deleted(log, 159) == 0
    assert read_header(handed_out.read(), 0).base_offset == 0
    assert remove_deleted(log, 160) == 1
    assert not any(name.endswith(".deleted") for name in log.disk.list_dir(DIRECTORY))


@pytest.mark.parametrize("operation", ["rename", "remove"])
def test_retention_that_fails_half_way_leaves_no_hole(operation: str) -> None:
    # Bad sequence (seed 782 of the world of partitions): the segments were removed, but the log
    # start stayed in front of them.
    disk = MemoryDisk(random.Random(1))
    disk.make_dirs("data")
    log = Log.open(disk, "data/t-0", LogConfig(segment_bytes=200, retention_bytes=0), now_ms=0)
    for _ in range(8):
        append(log)
    log.flush()
    for count in (1, 4):
        disk.fail(operation, count=count)
        with pytest.raises(OSError, match="injected"):
            apply_retention(log, now_ms=0, high_watermark=log.end_offset)
        disk.calm()
        assert log.segments.bases[0] <= log.start_offset
        with pytest.raises(OffsetOutOfRange):
            log.read(0, bytes_max=1000, end_offset=log.end_offset)
    log.flush()
    apply_retention(log, now_ms=0, high_watermark=log.end_offset)
    assert log.segments.bases[0] == log.start_offset


@pytest.mark.parametrize("is_reopened", [False, True])
def test_where_a_cut_would_leave_the_end_is_known_before(is_reopened: bool) -> None:
    """In a log of which compaction has left batches of several records, and gaps: seed 106525."""
    config = LogConfig(segment_bytes=400, index_interval_bytes=100)
    ends = [3, 4, 9, 10, 20, 21, 22, 40, 41, 50]
    for offset in range(55):
        log = Log.new(MemoryDisk(random.Random(1)), "t-0", config)
        for end in ends:
            records = [(None, bytes(30))] * (2 if end in (4, 22) else 1)
            data = build_batch(
                records, timestamp_ms=end, base_offset=end - len(records), leader_epoch=1
            )
            if end - len(records) >= log.end_offset:
                log.append_as_follower(bytes(data), now_ms=end)
        if is_reopened:
            log.close()
            log = Log.open(log.disk, "t-0", config, now_ms=0, is_clean=True)
        expected = log.end_if_cut(offset)
        log.truncate_to(offset)
        assert log.end_offset == expected, offset
