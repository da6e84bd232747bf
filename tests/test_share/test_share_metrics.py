"""The counters of share groups: alone, and those of two brokers at work."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from bench.observed import Observed
from kvorum.broker.coordinator.model import Instant, ShardRequest
from kvorum.broker.metrics.share_counters import ACKNOWLEDGE_TYPES, ShareMetrics
from kvorum.broker.share.core.sessions import ShareSessions
from kvorum.broker.share.core.states import AcknowledgeType
from kvorum.broker.share.led_share_partition import LedSharePartition
from kvorum.broker.share.manager import SharePartitionManager
from kvorum.broker.share_state.records import ShareKey
from kvorum.broker.share_state.requests import InitializeState, WriteState
from kvorum.broker.share_state.shard import ShareStateConfig, ShareStateShard
from kvorum.launch.metrics.broker_view import BrokerView
from kvorum.launch.metrics.page import lines
from kvorum.launch.metrics.row import KAFKA, OWN
from kvorum.launch.metrics.rows import ROWS
from kvorum.metadata.image.records import Config, RemoveTopic
from kvorum.runtime.errors import ErrorCode
from tests.polling import eventually
from tests.test_broker.harness import Harness
from tests.test_share.members import CONFIG, RESOURCE_GROUP, id_of, produce, row_of

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
LONG_LOCKS = dataclasses.replace(CONFIG, group_share_record_lock_duration_ms=60_000)


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


def test_writes_of_a_coordinator_and_rebalances_have_rates_of_the_last_minute():
    metrics = ShareMetrics()
    for took_ms, now_ms in ((4, 1_000), (8, 31_000)):
        metrics.note_coordinator_write(took_ms, now_ms)
        metrics.note_rebalance(now_ms)
    recent = metrics.coordinator_write_recent
    assert (recent.mean(31.0), recent.maximum(31.0)) == (6.0, 8.0)
    assert metrics.coordinator_writes_recent.rate(31.0) == 2 / 30
    assert (metrics.rebalances, metrics.rebalances_recent.rate(31.0)) == (2, 2 / 30)
    assert metrics.coordinator_write_s.sum == 0.012
    assert recent.mean(95.0) is None


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
    shard = ShareStateShard(ShareStateConfig(), metrics)
    key = ShareKey("g", bytes(16), 0)

    def ask(body: InitializeState | WriteState) -> None:
        shard.step(ShardRequest(token=1, body=body), Instant(0, 0))

    write = WriteState(key=key, state_epoch=1, leader_epoch=0, start_offset=3)
    ask(write)  # there is no state yet
    assert metrics.coordinator_writes == 0
    ask(InitializeState(key=key, state_epoch=1))
    ask(write)
    assert metrics.coordinator_writes == 1


# --- two brokers ---------------------------------------------------------------------------------


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    """Brokers of each test's own: the counters begin at 0."""
    harness = Harness(tmp_path, count=2, config=LONG_LOCKS)
    yield harness
    harness.close()


def metrics_of(harness: Harness, broker_id: int = 1) -> ShareMetrics:
    return harness.cluster.brokers[broker_id].manager.metrics.share


def partitions_of(harness: Harness) -> SharePartitionManager:
    return harness.cluster.brokers[1].server.services.share.partitions


def only_led(harness: Harness) -> LedSharePartition:
    (led,) = partitions_of(harness).led.active()
    return led


def test_a_leader_counts_deliveries_and_acknowledgements(client, harness, topic, member):
    metrics = metrics_of(harness)
    produce(client, topic)
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
    # A refused acknowledgement is not counted.
    refused = row_of(member.acknowledge([(6, 9, ACCEPT)]))
    assert refused.error_code == ErrorCode.INVALID_RECORD_STATE
    assert metrics.acknowledged == [0, 7, 2, 1, 2]


def test_writes_of_state_are_timed_by_the_leader_and_counted_by_the_coordinator(
    client, harness, topic, member
):
    metrics = metrics_of(harness)
    produce(client, topic)
    member.take()
    member.acknowledge([(0, 9, ACCEPT)])
    writes = metrics.state_write_s.count
    assert writes >= 1
    taken = sum(metrics_of(harness, broker_id).coordinator_writes for broker_id in (1, 2))
    assert taken == writes
    timed = sum(metrics_of(harness, broker_id).coordinator_write_s.count for broker_id in (1, 2))
    assert timed == writes
    assert metrics.failed_state_writes == 0


def test_a_write_that_the_share_coordinator_refuses_is_counted(client, harness, topic, member):
    produce(client, topic)
    member.take()
    led = only_led(harness)
    # As after an alteration of offsets, or a newer leader.
    harness.call(lambda: setattr(led, "state_epoch", -1))
    refused = row_of(member.acknowledge([(0, 9, ACCEPT)]))
    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert metrics_of(harness).failed_state_writes == 1


def test_records_of_a_lock_that_ends_are_counted(client, harness, topic, group_id, member):
    lock = Config(RESOURCE_GROUP, group_id, "share.record.lock.duration.ms", "1000")
    harness.call(lambda: harness.cluster.controller.commit(lock))
    metrics = metrics_of(harness)
    produce(client, topic)
    member.take()
    member.acknowledge([(0, 2, ACCEPT)])
    led = only_led(harness)
    eventually(lambda: metrics.lock_timeouts > 0, "the lock ends")
    assert (metrics.lock_timeouts, led.lock_timeouts, led.acquired_records) == (7, 7, 0)


def test_sessions_and_led_share_partitions_go_with_the_connection(client, harness, topic, member):
    produce(client, topic)
    member.take()
    partitions = partitions_of(harness)
    sessions = partitions.sessions
    assert (sessions.count, sessions.partition_count, len(partitions.led.active())) == (1, 1, 1)
    client.close()
    eventually(lambda: sessions.count == 0, "the session ends")
    eventually(lambda: not partitions.led.active(), "the share-partition is retired")


# --- the page ------------------------------------------------------------------------------------


def page_of(harness: Harness, names: str, broker_id: int = 1) -> dict[str, float]:
    """The values of a broker's page, by name{labels}."""
    broker, observed = harness.cluster.brokers[broker_id], Observed(0)
    server: Any = SimpleNamespace(services=broker.server.services)

    def written() -> str:
        view = BrokerView(
            observed.raft, server, observed.watch,
            now_s=0.0, age_ms=0, is_fenced=False, refuses_leader=False,
        )  # fmt: skip
        return "".join(line or "" for line in lines(ROWS["broker"], view, (names,)))

    return {
        f"{sample.name}{{{','.join(f'{k}={v}' for k, v in sorted(sample.labels.items()))}}}": (
            sample.value
        )
        for family in text_string_to_metric_families(harness.call(written))
        for sample in family.samples
    }


def unsettled(page: dict[str, float], group_id: str, topic: str) -> list[float]:
    """The records in flight of the only share-partition by deliveries: 1, 2, 3 or more."""
    name = "kvorum_share_partition_unsettled_records"
    return [
        page[f"{name}{{deliveries={times},group={group_id},partition=0,topic={topic}}}"]
        for times in ("1", "2", "3+")
    ]


def test_the_page_has_groups_share_partitions_and_share_coordinators(
    client, harness, topic, group_id, member
):
    produce(client, topic)
    member.take()
    member.acknowledge([(1, 3, ACCEPT), (4, 4, RELEASE)])
    page = page_of(harness, OWN)
    assert page["kvorum_groups{type=share}"] == page["kvorum_share_groups{state=Stable}"] == 1
    assert page["kvorum_share_groups{state=Empty}"] == 0
    assert page["kvorum_group_members{}"] == page["kvorum_share_group_members{}"] == 1
    assert page["kvorum_share_partitions{}"] == 1
    labels = f"{{group={group_id},partition=0,topic={topic}}}"
    assert page[f"kvorum_share_partition_in_flight_records{labels}"] == 10
    assert page[f"kvorum_share_partition_acquired_records{labels}"] == 6
    assert page[f"kvorum_share_partition_lock_timeouts_total{labels}"] == 0
    assert unsettled(page, group_id, topic) == [7, 0, 0]
    assert member.take() == [(4, 4, 2)]
    assert unsettled(page_of(harness, OWN), group_id, topic) == [6, 1, 0]
    for count in (3, 4):
        member.acknowledge([(4, 4, RELEASE)])
        assert member.take() == [(4, 4, count)]
    assert unsettled(page_of(harness, OWN), group_id, topic) == [6, 0, 1]
    assert page["kvorum_share_group_rebalances_total{}"] >= 1
    assert page["kvorum_share_sessions{}"] == page["kvorum_share_session_partitions{}"] == 1
    assert page["kvorum_share_deliveries_total{}"] == 10
    assert page["kvorum_share_acknowledgements_total{type=Accept}"] == 3
    assert page["kvorum_share_acknowledgements_total{type=Release}"] == 1
    assert page["kvorum_share_state_write_seconds_count{}"] >= 1
    other = page_of(harness, OWN, broker_id=2)
    # The topics of offsets and of states have four partitions each.
    shards = "kvorum_coordinator_shards{}"
    assert page[shards] + other[shards] == 8
    states = "kvorum_share_coordinator_states{}"
    assert page[states] + other[states] == 1


def test_the_page_has_the_names_of_kafka(client, harness, topic, group_id, member):
    produce(client, topic)
    member.take()
    member.acknowledge([(0, 0, REJECT)])
    pages = [page_of(harness, KAFKA, broker_id) for broker_id in (1, 2)]
    page = pages[0]
    groups = "kafka_server_group_coordinator_metrics_"
    assert page[f"{groups}group_count{{protocol=share}}"] == 1
    assert page[f"{groups}share_group_count{{state=Stable}}"] == 1
    assert page[f"{groups}share_group_rebalance_count{{}}"] >= 1
    assert page[f"{groups}share_group_rebalance_rate{{}}"] > 0
    for name in ("write_rate", "write_latency_avg", "write_latency_max"):
        found = [p.get(f"kafka_server_share_coordinator_metrics_{name}{{}}") for p in pages]
        assert max(value for value in found if value is not None) >= (name == "write_rate") * 1e-9
    labels = f"{{group={group_id},partition=0,topic={topic}}}"
    assert page[f"kafka_server_sharepartitionmetrics_inflightmessagecount{labels}"] == 9
    total = "kafka_server_sharegroupmetrics_recordacknowledgements_total"
    assert page[f"{total}{{ackType=Reject}}"] == 1
    assert page["kafka_server_sharesessioncache_sharesessionscount{}"] == 1
    assert page["kafka_server_share_coordinator_metrics_num_partitions{state=active}"] >= 1


def test_a_share_partition_of_a_deleted_topic_has_no_series(client, harness, topic, member):
    produce(client, topic)
    member.take()
    assert any("share_partition_in" in name for name in page_of(harness, OWN))
    gone = RemoveTopic(id_of(harness, topic))
    harness.call(lambda: harness.cluster.controller.commit(gone))
    assert not any("share_partition_in" in name for name in page_of(harness, OWN))
