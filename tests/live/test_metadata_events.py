"""`__kvorum_events` while its leader dies: every change of the metadata once, in order."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from kvorum.cli.controller_client import BlockingControllerClient
from kvorum.metadata.events.feed import record_feed
from kvorum.metadata.image.image import EMPTY_IMAGE
from kvorum.metadata.inspect.history import MetadataCopy, history_of
from tests.live.clients import TopicMaker, Topics, settings
from tests.live.cluster import Cluster, broker_name
from tests.polling import DEADLINE_S, eventually

pytestmark = [pytest.mark.live, pytest.mark.timeout(240)]

EVENTS = "__kvorum_events"
ALL = {101, 102, 103}
Row = tuple[str, bytes | None]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, settings=("metadata.events.topic.enable=true",)) as cluster:
        yield cluster


def told(copy: MetadataCopy) -> list[Row]:
    """Keys and values that the metadata log's records should have led to."""
    rows: list[Row] = []
    for _, event in record_feed(EMPTY_IMAGE, history_of(copy, name="the log").entries()):
        if event is not None:
            rows.append((event.key, event.value()))
            rows += [(key, None) for key in event.removed]
    return rows


class Reader:
    """Reads the topic from its beginning, and goes on where it was."""

    def __init__(self, bootstrap: str) -> None:
        self.rows: list[Row] = []
        self._consumer = Consumer(settings(bootstrap, group_id="events", enable_auto_commit=False))
        self._consumer.assign([TopicPartition(EVENTS, 0, 0)])

    def poll(self) -> None:
        for message in self._consumer.consume(500, 0.2):
            if message.error() is None:
                self.rows.append((message.key().decode(), message.value()))

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(value) for _, value in self.rows if value is not None]

    def close(self) -> None:
        self._consumer.close()


def log_of(cluster: Cluster) -> MetadataCopy:
    addresses = [("127.0.0.1", cluster.ports.controller + i) for i in range(3)]
    active = BlockingControllerClient(addresses, 5.0).describe().leader_id
    return BlockingControllerClient([addresses[active - 1]], 5.0).read_metadata_log()


def read_until_equal(cluster: Cluster, reader: Reader) -> None:
    """Return once the reader has all of the events that the metadata log has led to by now."""
    wanted = told(log_of(cluster))
    eventually(
        lambda: len(reader.rows) >= len(wanted),
        f"{len(wanted)} records of {EVENTS}",
        meanwhile=reader.poll,
    )
    assert reader.rows[: len(wanted)] == wanted


def test_every_change_is_there_once_though_the_leader_dies(cluster: Cluster) -> None:
    topics = Topics(cluster.bootstrap)
    eventually(lambda: EVENTS in topics.names(), "the topic is made without a client")
    topics.wait_isr(EVENTS, ALL)
    reader = Reader(cluster.bootstrap)
    maker = TopicMaker(cluster.bootstrap, "made", replicas=3)
    for _ in range(2):
        leader = topics.leader(EVENTS)
        maker.wait_more(10)
        cluster.kill(broker_name(leader))
        maker.wait_more(10)
        cluster.restart(broker_name(leader))
        topics.wait_isr(EVENTS, ALL)
    made = maker.finish()
    read_until_equal(cluster, reader)
    events = reader.events()
    offsets = [event["offset"] for event in events]
    assert all(before < after for before, after in pairwise(offsets))
    created = {event["topic"] for event in events if event["kind"] == "topic_created"}
    assert made <= created
    kinds = {event["kind"] for event in events}
    assert {"partition_changed", "broker_fenced", "broker_unfenced", "controller_elected"} <= kinds
    reader.close()

    assert cluster.stop() == 0
    cluster.start()
    again = Reader(cluster.bootstrap)
    Topics(cluster.bootstrap).create("after")
    read_until_equal(cluster, again)
    offsets = [event["offset"] for event in again.events()]
    assert all(before < after for before, after in pairwise(offsets))
    again.close()


def test_clients_cannot_write_to_the_topic(cluster: Cluster) -> None:
    topics = Topics(cluster.bootstrap)
    eventually(lambda: EVENTS in topics.names(), "the topic is made")
    failures: list[KafkaError | None] = []
    producer = Producer(settings(cluster.bootstrap))
    producer.produce(EVENTS, b"{}", on_delivery=lambda error, message: failures.append(error))
    assert producer.flush(DEADLINE_S) == 0
    (failure,) = failures
    assert failure is not None and failure.code() == KafkaError.TOPIC_EXCEPTION
