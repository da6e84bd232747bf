"""A follower's log that begins within a batch, as DeleteRecords leaves its leader's (KIP-107)."""

from __future__ import annotations

import contextlib
import random

import pytest

from kvorum.runtime.errors import CorruptData
from kvorum.runtime.memory_disk import MemoryDisk, PowerCut
from kvorum.storage.format.batch import BatchError, build_batch, read_header
from kvorum.storage.log.log import Log, LogConfig, OffsetOutOfRange
from kvorum.storage.log.retention import apply_retention
from kvorum.storage.recovery.batch_walk import first_damage

DIRECTORY = "data/t-0"
CONFIG = LogConfig(keeps_recovery_state=True)


def batch(base_offset: int, count: int = 10, epoch: int = 0) -> bytes:
    return bytes(
        build_batch(
            [(b"k", b"v%d" % at) for at in range(count)],
            timestamp_ms=1,
            base_offset=base_offset,
            leader_epoch=epoch,
        )
    )


@pytest.fixture
def disk() -> MemoryDisk:
    disk = MemoryDisk(random.Random(1))
    disk.make_dirs("data")
    disk.sync_dir(".")
    return disk


@pytest.fixture(params=[True, False], ids=["a file keeps the start", "no file yet"])
def log(request: pytest.FixtureRequest, disk: MemoryDisk) -> Log:
    """An empty log that begins at 5: after `truncate_fully_and_start_at`, or after a power cut that
    lost the file."""
    if not request.param:
        return Log.open(disk, DIRECTORY, CONFIG, now_ms=0, log_start_offset=5)
    log = Log.open(disk, DIRECTORY, CONFIG, now_ms=0)
    log.truncate_fully_and_start_at(5)
    return log


def reopened(disk: MemoryDisk, *, is_clean: bool) -> Log:
    return Log.open(
        disk, DIRECTORY, CONFIG, now_ms=0, recovery_point=0, log_start_offset=5, is_clean=is_clean
    )


def test_it_takes_the_batch_and_begins_where_it_began(log: Log) -> None:
    assert log.base_below_start(batch(0)) == 0
    appended = log.append_as_follower(batch(0, epoch=3) + batch(10, epoch=3), now_ms=0)
    assert (appended.base_offset, appended.last_offset) == (0, 19)
    assert (log.start_offset, log.end_offset) == (5, 20)
    assert log.segments.bases == [0]
    assert log.epochs.entries == [(3, 5)]
    assert log.read(5, bytes_max=1, end_offset=20).read() == batch(0, epoch=3)
    with pytest.raises(OffsetOutOfRange):
        log.read(4, bytes_max=1, end_offset=20)


@pytest.mark.parametrize("end", ["in good order", "killed", "without power"])
def test_it_begins_there_after_every_end(disk: MemoryDisk, log: Log, end: str) -> None:
    log.append_as_follower(batch(0), now_ms=0)
    if end == "in good order":
        log.close()
    elif end == "killed":
        disk.kill_process()
    else:
        log.flush()
        disk.crash()
    again = reopened(disk, is_clean=end == "in good order")
    assert (again.start_offset, again.end_offset) == (5, 10)
    assert again.read(7, bytes_max=1, end_offset=10).read() == batch(0)


def test_a_batch_that_the_power_took_leaves_an_empty_log_there(disk: MemoryDisk, log: Log) -> None:
    log.append_as_follower(batch(0), now_ms=0)
    disk.crash()
    again = reopened(disk, is_clean=False)
    assert again.start_offset == 5
    assert again.end_offset in (5, 10)
    if again.end_offset == 5:
        again.append_as_follower(batch(0), now_ms=0)
    assert (again.start_offset, again.end_offset) == (5, 10)


def test_a_damaged_one_changes_nothing(log: Log) -> None:
    damaged = bytearray(batch(0))
    damaged[-1] ^= 1
    with pytest.raises(BatchError, match="the CRC of batch 0"):
        log.append_as_follower(bytes(damaged), now_ms=0)
    assert (log.start_offset, log.end_offset) == (5, 5)
    log.append_as_follower(batch(0), now_ms=0)
    assert (log.start_offset, log.end_offset) == (5, 10)


@pytest.mark.parametrize(
    ("base_offset", "count"), [(0, 5), (5, 5), (6, 5)], ids=["below", "at it", "above"]
)
def test_only_what_lies_around_the_start_begins_below_it(
    log: Log, base_offset: int, count: int
) -> None:
    assert log.base_below_start(batch(base_offset, count)) is None


def test_only_an_empty_log_begins_below_its_start(log: Log) -> None:
    log.append_as_follower(batch(5, 2), now_ms=0)
    log.advance_start_offset(7)
    assert log.base_below_start(batch(5)) is None
    with pytest.raises(Exception, match=r"batch \[5, 14\] at end offset 7"):
        log.append_as_follower(batch(5), now_ms=0)


# --- what retention leaves of producers ----------------------------------------------------------


def produced(producer_id: int, sequence: int) -> bytearray:
    return build_batch(
        [(b"k", b"v")],
        timestamp_ms=1000,
        producer_id=producer_id,
        producer_epoch=3,
        base_sequence=sequence,
    )


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_producers_outlive_the_retention_of_all_they_wrote(disk: MemoryDisk, rounds: int) -> None:
    # Bug: after a kill, a repeated batch was taken for a new one.
    config = LogConfig(retention_ms=1000, keeps_recovery_state=True)
    log = Log.open(disk, DIRECTORY, config, now_ms=0)
    for sequence in range(3):
        log.append_as_leader(produced(7, sequence), leader_epoch=0, now_ms=1000)
    log.flush()
    for at in range(rounds):
        if at:
            log.flush()
        apply_retention(log, now_ms=5000, high_watermark=3)
        assert log.start_offset == 3
    assert log.segments.bases == [[0, 3], [3], [3]][rounds - 1]
    disk.kill_process()
    again = Log.open(disk, DIRECTORY, config, now_ms=0, recovery_point=3, log_start_offset=3)
    repeated = read_header(produced(7, 2), 0)
    assert again.producers.check(repeated) == (2, 2, 1000)


def test_a_snapshot_that_is_missing_is_made_before_its_records_go(disk: MemoryDisk) -> None:
    # A kill between a roll and its flush leaves a segment without a producer snapshot.
    log = Log.open(disk, DIRECTORY, CONFIG, now_ms=0)
    for sequence in range(3):
        log.append_as_leader(produced(7, sequence), leader_epoch=0, now_ms=1000)
    log.flush()
    log.roll(now_ms=1000)
    log.append_as_leader(produced(8, 0), leader_epoch=0, now_ms=1000)
    disk.kill_process()
    log = Log.open(disk, DIRECTORY, CONFIG, now_ms=2000, recovery_point=3)
    log.append_as_leader(produced(8, 1), leader_epoch=0, now_ms=1000)
    log.flush()
    log.advance_start_offset(3)
    assert apply_retention(log, now_ms=3000, high_watermark=5) == [0]
    log.truncate_to(4)
    assert sorted(log.producers.entries) == [7, 8]


def test_where_the_first_file_begins_is_durable_once_its_folder_was_fsynced(
    disk: MemoryDisk,
) -> None:
    config = LogConfig(segment_bytes=200, retention_ms=1000)
    log = Log.open(disk, DIRECTORY, config, now_ms=0)
    for at in range(6):
        log.append_as_leader(bytearray(batch(at, 2)), leader_epoch=0, now_ms=1)
    log.flush()
    assert log.segments.durable_first_offset == 0
    apply_retention(log, now_ms=5000, high_watermark=11)
    first = log.segments.bases[0]
    assert first > 0
    assert log.segments.durable_first_offset == 0  # a power cut brings the segments before back
    ticket = log.begin_flush()
    assert log.segments.durable_first_offset == 0
    ticket.run()
    log.end_flush(ticket)
    assert log.segments.durable_first_offset == first


# --- files that have become shorter --------------------------------------------------------------


def test_a_cut_within_a_batch_lowers_what_a_flush_under_way_may_claim(disk: MemoryDisk) -> None:
    log = Log.open(disk, DIRECTORY, CONFIG, now_ms=0)
    log.append_as_leader(bytearray(batch(0)), leader_epoch=0, now_ms=0)
    log.flush()
    log.append_as_leader(bytearray(batch(10)), leader_epoch=0, now_ms=0)
    ticket = log.begin_flush()
    log.truncate_to(15)
    ticket.run()
    log.end_flush(ticket)
    assert log.durable_end_offset <= log.end_offset == 10


def test_a_start_that_falls_with_a_cut_forgets_the_epoch_below_it(disk: MemoryDisk) -> None:
    log = Log.open(disk, DIRECTORY, CONFIG, now_ms=0)
    log.append_as_leader(bytearray(batch(0)), leader_epoch=3, now_ms=0)
    log.advance_start_offset(6)
    assert log.epochs.epoch_before_start == 3
    log.truncate_to(8)
    assert (log.start_offset, log.end_offset, log.epochs.epoch_before_start) == (0, 0, -1)


def test_a_file_cut_where_a_batch_ends_is_damage(disk: MemoryDisk) -> None:
    log = Log.open(disk, DIRECTORY, CONFIG, now_ms=0)
    for at in range(3):
        log.append_as_leader(bytearray(batch(10 * at)), leader_epoch=0, now_ms=0)
    found = log.read(0, bytes_max=1 << 20, end_offset=30)
    data = found.read()
    assert first_damage(found, data) is None
    for kept in (0, len(batch(0))):
        damage = first_damage(found, data[:kept])
        assert isinstance(damage, CorruptData)
        assert damage.position == kept


def test_a_cut_that_the_power_interrupts_leaves_no_hole() -> None:
    """On a disk where the fsync of a file does not make names durable, removed later segments may
    be back."""
    config = LogConfig(segment_bytes=300)
    for seed in range(40):
        for calls in range(1, 16):
            disk = MemoryDisk(random.Random(seed))
            disk.make_dirs("data")
            disk.sync_dir(".")
            log = Log.open(disk, DIRECTORY, config, now_ms=0)
            for at in range(6):
                log.append_as_leader(bytearray(batch(3 * at, 3)), leader_epoch=0, now_ms=0)
            log.flush()
            disk.sync_dir("data")
            disk.cut_power_after(calls)
            with contextlib.suppress(PowerCut):
                log.truncate_to(5)
            disk.crash()
            again = Log.open(disk, DIRECTORY, config, now_ms=0, recovery_point=3)
            assert again.last_gap is None, (seed, calls)
            assert again.end_offset in (3, 6, 9, 12, 15, 18)
