"""Followers of logs that begin within a batch, or that diverged while throttled; leaders whose
epoch or min.insync.replicas rises."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode as KioError

from kvorum.metadata.image.image import RESOURCE_TOPIC
from kvorum.metadata.image.records import Config, PartitionChange
from kvorum.storage.files.checkpoints import LOG_START_OFFSET
from tests.polling import eventually
from tests.test_broker.harness import QUIET, Harness
from tests.test_broker.raw_client import RawClient, batch, deleted, produce_values, produced


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    harness = Harness(tmp_path, count=2, config=QUIET)
    yield harness
    harness.close()


def test_a_replica_that_is_added_follows_a_log_that_begins_within_a_batch(
    harness: Harness, client: RawClient, tmp_path: Path
) -> None:
    # Bug: the leader sent the batch around the log start again and again, and the follower took it
    # for a batch that it has.
    controller = harness.cluster.controller
    topic_id = harness.call(lambda: controller.create("t", [(1,)]))
    for _ in range(3):
        assert produced(client, batch()).error_code is KioError.none
    assert deleted(client, 5) is KioError.none
    harness.call(lambda: controller.commit(PartitionChange(topic_id, 0, replicas=(1, 2))))
    eventually(lambda: controller.image.partition(topic_id, 0).isr == (1, 2), "it is in sync")
    log = harness.cluster.replica(2, "t").log
    assert (log.start_offset, log.end_offset, log.segments.bases) == (5, 30, [0])
    # The segment is named after the base offset of the batch, 0, so the log start must be in the
    # checkpoint.
    assert "t 0 5\n" in (tmp_path / "broker-2" / LOG_START_OFFSET).read_text()


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_replica_that_comes_back_follows_a_log_that_begins_within_a_batch(
    harness: Harness, client: RawClient, is_killed: bool
) -> None:
    harness.call(lambda: harness.cluster.controller.create("t", [(1, 2)]))
    assert produced(client, batch()).error_code is KioError.none
    harness.run(harness.cluster.stop_broker(2))
    for _ in range(2):
        assert produced(client, batch()).error_code is KioError.none
    assert deleted(client, 15) is KioError.none
    harness.run(harness.cluster.start_broker(2, is_clean=True))
    eventually(lambda: harness.cluster.replica(2, "t").log.end_offset == 30, "it has caught up")
    assert harness.cluster.replica(2, "t").log.start_offset == 15
    if is_killed:
        harness.run(harness.cluster.crash_broker(2))
        harness.run(harness.cluster.start_broker(2, is_clean=False))
        log = harness.cluster.replica(2, "t").log
        assert (log.start_offset, log.end_offset) == (15, 30)


def test_a_throttled_follower_is_told_where_the_histories_part(harness: Harness) -> None:
    # Bug: the session was opened while the throttle let nothing through, and the leader never
    # checked the partition again.
    controller = harness.cluster.controller
    topic_id = harness.call(
        lambda: controller.create("t", [(1, 2)], {"leader.replication.throttled.replicas": "*"})
    )
    harness.call(lambda: controller.lead(topic_id, 0, 2, (2,)))
    eventually(lambda: harness.cluster.replica(2, "t").core.is_leader, "it leads")
    first = harness.cluster.brokers[1].manager
    harness.call(lambda: first.fetchers.pause(True))
    other = RawClient(harness.cluster.ports[2])
    assert produced(other, batch(), acks=1).error_code is KioError.none
    other.close()
    quota = first.fetch_services.throttle.quota

    def use_up() -> None:
        now_ms = first.now_ms()
        quota.set_rate(1, now_ms)
        quota.record(1_000_000, now_ms)

    harness.call(use_up)
    harness.call(lambda: controller.lead(topic_id, 0, 1, (1,)))
    harness.call(lambda: first.fetchers.pause(False))
    eventually(lambda: harness.cluster.replica(2, "t").log.end_offset == 0, "it is cut")
    assert harness.call(lambda: quota.room(first.now_ms())) == 0


def test_who_waits_goes_on_waiting_when_its_leader_goes_on_in_another_epoch(
    tmp_path: Path,
) -> None:
    # The epoch rises as at the end of a reassignment. Bug: the produce failed, and a producer that
    # is not idempotent wrote its batch twice.
    harness = Harness(tmp_path, count=3, config=QUIET)
    try:
        controller = harness.cluster.controller
        topic_id = harness.call(
            lambda: controller.create("t", [(1, 2, 3)], {"min.insync.replicas": "1"})
        )
        client = RawClient(harness.cluster.ports[1])
        harness.call(lambda: harness.cluster.brokers[2].manager.fetchers.pause(True))
        client.send("produce", 9, produce_values("t", batch(1)))
        eventually(lambda: harness.cluster.replica(1, "t").pending_acks, "it waits")
        epoch = controller.image.partition(topic_id, 0).leader_epoch
        change = PartitionChange(topic_id, 0, replicas=(1, 2), isr=(1, 2), leader=1)
        harness.call(lambda: controller.commit(change))
        assert controller.image.partition(topic_id, 0).leader_epoch == epoch + 1
        harness.call(lambda: harness.cluster.brokers[2].manager.fetchers.pause(False))
        row = client.answer("produce", 9).responses[0].partition_responses[0]
        assert (row.error_code, row.base_offset) == (KioError.none, 0)
        client.close()
    finally:
        harness.close()


@pytest.mark.parametrize(
    ("version", "timestamp", "found"),
    [(7, 1002, (KioError.none, 2)), (7, 1005, (KioError.offset_not_available, -1)),
     (7, -1, (KioError.offset_not_available, -1)), (7, -3, (KioError.offset_not_available, -1)),
     (5, -1, (KioError.offset_not_available, -1)), (4, -1, (KioError.leader_not_available, -1)),
     (4, 1005, (KioError.leader_not_available, -1)), (4, 1002, (KioError.none, 2))],
    ids=["below the watermark", "above", "the end", "the largest", "since version 5",
         "the end, before", "above, before", "below, before"],
)  # fmt: skip
def test_a_new_leader_tells_of_what_is_surely_committed(
    harness: Harness, client: RawClient, version: int, timestamp: int, found: tuple[KioError, int]
) -> None:
    controller = harness.cluster.controller
    topic_id = harness.call(lambda: controller.create("t", [(1, 2)], {"min.insync.replicas": "2"}))
    for at in range(5):
        assert produced(client, batch(1, 1000 + at)).error_code is KioError.none
    follower = harness.cluster.replica(2, "t")
    eventually(lambda: follower.core.high_watermark == 5, "it is committed everywhere")
    # The follower gets one more record, but no high watermark above it.
    harness.call(lambda: controller.lead(topic_id, 0, 1, (1,)))
    produced(client, batch(1, 1005), acks=1)
    eventually(lambda: follower.log.end_offset == 6, "it is replicated")
    harness.run(harness.cluster.crash_broker(1))
    harness.call(lambda: harness.cluster.fence(1))
    harness.call(lambda: controller.lead(topic_id, 0, 2, (2,)))
    eventually(lambda: follower.core.is_leader, "it leads")
    other = RawClient(harness.cluster.ports[2])
    asked = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp}
    topics = [{"name": "t", "partitions": [asked]}]
    values = {"replica_id": -1, "isolation_level": 0, "topics": topics}
    row = other.call("list_offsets", version, values).topics[0].partitions[0]
    other.close()
    assert (row.error_code, row.offset) == found


def test_a_debugging_consumer_is_told_the_end_of_any_replicas_log(
    harness: Harness, client: RawClient
) -> None:
    harness.call(lambda: harness.cluster.controller.create("t", [(1, 2)]))
    produced(client, batch(1), acks=-1)
    follower = harness.cluster.replica(2, "t")
    eventually(lambda: follower.core.high_watermark == 1, "it is committed everywhere")
    harness.call(lambda: harness.cluster.brokers[2].manager.fetchers.pause(True))
    produced(client, batch(1), acks=1)
    found = {}
    for broker_id in (1, 2):
        other = RawClient(harness.cluster.ports[broker_id])
        for replica_id in (-1, -2):
            asked = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
            topics = [{"name": "t", "partitions": [asked]}]
            values = {"replica_id": replica_id, "isolation_level": 1, "topics": topics}
            row = other.call("list_offsets", 7, values).topics[0].partitions[0]
            found[broker_id, replica_id] = (row.error_code.name, row.offset)
        other.close()
    assert found == {
        (1, -1): ("none", 1),
        (1, -2): ("none", 2),
        (2, -1): ("not_leader_or_follower", -1),
        (2, -2): ("none", 1),
    }


def test_a_repeated_batch_is_answered_with_the_time_of_its_append(
    harness: Harness, client: RawClient
) -> None:
    configs = {"message.timestamp.type": "LogAppendTime"}
    harness.call(lambda: harness.cluster.controller.create("t", [(1,)], configs))
    data = batch(2, producer_id=7, producer_epoch=0, base_sequence=0)
    first, repeated = produced(client, data), produced(client, data)
    assert repeated.base_offset == first.base_offset == 0
    assert repeated.log_append_time == first.log_append_time is not None


def test_a_minimum_counts_before_the_isr_that_comes_with_it(
    harness: Harness, client: RawClient
) -> None:
    # Otherwise a replica that left the ISR is eligible by the new min.insync.replicas, but lacks
    # acknowledged records.
    controller = harness.cluster.controller
    configs = {"min.insync.replicas": "1"}
    topic_id = harness.call(lambda: controller.create("t", [(1, 2)], configs))
    leader = harness.cluster.replica(1, "t")
    eventually(lambda: leader.core.followers[2].end_offset == 0, "it is followed")
    harness.call(lambda: harness.cluster.brokers[2].manager.fetchers.pause(True))
    client.send("produce", 9, produce_values("t", batch(), timeout_ms=500))
    eventually(lambda: leader.pending_acks, "it waits")
    raised = Config(RESOURCE_TOPIC, "t", "min.insync.replicas", "2")
    left = PartitionChange(topic_id, 0, isr=(1,), elr=(2,))
    harness.call(lambda: controller.commit(raised, left))
    assert leader.core.isr_state.isr == {1}
    assert leader.core.high_watermark == 0
    row = client.answer("produce", 9).responses[0].partition_responses[0]
    assert row.error_code is KioError.request_timed_out
    # A lower minimum lets the high watermark rise again.
    lowered = Config(RESOURCE_TOPIC, "t", "min.insync.replicas", "1")
    harness.call(lambda: controller.commit(lowered, PartitionChange(topic_id, 0, isr=(1,), elr=())))
    assert leader.core.high_watermark == 10
