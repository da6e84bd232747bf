"""Creates topics, writes and reads for the scenarios' program of librdkafka."""

from __future__ import annotations

from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from tests.clients.script import REPLICAS, arguments
from tests.live.clients import settings
from tests.polling import DEADLINE_S, eventually

BOOTSTRAP, PREFIX, NAMES = arguments()
QUICK: dict[str, object] = {
    "topic_metadata_refresh_interval_ms": 1_000,
    "allow_auto_create_topics": False,
}
admin = AdminClient(settings(BOOTSTRAP))


def name(of: str) -> str:
    return f"{PREFIX}-{of}"


def create(
    topic: str, partitions: int = 1, replicas: int = REPLICAS, configs: dict[str, str] | None = None
) -> None:
    made = admin.create_topics([NewTopic(topic, partitions, replicas, config=configs or {})])
    made[topic].result(DEADLINE_S)


def partitions_of(topic: str) -> int:
    """The number of partitions with a leader; 0 for an unknown topic."""
    found = admin.list_topics(topic, timeout=DEADLINE_S).topics[topic]
    return sum(row.leader > 0 for row in found.partitions.values()) if found.error is None else 0


def make(of: str, partitions: int = 1, configs: dict[str, str] | None = None) -> str:
    create(name(of), partitions, configs=configs)
    eventually(lambda: partitions_of(name(of)) == partitions, "leaders")
    return name(of)


def producer(**more: object) -> Producer:
    return Producer(settings(BOOTSTRAP, **more))


class Answers:
    """Delivery reports of one producer."""

    def __init__(self, client: Producer) -> None:
        self.client = client
        self.errors: list[int] = []

    def send(self, topic: str, value: bytes | None, **more: Any) -> None:
        self.client.produce(topic, value, on_delivery=self._on_delivery, **more)

    def flush(self) -> int | None:
        """The first delivery's error, if any failed."""
        if self.client.flush(DEADLINE_S):
            raise TimeoutError("records were not delivered in time")
        return self.errors[0] if self.errors else None

    def _on_delivery(self, error: KafkaError | None, _: object) -> None:
        if error is not None:
            self.errors.append(error.code())


def fill(topic: str, partitions: int = 1, count: int = 1, **more: object) -> None:
    answers = Answers(producer(**more))
    for partition in range(partitions):
        for number in range(count):
            answers.send(topic, b"%d" % number, partition=partition)
    if error := answers.flush():
        raise KafkaException(KafkaError(error))


def consumer(group: str, **more: object) -> Consumer:
    base: dict[str, object] = {
        "group_id": group,
        "enable_auto_commit": False,
        "auto_offset_reset": "earliest",
        "session_timeout_ms": 6_000,
        "heartbeat_interval_ms": 200,
        "fetch_wait_max_ms": 200,
        "partition_assignment_strategy": "range",
    }
    callbacks = {key: more.pop(key) for key in ("on_commit",) if key in more}
    return Consumer(settings(BOOTSTRAP, **(QUICK | base | more)) | callbacks)


def assigned(topic: str, offset: int = OFFSET_BEGINNING, **more: object) -> Consumer:
    client = consumer("unused", **more)
    client.assign([TopicPartition(topic, 0, offset)])
    return client


def take(client: Consumer, count: int) -> list[Any]:
    found: list[Any] = []

    def look() -> None:
        message = client.poll(0.05)
        if message is not None:
            if message.error() is not None:
                raise KafkaException(message.error())
            found.append(message)

    eventually(lambda: len(found) >= count, f"{count} records", meanwhile=look)
    return found


def committed(group: str, topic: str) -> int:
    """The group's offset in partition 0, or -1."""
    asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0)])
    row = admin.list_consumer_group_offsets([asked])[group].result(DEADLINE_S).topic_partitions[0]
    return max(row.offset, -1)
