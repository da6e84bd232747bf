"""In which data directory a replica is opened, and when in none (KIP-858)."""

from __future__ import annotations

import errno
import logging
import random
from typing import Any

import pytest

from kvorum.broker.log_dirs.log_directories import (
    FoundDirectory,
    LogDirectories,
    PlacementRequest,
    Unplaced,
)
from kvorum.metadata.image.records import LOST_DIRECTORY, UNASSIGNED_DIRECTORY
from kvorum.runtime.ids import uuid_text
from kvorum.runtime.memory_disk import MemoryDisk
from kvorum.storage.files.checkpoints import write_partition_metadata
from kvorum.storage.format.batch import build_batch
from kvorum.storage.log.log import Log, LogConfig

X, Y = b"x" * 16, b"y" * 16
TOPIC_ID = b"t" * 16


def directories(*failed: str, disk: MemoryDisk | None = None) -> LogDirectories:
    """/x and /y, with the ids X and Y; those in `failed` cannot be read."""
    disk = disk or MemoryDisk(random.Random(1))
    made = LogDirectories(disk, ["/x", "/y"], random.Random(1), dict)
    failure = OSError(errno.EIO, "input/output error")
    made.load(
        {
            path: FoundDirectory(directory_id=None, failure=failure)
            if path in failed
            else FoundDirectory(directory_id=directory_id)
            for path, directory_id in (("/x", X), ("/y", Y))
        }
    )
    return made


def place(made: LogDirectories, told: bytes = UNASSIGNED_DIRECTORY, **changes: Any) -> str:
    """The path where a replica is opened, or the reason why it is not."""
    wanted = {"name": "t-0", "topic_id": TOPIC_ID, "told": told, "is_new": False}
    found = made.place(PlacementRequest(**{**wanted, "is_in_sync": False, **changes}))
    return found.reason if isinstance(found, Unplaced) else found.path


def test_a_new_replica_goes_where_the_fewest_are():
    made = directories()
    taken = []
    for _ in range(4):
        log_dir = made.choose()
        log_dir.replicas += 1
        taken.append(log_dir.path)
    assert taken == ["/x", "/y", "/x", "/y"]


def test_a_replica_is_opened_where_its_folder_lies_whatever_was_told():
    disk = MemoryDisk(random.Random(1))
    disk.make_dirs("/y/t-0")
    write_partition_metadata(disk, "/y/t-0", TOPIC_ID)
    assert place(directories(disk=disk), told=X) == "/y"


def test_of_two_copies_the_one_that_was_told_is_opened():
    disk = MemoryDisk(random.Random(1))
    for path in ("/x", "/y"):
        disk.make_dirs(f"{path}/t-0")
        write_partition_metadata(disk, f"{path}/t-0", TOPIC_ID)
    assert place(directories(disk=disk), told=Y) == "/y"


def test_of_two_copies_none_is_opened_nor_removed_if_none_was_told():
    # A broker with one directory does not report it to the controller. Bad sequence: a second
    # directory with an older copy is put first in log.dirs; the older copy is opened, and the
    # complete one removed.
    disk = MemoryDisk(random.Random(1))
    for path in ("/x", "/y"):
        disk.make_dirs(f"{path}/t-0")
        write_partition_metadata(disk, f"{path}/t-0", TOPIC_ID)
    made = directories(disk=disk)
    said = place(made, told=UNASSIGNED_DIRECTORY)
    assert said == "a copy of it lies in /x and /y; move all but one of them away"
    for item in made.items:
        item.store.drop_unclaimed()
        assert not item.store.has_strays and disk.list_dir(item.path) == ["t-0"]
    # The topic goes: the next start removes what is left.
    made.items[0].store.delete_refused("t-0", TOPIC_ID)
    assert "t-0" not in disk.list_dir("/x")


@pytest.mark.parametrize("told", [Y, b"z" * 16], ids=["offline", "not configured"])
def test_a_copy_does_not_lead_in_the_place_of_a_directory_that_cannot_be_read(told: bytes):
    # Bad sequence: a disk that comes back from a repair has an older copy, which is elected and
    # overwrites acknowledged records.
    disk = MemoryDisk(random.Random(1))
    disk.make_dirs("/x/t-0")
    write_partition_metadata(disk, "/x/t-0", TOPIC_ID)
    failed = ("/y",) if told == Y else ()
    assert "/x may be older" in place(directories(*failed, disk=disk), told=told, is_in_sync=True)
    # If other replicas have all committed records, this one catches up from them.
    assert place(directories(*failed, disk=disk), told=told) == "/x"
    # An operator moved the folder here from a directory that is still online.
    assert place(directories(disk=disk), told=Y, is_in_sync=True) == "/x"


def test_a_replica_without_a_file_stays_where_it_was_told_to_be():
    assert place(directories(), told=Y) == "/y"


@pytest.mark.parametrize("told", [Y, UNASSIGNED_DIRECTORY, LOST_DIRECTORY])
def test_what_may_lie_in_an_offline_directory_is_not_begun_anew_elsewhere(told):
    assert "/y" in place(directories("/y"), told=told)
    assert "offline" in place(directories("/y"), told=told)


def test_a_replica_that_is_new_to_the_broker_goes_into_a_directory_that_is_left():
    assert place(directories("/y"), is_new=True) == "/x"


def test_a_replica_in_a_directory_that_is_not_configured_begins_anew_only_if_others_have_it():
    assert place(directories(), told=b"z" * 16) == "/x"
    said = place(directories(), told=b"z" * 16, is_in_sync=True)
    # The message does not say that log.dirs lacks the directory: its path may be in log.dirs, with
    # another disk mounted there.
    assert f"/x is {uuid_text(X)}" in said and "is its disk mounted?" in said


def test_a_directory_that_is_not_there_is_said_once(caplog):
    found = directories()
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            place(found, told=b"z" * 16)
        place(found, told=Y)
    (said,) = caplog.messages
    assert uuid_text(b"z" * 16) in said and f"/y is {uuid_text(Y)}" in said


def test_the_metadata_log_s_directory_or_the_last_one_ends_the_broker():
    assert "holds the metadata log" in str(directories("/x").loss("/x"))
    assert directories("/y").loss("/x") is None
    assert "no data directory is left" in str(directories("/x", "/y").loss("/elsewhere"))


def test_an_empty_log_folder_with_an_identity_is_opened_as_it_is() -> None:
    # As `kvorum partitions restore` leaves it.
    disk = MemoryDisk(random.Random(1))
    disk.make_dirs("/x/t-0")
    write_partition_metadata(disk, "/x/t-0", TOPIC_ID)
    log = Log.open(disk, "/x/t-0", LogConfig(), now_ms=0)
    assert (log.start_offset, log.end_offset) == (0, 0)
    log.append_as_leader(build_batch([(None, b"x")], timestamp_ms=1), leader_epoch=0, now_ms=1)
    assert log.end_offset == 1
