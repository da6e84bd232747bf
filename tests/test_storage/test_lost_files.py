"""A log of which files were removed or emptied by hand, and cases that only look like that."""

from __future__ import annotations

import contextlib
import logging
import random
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from kvorum.runtime.errors import CorruptData
from kvorum.runtime.memory_disk import MemoryDisk, PowerCut
from kvorum.storage.files.leader_epochs import CHECKPOINT_NAME, read_epochs
from kvorum.storage.files.model import CompactionConfig
from kvorum.storage.format.batch import build_batch
from kvorum.storage.log.log import Log
from kvorum.storage.log.retention import apply_retention, remove_deleted, take_deleted
from kvorum.storage.tools.verify import verify_log
from tests.test_storage.cleaning_steps import Writer
from tests.test_storage.small_logs import (
    BROKERS,
    DIRECTORY,
    SMALL,
    append,
    closed,
    empty,
    filled,
    new_disk,
    opened,
    path_of,
)


@pytest.mark.parametrize("is_clean", [False, True])
@pytest.mark.parametrize("left", [(), (0,), (0, 3)])
def test_a_log_that_lost_flushed_records_with_their_files_is_damaged(
    left: tuple[int, ...], is_clean: bool
) -> None:
    disk = closed(SMALL)
    for base in {0, 3, 6, 9} - set(left):
        for suffix in (".log", ".index", ".timeindex"):
            disk.remove(path_of(base, suffix))
    with pytest.raises(CorruptData, match=r"end at \d, and were flushed up to 10: .* are gone"):
        opened(disk, recovery_point=10, is_clean=is_clean)


def test_an_empty_log_that_begins_where_it_was_flushed_up_to_has_lost_nothing() -> None:
    log = opened(new_disk(), log_start_offset=10, recovery_point=10)
    assert (log.start_offset, log.end_offset) == (10, 10)


@pytest.mark.parametrize("is_clean", [False, True])
@pytest.mark.parametrize("base", [0, 3, 6])
def test_a_log_file_that_goes_without_its_indexes_was_taken(base: int, is_clean: bool) -> None:
    disk = closed()
    disk.remove(path_of(base, ".log"))
    with pytest.raises(CorruptData, match=rf"{base:020d}.log.*is gone, though .*index is there"):
        opened(disk, BROKERS, recovery_point=10, is_clean=is_clean)
    assert disk.exists(path_of(base, ".index")), "the proof stays for the next start"


@pytest.mark.parametrize("is_clean", [False, True])
def test_a_first_segment_that_goes_with_all_its_files_was_taken(is_clean: bool) -> None:
    disk = closed()
    for name in disk.list_dir(DIRECTORY):
        if name.startswith(f"{0:020d}"):
            disk.remove(f"{DIRECTORY}/{name}")
    with pytest.raises(
        CorruptData, match=r"begins here, though .*checkpoint knows of records from"
    ):
        opened(disk, BROKERS, recovery_point=10, is_clean=is_clean)
    (problem,) = verify_log(disk, DIRECTORY).problems
    assert ".log files before are gone" in problem


@pytest.mark.parametrize("is_clean", [False, True])
@pytest.mark.parametrize(
    ("left_bytes", "reason"),
    [(0, "it is empty, though its indexes are not"), (60, "1 bytes|60 bytes|a batch runs past")],
)
def test_a_sealed_segment_shorter_than_its_indexes_know_was_cut(
    left_bytes: int, reason: str, is_clean: bool
) -> None:
    disk = closed()
    empty(disk, path_of(3, ".log"), left_bytes)
    with pytest.raises(CorruptData, match=reason):
        opened(disk, BROKERS, recovery_point=10, is_clean=is_clean)


def test_a_sealed_segment_cut_between_two_batches_was_cut() -> None:
    disk = closed()
    bytes_of_a_batch = disk.open(path_of(3, ".log")).size() // 3
    empty(disk, path_of(3, ".log"), bytes_of_a_batch)
    with pytest.raises(CorruptData, match="ends at offset 4, the next segment begins at 6"):
        opened(disk, BROKERS, recovery_point=10, is_clean=True)


LARGER = replace(BROKERS, segment_bytes=1_000, index_interval_bytes=400)
"""Segments of several batches: the last ones are in no entry of the offset index."""


def test_a_sealed_segment_cut_behind_its_last_index_entry_was_cut() -> None:
    disk = new_disk()
    log = filled(disk, 40, LARGER)
    second = log.segments.bases[1]
    log.close()
    size = disk.open(path_of(0, ".log")).size()
    for left in range(1, second):
        disk = new_disk()
        filled(disk, 40, LARGER).close()
        empty(disk, path_of(0, ".log"), size // second * left)
        with pytest.raises(CorruptData, match=f"ends at offset {left}, the next .* at {second}"):
            opened(disk, LARGER, recovery_point=40, is_clean=True)


def test_an_index_entry_between_two_batches_is_not_held_against_the_log() -> None:
    disk = new_disk()
    filled(disk, 40, LARGER).close()
    file = disk.open(path_of(0, ".index"))
    file.pwrite((500).to_bytes(4, "big"), file.size() - 4)
    opened(disk, LARGER, recovery_point=40, is_clean=True)


def test_an_index_that_knows_of_too_much_is_made_anew_if_the_batches_are_all_there() -> None:
    disk = closed()
    file = disk.open(path_of(3, ".index"))
    file.pwrite((2).to_bytes(4, "big") + (1 << 20).to_bytes(4, "big"), file.size())
    log = opened(disk, BROKERS, recovery_point=10, is_clean=True)
    assert log.read(5, bytes_max=1, end_offset=10).first_offset == 5


def retired(disk: MemoryDisk) -> Log:
    """The log of `closed` with its start at 7, and the segments below put aside."""
    log = opened(disk, BROKERS, recovery_point=10, is_clean=True)
    log.advance_start_offset(7)
    assert apply_retention(log, now_ms=0, high_watermark=10) == [0, 3]
    return log


def test_retired_files_wait_until_the_checkpoint_of_epochs_says_where_the_log_begins() -> None:
    disk = closed()
    log = retired(disk)
    assert log.needs_flush(0)
    assert take_deleted(log, 0) == []
    ticket = log.begin_flush()
    assert take_deleted(log, 0) == [], "the flush has only begun"
    ticket.run()
    log.complete_flush(ticket)
    assert not log.needs_flush(0)
    assert read_epochs(disk, f"{DIRECTORY}/{CHECKPOINT_NAME}").entries == [(1, 7)]
    assert path_of(0, ".log.deleted") in take_deleted(log, 0)


def crashed(work: Callable[[MemoryDisk], None], *, operations_max: int) -> Iterator[MemoryDisk]:
    """The disks of `closed` after a power cut at each disk operation of `work`."""
    for operations in range(operations_max):
        for seed in range(4):
            disk = closed()
            disk.rng = random.Random(seed)
            disk.cut_power_after(operations)
            with contextlib.suppress(PowerCut):
                work(disk)
            disk.crash()
            yield disk


def test_no_crash_during_retention_looks_like_files_that_were_taken() -> None:
    def work(disk: MemoryDisk) -> None:
        log = retired(disk)
        log.flush()
        remove_deleted(log, 0)
        append(log, 2)
        log.close()

    for disk in crashed(work, operations_max=40):
        for _ in range(2):
            log = opened(disk, BROKERS, recovery_point=10)
            assert log.start_offset in (0, 3, 6, 7)
            log.abandon()


def test_two_kills_after_retention_left_nothing_do_not_look_like_files_that_were_taken() -> None:
    """The first start finds no batch with an epoch. Bug: the second start found the old epoch
    checkpoint, and no put-aside file that explains the missing records."""
    disk = closed()
    log = opened(disk, replace(BROKERS, retention_ms=1), recovery_point=10, is_clean=True)
    assert apply_retention(log, now_ms=100_000, high_watermark=10) == [0, 3, 6, 9]
    log.abandon()
    for end_offset in (10, 11, 12):
        log = opened(disk, BROKERS, recovery_point=10)
        assert (log.start_offset, log.end_offset) == (10, end_offset)
        append(log, 2)
        log.abandon()


@pytest.mark.parametrize("offset", [0, 4, 20])
def test_no_crash_during_a_cut_looks_like_files_that_were_taken(offset: int) -> None:
    def work(disk: MemoryDisk) -> None:
        log = opened(disk, BROKERS, recovery_point=10, is_clean=True)
        if offset < 10:
            log.truncate_to(offset)
        else:
            log.truncate_fully_and_start_at(offset)
        append(log, 2)
        log.flush()

    for disk in crashed(work, operations_max=60):
        for start in (0, 20):
            # The second start finds that the log ends below the start that the leader reported, so
            # the log is empty.
            log = opened(disk, BROKERS, log_start_offset=start)
            append(log, 3)
            log.abandon()


@pytest.mark.parametrize("flushed", [0, 2, 6])
def test_a_kill_takes_nothing_behind_a_gap_that_the_leader_s_compaction_has_left(
    flushed: int,
) -> None:
    # Bad sequence (seed 104057): the start took the gap for the lost end of a segment, and dropped
    # the segment behind it.
    for gap_at in range(1, 10):
        disk = new_disk()
        log = opened(disk, BROKERS)
        for at in range(12):
            offset = at if at < gap_at else at + 5
            data = build_batch(
                [(None, bytes(50))], timestamp_ms=at, base_offset=offset, leader_epoch=1
            )
            log.append_as_follower(bytes(data), now_ms=at)
            if at + 1 == flushed:
                log.flush()
        assert len(log.segments.bases) > 3
        log.abandon()
        again = opened(disk, BROKERS)
        assert (again.end_offset, again.torn_tail) == (17, None)
        found = again.read(gap_at, bytes_max=1, end_offset=17)
        assert found.first_offset == gap_at + 5
        again.abandon()


def test_a_log_that_begins_anew_above_its_epochs_has_lost_nothing() -> None:
    disk = closed()
    log = opened(disk, BROKERS, log_start_offset=50)
    append(log, leader_epoch=2)
    log.abandon()  # the epochs' checkpoint did not follow
    assert opened(disk, BROKERS, log_start_offset=50).start_offset == 50


def test_a_first_batch_far_above_the_start_does_not_look_like_lost_files() -> None:
    disk = new_disk()
    log = opened(disk, BROKERS)
    log.epochs.assign(1, 0)
    far = 5_000_000_000
    data = build_batch([(None, b"x")], timestamp_ms=0, base_offset=far, leader_epoch=1)
    log.append_as_follower(data, now_ms=0)
    log.flush()
    log.abandon()
    assert opened(disk, BROKERS).start_offset == far


def test_a_hole_between_segments_is_told_by_verify_and_by_the_first_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = closed()
    for name in disk.list_dir(DIRECTORY):
        if name.startswith(f"{3:020d}"):
            disk.remove(f"{DIRECTORY}/{name}")
    found = verify_log(disk, DIRECTORY)
    assert found.problems == []
    (note,) = found.notes
    assert "3 offsets are in no batch, the most of them at once from 3 to 5" in note
    log = opened(disk, BROKERS, recovery_point=10, is_clean=True)
    with caplog.at_level(logging.WARNING, "kvorum.storage"):
        assert log.read(3, bytes_max=1, end_offset=10).first_offset == 6
        log.read(4, bytes_max=1, end_offset=10)
    assert [record.getMessage() for record in caplog.records] == [
        f"{DIRECTORY}: no batch holds offset 3; the next is in {path_of(6, '.log')}. Compaction "
        "leaves such gaps, and so does a removed file"
    ]


@pytest.mark.parametrize("how", ["removed", "emptied"])
def test_verify_misses_what_a_transaction_index_lacks(how: str) -> None:
    disk = new_disk()
    log = opened(disk)
    writer = Writer(log)
    for producer_id in (7, 8):
        writer.put(producer_id, b"a")
        writer.end(producer_id, is_commit=producer_id == 8)
    log.roll(now_ms=0)
    writer.put(7, b"b")
    writer.end(7, is_commit=False)
    log.flush()
    assert verify_log(disk, DIRECTORY).problems == []
    if how == "removed":
        disk.remove(path_of(0, ".txnindex"))
    else:
        empty(disk, path_of(0, ".txnindex"))
    (problem,) = verify_log(disk, DIRECTORY).problems
    assert "1 aborted transactions, the first of producer 7 from offset 0 to 1" in problem


def test_what_an_orderly_stop_leaves_of_the_active_segment_is_no_proof() -> None:
    """Sequence: 1. A flush writes N.recovery. 2. An orderly stop seals segment N. 3. The first
    append after the start rolls. 4. Compaction joins N to the segment before, and removes the files
    of N."""
    config = replace(BROKERS, compaction=CompactionConfig(min_cleanable_dirty_ratio=0.0))
    disk = new_disk()
    log = filled(disk, 8, config)
    log.flush()
    log.close()
    assert disk.exists(path_of(6, ".recovery"))
    log = opened(disk, config, recovery_point=8, is_clean=True)
    log.roll(now_ms=0)
    log.flush()
    assert not disk.exists(path_of(6, ".recovery")), "no flush comes to remove it later"
    log.close()
    disk.open(path_of(5, ".recovery"))
    opened(disk, config, recovery_point=8)
    assert not disk.exists(path_of(5, ".recovery"))


@pytest.mark.parametrize(
    ("left_bytes", "reason"), [(1, "it ends at offset 4, .* know of offset"), (1.5, "bytes|past")]
)
def test_a_small_sealed_segment_without_index_entries_is_as_long_as_its_time_index_knows(
    left_bytes: float, reason: str
) -> None:
    disk = closed(replace(BROKERS, index_interval_bytes=4096))
    assert disk.open(path_of(3, ".index")).size() == 0
    bytes_of_a_batch = disk.open(path_of(3, ".log")).size() // 3
    empty(disk, path_of(3, ".log"), int(bytes_of_a_batch * left_bytes))
    with pytest.raises(CorruptData, match=reason):
        opened(disk, BROKERS, recovery_point=10, is_clean=True)
