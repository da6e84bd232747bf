"""Folders that do not hold what their names say: renamed, copied, or without partition.metadata."""

from __future__ import annotations

import logging
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode as KioError

from kvorum.broker.log_dirs.replica_store import ReplicaStore
from kvorum.broker.partition.core.batch_validation import ProduceTerms
from kvorum.metadata.image.records import RemoveTopic
from kvorum.runtime.errors import CorruptData, ErrorCode
from kvorum.runtime.memory_disk import MemoryDisk
from kvorum.storage.files.checkpoints import HIGH_WATERMARK, PARTITION_METADATA, write_offsets
from kvorum.storage.format.batch import build_batch
from kvorum.storage.log.log import Log, LogConfig
from tests.test_broker.harness import Harness
from tests.test_broker.lone_replica import TOPIC_ID, made, with_log
from tests.test_broker.several_directories import QUIET, produce


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    """A broker by itself with topics t and u, of 3 and 5 records."""
    harness = Harness(tmp_path, count=1, config=QUIET)
    for topic, count in (("t", 3), ("u", 5)):
        harness.call(lambda topic=topic: harness.cluster.controller.create(topic, [(1,)]))
        for _ in range(count):
            assert produce(harness, topic=topic) is KioError.none
    yield harness
    harness.close()


def folder_of(harness: Harness, topic: str) -> Path:
    return Path(harness.cluster.replica(1, topic).log.directory)


def restart(harness: Harness) -> None:
    harness.run(harness.cluster.stop_broker(1))
    harness.run(harness.cluster.start_broker(1, is_clean=True))


def test_folders_that_somebody_exchanged_are_refused_and_not_removed(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    # Bug: both folders were removed, and both partitions started empty.
    first, second = folder_of(harness, "t"), folder_of(harness, "u")
    harness.run(harness.cluster.stop_broker(1))
    aside = first.with_name("aside")
    exchanged = ((first, aside), (second, first), (aside, second))
    for old, new in exchanged:
        old.rename(new)
    harness.run(harness.cluster.start_broker(1, is_clean=True))
    manager = harness.cluster.brokers[1].manager
    assert manager.registry.find_by_name("t", 0) is None is manager.registry.find_by_name("u", 0)
    assert "the topic id in it is that of topic u; give the folder its name back" in (caplog.text)
    harness.run(harness.cluster.stop_broker(1))
    for old, new in exchanged:
        old.rename(new)
    harness.run(harness.cluster.start_broker(1, is_clean=True))
    ends = [harness.cluster.replica(1, topic).log.end_offset for topic in ("t", "u")]
    assert ends == [3, 5]


@pytest.mark.parametrize("name", ["t-20261123", "bak-t-0", "copy of t-0", "t-0-2"])
def test_a_copy_of_a_replica_that_somebody_made_is_left_alone(
    harness: Harness, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    folder = folder_of(harness, "t")
    copy = folder.with_name(name)
    shutil.copytree(folder, copy)
    restart(harness)
    assert copy.exists() and harness.cluster.replica(1, "t").log.end_offset == 3
    assert f"left alone: {copy} is of topic t" in caplog.text


def test_what_is_left_of_a_topic_that_is_gone_is_removed(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    folder, controller = folder_of(harness, "t"), harness.cluster.controller
    topic_id = harness.cluster.replica(1, "t").core.topic_id
    harness.run(harness.cluster.stop_broker(1))
    harness.call(lambda: controller.commit(RemoveTopic(topic_id)))
    harness.run(harness.cluster.start_broker(1, is_clean=True))
    assert not folder.exists() and f"remove {folder}: its topic is gone" in caplog.text


@pytest.fixture
def two_disks(tmp_path: Path) -> Iterator[Harness]:
    """A broker by itself with two directories, and eight replicas of t in each."""
    harness = Harness(tmp_path, count=1, config=QUIET, directory_count=2)
    harness.call(lambda: harness.cluster.controller.create("t", [(1,)] * 16))
    for partition_id in range(16):
        assert produce(harness, partition_id) is KioError.none
    yield harness
    harness.close()


def test_a_copy_in_another_directory_goes_and_is_said_to_be_one(
    two_disks: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    folder = folder_of(two_disks, "t")
    (other,) = (path for path in two_disks.cluster.paths_of(1) if path != str(folder.parent))
    two_disks.run(two_disks.cluster.stop_broker(1))
    shutil.copytree(folder, Path(other) / "t-0")
    two_disks.run(two_disks.cluster.start_broker(1, is_clean=True))
    assert f"remove {other}/t-0: a copy of the replica in {folder}" in caplog.messages
    assert folder_of(two_disks, "t") == folder and not (Path(other) / "t-0").exists()


def test_replicas_of_an_offline_directory_are_counted_in_one_line(
    two_disks: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    two_disks.run(two_disks.cluster.stop_broker(1))
    lost, _ = two_disks.cluster.paths_of(1)
    two_disks.cluster.unreadable = {lost}
    caplog.clear()
    two_disks.run(two_disks.cluster.start_broker(1))
    said = [text for text in caplog.messages if "offline: " in text and "log directory" not in text]
    assert [text.partition(" (t-")[0] for text in said] == ["8 replicas"]
    assert ", ...) stay offline: " in said[0] and lost in said[0]
    assert said[0].partition(")")[0].count("t-") == 5


def test_a_batch_let_in_after_its_topic_was_deleted_makes_no_folder(harness: Harness) -> None:
    # The batch had waited for its transaction's verification. Bug: it made the folder again, and no
    # later replica of that name could open.
    replica, folder = harness.cluster.replica(1, "t"), folder_of(harness, "t")
    controller = harness.cluster.controller
    harness.call(lambda: controller.commit(RemoveTopic(replica.core.topic_id)))
    terms = ProduceTerms(acks=-1, version=9, now_ms=0, wall_ms=0)
    batch = build_batch([(None, b"x")], timestamp_ms=0)
    answer, required = harness.call(
        lambda: replica.append(memoryview(batch), terms, is_verified=True)
    )
    assert (answer.error, required) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)
    assert not folder.exists()


def test_a_folder_that_lost_its_name_while_the_machine_runs_is_not_taken_for_nobodys() -> None:
    # The machine did not lose power, so an operator removed the identity file. The records were
    # committed.
    disk = MemoryDisk(random.Random(1))
    disk.make_dirs("data")
    log = Log.new(disk, "data/t-0", LogConfig())
    log.append_as_leader(build_batch([(None, b"x")], timestamp_ms=1), leader_epoch=1, now_ms=1)
    write_offsets(disk, f"data/{HIGH_WATERMARK}", {("t", 0): 1})
    disk.write_atomic("data/boot-id", disk.boot_id().encode())
    with pytest.raises(CorruptData, match="nothing says whose log this is"):
        made(disk).open("t", TOPIC_ID, 0, LogConfig(), now_ms=0)
    assert disk.exists("data/t-0")


def test_a_folder_that_lost_its_name_with_the_power_goes_at_a_later_start_as_well() -> None:
    disk = MemoryDisk(random.Random(1))
    with_log(disk)
    write_offsets(disk, f"data/{HIGH_WATERMARK}", {("t", 0): 1})
    disk.write_atomic(f"data/t-0/{PARTITION_METADATA}", b"ver")
    disk.write_atomic("data/boot-id", b"an earlier start of the machine")
    first = made(disk)
    first.drop_unclaimed()
    first.checkpoints.collect_high_watermarks([])
    first.checkpoints.write_high_watermarks()
    # The process is killed before the metadata has the topic.
    assert made(disk).open("t", TOPIC_ID, 0, LogConfig(), now_ms=0).log.end_offset == 0


def test_a_damaged_list_of_unclean_logs_has_all_of_them_checked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = MemoryDisk(random.Random(1))
    with_log(disk)
    disk.write_atomic("data/unclean-logs", b"t-\xff\n")
    path = "data/t-0/00000000000000000000.log"
    file = disk.open(path)
    file.pwrite(b"\0", file.size())  # a torn tail: only a walk finds it
    store = ReplicaStore(disk=disk, data_directory="data", rng=random.Random(1), topics=dict)
    store.load(is_clean=True)
    log = store.open("t", TOPIC_ID, 0, LogConfig(), now_ms=0).log
    assert log.torn_tail is not None and log.end_offset == 1
    assert "data/unclean-logs is damaged" in caplog.text
    assert disk.exists(f"data/t-0/{PARTITION_METADATA}")
