"""Creates topics, writes and reads for the scenarios' program of kafka-python."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition

from tests.clients.script import REPLICAS, arguments
from tests.polling import DEADLINE_S, eventually

BOOTSTRAP, PREFIX, NAMES = arguments()
BROKERS = BOOTSTRAP.split(",")
PYTHON_CODECS = ("none", "gzip")
logging.getLogger("kafka").setLevel(logging.CRITICAL)
admin = KafkaAdminClient(bootstrap_servers=BROKERS)


def name(of: str) -> str:
    return f"{PREFIX}-{of}"


def create(
    topic: str, partitions: int = 1, replicas: int = REPLICAS, configs: dict[str, str] | None = None
) -> None:
    asked = {"num_partitions": partitions, "replication_factor": replicas}
    admin.create_topics({topic: asked | {"configs": configs or {}}})


def described(topic: str) -> dict[str, Any]:
    (found,) = admin.describe_topics([topic])
    return dict(found)


def partitions_of(topic: str) -> int:
    """The number of partitions with a leader; 0 for an unknown topic."""
    return sum(row["leader_id"] > 0 for row in described(topic)["partitions"])


def make(of: str, partitions: int = 1, configs: dict[str, str] | None = None) -> str:
    create(name(of), partitions, configs=configs)
    eventually(lambda: partitions_of(name(of)) == partitions, "leaders")
    return name(of)


def with_producer(use: Callable[[KafkaProducer], Any], **more: object) -> Any:
    client = KafkaProducer(bootstrap_servers=BROKERS, **more)
    try:
        return use(client)
    finally:
        client.close()


def fill(topic: str, partitions: int = 1, count: int = 1, **more: object) -> None:
    def use(client: KafkaProducer) -> None:
        sent = [
            client.send(topic, b"%d" % number, partition=partition)
            for partition in range(partitions)
            for number in range(count)
        ]
        for future in sent:
            future.get(DEADLINE_S)

    with_producer(use, **more)


def consumer(group: str | None = None, **more: object) -> KafkaConsumer:
    base: dict[str, object] = {
        "group_id": group,
        "enable_auto_commit": False,
        "auto_offset_reset": "earliest",
        "session_timeout_ms": 6_000,
        "heartbeat_interval_ms": 200,
        "fetch_max_wait_ms": 200,
        "allow_auto_create_topics": False,
    }
    return KafkaConsumer(bootstrap_servers=BROKERS, **(base | more))


def assigned(topic: str, **more: object) -> KafkaConsumer:
    client = consumer(**more)
    client.assign([TopicPartition(topic, 0)])
    return client


def take(client: KafkaConsumer, count: int) -> list[Any]:
    found: list[Any] = []

    def look() -> None:
        for rows in client.poll(timeout_ms=200).values():
            found.extend(rows)

    eventually(lambda: len(found) >= count, f"{count} records", meanwhile=look)
    return found


def read(topic: str, count: int, **more: object) -> list[Any]:
    """The first records of partition 0."""
    client = assigned(topic, **more)
    try:
        return take(client, count)
    finally:
        client.close()


def committed(group: str, topic: str) -> int:
    found = admin.list_group_offsets({group: [TopicPartition(topic, 0)]})[group]
    row = found.get(TopicPartition(topic, 0))
    return -1 if row is None else int(row.offset)
