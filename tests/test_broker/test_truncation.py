"""The scenarios of KIP-101 and KIP-279, on real logs, with the leader's and follower's rules; no
sockets."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from kvorum.broker.config.broker_config import BrokerConfig
from kvorum.broker.config.topic_config import resolve
from kvorum.broker.log_dirs.log_directories import LogDirectory
from kvorum.broker.log_dirs.replica_store import ReplicaStore
from kvorum.broker.partition.core.partition import Partition
from kvorum.broker.partition.core.peer_brokers import PeerBrokers
from kvorum.broker.partition.replica import Replica
from kvorum.broker.purgatory.loop_turn import LoopTurn
from kvorum.metadata.image.image import PartitionImage
from kvorum.runtime.disk import Disk, OsDisk
from kvorum.runtime.memory_disk import MemoryDisk
from kvorum.storage.files.checkpoints import read_partition_metadata
from kvorum.storage.format.batch import build_batch, iter_headers
from kvorum.storage.log.log import Log
from kvorum.storage.log.retention import apply_retention

TOPIC_ID = bytes(range(16))


def home_of(path: str) -> LogDirectory:
    data_directory = str(Path(path).parent)
    store = ReplicaStore(
        disk=OsDisk(), data_directory=data_directory, rng=random.Random(1), topics=dict
    )
    return LogDirectory(data_directory, store)


class Node:
    """One replica of one partition, moved by hand."""

    def __init__(self, directory: Path, broker_id: int, disk: Disk | None = None) -> None:
        self.disk = disk or OsDisk()
        self.path = str(directory / f"node-{broker_id}" / "t-0")
        self.broker_id = broker_id
        self.lowered: list[int] = []
        self.starts: list[int] = []
        self.open(high_watermark=0)

    def open(self, *, high_watermark: int) -> None:
        config = resolve(BrokerConfig(), {})
        log = Log.open(self.disk, self.path, config.log, now_ms=0)
        self.replica = Replica(
            core=Partition(
                broker_id=self.broker_id,
                topic="t",
                topic_id=TOPIC_ID,
                partition_id=0,
                peer_brokers=PeerBrokers(),
                lag_time_max_ms=1000,
                min_insync_replicas=1,
                end_offset=log.end_offset,
                high_watermark=high_watermark,
            ),
            log=log,
            config=config,
            disk=self.disk,
            loop_turn=LoopTurn(),
            has_identity=True,
            lower_checkpoints=self.lower,
            on_first_file=lambda replica: None,
            log_dir=home_of(self.path),
            on_failed=lambda replica, failure, operation: None,
        )

    def lower(self, topic: str, partition_id: int, offset: int, start_offset: int) -> None:
        self.lowered.append(offset)
        self.starts.append(start_offset)

    def restart(self) -> None:
        """Restart the process with the high watermark that it last knew."""
        high_watermark = self.replica.core.high_watermark
        self.replica.log.close()
        self.open(high_watermark=high_watermark)

    def lead(self, epoch: int, partition_epoch: int) -> None:
        image = PartitionImage((1, 2, 3), (1, 2), self.broker_id, epoch, partition_epoch)
        assert self.replica.become_leader(image, 0)

    def follow(self, leader: int, epoch: int, partition_epoch: int) -> None:
        self.replica.become_follower(
            PartitionImage((1, 2, 3), (1, 2), leader, epoch, partition_epoch)
        )

    def append(self, *values: bytes) -> None:
        epoch = self.replica.core.leader_epoch
        for value in values:
            batch = build_batch([(None, value)], timestamp_ms=1)
            self.replica.log.append_as_leader(batch, leader_epoch=epoch, now_ms=1)
        self.replica.core.on_append(self.replica.log.end_offset, 0)

    def contents(self) -> list[tuple[int, int]]:
        """(offset, epoch) of every batch."""
        log = self.replica.log
        if log.end_offset == log.start_offset:
            return []
        data = log.read(log.start_offset, bytes_max=1 << 20, end_offset=log.end_offset).read()
        return [(h.base_offset, h.leader_epoch) for _, h in iter_headers(data)]


def diverging(leader: Node, follower: Node) -> tuple[int, int] | None:
    """The (epoch, end offset) that the leader answers to the follower's fetch if their logs differ,
    else None (the rule of fetching._objection)."""
    log, asked = leader.replica.log, follower.replica.log
    last = asked.last_epoch
    if last < 0:
        return None
    epoch, end = log.epochs.end_offset_for(last, log.end_offset)
    assert epoch != -1
    return (epoch, end) if epoch < last or end < asked.end_offset else None


def catch_up(leader: Node, follower: Node, *, rounds_max: int = 5) -> int:
    """Fetch until the follower has all; returns how many truncations it took."""
    cuts = 0
    while (found := diverging(leader, follower)) is not None:
        cuts += 1
        assert cuts <= rounds_max, "the truncation loop must end"
        follower.replica.truncate_for(*found, 5)
    ours, theirs = follower.replica.log, leader.replica.log
    while ours.end_offset < theirs.end_offset:
        data = theirs.read(ours.end_offset, bytes_max=100, end_offset=theirs.end_offset).read()
        follower.replica.append_as_follower(
            memoryview(data), leader_high_watermark=leader.replica.core.high_watermark, wall_ms=1
        )
    assert follower.contents() == leader.contents()
    return cuts


@pytest.fixture
def nodes(tmp_path: Path) -> tuple[Node, Node, Node]:
    return Node(tmp_path, 1), Node(tmp_path, 2), Node(tmp_path, 3)


def test_kip_101_loss_a_restarted_follower_keeps_what_its_watermark_had_not_reached(
    nodes: tuple[Node, Node, Node],
) -> None:
    a, b, _ = nodes
    a.lead(1, 1)
    b.follow(1, 1, 1)
    a.append(b"m1", b"m2")
    catch_up(a, b)
    assert b.replica.core.high_watermark < 2, "B has not heard that m2 is committed"
    b.restart()
    b.follow(1, 1, 1)
    assert catch_up(a, b) == 0
    b.lead(2, 2)  # A dies
    a.follow(2, 2, 2)
    assert catch_up(b, a) == 0
    assert a.contents() == [(0, 1), (1, 1)]


def test_kip_101_divergence_the_old_leaders_unreplicated_record_goes(
    nodes: tuple[Node, Node, Node],
) -> None:
    a, b, _ = nodes
    a.lead(1, 1)
    b.follow(1, 1, 1)
    a.append(b"m1")
    catch_up(a, b)
    a.append(b"m2")
    b.lead(2, 2)
    b.append(b"m3")
    a.restart()
    a.follow(2, 2, 2)
    assert catch_up(b, a) == 1
    assert a.contents() == [(0, 1), (1, 2)]
    assert a.lowered == [1], "the recovery point must not stay above the log's end"


def test_kip_279_quick_leader_changes_converge_epoch_by_epoch(
    nodes: tuple[Node, Node, Node],
) -> None:
    a, b, _ = nodes
    a.lead(1, 1)
    a.append(b"x", b"y")
    b.follow(1, 1, 1)
    catch_up(a, b)
    # A leads epochs 2 and 4, B leads 3 and 5; neither knows the other's epochs.
    a.lead(2, 2)
    a.append(b"a2")
    b.lead(3, 3)
    b.append(b"b3", b"b3'")
    a.lead(4, 4)
    a.append(b"a4")
    b.lead(5, 5)
    b.append(b"b5")
    a.follow(2, 5, 5)
    assert catch_up(b, a) >= 1
    assert [epoch for _, epoch in a.contents()] == [1, 1, 3, 3, 5]


def test_an_epoch_without_records_does_not_keep_a_follower_diverging(
    nodes: tuple[Node, Node, Node],
) -> None:
    a, b, _ = nodes
    a.lead(1, 1)
    a.append(b"x")
    b.follow(1, 1, 1)
    catch_up(a, b)
    a.lead(2, 2)  # leads, writes nothing
    b.lead(3, 3)
    a.follow(2, 3, 3)
    catch_up(b, a)
    b.append(b"z")
    assert catch_up(b, a) == 0
    assert a.contents() == [(0, 1), (1, 3)]


def test_a_follower_below_the_leaders_start_begins_there(nodes: tuple[Node, Node, Node]) -> None:
    a, b, _ = nodes
    a.lead(1, 1)
    a.append(b"x", b"y", b"z")
    b.follow(1, 1, 1)
    catch_up(a, b)
    b.replica.restart_at(2, 5)
    assert (b.replica.log.start_offset, b.replica.log.end_offset) == (2, 2)
    assert b.replica.core.high_watermark == 2


@pytest.mark.parametrize("has_identity", [False, True])
def test_a_replica_that_begins_anew_outlives_the_power_with_its_name(has_identity: bool) -> None:
    # Seed 51028: its recovery point was above 0, so without partition.metadata it counted as
    # damaged.
    for seed in range(20):
        disk = MemoryDisk(random.Random(seed))
        b = Node(Path("data"), 2, disk)
        disk.make_dirs("data/node-2")
        disk.sync_dir("data")
        disk.sync_dir(".")
        b.replica.has_identity = False
        if has_identity:
            b.lead(1, 1)
            b.append(b"x")
            b.replica.write_identity()
        b.replica.restart_at(2, 5)
        disk.crash()
        assert read_partition_metadata(disk, b.path) == TOPIC_ID


def test_old_metadata_does_not_make_a_leader(nodes: tuple[Node, Node, Node]) -> None:
    a, _, _ = nodes
    a.lead(7, 1)
    a.append(b"x")
    a.restart()
    image = PartitionImage((1, 2, 3), (1, 2), 1, 3, 1)
    assert not a.replica.become_leader(image, 0)
    assert not a.replica.core.is_leader


def test_checkpoints_are_lowered_to_the_end_that_a_cut_into_a_gap_leaves(tmp_path: Path) -> None:
    # Seed 106525: the recovery point stayed above the end, and vouched for records that came there
    # later.
    node = Node(tmp_path, 2)
    node.follow(1, 1, 0)
    log = node.replica.log
    for offset in (0, 1, 9):
        data = build_batch([(None, b"x")], timestamp_ms=1, base_offset=offset, leader_epoch=1)
        log.append_as_follower(bytes(data), now_ms=1)
    assert node.replica.truncate_for(1, 5, 5) == 2
    assert node.lowered == [2]


def test_a_log_start_falls_in_its_checkpoint_once_all_below_it_is_gone(tmp_path: Path) -> None:
    # Seed 200908: the checkpoint fell first, the power failed, and deleted records were back.
    node = Node(tmp_path, 2)
    node.follow(1, 1, 0)
    log = node.replica.log
    for offset in range(6):
        data = build_batch([(None, b"x")], timestamp_ms=1, base_offset=offset, leader_epoch=1)
        log.append_as_follower(bytes(data), now_ms=1)
    log.advance_start_offset(4)
    node.replica.restart_at(9, 5)  # the leader's log begins above
    assert (node.lowered, node.starts) == ([0], [9])
    node.replica.restart_at(2, 5)  # or below: it has lost records that the follower had
    assert (node.lowered, node.starts) == ([0, 0, 0], [9, 9, 2])


def test_a_batch_that_begins_below_the_log_start_comes_when_that_is_durable(tmp_path: Path) -> None:
    node = Node(tmp_path, 2)
    node.follow(1, 1, 0)
    node.replica.restart_at(5, 5)
    del node.lowered[:], node.starts[:]
    data = build_batch([(None, b"x")] * 10, timestamp_ms=1, leader_epoch=1)
    node.replica.append_as_follower(memoryview(data), leader_high_watermark=10, wall_ms=5)
    assert (node.lowered, node.starts) == ([0], [5])
    assert (node.replica.log.start_offset, node.replica.core.high_watermark) == (5, 10)


def test_a_cut_down_to_the_log_start_leaves_nothing_below_it_either(
    nodes: tuple[Node, Node, Node],
) -> None:
    # Seed 271406: records of epoch 3 stayed below the log start, and records of epoch 2 followed
    # them in the same file. The next start, after a kill, refused to open it.
    a, b, _ = nodes
    a.lead(2, 2)
    a.append(b"a", b"b", b"c")
    b.lead(3, 3)
    b.append(b"x", b"y")
    b.replica.move_start(1)
    a.replica.move_start(1)
    a.lead(4, 4)
    b.follow(1, 4, 4)
    assert catch_up(a, b) == 2
    assert b.contents() == [(1, 2), (2, 2)]
    b.replica.log.flush()
    b.replica.log.abandon()
    b.open(high_watermark=0)
    log = b.replica.log
    assert (log.start_offset, log.end_offset, log.segments.bases) == (1, 3, [1])


@pytest.mark.parametrize("is_retired", [False, True])
def test_what_nobody_can_be_asked_about_goes_with_a_cut_to_the_start(
    tmp_path: Path, is_retired: bool
) -> None:
    # After a clean start the epoch history begins at the log start. is_retired: no file holds
    # records below it.
    node = Node(tmp_path, 2)
    node.follow(1, 1, 0)
    log = node.replica.log
    for offset in range(4):
        if is_retired and offset == 2:
            log.roll(now_ms=1)
        data = build_batch(
            [(None, b"x")],
            timestamp_ms=1, base_offset=offset, leader_epoch=1,
            producer_id=7, producer_epoch=0, base_sequence=offset,
        )  # fmt: skip
        log.append_as_follower(bytes(data), now_ms=1)
    log.advance_start_offset(2)
    if is_retired:
        log.flush()
        assert apply_retention(log, now_ms=1, high_watermark=2) == [0]
    log.epochs.epoch_before_start = -1
    assert node.replica.truncate_for(1, 2, 5) == 2
    assert (log.start_offset, log.end_offset, log.segments.bases) == (2, 2, [2])
    assert len(log.producers) == (1 if is_retired else 0)
