"""Following the metadata of a cluster, read by read, from fake controllers."""

from __future__ import annotations

import pytest

from kvorum.client.failures import EXIT_UNREACHABLE, CommandFailed
from kvorum.console import source as source_module
from kvorum.console.source import BEHIND_LOOKS_MAX, ClusterSource
from kvorum.metadata.image.records import PartitionChange
from kvorum.metadata.inspect.history import MetadataCopy
from kvorum.rpc import admin_pb2 as pb
from tests.test_console.samples import ORDERS, cluster_records, history_with

NOW_MS = 1_800_000_000_000


class Controllers:
    """Three controllers with one log. asked: the offsets from which it was read."""

    def __init__(self, records):
        self.records = list(records)
        self.cluster_id = "abc"
        self.leader_id = 2
        self.epoch = 5
        self.is_reachable = True
        self.trimmed_to = 0
        self.asked = []
        self.timeline_reads = 0
        self.opened = 0
        self.closed = 0

    def open(self, kind, addresses, timeout_s):
        self.opened += 1
        if not self.is_reachable:
            raise CommandFailed(f"no {kind} reachable at {addresses}", 3)
        return self

    def close(self):
        self.closed += 1

    def addresses(self):
        return {n: f"127.0.0.1:{n}" for n in (1, 2, 3)}

    def outage(self, replies):
        return f"no quorum: {len(replies)} answer"

    def describe_all(self):
        if not self.is_reachable:
            raise CommandFailed("no controller reachable", EXIT_UNREACHABLE)
        voters = [
            pb.QuorumReplica(
                node_id=n, log_end_offset=len(self.records), last_fetch_timestamp_ms=NOW_MS
            )
            for n in (1, 2, 3)
        ]
        return {
            n: pb.DescribeQuorumReply(
                cluster_id=self.cluster_id,
                node_id=n,
                leader_id=self.leader_id,
                leader_epoch=self.epoch,
                high_watermark=len(self.records),
                role="leader" if n == self.leader_id else "follower",
                voters=voters,
            )
            for n in (1, 2, 3)
        }

    def read_metadata_log(self, from_offset=0):
        self.asked.append(from_offset)
        whole = history_with(*self.records).records
        before = len(history_with(*self.records[:from_offset]).records) if from_offset else 0
        return MetadataCopy(records=whole[before:], high_watermark=len(self.records))

    def read_timelines(self, *, is_missing_told):
        assert not is_missing_told
        self.timeline_reads += 1
        return [(NOW_MS, 2, f"epoch={self.epoch} leader={self.leader_id}")]


@pytest.fixture
def controllers(monkeypatch):
    played = Controllers(cluster_records())
    monkeypatch.setattr(source_module, "controllers_of", played.open)
    return played


@pytest.fixture
def source(controllers):
    return ClusterSource("broker", [("h", 1)], 1.0)


def test_only_new_records_are_asked_for(controllers, source):
    first = source.read()
    assert first.image.topic("orders").partitions[1].isr == (101, 102, 103)
    assert source.read().image is first.image
    controllers.records.append(PartitionChange(topic_id=ORDERS, partition_id=1, isr=(101,)))
    assert source.read().image.topic("orders").partitions[1].isr == (101,)
    assert controllers.asked == [0, 10]
    assert controllers.opened == 1


def test_image_that_grew_is_that_of_a_fresh_look(controllers, source):
    source.read()
    for number in range(3):
        controllers.records.append(
            PartitionChange(topic_id=ORDERS, partition_id=number, isr=(101, 103))
        )
        assert source.read().image == ClusterSource("broker", [("h", 1)], 1.0).read().image


def test_another_cluster_at_the_address_is_read_from_its_beginning(controllers, source):
    source.read()
    controllers.cluster_id = "other"
    controllers.records = list(cluster_records())[:2]
    sample = source.read()
    assert (sample.cluster_id, sample.image.end_offset) == ("other", 2)
    assert controllers.asked == [0, 0]


def test_log_that_was_cut_is_read_again_after_a_while(controllers, source):
    source.read()
    controllers.records = controllers.records[:7]
    ends = [source.read().image.end_offset for _ in range(BEHIND_LOOKS_MAX + 1)]
    # A new leader may know a lower end for a moment.
    assert ends == [10] * BEHIND_LOOKS_MAX + [7]


def test_controllers_that_went_away_are_looked_for_again(controllers, source):
    source.read()
    controllers.is_reachable = False
    for _ in range(2):
        with pytest.raises(CommandFailed):
            source.read()
    assert controllers.closed == 1
    controllers.is_reachable = True
    assert source.read().leader_id == 2
    assert controllers.asked == [0]


def test_without_a_leader_the_sample_says_why(controllers, source):
    controllers.leader_id = -1
    sample = source.read()
    assert (sample.leader_id, sample.no_quorum) == (-1, "no quorum: 3 answer")
    assert {node.end_offset for node in sample.nodes} == {-1}
    assert sample.image.topic("orders") is not None


def test_timelines_are_read_when_an_election_shows(controllers, source):
    source.read()
    source.read()
    assert controllers.timeline_reads == 1
    controllers.epoch, controllers.leader_id = 6, 3
    texts = [line.text for line in source.read().timeline]
    assert texts == ["epoch=5 leader=2", "epoch=6 leader=3"]
    assert controllers.timeline_reads == 2


def test_brokers_are_named_with_the_unfenced_first(controllers, source):
    with pytest.raises(CommandFailed, match="not answered yet"):
        source.broker_addresses()
    source.read()
    assert source.broker_addresses() == [("127.0.0.1", 9092 + n) for n in range(3)]
