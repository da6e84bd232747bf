"""Small files that contradict the batches, and starts that refuse a log without destroying it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from kvorum.runtime.disk import OsDisk, OsDiskFile
from kvorum.runtime.errors import CorruptData
from kvorum.storage.files.leader_epochs import CHECKPOINT_NAME
from kvorum.storage.format.batch import build_batch, stamp
from kvorum.storage.log.log import Log, LogConfig
from kvorum.storage.log.retention import apply_retention
from tests.test_storage.small_logs import (
    BROKERS,
    DIRECTORY,
    SMALL,
    batch,
    empty,
    filled,
    new_disk,
    opened,
    path_of,
)


def put(log: Log, offset: int, leader_epoch: int, count: int = 1) -> None:
    """A batch as the leader stored it."""
    data = build_batch([(b"k", bytes(50))] * count, timestamp_ms=1000)
    stamp(data, 0, base_offset=offset, leader_epoch=leader_epoch)
    log.append_as_follower(bytes(data), now_ms=0)


@pytest.mark.parametrize(
    ("entries", "is_clean"),
    [
        ("1\n8 0", True),
        ("1\n8 0", False),
        ("2\n1 0\n8 5", True),
        ("2\n1 0\n8 5", False),
        ("0", True),
        ("0", False),
        # After a crash these entries do not prove damage: the crash may have come when, of a
        # retention's changes, only the checkpoint had reached the disk.
        ("1\n1 2", True),
        ("2\n0 0\n1 9", True),
    ],
)
def test_a_checkpoint_of_epochs_that_the_batches_contradict_is_made_anew(
    caplog: pytest.LogCaptureFixture, entries: str, is_clean: bool
) -> None:
    # The checkpoint has no checksum. Bug: an epoch above the cluster's kept the replica from
    # leading, without a log line; a first entry above the log start hid the records before it.
    disk = new_disk()
    log = filled(disk, 10, BROKERS)
    if is_clean:
        log.close()
    else:
        log.flush()
    disk.write_atomic(f"{DIRECTORY}/{CHECKPOINT_NAME}", f"0\n{entries}\n".encode())
    again = opened(disk, BROKERS, is_clean=is_clean, recovery_point=0 if is_clean else 10)
    assert (again.start_offset, again.end_offset) == (0, 10)
    assert again.epochs.entries == [(1, 0)]
    assert "made anew from the batches" in caplog.text


def test_epochs_whose_batches_are_gone_are_no_contradiction(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = new_disk()
    log = opened(disk, BROKERS)
    put(log, 0, 2)
    put(log, 5, 4)  # compacted away: epoch 3's records from offset 1 on
    log.epochs.epochs[1:1] = [3]
    log.epochs.start_offsets[1:] = [1, 5]
    log.close()
    again = opened(disk, BROKERS, is_clean=True)
    assert again.epochs.entries == [(2, 0), (3, 1), (4, 5)]
    assert "made anew" not in caplog.text


def test_a_gap_at_the_start_of_a_log_is_of_the_epoch_that_was_there() -> None:
    # Bug: with the previous epoch for the gap, a follower that had records of its own there was not
    # told to truncate them.
    disk = new_disk()
    log = opened(disk, BROKERS)
    put(log, 0, 2, count=2)
    put(log, 2, 3, count=2)
    log.roll(now_ms=0)
    log.flush()
    put(log, 30, 3)  # the leader has compacted away what was between
    log.advance_start_offset(4)
    assert apply_retention(log, now_ms=0, high_watermark=31) == [0]
    before = log.epochs.entries
    disk.kill_process()
    again = opened(disk, BROKERS, recovery_point=4, log_start_offset=4)
    assert again.epochs.entries == before == [(3, 4)]
    assert again.epochs.end_offset_for(2, again.end_offset) == (2, 4)


def test_a_log_that_is_refused_loses_no_file_of_it() -> None:
    # Bug: when the start refused the log, it had removed the later segments already, so no copy of
    # the first segment could help.
    disk = new_disk()
    log = filled(disk, 2, BROKERS)
    log.flush()
    for at in range(2, 8):
        log.append_as_leader(batch(at), leader_epoch=1, now_ms=at)
    disk.kill_process()
    empty(disk, path_of(0, ".log"), len(batch()))
    before = [name for name in disk.list_dir(DIRECTORY) if name.endswith(".log")]
    assert len(before) > 1
    with pytest.raises(CorruptData, match="flushed up to 2"):
        opened(disk, BROKERS, recovery_point=2)
    assert [name for name in disk.list_dir(DIRECTORY) if name.endswith(".log")] == before


def test_a_start_above_the_end_of_a_log_that_was_closed_in_good_order_is_damage() -> None:
    disk = new_disk()
    filled(disk, 10).close()
    with pytest.raises(CorruptData, match="end at 10, below its start 1000"):
        opened(disk, is_clean=True, log_start_offset=1000)
    assert opened(disk, is_clean=True).end_offset == 10


def test_a_log_that_ends_below_its_start_after_a_crash_begins_there_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = new_disk()
    filled(disk, 10).flush()
    log = opened(disk, log_start_offset=12)
    assert (log.start_offset, log.end_offset) == (12, 12)
    assert "ends at 10, below its start 12: an empty log begins there" in caplog.text


def open_files(below: Path) -> list[str]:
    descriptors = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
    paths = [os.readlink(path) for path in descriptors if os.path.lexists(path)]
    return [path for path in paths if str(below) in path]


def test_a_refused_log_leaves_no_file_open(tmp_path: Path) -> None:
    directory, config = str(tmp_path / "t-0"), LogConfig(segment_bytes=400)
    log = Log.open(OsDisk(), directory, config, now_ms=0)
    for at in range(30):
        log.append_as_leader(batch(at), leader_epoch=1, now_ms=at)
    log.close()
    with pytest.raises(CorruptData, match="flushed up to 1000"):
        Log.open(OsDisk(), directory, config, now_ms=0, recovery_point=1000, is_clean=True)
    assert open_files(tmp_path) == []


def test_a_start_leaves_no_sealed_segment_open(tmp_path: Path) -> None:
    directory, config = str(tmp_path / "t-0"), LogConfig(segment_bytes=400)
    log = Log.open(OsDisk(), directory, config, now_ms=0)
    for at in range(30):
        log.append_as_leader(batch(at), leader_epoch=1, now_ms=at)
    log.close()
    log = Log.open(OsDisk(), directory, config, now_ms=0, is_clean=True)
    assert log.segment_count > 5 and len(open_files(tmp_path)) <= 2
    log.close()


class UnsyncedFile(OsDiskFile):
    __slots__ = ()

    def sync(self) -> None:
        raise OSError(errno.EIO, "injected fault", self.path)


class UnsyncedDisk(OsDisk):
    def open(self, path: str) -> UnsyncedFile:
        return UnsyncedFile(path)


def test_a_log_that_is_given_up_after_a_failed_flush_leaves_no_file_open(tmp_path: Path) -> None:
    log = Log.new(UnsyncedDisk(), str(tmp_path / "t-0"), SMALL)
    log.append_as_leader(batch(), leader_epoch=1, now_ms=1)
    with pytest.raises(OSError, match="injected"):
        log.flush()
    log.abandon()
    assert open_files(tmp_path) == []


def test_a_file_that_cannot_be_looked_at_is_not_taken_for_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Bug: a log-start checkpoint that could not be read counted as missing, and deleted records
    # came back.
    def stat(path: str) -> os.stat_result:
        raise OSError(errno.EIO, "injected fault", path)

    assert not OsDisk().exists(f"{tmp_path}/nothing")
    with monkeypatch.context() as patch, pytest.raises(OSError, match="injected"):
        patch.setattr(os, "stat", stat)
        OsDisk().exists(f"{tmp_path}")


def test_a_damaged_snapshot_of_producers_is_passed_over_with_a_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = new_disk()
    log = opened(disk)
    for at in range(4):
        data = build_batch(
            [(None, b"x")], timestamp_ms=at, producer_id=8, producer_epoch=0, base_sequence=at
        )
        log.append_as_leader(data, leader_epoch=1, now_ms=0)
    log.close()
    path = f"{DIRECTORY}/{4:020d}.snapshot"
    disk.write_atomic(path, b"junk")
    again = Log.open(disk, DIRECTORY, SMALL, now_ms=0, is_clean=True)
    (said,) = caplog.messages
    assert said.startswith(f"{path} at byte 0: ") and "older ones and the batches say" in said
    assert again.producers.entries[8].batches[-1].last_sequence == 3
