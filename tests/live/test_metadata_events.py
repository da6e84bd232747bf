"""`__kvorum_events` while its leader dies: every change of the metadata once, in order."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from kvorum.client.controllers import BlockingControllerClient
from kvorum.metadata.events.feed import record_feed
from kvorum.metadata.events.things import things
from kvorum.metadata.image.image import EMPTY_IMAGE
from kvorum.metadata.inspect.history import MetadataCopy, history_of, image_of
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
    """Keys and values of the events that the metadata log's records must have caused."""
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


def topic_id(cluster: Cluster) -> bytes | None:
    topic = image_of(log_of(cluster)).topic(EVENTS)
    return None if topic is None else topic.topic_id


def read_until_equal(cluster: Cluster, reader: Reader) -> None:
    """Return when the reader has all events that the metadata log has caused by now."""
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


def test_a_topic_made_after_the_log_was_trimmed_begins_with_the_state_of_a_snapshot(
    tmp_path: Path,
) -> None:
    settings_ = (
        "metadata.events.topic.enable=true",
        "metadata.log.max.record.bytes.between.snapshots=20000",
    )
    with Cluster(tmp_path, settings=settings_) as cluster:
        topics = Topics(cluster.bootstrap)
        for number in range(4):
            topics.create(f"wide-{number}", partitions=100)
        data = cluster.data_dir
        for broker_id in ALL:
            log = data / broker_name(broker_id) / "__cluster_metadata-0"
            eventually(lambda log=log: list(log.glob("*.checkpoint")), "a snapshot is there")
        admin = AdminClient(settings(cluster.bootstrap))
        before = topic_id(cluster)
        admin.delete_topics([EVENTS])[EVENTS].result(DEADLINE_S)
        eventually(lambda: topic_id(cluster) not in (None, before), "the topic is made again")
        topics.create("last")
        reader = Reader(cluster.bootstrap)
        eventually(
            lambda: any(event.get("topic") == "last" for event in reader.events()),
            "the last topic is told",
            meanwhile=reader.poll,
        )
        wanted = log_of(cluster)
        end_offset = wanted.high_watermark
        kept: dict[str, dict[str, Any]] = {}
        gap, *others = reader.events()
        assert (gap["kind"], gap["first_offset"], gap["index"]) == ("gap", 0, 0)
        assert 0 < gap["offset"] < others[-1]["offset"] < end_offset
        assert [event["index"] for event in others[: gap["count"] - 1]] == list(
            range(1, gap["count"])
        )
        for key, value in reader.rows:
            kept.pop(key, None) if value is None else kept.update({key: json.loads(value)})
        image = history_of(wanted, name="the log").image_at(others[-1]["offset"] + 1)
        for key, state in things(image):
            assert state().items() <= kept[key].items()
        reader.close()


def test_clients_cannot_write_to_the_topic(cluster: Cluster) -> None:
    topics = Topics(cluster.bootstrap)
    eventually(lambda: EVENTS in topics.names(), "the topic is made")
    failures: list[KafkaError | None] = []
    producer = Producer(settings(cluster.bootstrap))
    producer.produce(EVENTS, b"{}", on_delivery=lambda error, message: failures.append(error))
    assert producer.flush(DEADLINE_S) == 0
    (failure,) = failures
    assert failure is not None and failure.code() == KafkaError.TOPIC_EXCEPTION
