"""Damage that recovery repairs, and damage that it must refuse to touch."""

from __future__ import annotations

import errno
import struct
from dataclasses import replace

import pytest

from kvorum.runtime.disk import OsDisk
from kvorum.runtime.errors import CorruptData, InvariantViolated
from kvorum.runtime.memory_disk import PowerCut
from kvorum.storage.files.leader_epochs import CHECKPOINT_NAME, LeaderEpochCache, read_epochs
from kvorum.storage.format.batch import build_batch
from kvorum.storage.log.log import Log, LogConfig
from kvorum.storage.log.retention import apply_retention
from kvorum.storage.log.timestamp_lookup import find_by_timestamp
from tests.test_storage.small_logs import (
    DIRECTORY,
    FIRST,
    SMALL,
    append_bytes,
    batch,
    filled,
    new_disk,
    opened,
)


def test_an_unused_log_makes_no_folder_and_no_file() -> None:
    disk = new_disk()
    log = opened(disk)
    assert log.read(0, bytes_max=1, end_offset=0).length == 0
    log.flush()
    log.close()
    assert disk.list_dir("data") == []


def test_a_log_without_files_starts_at_the_given_offset() -> None:
    log = opened(new_disk(), log_start_offset=77)
    assert (log.start_offset, log.end_offset, log.durable_end_offset) == (77, 77, 77)


def test_flush_makes_files_folder_and_its_name_durable() -> None:
    for seed in range(20):
        disk = new_disk(seed)
        filled(disk, 10).flush()
        disk.crash()
        log = opened(disk)
        assert (log.end_offset, log.segment_count, log.epochs.entries) == (10, 4, [(1, 0)])


@pytest.mark.parametrize("cut", [1, 30, 61, 100])
def test_a_torn_tail_is_cut_at_the_last_whole_batch(cut: int) -> None:
    disk = new_disk()
    filled(disk, 2)
    append_bytes(disk, FIRST, batch()[:cut])
    log = opened(disk, recovery_point=2)
    assert log.end_offset == 2
    told = log.torn_tail
    assert told is not None
    assert (told.path, told.position, told.removed_bytes) == (FIRST, 2 * len(batch()), cut)
    log.append_as_leader(batch(), leader_epoch=1, now_ms=0)
    again = opened(disk)
    assert (again.end_offset, again.torn_tail) == (3, None)


def test_zeros_behind_the_last_batch_are_a_torn_tail() -> None:
    disk = new_disk()
    filled(disk, 2)
    append_bytes(disk, FIRST, bytes(5000))
    assert opened(disk).end_offset == 2


def test_a_bad_crc_in_the_last_batch_is_a_torn_tail() -> None:
    disk = new_disk()
    filled(disk, 3)
    disk.flip_bits(FIRST, 3 * len(batch()) - 1)
    assert opened(disk, recovery_point=2).end_offset == 2


def test_damage_below_the_recovery_point_is_reported_with_its_place() -> None:
    disk = new_disk()
    filled(disk, 3)
    disk.flip_bits(FIRST, 3 * len(batch()) - 1)
    with pytest.raises(CorruptData, match="below the recovery point 3") as caught:
        opened(disk, recovery_point=3)
    assert (caught.value.path, caught.value.position) == (FIRST, 2 * len(batch()))
    assert disk.open(FIRST).size() == 3 * len(batch())


@pytest.mark.parametrize("position", [3, 8, 11, 16, 18, 70])
def test_damage_with_a_valid_batch_behind_is_reported_not_cut(position: int) -> None:
    disk = new_disk()
    filled(disk, 3)
    disk.flip_bits(FIRST, len(batch()) + position)
    with pytest.raises(CorruptData, match="a valid batch follows"):
        opened(disk)


def test_damage_in_a_sealed_and_flushed_segment_is_reported() -> None:
    disk = new_disk()
    filled(disk, 10).flush()
    disk.flip_bits(FIRST, 3 * len(batch()) - 1)
    with pytest.raises(CorruptData, match="fsynced whole"):
        opened(disk)


def test_segments_behind_a_torn_unflushed_one_are_dropped() -> None:
    disk = new_disk()
    filled(disk, 10)
    file = disk.open(FIRST)
    file.truncate(file.size() - 5)
    log = opened(disk)
    assert (log.end_offset, log.segment_count) == (2, 1)
    assert "torn tail of 113 bytes cut at byte 236 and 3 segments behind it" in str(log.torn_tail)
    assert [name for name in disk.list_dir(DIRECTORY) if name.endswith(".log")] == [
        "00000000000000000000.log"
    ]


def test_segments_behind_a_hole_at_a_batch_boundary_are_dropped() -> None:
    disk = new_disk()
    filled(disk, 10)
    disk.open(FIRST).truncate(len(batch()))
    assert opened(disk).end_offset == 1


def test_a_gap_that_a_missing_segment_leaves_is_told() -> None:
    disk = new_disk()
    filled(disk, 10).flush()
    assert opened(disk).last_gap is None
    for suffix in ("log", "index", "timeindex"):
        disk.remove(f"{DIRECTORY}/{3:020d}.{suffix}")
    log = opened(disk)
    gap = log.last_gap
    assert gap is not None
    assert (log.end_offset, log.torn_tail) == (10, None)
    assert (gap.path, gap.offset, gap.next_offset) == (FIRST, 3, 6)


def test_a_gap_within_a_segment_is_told() -> None:
    disk = new_disk()
    filled(disk, 1)
    late = batch()
    struct.pack_into(">qi", late, 0, 7, len(late) - 12)
    struct.pack_into(">i", late, 12, 1)
    append_bytes(disk, FIRST, late)
    gap = opened(disk).last_gap
    assert gap is not None
    assert (gap.position, gap.offset, gap.next_offset) == (len(batch()), 1, 7)


def test_overlapping_segments_are_reported() -> None:
    disk = new_disk()
    filled(disk, 3)
    disk.open(f"{DIRECTORY}/00000000000000000002.log")
    with pytest.raises(CorruptData, match="run past offset 2"):
        opened(disk)


def test_segments_below_the_recovery_point_are_not_read() -> None:
    disk = new_disk()
    filled(disk, 10).flush()
    disk.flip_bits(FIRST, 70)
    assert opened(disk, recovery_point=9).end_offset == 10


def test_leftovers_of_deletion_are_removed_and_a_swap_that_cannot_be_read_is_refused() -> None:
    disk = new_disk()
    filled(disk, 1).close()
    disk.open(f"{FIRST}.deleted")
    disk.open(f"{DIRECTORY}/00000000000000000009.log.deleted")
    disk.open(f"{DIRECTORY}/00000000000000000009.index")
    opened(disk)
    assert not any(name.endswith((".deleted", "9.index")) for name in disk.list_dir(DIRECTORY))
    disk.open(f"{FIRST}.swap").pwrite(bytes(100), 0)
    with pytest.raises(CorruptData, match="no batch header"):
        opened(disk)


def test_a_log_that_ends_below_its_start_begins_anew_there() -> None:
    disk = new_disk()
    filled(disk, 5)
    log = opened(disk, log_start_offset=50)
    assert (log.start_offset, log.end_offset, log.segment_count) == (50, 50, 0)
    log.append_as_leader(batch(), leader_epoch=1, now_ms=0)
    assert log.segments.bases == [50]


@pytest.mark.parametrize("lost", ["index", "timeindex", "leader-epoch-checkpoint", "snapshot"])
def test_a_lost_derived_file_is_rebuilt(lost: str) -> None:
    disk = new_disk()
    log = opened(disk)
    for at in range(10):
        data = build_batch(
            [(None, bytes(50))],
            timestamp_ms=at,
            producer_id=8,
            producer_epoch=0,
            base_sequence=at,
        )
        log.append_as_leader(data, leader_epoch=at // 4, now_ms=at)
    log.close()
    for name in disk.list_dir(DIRECTORY):
        if name.endswith(lost):
            disk.remove(f"{DIRECTORY}/{name}")
    again = Log.open(disk, DIRECTORY, SMALL, now_ms=0, is_clean=True)
    assert find_by_timestamp(again, 4, end_offset=10) == (4, 4, 1)
    assert again.read(5, bytes_max=1, end_offset=10).first_offset == 5
    assert again.epochs.entries == [(0, 0), (1, 4), (2, 8)]
    assert again.producers.entries[8].batches[-1].last_sequence == 9


def test_an_index_with_senseless_entries_is_rebuilt() -> None:
    disk = new_disk()
    filled(disk, 10).close()
    index = disk.open(FIRST.replace(".log", ".index"))
    index.pwrite(b"\x7f" * 8, 0)
    again = Log.open(disk, DIRECTORY, SMALL, now_ms=0, is_clean=True)
    assert [again.read(at, bytes_max=1, end_offset=10).first_offset for at in range(10)] == list(
        range(10)
    )


def test_a_failed_append_leaves_nothing_behind() -> None:
    disk = new_disk()
    log = filled(disk, 1)
    for _ in range(10):
        disk.fail("write", error_number=errno.ENOSPC)
        both = batch() + batch()
        with pytest.raises(OSError, match="injected"):
            log.append_as_leader(both, leader_epoch=1, now_ms=0)
        assert log.end_offset == 1
    log.append_as_leader(batch(), leader_epoch=1, now_ms=0)
    assert opened(disk).end_offset == 2


def test_a_failed_fsync_is_final() -> None:
    disk = new_disk()
    log = filled(disk, 1)
    disk.fail("sync")
    with pytest.raises(OSError, match="injected"):
        log.flush()
    assert log.durable_end_offset == 0
    with pytest.raises(InvariantViolated, match="reopened"):
        log.flush()


@pytest.mark.parametrize("keeps_recovery_state", [False, True])
def test_every_point_of_a_power_cut_keeps_what_was_durable(keeps_recovery_state: bool) -> None:
    config = replace(SMALL, keeps_recovery_state=keeps_recovery_state)
    for operations in range(80):
        disk = new_disk(operations)
        disk.cut_power_after(operations)
        durable = appended = 0
        try:
            log = opened(disk, config)
            for at in range(9):
                appended = at + 1
                log.append_as_leader(batch(at), leader_epoch=at // 3, now_ms=at)
                if at % 2:
                    log.flush()
                    durable = log.durable_end_offset
            log.truncate_to(8)
            durable = min(durable, 8)
            log.close()
        except PowerCut:
            pass
        disk.crash()
        log = opened(disk, config, recovery_point=durable)
        assert durable <= log.end_offset <= appended
        assert log.epochs.latest_epoch == (log.end_offset - 1) // 3


def test_truncation_during_a_flush_is_not_claimed_durable() -> None:
    disk = new_disk()
    log = filled(disk, 10)
    ticket = log.begin_flush()
    log.truncate_to(2)
    log.append_as_leader(batch(), leader_epoch=5, now_ms=0)
    ticket.run()
    log.complete_flush(ticket)
    assert log.durable_end_offset == 0, "the checkpoint with the epochs was not written"
    assert not any(name.endswith(".index") for name in disk.list_dir(DIRECTORY))
    log.flush()
    disk.crash()
    assert opened(disk).epochs.entries == [(1, 0), (5, 2)]


@pytest.mark.parametrize("flushes_again", [False, True])
def test_retention_during_a_flush_leaves_what_is_claimed_durable_with_its_epochs(
    flushes_again: bool,
) -> None:
    disk = new_disk()
    config = LogConfig(segment_bytes=400, retention_ms=-1)
    log = opened(disk, config)
    for at in range(10):
        log.append_as_leader(batch(at), leader_epoch=at // 2, now_ms=0)
    log.advance_start_offset(6)
    ticket = log.begin_flush()
    apply_retention(log, now_ms=0, high_watermark=10)
    ticket.run()
    log.complete_flush(ticket)
    if flushes_again:
        log.flush()
        assert log.durable_end_offset == 10
    disk.crash()
    again = opened(disk, config, recovery_point=log.durable_end_offset, log_start_offset=6)
    assert again.epochs.entries == [(3, 6), (4, 8)]
    assert again.segments.bases[-1] == 9


def test_epochs_that_a_flush_could_not_write_come_with_the_next() -> None:
    disk = new_disk()
    log = opened(disk)
    for at in range(10):
        if at == 6:
            log.flush()
        # Records without an epoch, as from before KIP-101.
        log.append_as_leader(batch(at), leader_epoch=-1 if at < 6 else 3, now_ms=0)
    log.advance_start_offset(3)
    ticket = log.begin_flush()
    assert apply_retention(log, now_ms=0, high_watermark=10) == [0]
    ticket.run()
    log.complete_flush(ticket)
    log.flush()
    assert log.durable_end_offset == 10
    assert read_epochs(disk, f"{DIRECTORY}/{CHECKPOINT_NAME}").entries == [(3, 6)]


@pytest.mark.parametrize("checkpoint", ["whole", "of a follower", "missing"])
@pytest.mark.parametrize("recovery_point", [0, 6])
def test_a_log_whose_first_epochs_were_compacted_away_begins_where_it_began(
    checkpoint: str, recovery_point: int
) -> None:
    # Bug: three kills of the leader moved the log start of a compacted topic to its first remaining
    # batch. Consumers at offset 0 were then out of range, and by default continued at the end.
    disk = new_disk()
    log = opened(disk, LogConfig(segment_bytes=200))
    entries = {"whole": [(0, 0), (1, 2), (2, 4), (3, 9)], "of a follower": [(2, 5), (3, 9)]}
    for offset, epoch in ((5, 2), (7, 2), (9, 3), (10, 3)):
        batches = bytes(
            build_batch([(b"k", bytes(50))], timestamp_ms=1, base_offset=offset, leader_epoch=epoch)
        )
        log.append_as_follower(batches, now_ms=0)
    log.flush()
    path = f"{DIRECTORY}/{CHECKPOINT_NAME}"
    if checkpoint == "missing":
        disk.remove(path)
    else:
        disk.write_atomic(path, LeaderEpochCache(entries[checkpoint]).to_bytes())
    disk.sync_dir(DIRECTORY)
    disk.crash()
    again = opened(disk, LogConfig(segment_bytes=200), recovery_point=recovery_point)
    assert (again.start_offset, again.end_offset) == (0, 11)
    expected = entries["whole"] if checkpoint == "whole" else entries["of a follower"]
    assert again.epochs.entries == expected


@pytest.mark.parametrize("is_clean", [False, True])
def test_a_follower_that_is_sent_what_compaction_left_begins_where_its_leader_does(
    is_clean: bool,
) -> None:
    disk = new_disk()
    log = opened(disk)
    left = build_batch([(None, b"k")], timestamp_ms=1, base_offset=3, leader_epoch=1)
    log.append_as_follower(bytes(left), now_ms=0)
    log.close() if is_clean else log.flush()
    disk.crash()
    again = opened(disk, is_clean=is_clean)
    assert (again.start_offset, again.end_offset) == (0, 4)
    assert again.read(0, bytes_max=1_000, end_offset=4).length == len(left)


def test_a_first_batch_too_far_away_for_a_segment_begins_its_own() -> None:
    disk = new_disk()
    log = opened(disk)
    left = build_batch([(None, b"k")], timestamp_ms=1, base_offset=1 << 32, leader_epoch=1)
    log.append_as_follower(bytes(left), now_ms=0)
    log.flush()
    assert opened(disk).end_offset == (1 << 32) + 1


def test_a_cut_names_no_epoch_that_was_not_fsynced() -> None:
    disk = new_disk()
    log = opened(disk)
    log.append_as_leader(batch(), leader_epoch=1, now_ms=0)
    log.flush()
    for epoch in (2, 3, 3):
        log.append_as_leader(batch(), leader_epoch=epoch, now_ms=0)
    log.truncate_to(3)
    path = f"{DIRECTORY}/{CHECKPOINT_NAME}"
    assert read_epochs(disk, path).entries == [(1, 0)]
    assert log.epochs.entries == [(1, 0), (2, 1), (3, 2)]
    log.flush()
    assert read_epochs(disk, path).entries == log.epochs.entries


def test_batches_larger_than_a_read_are_recovered() -> None:
    disk = new_disk()
    log = opened(disk, LogConfig())
    for size in (10, 2_500_000, 900_000, 1_200_000, 5):
        data = build_batch([(None, bytes(size))], timestamp_ms=1)
        log.append_as_leader(data, leader_epoch=1, now_ms=0)
    append_bytes(disk, FIRST, build_batch([(None, bytes(2_000_000))], timestamp_ms=1)[:-1])
    assert opened(disk, LogConfig()).end_offset == 5


def test_a_real_disk_keeps_a_log_over_an_unclean_and_a_clean_start(tmp_path: object) -> None:
    disk, directory = OsDisk(), f"{tmp_path}/t-0"
    log = Log.open(disk, directory, SMALL, now_ms=0)
    for at in range(20):
        log.append_as_leader(batch(at), leader_epoch=1, now_ms=at)
    log.flush()
    again = Log.open(disk, directory, SMALL, now_ms=0)
    assert again.end_offset == 20
    again.close()
    clean = Log.open(disk, directory, SMALL, now_ms=0, is_clean=True)
    found = clean.read(7, bytes_max=1 << 20, end_offset=20)
    assert found.first_offset == 7 and len(found.read()) == found.length
    clean.delete()
    assert disk.list_dir(directory) == []
    log.delete()


def test_a_damaged_checkpoint_of_epochs_is_made_anew_from_the_batches() -> None:
    disk = new_disk()
    log = filled(disk, 8)
    log.append_as_leader(batch(), leader_epoch=4, now_ms=0)
    log.flush()
    whole = opened(disk).epochs.entries
    for recovery_point in (0, 6, 9):
        disk.write_atomic(f"{DIRECTORY}/leader-epoch-checkpoint", b"garbage")
        assert opened(disk, recovery_point=recovery_point).epochs.entries == whole


def test_a_start_that_was_raised_does_not_come_back_without_its_epochs():
    # Seed 11 of the simulated partitions: when the power failed, only the epoch checkpoint of a
    # retention had reached the disk. The log had its old segments again, but did not know their
    # epochs.
    disk = new_disk()
    log = filled(disk, 8)
    log.flush()
    saved = disk.save()
    log.advance_start_offset(5)
    log.flush()
    checkpoint = disk.read_bytes(f"{DIRECTORY}/leader-epoch-checkpoint")
    disk.restore(saved)
    disk.write_atomic(f"{DIRECTORY}/leader-epoch-checkpoint", checkpoint)
    again = opened(disk, recovery_point=8)
    assert (again.start_offset, again.end_offset) == (5, 8)
    assert again.epochs.epoch_of(5) == 1


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_an_index_that_somebody_removed_is_there_again_after_a_start(
    suffix: str, *, is_clean: bool
) -> None:
    # If the index were rebuilt in memory alone, every start would rebuild it, and the cleaner could
    # not pass the segment.
    disk = new_disk()
    log = filled(disk, 12)
    bases = list(log.segments.bases)
    recovery_point = log.end_offset
    log.close()
    paths = [f"{DIRECTORY}/{base:020d}.{suffix}" for base in bases[:-1]]
    contents = [disk.read_bytes(path) for path in paths]
    for path in paths:
        disk.remove(path)
    again = opened(disk, is_clean=is_clean, recovery_point=recovery_point)
    assert [disk.read_bytes(path) for path in paths] == contents
    assert len(again.segments.sealed_prefix()) == len(bases) - 1
    again.close()
