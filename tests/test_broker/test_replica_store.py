"""The folders that a replica may take, and those that it leaves alone."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kvorum.broker.log_dirs.offset_checkpoints import BOOT_ID
from kvorum.broker.log_dirs.replica_store import ReplicaStore
from kvorum.runtime.disk import OsDisk
from kvorum.runtime.errors import CorruptData
from kvorum.runtime.memory_disk import MemoryDisk, PowerCut
from kvorum.storage.files.checkpoints import (
    CLEANER_OFFSET,
    HIGH_WATERMARK,
    LOG_START_OFFSET,
    PARTITION_METADATA,
    RECOVERY_POINT,
    is_torn_partition_metadata,
    read_offsets,
    write_offsets,
    write_partition_metadata,
)
from kvorum.storage.format.batch import build_batch
from kvorum.storage.log.log import Log, LogConfig
from tests.test_broker.lone_replica import TOPIC_ID, made, with_log


def test_a_new_replica_begins_empty_and_makes_no_folder() -> None:
    disk = MemoryDisk(random.Random(1))
    opened = made(disk).open("t", TOPIC_ID, 0, LogConfig(), now_ms=0)
    assert (opened.log.start_offset, opened.log.end_offset, opened.has_identity) == (0, 0, False)
    assert not disk.exists("data/t-0")


def test_a_folder_that_appeared_since_the_start_is_no_new_replicas() -> None:
    disk = MemoryDisk(random.Random(1))
    store = made(disk)
    disk.make_dirs("data/t-0")
    with pytest.raises(CorruptData, match="no topic claims") as refused:
        store.open("t", TOPIC_ID, 0, LogConfig(), now_ms=0)
    assert refused.value.path == "data/t-0"


CHECKPOINTS = (HIGH_WATERMARK, RECOVERY_POINT, LOG_START_OFFSET)
OTHER_ID = bytes(range(1, 17))


def test_checkpoints_of_a_topic_that_is_gone_are_nothing_to_a_new_one_of_its_name() -> None:
    # Seed 30 of the simulated partitions: the new log began with the old one's high watermark.
    disk = MemoryDisk(random.Random(1))
    with_log(disk)
    for name in CHECKPOINTS:
        write_offsets(disk, f"data/{name}", {("t", 0): 100, ("u", 0): 5})
    made(disk).open("t", OTHER_ID, 0, LogConfig(), now_ms=0)
    for name in CHECKPOINTS:
        assert read_offsets(disk, f"data/{name}") == {("u", 0): 5}


def test_an_unclean_start_fsyncs_whose_a_log_is() -> None:
    # Seed 2: the process was killed before its first flush, and the machine later lost power.
    disk = MemoryDisk(random.Random(3))
    with_log(disk)
    disk.kill_process()
    assert made(disk).open("t", TOPIC_ID, 0, LogConfig(), now_ms=0).log.end_offset == 1
    disk.crash()
    assert made(disk).open("t", TOPIC_ID, 0, LogConfig(), now_ms=0).log.end_offset == 1


def test_a_power_cut_in_a_removal_does_not_keep_the_next_topic_of_that_name_out() -> None:
    # Seed 60612: after the power cut the folder had its old name again and some files were gone,
    # but its recovery point said that records were flushed.
    for seed in range(60):
        disk = MemoryDisk(random.Random(seed))
        with_log(disk)
        made(disk).open("t", TOPIC_ID, 0, LogConfig(), now_ms=0)
        write_offsets(disk, f"data/{RECOVERY_POINT}", {("t", 0): 1})
        store = made(disk)
        store.drop_unclaimed()
        disk.cut_power_after(seed % 6)
        with suppress(PowerCut):
            store.remove(store.take_removals())
        disk.crash()
        after = made(disk).open("t", OTHER_ID, 0, LogConfig(), now_ms=0)
        assert after.log.end_offset == 0


def test_a_torn_identity_is_none() -> None:
    # Seed 13: a torn partition.metadata made the broker's start fail.
    disk = MemoryDisk(random.Random(1))
    disk.make_dirs("data/t-0")
    write_partition_metadata(disk, "data/t-0", TOPIC_ID)
    whole = disk.read_bytes(f"data/t-0/{PARTITION_METADATA}").rstrip(b"\n")
    assert not is_torn_partition_metadata(whole)
    for kept in range(len(whole)):
        assert is_torn_partition_metadata(whole[:kept])
        assert is_torn_partition_metadata(whole[:kept] + bytes(len(whole) - kept))
    disk.write_atomic(f"data/t-0/{PARTITION_METADATA}", whole[:30])
    assert made(disk).unclaimed == {"t-0": None}


def test_a_damaged_identity_costs_that_replica_and_no_other() -> None:
    disk = MemoryDisk(random.Random(1))
    with_log(disk)
    write_partition_metadata(disk, "data/t-0", TOPIC_ID)
    disk.make_dirs("data/u-0")
    disk.write_atomic(f"data/u-0/{PARTITION_METADATA}", b"version: 0\ntopic: AAECAwQFBgcICQoLDA0OD")
    store = made(disk)
    with pytest.raises(CorruptData, match="not a partition"):
        store.open("u", OTHER_ID, 0, LogConfig(), now_ms=0)
    assert store.open("t", TOPIC_ID, 0, LogConfig(), now_ms=0).log.end_offset == 1
    store.drop_unclaimed()
    assert disk.exists("data/u-0")


@pytest.mark.parametrize("identity", [None, b"", b"version: 0\ntopic_id: AAEC"])
def test_records_that_were_flushed_do_not_go_with_the_file_that_says_whose_they_are(
    identity: bytes | None,
) -> None:
    disk = MemoryDisk(random.Random(1))
    with_log(disk)
    if identity is None:
        disk.remove(f"data/t-0/{PARTITION_METADATA}")
    else:
        disk.write_atomic(f"data/t-0/{PARTITION_METADATA}", identity)
    write_offsets(disk, f"data/{RECOVERY_POINT}", {("t", 0): 1})
    with pytest.raises(CorruptData, match="nothing says whose log this is"):
        made(disk).open("t", TOPIC_ID, 0, LogConfig(), now_ms=0)
    assert disk.exists("data/t-0")
    # With the identity file put back, all records are there.
    write_partition_metadata(disk, "data/t-0", TOPIC_ID)
    assert made(disk).open("t", TOPIC_ID, 0, LogConfig(), now_ms=0).log.end_offset == 1
    # A log that was never flushed may have lost its folder in the power cut; it starts empty.
    disk.remove(f"data/t-0/{PARTITION_METADATA}")
    write_offsets(disk, f"data/{RECOVERY_POINT}", {})
    assert made(disk).open("t", TOPIC_ID, 0, LogConfig(), now_ms=0).log.end_offset == 0


@pytest.mark.parametrize("checkpoint", [RECOVERY_POINT, CLEANER_OFFSET])
def test_a_checkpoint_that_saves_only_time_counts_as_empty_when_it_is_damaged(
    checkpoint: str,
) -> None:
    disk = MemoryDisk(random.Random(1))
    with_log(disk)
    write_partition_metadata(disk, "data/t-0", TOPIC_ID)
    disk.write_atomic(f"data/{checkpoint}", b"garbage\n")
    assert made(disk).open("t", TOPIC_ID, 0, LogConfig(), now_ms=0).log.end_offset == 1


@pytest.mark.parametrize("checkpoint", [HIGH_WATERMARK, LOG_START_OFFSET])
def test_a_checkpoint_that_nothing_else_says_is_missed_when_it_is_damaged(checkpoint: str) -> None:
    disk = MemoryDisk(random.Random(1))
    with_log(disk)
    disk.write_atomic(f"data/{checkpoint}", b"garbage\n")
    with pytest.raises(CorruptData, match="not an offset checkpoint"):
        made(disk)


@pytest.mark.parametrize(
    "checkpoint",
    [
        # Seed 671: after an unclean election the log was truncated to 6. The next start discarded
        # it, because its log-start checkpoint still said 22.
        LOG_START_OFFSET,
        # Seed 184: a replica was truncated from 11 to 7 after its leader had lost power, got four
        # other records, and was killed. It started with the old high watermark of 10, so three of
        # the new records counted as committed; for its leader none were.
        HIGH_WATERMARK,
    ],
)
def test_a_log_that_is_cut_takes_the_checkpoint_down(checkpoint: str) -> None:
    disk = MemoryDisk(random.Random(1))
    with_log(disk)
    path = f"data/{checkpoint}"
    write_offsets(disk, path, {("t", 0): 22, ("u", 0): 5})
    store = made(disk)
    store.checkpoints.lower("t", 0, 1)
    store.checkpoints.lower("u", 0, 7)
    assert read_offsets(disk, path) == {("t", 0): 1, ("u", 0): 5}
    opened = made(disk).open("t", TOPIC_ID, 0, LogConfig(), now_ms=0)
    assert opened.log.end_offset == 1
    assert opened.high_watermark == (1 if checkpoint == HIGH_WATERMARK else 0)


@pytest.mark.parametrize("checkpoint", [HIGH_WATERMARK, CLEANER_OFFSET])
def test_a_log_that_lost_its_tail_takes_the_checkpoint_down(checkpoint: str) -> None:
    # Seed 3786 of the simulated partitions: after a second power cut, the records that had replaced
    # the lost ones counted as committed.
    disk = MemoryDisk(random.Random(1))
    with_log(disk)
    write_offsets(disk, f"data/{checkpoint}", {("t", 0): 22, ("u", 0): 5})
    opened = made(disk).open("t", TOPIC_ID, 0, LogConfig(), now_ms=0)
    assert opened.high_watermark <= opened.log.end_offset == 1
    disk.crash()
    assert read_offsets(disk, f"data/{checkpoint}") == {("t", 0): 1, ("u", 0): 5}


@pytest.mark.parametrize("is_orderly", [False, True])
def test_a_log_that_was_refused_is_refused_at_every_start(is_orderly: bool) -> None:
    """Only the checkpoints distinguish lost records from a torn tail, so a refusal must not change
    them."""
    disk = MemoryDisk(random.Random(1))
    with_log(disk)
    write_partition_metadata(disk, "data/t-0", TOPIC_ID)
    known = {HIGH_WATERMARK: 2, RECOVERY_POINT: 2, LOG_START_OFFSET: 1}
    for name, offset in known.items():
        write_offsets(disk, f"data/{name}", {("t", 0): offset, ("gone", 0): 1})
    disk.open("data/t-0/00000000000000000000.log").truncate(0)
    for _ in range(3):
        store = made(disk)
        with pytest.raises(CorruptData, match="were flushed up to 2"):
            store.open("t", TOPIC_ID, 0, LogConfig(), now_ms=0)
        store.drop_unclaimed()
        store.checkpoints.collect_high_watermarks([])
        store.checkpoints.write_high_watermarks()
        store.checkpoints.collect_log_offsets([])
        store.checkpoints.write_log_offsets()
        if is_orderly:
            store.close_all([], ["t-0"])
        for name, offset in known.items():
            assert read_offsets(disk, f"data/{name}") == {("t", 0): offset}


def test_what_is_known_of_a_log_that_nobody_has_asked_for_yet_stays() -> None:
    disk = MemoryDisk(random.Random(1))
    with_log(disk)
    write_partition_metadata(disk, "data/t-0", TOPIC_ID)
    write_offsets(disk, f"data/{RECOVERY_POINT}", {("t", 0): 1})
    store = made(disk)
    store.checkpoints.collect_log_offsets([])
    store.checkpoints.write_log_offsets()
    assert read_offsets(disk, f"data/{RECOVERY_POINT}") == {("t", 0): 1}


def test_a_folder_that_is_gone_though_it_was_flushed_is_said_to_be(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = MemoryDisk(random.Random(1))
    with_log(disk)
    write_offsets(disk, f"data/{RECOVERY_POINT}", {("t", 0): 1, ("never", 0): 0})
    disk.remove_tree("data/t-0")
    store = made(disk)
    assert store.missing_reason("never-0") is None
    said = "data/t-0 is gone, and held what is below offset 1"
    assert store.missing_reason("t-0") == said
    store.drop_unclaimed()
    store.checkpoints.collect_log_offsets([])
    store.checkpoints.write_log_offsets()
    assert made(disk).missing_reason("t-0") == said
    for _ in range(2):
        store.open("t", TOPIC_ID, 0, LogConfig(), now_ms=0)
    assert [record.getMessage() for record in caplog.records] == [f"{said}; an empty log begins"]
    assert store.missing_reason("t-0") is None and made(disk).missing_reason("t-0") is None


def with_watermark(disk: MemoryDisk) -> None:
    """A replica of t-0 with one record, committed and never fsynced, of a process that was killed
    after its first checkpoint of high watermarks."""
    with_log(disk)
    disk.open(f"data/t-0/{PARTITION_METADATA}").sync()
    store = made(disk)
    store.open("t", TOPIC_ID, 0, LogConfig(), now_ms=0)
    replica = SimpleNamespace(topic_partition=("t", 0), high_watermark=1, is_offline=False)
    store.checkpoints.collect_high_watermarks([replica])  # type: ignore[list-item]
    store.checkpoints.write_high_watermarks()
    disk.kill_process()


def test_what_was_committed_is_there_for_as_long_as_the_machine_runs() -> None:
    disk = MemoryDisk(random.Random(1))
    with_watermark(disk)
    assert made(disk).open("t", TOPIC_ID, 0, LogConfig(), now_ms=0).log.end_offset == 1
    disk.remove_tree("data/t-0")
    store = made(disk)
    assert store.missing_reason("t-0") == "data/t-0 is gone, and held what is below offset 1"
    store.checkpoints.collect_log_offsets([])
    store.checkpoints.write_log_offsets()
    disk.crash()
    assert made(disk).missing_reason("t-0") is not None, "it was known before the power failed"


def test_what_was_committed_and_not_fsynced_may_go_with_the_power() -> None:
    for seed in range(20):
        disk = MemoryDisk(random.Random(seed))
        with_watermark(disk)
        disk.crash()
        if not disk.exists("data/t-0"):
            assert made(disk).missing_reason("t-0") is None
        assert made(disk).open("t", TOPIC_ID, 0, LogConfig(), now_ms=0).log.end_offset in (0, 1)


def test_watermarks_of_what_the_power_took_are_not_taken_for_those_of_this_boot() -> None:
    """The process ends before it has collected any watermarks: the checkpoint may have entries of
    logs that are gone."""
    disk = MemoryDisk(random.Random(1))
    with_watermark(disk)
    write_offsets(disk, f"data/{HIGH_WATERMARK}", {("t", 0): 1, ("gone", 0): 5})
    disk.crash()
    store = made(disk)
    store.checkpoints.lower("t", 0, 0)
    disk.kill_process()
    assert made(disk).missing_reason("gone-0") is None


def test_a_folder_that_no_topic_asks_for_is_not_missed() -> None:
    disk = MemoryDisk(random.Random(1))
    disk.make_dirs("data")
    write_offsets(disk, f"data/{RECOVERY_POINT}", {("t", 0): 1})
    store = made(disk)
    assert store.has_strays
    store.drop_unclaimed()
    assert not store.has_strays and store.missing_reason("t-0") is None
    store.checkpoints.collect_log_offsets([])
    store.checkpoints.write_log_offsets()
    assert made(disk).missing_reason("t-0") is None


LONG = "t" * 249
"""A topic's name of the greatest length. With a suffix, it is too long for a file's name."""


def test_a_topic_with_the_longest_name_goes_and_another_of_its_name_comes(tmp_path: Path) -> None:
    disk = OsDisk()
    store = ReplicaStore(disk=disk, data_directory=str(tmp_path), rng=random.Random(1), topics=dict)
    store.load(is_clean=False)
    log = store.open(LONG, TOPIC_ID, 12, LogConfig(), now_ms=0).log
    log.append_as_leader(build_batch([(None, b"x")], timestamp_ms=1), leader_epoch=1, now_ms=1)
    log.flush()
    write_offsets(disk, f"{tmp_path}/{RECOVERY_POINT}", {(LONG, 12): 1, (LONG, 1): 1})
    store.delete(replica_with(log, LONG, 12))
    after = ReplicaStore(disk=disk, data_directory=str(tmp_path), rng=random.Random(1), topics=dict)
    after.load(is_clean=False)
    assert after.missing_reason(f"{LONG}-12") is None
    assert after.missing_reason(f"{LONG}-1") is not None
    store.remove(store.take_removals())
    assert sorted(disk.list_dir(str(tmp_path))) == [RECOVERY_POINT]


@pytest.mark.parametrize("is_dropped", [False, True])
def test_no_crash_in_a_removal_looks_like_a_folder_that_was_taken(is_dropped: bool) -> None:
    """The topic is deleted while the broker runs, or (is_dropped) while it is down."""
    for operations in range(12):
        for seed in range(8):
            disk = MemoryDisk(random.Random(seed))
            with_log(disk)
            made(disk).open("t", TOPIC_ID, 0, LogConfig(), now_ms=0)
            write_offsets(disk, f"data/{RECOVERY_POINT}", {("t", 0): 1, ("u", 0): 5})
            write_offsets(disk, f"data/{HIGH_WATERMARK}", {("t", 0): 1})
            disk.write_atomic(f"data/{BOOT_ID}", disk.boot_id().encode())
            store = made(disk)
            log = None if is_dropped else store.open("t", TOPIC_ID, 0, LogConfig(), now_ms=0).log
            disk.cut_power_after(operations)
            with suppress(PowerCut):
                if log is None:
                    store.drop_unclaimed()
                else:
                    store.delete(replica_with(log))
                store.remove(store.take_removals())
            if seed % 2:
                disk.crash()
            else:
                disk.has_lost_power = False  # only the process ended
                disk.calm()
                disk.kill_process()
            for _ in range(2):
                after = made(disk)
                assert after.missing_reason("t-0") is None
                assert after.missing_reason("u-0") is not None
                after.remove(after.take_removals())


def test_a_power_cut_in_a_removal_leaves_no_part_of_a_log_that_comes_back() -> None:
    """The replica is moved away, and back after the power cut, with the same topic id."""
    for operations in range(12):
        for seed in range(8):
            disk = MemoryDisk(random.Random(seed))
            with_log(disk)
            store = made(disk)
            log = store.open("t", TOPIC_ID, 0, LogConfig(), now_ms=0).log
            log.roll(now_ms=0)
            log.append_as_leader(
                build_batch([(None, b"y")], timestamp_ms=1), leader_epoch=1, now_ms=1
            )
            log.flush()
            disk.cut_power_after(operations)
            with suppress(PowerCut):
                store.delete(replica_with(log))
                store.remove(store.take_removals())
            disk.crash()
            again = made(disk).open("t", TOPIC_ID, 0, LogConfig(), now_ms=0).log
            assert (again.start_offset, again.end_offset) in ((0, 0), (0, 2))


def replica_with(log: Log, topic: str = "t", partition_id: int = 0) -> Any:
    return SimpleNamespace(topic_partition=(topic, partition_id), log=log, is_offline=False)


def test_a_topic_that_was_deleted_here_is_not_missed(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryDisk(random.Random(1))
    with_log(disk)
    write_offsets(disk, f"data/{RECOVERY_POINT}", {("t", 0): 1})
    store = made(disk)
    log = store.open("t", TOPIC_ID, 0, LogConfig(), now_ms=0).log
    store.delete(replica_with(log))
    caplog.clear()
    store.open("t", OTHER_ID, 0, LogConfig(), now_ms=0)
    assert caplog.records == []
