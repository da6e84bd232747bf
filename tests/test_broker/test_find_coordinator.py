"""FindCoordinator: the topic is made at first need, the leader of the key's partition is named."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from kio.schema.errors import ErrorCode as KioError

from kvorum.broker.coordinator.host import CoordinatorHost
from kvorum.broker.coordinator.keys import partition_of
from kvorum.broker.coordinator.model import Effect, Event, Instant, ReplayedRecord, TransactionEnd
from kvorum.broker.metadata_answers.topic_names import OFFSETS_TOPIC
from tests.polling import eventually
from tests.test_broker.harness import DEADLINE_S, QUICK, Harness
from tests.test_broker.raw_client import RawClient


class Silent:
    """A shard that does nothing."""

    def replay(self, record: ReplayedRecord) -> None: ...

    def replay_end(self, end: TransactionEnd) -> None: ...

    def on_loaded(self, now: Instant) -> list[Effect]:
        return []

    def step(self, event: Event, now: Instant) -> list[Effect]:
        return []


def serve_groups(harness: Harness) -> None:
    def on_loop() -> None:
        for broker in harness.cluster.brokers.values():
            broker.server.services.groups = CoordinatorHost(
                topic=OFFSETS_TOPIC,
                replicas=broker.manager,
                make_shard=lambda partition_id, leader_epoch: Silent(),
            )

    harness.call(on_loop)


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    harness = Harness(
        tmp_path, count=2, config=dataclasses.replace(QUICK, offsets_topic_replication_factor=2)
    )
    serve_groups(harness)
    yield harness
    harness.close()


def find(client: RawClient, *keys: str, kind: int = 0):
    asked = {"key_type": kind, "coordinator_keys": list(keys)}
    return client.call("find_coordinator", 4, asked).coordinators


def test_the_first_question_makes_the_topic_and_then_each_key_has_its_leader(
    harness: Harness, client: RawClient
) -> None:
    first = find(client, "a")[0]
    assert first.error_code is KioError.coordinator_not_available
    assert first.error_message == "__consumer_offsets is being made"
    eventually(lambda: find(client, "a")[0].error_code is KioError.none, "a coordinator")
    topic = harness.cluster.controller.image.topic(OFFSETS_TOPIC)
    assert topic is not None and len(topic.partitions) == 50
    configs = harness.cluster.controller.image.topic_configs(OFFSETS_TOPIC)
    assert configs["cleanup.policy"] == "compact"
    keys = [f"group-{i}" for i in range(20)]
    for key, found in zip(keys, find(client, *keys), strict=True):
        leader = topic.partitions[partition_of(key, 50)].leader
        assert (found.key, found.node_id) == (key, leader)
        assert found.port == harness.cluster.ports[leader]
    old = client.call("find_coordinator", 0, {"key": "group-0"})
    assert old.node_id == topic.partitions[partition_of("group-0", 50)].leader


def test_too_few_brokers_for_the_topic_are_named_in_the_answer(
    harness: Harness, client: RawClient
) -> None:
    harness.call(lambda: harness.cluster.fence(2))

    def reason() -> str:
        return find(client, "a")[0].error_message or ""

    eventually(
        lambda: reason() == "__consumer_offsets cannot be made: INVALID_REPLICATION_FACTOR",
        "the refusal is told",
    )


def test_a_group_may_have_an_empty_id_and_no_other_kind_of_key_may(client: RawClient) -> None:
    empty, good = find(client, "", "a")
    assert empty.error_code is KioError.coordinator_not_available  # its topic is being made
    assert good.error_code is KioError.coordinator_not_available
    assert find(client, "", kind=1)[0].error_code is KioError.invalid_request
    assert find(client, "s", kind=2)[0].error_code is KioError.invalid_request


def test_clients_see_the_topic_as_internal_and_cannot_write_to_it(
    harness: Harness, client: RawClient
) -> None:
    find(client, "a")
    eventually(lambda: find(client, "a")[0].error_code is KioError.none, "a coordinator")
    listed = client.call("metadata", 9, {"topics": None}).topics
    assert [(topic.name, topic.is_internal) for topic in listed] == [(OFFSETS_TOPIC, True)]
    bootstrap = {"bootstrap.servers": harness.bootstrap}
    errors: list[object] = []
    producer = Producer({**bootstrap, "message.timeout.ms": 5000})
    producer.produce(OFFSETS_TOPIC, b"v", b"k", on_delivery=lambda e, _: errors.append(e.name()))
    producer.flush(DEADLINE_S)
    assert errors == ["TOPIC_EXCEPTION"]
    asked = {"topics": [{"name": OFFSETS_TOPIC, "partitions": [
        {"partition_index": i, "offset": -1} for i in (0, 1)
    ]}], "timeout": 1000}  # fmt: skip
    rows = client.call("delete_records", 2, asked).topics[0].partitions
    assert KioError.invalid_topic_exception in {row.error_code for row in rows}
