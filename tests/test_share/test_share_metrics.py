"""What a broker counts of share groups: the counters alone, and those of two brokers at work."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kvorum.broker.metrics.share_counters import ACKNOWLEDGE_TYPES, ShareMetrics
from kvorum.broker.share.core.sessions import ShareSessions
from kvorum.broker.share.core.states import AcknowledgeType
from kvorum.broker.share.led_share_partition import LedSharePartition
from kvorum.broker.share.manager import SharePartitionManager
from kvorum.broker.share_state.records import ShareKey
from kvorum.broker.share_state.requests import InitializeState, WriteState
from kvorum.broker.share_state.shard import ShareStateConfig, ShareStateShard
from kvorum.metadata.image.records import Config
from kvorum.runtime.errors import ErrorCode
from tests.polling import eventually
from tests.test_broker.group_requests import group_led_by
from tests.test_broker.harness import Harness
from tests.test_broker.raw_client import RawClient
from tests.test_share.test_share_apis import (
    CONFIG,
    RESOURCE_GROUP,
    Member,
    id_of,
    joined,
    produce,
)
from tests.test_share.test_share_state_shard import Host

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
TOPIC = "orders"


# --- the counters alone --------------------------------------------------------------------------


def test_each_type_of_an_acknowledgement_has_a_counter():
    assert sorted(AcknowledgeType) == list(range(ACKNOWLEDGE_TYPES))


def test_acknowledgements_count_records_by_one_type_or_by_many():
    metrics = ShareMetrics()
    metrics.note_acknowledged([(0, 9, (ACCEPT,)), (10, 10, (REJECT,))])
    metrics.note_acknowledged([(11, 14, (ACCEPT, RELEASE, RELEASE, RENEW))])
    assert metrics.acknowledged == [0, 11, 2, 1, 1]


def test_a_record_that_comes_again_is_a_delivery_and_a_redelivery():
    metrics = ShareMetrics()
    metrics.note_acquired([(0, 4, 1), (5, 5, 3)])
    assert (metrics.deliveries, metrics.redeliveries) == (6, 1)


def test_a_failed_write_is_timed_too():
    metrics = ShareMetrics()
    metrics.note_state_write(4, is_kept=True)
    metrics.note_state_write(10_000, is_kept=False)
    assert (metrics.state_write_s.count, metrics.failed_state_writes) == (2, 1)
    assert metrics.state_write_s.sum == 10.004


def test_sessions_count_a_partition_for_each_member():
    sessions = ShareSessions(5)
    for member_id in ("a", "b"):
        session = sessions.open("g", member_id, member_id)
        assert not isinstance(session, ErrorCode)
        session.partitions.update({(b"t", 0): None, (b"t", 1): None})
    assert (sessions.count, sessions.partition_count) == (2, 4)
    sessions.remove("g", "a")
    assert (sessions.count, sessions.partition_count) == (1, 2)


def test_a_share_coordinator_counts_the_writes_that_it_takes():
    metrics = ShareMetrics()
    host = Host()
    host.shard = ShareStateShard(ShareStateConfig(), metrics)
    key = ShareKey("g", bytes(16), 0)
    write = WriteState(key=key, state_epoch=1, leader_epoch=0, start_offset=3)
    assert host.ask(write) == ErrorCode.INVALID_REQUEST  # there is no state yet
    assert metrics.coordinator_writes == 0
    host.ask(InitializeState(key=key, state_epoch=1))
    assert host.ask(write) == ErrorCode.NONE
    assert metrics.coordinator_writes == 1


# --- two brokers ---------------------------------------------------------------------------------


@pytest.fixture
def harness(tmp_path) -> Iterator[Harness]:
    harness = Harness(tmp_path, count=2, config=CONFIG)
    harness.call(lambda: harness.cluster.controller.create(TOPIC, [(1, 2)]))
    yield harness
    harness.close()


@pytest.fixture
def client(harness: Harness) -> Iterator[RawClient]:
    client = RawClient(harness.cluster.brokers[1].port)
    yield client
    client.close()


@pytest.fixture
def group_id(client: RawClient, harness: Harness) -> str:
    def has_coordinator() -> bool:
        values = {"key_type": 0, "coordinator_keys": ["x"]}
        return client.call("find_coordinator", 6, values).coordinators[0].error_code == 0

    eventually(has_coordinator, "the topic of offsets is there")
    group_id = group_led_by(client, 1, "workers")
    configs = Config(RESOURCE_GROUP, group_id, "share.auto.offset.reset", "earliest")
    harness.call(lambda: harness.cluster.controller.commit(configs))
    return group_id


@pytest.fixture
def member(client: RawClient, harness: Harness, group_id: str) -> Member:
    joined(client, group_id, "a", TOPIC)
    return Member(client, group_id, "a", id_of(harness, TOPIC))


def metrics_of(harness: Harness, broker_id: int = 1) -> ShareMetrics:
    return harness.cluster.brokers[broker_id].manager.metrics.share


def partitions_of(harness: Harness) -> SharePartitionManager:
    return harness.cluster.brokers[1].server.services.share.partitions


def only_led(harness: Harness) -> LedSharePartition:
    (led,) = partitions_of(harness).led.active()
    return led


def test_a_leader_counts_deliveries_and_acknowledgements(client, harness, member):
    metrics = metrics_of(harness)
    produce(client, TOPIC, 10)
    assert member.take() == [(0, 9, 1)]
    assert (metrics.deliveries, metrics.redeliveries) == (10, 0)
    assert only_led(harness).acquired_records == 10
    member.acknowledge([(0, 5, ACCEPT), (6, 9, (RELEASE, RELEASE, REJECT, ACCEPT))])
    assert metrics.acknowledged == [0, 7, 2, 1, 0]
    assert only_led(harness).acquired_records == 0
    assert member.take() == [(6, 7, 2)]
    assert (metrics.deliveries, metrics.redeliveries) == (12, 2)
    member.acknowledge([(6, 7, RENEW)], is_renew_ack=True)
    assert metrics.acknowledged[RENEW] == 2
    # What was refused is not counted.
    member.acknowledge([(6, 9, ACCEPT)])
    assert metrics.acknowledged == [0, 7, 2, 1, 2]


def test_writes_of_state_are_timed_by_the_leader_and_counted_by_the_coordinator(
    client, harness, member
):
    metrics = metrics_of(harness)
    produce(client, TOPIC)
    member.take()
    member.acknowledge([(0, 9, ACCEPT)])
    writes = metrics.state_write_s.count
    assert writes >= 1
    taken = sum(metrics_of(harness, broker_id).coordinator_writes for broker_id in (1, 2))
    assert taken == writes
    assert metrics.failed_state_writes == 0


def test_a_write_that_the_share_coordinator_refuses_is_counted(client, harness, group_id, member):
    produce(client, TOPIC)
    member.take()
    led = only_led(harness)
    # As after an alteration of offsets, or a newer leader.
    harness.call(lambda: setattr(led, "state_epoch", -1))
    answer = member.acknowledge([(0, 9, ACCEPT)])
    row = answer.responses[0].partitions[0]
    assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert metrics_of(harness).failed_state_writes == 1


def test_records_of_a_lock_that_ends_are_counted(client, harness, member):
    metrics = metrics_of(harness)
    produce(client, TOPIC, 10)
    member.take()
    member.acknowledge([(0, 2, ACCEPT)])
    led = only_led(harness)
    eventually(lambda: metrics.lock_timeouts > 0, "the lock ends")
    assert (metrics.lock_timeouts, led.lock_timeouts, led.acquired_records) == (7, 7, 0)


def test_sessions_and_led_share_partitions_go_with_the_connection(client, harness, member):
    produce(client, TOPIC)
    member.take()
    partitions = partitions_of(harness)
    sessions = partitions.sessions
    assert (sessions.count, sessions.partition_count, len(partitions.led.active())) == (1, 1, 1)
    client.close()
    eventually(lambda: sessions.count == 0, "the session ends")
    eventually(lambda: not partitions.led.active(), "the share-partition is retired")
