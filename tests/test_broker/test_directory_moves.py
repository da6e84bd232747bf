"""Moves of replicas between the data directories of a broker, on real disks (KIP-113)."""

from __future__ import annotations

import dataclasses
import errno
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode as KioError

from kvorum.broker.log_dirs.core import move_steps
from kvorum.broker.manager import directory_move
from kvorum.metadata.image.image import RESOURCE_BROKER
from kvorum.metadata.image.records import Config, RemoveTopic
from kvorum.storage.format.batch import build_batch
from tests.polling import eventually
from tests.test_broker.harness import Harness
from tests.test_broker.moving import (
    HELD,
    RATE,
    alter,
    fill,
    folders,
    let_go,
    made,
    other_than,
    paths,
    records,
    replica,
    wait_for,
)
from tests.test_broker.raw_client import RawClient, produce_values
from tests.test_broker.several_directories import FaultyDisk, produce, told


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk()


@pytest.fixture(autouse=True)
def small_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop copies the last two records itself; the logs here are small."""
    set_rest(monkeypatch, 600)


def set_rest(monkeypatch: pytest.MonkeyPatch, size_bytes: int) -> None:
    for module in (move_steps, directory_move):
        monkeypatch.setattr(module, "LAST_BYTES_MAX", size_bytes)


@pytest.fixture
def harness(tmp_path: Path, disk: FaultyDisk) -> Iterator[Harness]:
    """Broker 1 has three directories on the faulty disk; moves copy nothing before `let_go`."""
    harness = Harness(tmp_path, config=HELD, directory_count=3, disks={1: disk})
    yield harness
    harness.close()


def test_a_replica_moves_and_goes_on_in_the_other_directory(harness: Harness) -> None:
    made(harness)
    fill(harness)
    source = replica(harness).log_dir.path
    target = other_than(harness, source)
    assert alter(harness, target) is KioError.none
    (future,) = folders(target)
    assert future.startswith("t-0.") and future.endswith("-future")
    before = records(harness)
    let_go(harness)
    wait_for(harness, target)
    assert records(harness) == before
    fill(harness, 3)
    assert [offset for offset, _ in records(harness)] == list(range(43))
    assert told(harness, "t", 0) == harness.cluster.paths_of(1)[target]
    assert folders(target) == ["t-0"]
    eventually(lambda: folders(source) == [], "the old folder is removed")
    harness.run(harness.cluster.crash_broker(1))
    harness.run(harness.cluster.start_broker(1))
    assert replica(harness).log_dir.path == target
    assert [offset for offset, _ in records(harness)] == list(range(43))


def test_an_empty_replica_moves_although_it_has_no_file(harness: Harness) -> None:
    made(harness)
    source = replica(harness).log_dir.path
    target = other_than(harness, source)
    assert alter(harness, target) is KioError.none
    wait_for(harness, target)
    fill(harness, 2)
    assert [offset for offset, _ in records(harness)] == [0, 1]
    assert (folders(source), folders(target)) == ([], ["t-0"])


def test_a_move_to_where_the_replica_is_ends_the_move_under_way(harness: Harness) -> None:
    made(harness)
    fill(harness, 3)
    source = replica(harness).log_dir.path
    target = other_than(harness, source)
    assert alter(harness, source) is KioError.none
    assert alter(harness, target) is KioError.none
    assert replica(harness).future.log_dir.path == target
    assert alter(harness, source) is KioError.none
    assert replica(harness).future is None
    eventually(lambda: folders(target) == [], "the future replica is removed")
    assert replica(harness).log_dir.path == source


def test_a_second_move_takes_the_place_of_the_first(harness: Harness) -> None:
    made(harness)
    fill(harness, 3)
    source = replica(harness).log_dir.path
    first = other_than(harness, source)
    second = other_than(harness, source, first)
    assert alter(harness, first) is KioError.none
    assert alter(harness, second) is KioError.none
    assert alter(harness, second) is KioError.none
    let_go(harness)
    wait_for(harness, second)
    eventually(lambda: folders(first) == folders(source) == [], "nothing is left elsewhere")
    assert len(records(harness)) == 3


def test_a_replica_that_is_not_here_yet_is_created_where_it_was_asked_for(
    harness: Harness,
) -> None:
    target = paths(harness)[2]
    assert alter(harness, target) is KioError.unknown_topic_or_partition
    harness.call(lambda: harness.cluster.controller.create("u", [(9,)]))
    assert alter(harness, target, topic="u") is KioError.replica_not_available
    made(harness)
    assert replica(harness).log_dir.path == target


def test_what_cannot_be_moved_is_refused_as_in_kafka(harness: Harness, disk: FaultyDisk) -> None:
    made(harness, partitions=2)
    own = replica(harness).log_dir.path
    target, failed = (path for path in paths(harness) if path != own)
    assert alter(harness, "/nowhere") is KioError.log_dir_not_found
    assert alter(harness, target + "/") is KioError.log_dir_not_found
    assert alter(harness, target, 7) is KioError.unknown_topic_or_partition
    assert alter(harness, target, topic="x" * 249) is KioError.invalid_topic_exception
    harness.call(
        lambda: harness.cluster.controller.commit(
            Config(RESOURCE_BROKER, "1", "cordoned.log.dirs", target)
        )
    )
    for named in ("t", "nope"):
        assert alter(harness, target, topic=named) is KioError.invalid_replica_assignment
    manager = harness.cluster.brokers[1].manager
    item = manager.directories.of_path(f"{failed}/x")
    harness.call(lambda: manager.on_directory_error(item, OSError(errno.EIO, "gone"), "test"))
    assert alter(harness, failed) is KioError.kafka_storage_error
    at = 0 if replica(harness, 0).is_offline else 1
    if replica(harness, at).is_offline:
        assert alter(harness, own, at) is KioError.kafka_storage_error


def test_a_topic_deleted_during_the_move_leaves_nothing(harness: Harness) -> None:
    topic_id = made(harness)
    fill(harness, 3)
    source = replica(harness).log_dir.path
    target = other_than(harness, source)
    assert alter(harness, target) is KioError.none
    harness.call(lambda: harness.cluster.controller.commit(RemoveTopic(topic_id)))
    eventually(lambda: folders(source) == folders(target) == [], "all folders are removed")


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_move_goes_on_after_a_restart(harness: Harness, is_clean: bool) -> None:
    made(harness)
    fill(harness)
    source = replica(harness).log_dir.path
    target = other_than(harness, source)
    assert alter(harness, target) is KioError.none
    let_go(harness, 4_000)
    eventually(lambda: replica(harness).future.end_offset > 10, "a part is copied")
    if is_clean:
        harness.run(harness.cluster.stop_broker(1, fence=False))
    else:
        harness.run(harness.cluster.crash_broker(1))
    harness.run(harness.cluster.start_broker(1, is_clean=is_clean))
    assert replica(harness).log_dir.path == source
    eventually(lambda: replica(harness).future.log is not None, "the copy is open again")
    assert replica(harness).future.end_offset > 10
    let_go(harness)
    wait_for(harness, target)
    assert [offset for offset, _ in records(harness)] == list(range(40))


def test_a_destination_that_fails_ends_the_move_and_no_replica(
    harness: Harness, disk: FaultyDisk
) -> None:
    made(harness)
    fill(harness, 3)
    source = replica(harness).log_dir.path
    target = other_than(harness, source)
    assert alter(harness, target) is KioError.none
    disk.fail("write", target, errno.EIO)
    let_go(harness)
    eventually(lambda: replica(harness).future is None, "the move ends")
    offline = harness.cluster.brokers[1].manager.directories.offline
    assert [item.path for item in offline] == [target]
    fill(harness, 2)
    assert len(records(harness)) == 5 and replica(harness).log_dir.path == source


def test_a_destination_without_room_ends_the_move_and_stays_online(
    harness: Harness, disk: FaultyDisk
) -> None:
    made(harness)
    fill(harness, 3)
    source = replica(harness).log_dir.path
    target = other_than(harness, source)
    assert alter(harness, target) is KioError.none
    disk.fail("write", "-future", errno.ENOSPC)
    let_go(harness)
    eventually(lambda: folders(target) == [], "the future replica is removed")
    assert not harness.cluster.brokers[1].manager.directories.offline
    disk.faults.clear()
    assert alter(harness, target) is KioError.none
    wait_for(harness, target)
    assert len(records(harness)) == 3


def test_a_source_that_fails_takes_the_replica_down_and_the_start_goes_on_with_the_move(
    harness: Harness, disk: FaultyDisk
) -> None:
    made(harness)
    fill(harness, 3)
    source = replica(harness).log_dir.path
    target = other_than(harness, source)
    assert alter(harness, target) is KioError.none
    disk.fail("read", source, errno.EIO)
    let_go(harness)
    eventually(lambda: replica(harness).is_offline, "the replica is offline")
    assert produce(harness) is KioError.kafka_storage_error
    disk.faults.clear()
    harness.run(harness.cluster.crash_broker(1))
    harness.run(harness.cluster.start_broker(1))
    wait_for(harness, target)
    assert len(records(harness)) == 3


def test_a_directory_that_fails_while_the_metadata_names_it_leaves_the_replica_online(
    harness: Harness, disk: FaultyDisk
) -> None:
    """The controller must hear that the replica is still where it was."""
    made(harness)
    fill(harness, 3)
    ids = harness.cluster.paths_of(1)
    source = replica(harness).log_dir.path
    target = other_than(harness, source)
    disk.fail("rename", f"{target}/t-0.", errno.EIO)
    let_go(harness)
    assert alter(harness, target) is KioError.none
    eventually(
        lambda: harness.cluster.brokers[1].manager.directories.offline, "the target is offline"
    )
    eventually(lambda: told(harness, "t", 0) == ids[source], "the metadata names the source")
    fill(harness, 2)


def test_records_deleted_during_the_move_stay_deleted(harness: Harness) -> None:
    made(harness)
    fill(harness)
    target = other_than(harness, replica(harness).log_dir.path)
    assert alter(harness, target) is KioError.none
    let_go(harness, 4_000)
    eventually(lambda: replica(harness).future.end_offset > 10, "a part is copied")
    client = RawClient(harness.cluster.ports[1])
    topics = [{"name": "t", "partitions": [{"partition_index": 0, "offset": 25}]}]
    answer = client.call("delete_records", 2, {"topics": topics, "timeout": 9000})
    assert answer.topics[0].partitions[0].error_code is KioError.none
    client.close()
    let_go(harness)
    wait_for(harness, target)
    assert [offset for offset, _ in records(harness)] == list(range(25, 40))
    harness.run(harness.cluster.crash_broker(1))
    harness.run(harness.cluster.start_broker(1))
    assert [offset for offset, _ in records(harness)] == list(range(25, 40))


def test_damage_in_the_log_takes_the_replica_down_and_is_not_copied(
    harness: Harness,
) -> None:
    made(harness)
    fill(harness, 20)
    log = replica(harness).log
    path = Path(log.directory) / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[300] ^= 1
    path.write_bytes(data)
    assert alter(harness, other_than(harness, replica(harness).log_dir.path)) is KioError.none
    let_go(harness)
    eventually(lambda: replica(harness).is_offline, "the damage is found")


def test_a_damaged_future_replica_is_copied_anew(harness: Harness) -> None:
    made(harness)
    fill(harness)
    target = other_than(harness, replica(harness).log_dir.path)
    assert alter(harness, target) is KioError.none
    let_go(harness, 4_000)
    eventually(lambda: replica(harness).future.end_offset > 20, "a part is copied")
    harness.run(harness.cluster.crash_broker(1))
    (folder,) = folders(target)
    path = Path(target) / folder / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    harness.run(harness.cluster.start_broker(1))
    let_go(harness)
    wait_for(harness, target)
    assert [offset for offset, _ in records(harness)] == list(range(40))


def test_describe_log_dirs_shows_both_copies_and_the_lag(harness: Harness) -> None:
    made(harness)
    fill(harness, 7)
    source = replica(harness).log_dir.path
    target = other_than(harness, source)
    assert alter(harness, target) is KioError.none
    client = RawClient(harness.cluster.ports[1])
    found = {
        row.log_dir: [(p.is_future_key, p.offset_lag) for t in row.topics for p in t.partitions]
        for row in client.call("describe_log_dirs", 5, {"topics": None}).results
    }
    client.close()
    assert (found[source], found[target]) == ([(False, 0)], [(True, 7)])


def test_more_than_one_replica_moves_at_once(harness: Harness) -> None:
    made(harness, partitions=6)
    for partition_id in range(6):
        fill(harness, 5, partition_id)
    target = paths(harness)[0]
    for partition_id in range(6):
        assert alter(harness, target, partition_id) is KioError.none
    let_go(harness)
    for partition_id in range(6):
        wait_for(harness, target, partition_id)
        assert len(records(harness, partition_id)) == 5
    counts = [item.replicas for item in harness.cluster.brokers[1].manager.directories.items]
    assert counts == [6, 0, 0]


@pytest.mark.parametrize("kept", [30, 5])
def test_a_truncation_during_the_move_is_followed(harness: Harness, kept: int) -> None:
    """Both above and below what is copied; other records take the offsets."""
    made(harness)
    fill(harness)
    target = other_than(harness, replica(harness).log_dir.path)
    assert alter(harness, target) is KioError.none
    let_go(harness, 4_000)
    eventually(lambda: 10 < replica(harness).future.end_offset < 30, "a part is copied")
    harness.call(lambda: replica(harness).truncate_for(0, kept, 1))
    assert replica(harness).log.end_offset == kept
    fill(harness, 15, value=b"y" * 300)
    before = records(harness)
    let_go(harness)
    wait_for(harness, target)
    assert records(harness) == before
    assert [value[:1] for _, value in before] == [b"\0"] * kept + [b"y"] * 15


def test_a_replica_that_begins_anew_during_the_move_does_so_in_both_places(
    harness: Harness,
) -> None:
    made(harness)
    fill(harness)
    target = other_than(harness, replica(harness).log_dir.path)
    assert alter(harness, target) is KioError.none
    let_go(harness, 4_000)
    eventually(lambda: replica(harness).future.end_offset > 10, "a part is copied")
    harness.call(lambda: replica(harness).restart_at(1_000, 1))
    fill(harness, 3)
    let_go(harness)
    wait_for(harness, target)
    assert [offset for offset, _ in records(harness)] == [1_000, 1_001, 1_002]


def test_a_follower_moves_while_its_leader_is_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_rest(monkeypatch, 20_000)
    config = dataclasses.replace(HELD, log_segment_bytes=1_000_000)
    harness = Harness(tmp_path, count=2, config=config, directory_count=2)
    try:
        harness.call(lambda: harness.cluster.controller.create("t", [(1, 2)]))
        eventually(lambda: told(harness, "t", 0, 2), "broker 2 tells its directory")
        follower = harness.cluster.replica(2, "t")
        target = next(p for p in harness.cluster.paths_of(2) if p != follower.log_dir.path)
        client = RawClient(harness.cluster.ports[2])
        dirs = [{"path": target, "topics": [{"name": "t", "partitions": [0]}]}]
        answer = client.call("alter_replica_log_dirs", 2, {"dirs": dirs})
        assert answer.results[0].partitions[0].error_code is KioError.none
        client.close()
        fill(harness, 30)
        harness.call(
            lambda: harness.cluster.controller.commit(
                Config(RESOURCE_BROKER, "2", RATE, "10000000")
            )
        )
        while follower.log_dir.path != target:
            fill(harness, 2)
        fill(harness, 5)
        expected = [offset for offset, _ in records(harness)]
        eventually(lambda: follower.log.end_offset == len(expected), "the follower catches up")
        found = harness.call(lambda: follower.log.read(0, bytes_max=1 << 20, end_offset=1 << 40))
        assert found.first_offset == 0
        # It leads from its new directory.
        topic_id = follower.core.topic_id
        harness.call(lambda: harness.cluster.controller.lead(topic_id, 0, 2, (1, 2)))
        client = RawClient(harness.cluster.ports[2])
        batch = bytes(build_batch([(None, b"x")], timestamp_ms=int(time.time() * 1000)))
        reply = client.call("produce", 9, produce_values("t", batch, acks=-1))
        client.close()
        assert reply.responses[0].partition_responses[0].base_offset == len(expected)
    finally:
        harness.close()


def test_producers_whose_batches_are_gone_are_known_after_the_move(harness: Harness) -> None:
    """A repeated batch must be a duplicate, also after a crash behind the move."""
    made(harness, retention_ms="-1")
    client = RawClient(harness.cluster.ports[1])

    def idempotent() -> int:
        batch = build_batch(
            [(None, b"i")], timestamp_ms=int(time.time() * 1000),
            producer_id=77, producer_epoch=0, base_sequence=0,
        )  # fmt: skip
        reply = client.call("produce", 9, produce_values("t", bytes(batch), acks=-1))
        row = reply.responses[0].partition_responses[0]
        assert row.error_code is KioError.none
        return row.base_offset

    assert idempotent() == 0
    fill(harness, 20)
    topics = [{"name": "t", "partitions": [{"partition_index": 0, "offset": 15}]}]
    client.call("delete_records", 2, {"topics": topics, "timeout": 9000})
    harness.call(lambda: replica(harness).apply_retention(int(time.time() * 1000)))
    target = other_than(harness, replica(harness).log_dir.path)
    assert alter(harness, target) is KioError.none
    let_go(harness)
    wait_for(harness, target)
    assert idempotent() == 0
    harness.run(harness.cluster.crash_broker(1))
    harness.run(harness.cluster.start_broker(1))
    client.close()
    client = RawClient(harness.cluster.ports[1])
    assert idempotent() == 0
    client.close()


def test_leader_epochs_without_records_are_known_after_the_move(harness: Harness) -> None:
    """A follower may ask where such an epoch ended."""
    topic_id = made(harness)
    fill(harness, 5)
    harness.call(lambda: harness.cluster.controller.lead(topic_id, 0, 1, (1,)))
    before = replica(harness).log.epochs.entries
    assert before[-1][1] == 5
    target = other_than(harness, replica(harness).log_dir.path)
    assert alter(harness, target) is KioError.none
    let_go(harness)
    wait_for(harness, target)
    assert replica(harness).log.epochs.entries == before


def test_a_compacted_log_moves_with_its_cleaner_offset_and_is_not_compacted_meanwhile(
    harness: Harness,
) -> None:
    made(harness, cleanup_policy="compact", min_cleanable_dirty_ratio="0", segment_bytes="1500")
    fill(harness)
    manager = harness.cluster.brokers[1].manager
    harness.call(lambda: replica(harness).log.flush())
    assert harness.run(manager.cleaner.clean_dirtiest())
    source = replica(harness).log_dir
    cleaned_offset = source.store.checkpoints.cleaner_offset("t", 0)
    assert cleaned_offset
    compacted = records(harness)
    target = other_than(harness, source.path)
    assert alter(harness, target) is KioError.none
    fill(harness)
    harness.call(lambda: replica(harness).log.flush())
    assert not harness.run(manager.cleaner.clean_dirtiest())
    let_go(harness)
    wait_for(harness, target)
    assert records(harness)[: len(compacted)] == compacted
    moved = replica(harness)
    assert moved.log_dir.store.checkpoints.cleaner_offset("t", 0) == cleaned_offset
    harness.call(lambda: moved.log.flush())
    assert harness.run(manager.cleaner.clean_dirtiest())


def test_a_fetch_that_began_before_the_swap_is_sent_from_the_old_files(harness: Harness) -> None:
    made(harness, file_delete_delay_ms="60000")
    fill(harness)
    before = replica(harness).log
    found = harness.call(lambda: before.read(0, bytes_max=1 << 20, end_offset=1 << 40))
    target = other_than(harness, replica(harness).log_dir.path)
    assert alter(harness, target) is KioError.none
    let_go(harness)
    wait_for(harness, target)
    assert len(found.read()) == found.length
    rest = harness.call(lambda: before.read(30, bytes_max=1 << 20, end_offset=1 << 40))
    assert len(rest.read()) == rest.length > 0
