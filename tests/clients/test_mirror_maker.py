"""MirrorMaker 2 between Apache Kafka 4.4 and Kvorum, both ways in one process, under kills.

Records, a topic's partitions and configs and a consumer group's offsets go from each cluster to the
other, exactly once (KIP-618). MirrorMaker and a broker of Kvorum are killed meanwhile.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from kvorum.chaos.live.host.processes import free_ports
from tests.clients.applications import (
    Application,
    committed_values,
    forwarded_classes,
    needs_jar,
    needs_javac,
    one_kafka,
    write_properties,
)
from tests.clients.java_tools import needs_java
from tests.live.clients import Topics, settings
from tests.live.cluster import Cluster, broker_name
from tests.polling import DEADLINE_S, eventually

pytestmark = [
    needs_java,
    needs_javac,
    needs_jar("connect-runtime"),
    needs_jar("connect-mirror"),
    pytest.mark.java,
    pytest.mark.live,
    pytest.mark.timeout(900),
]

PARTITIONS = 2
ROUND_RECORDS = 200
RETENTION_MS = "86400123"
REMOTE_TOPIC = {"orders": "kafka.orders", "bills": "kvorum.bills"}
SETTINGS = [
    "offsets.topic.num.partitions=5",
    "transaction.state.log.num.partitions=5",
    "group.initial.rebalance.delay.ms=200",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms=200",
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("mirror"), settings=SETTINGS) as cluster:
        yield cluster


def mirror_properties(kafka: str, kvorum: str, rest_port: int) -> dict[str, str]:
    internal = ("offset-syncs.topic", "checkpoints.topic", "heartbeats.topic")
    storage = ("config.storage", "offset.storage", "status.storage")
    often = (
        "refresh.topics", "refresh.groups", "sync.topic.configs", "emit.checkpoints",
        "sync.group.offsets",
    )  # fmt: skip
    return {
        "clusters": "kafka,kvorum",
        "plugin.discovery": "service_load",
        "kafka.bootstrap.servers": kafka,
        "kvorum.bootstrap.servers": kvorum,
        "kafka->kvorum.enabled": "true",
        "kafka->kvorum.topics": "orders",
        "kvorum->kafka.enabled": "true",
        "kvorum->kafka.topics": "bills",
        "groups": "readers-.*",
        "sync.group.offsets.enabled": "true",
        "sync.topic.acls.enabled": "false",
        "offset.lag.max": "0",
        "replication.factor": "1",
        "dedicated.mode.enable.internal.rest": "true",
        "listeners": f"http://127.0.0.1:{rest_port}",
        "offset.storage.partitions": "5",
        **{f"{name}.interval.seconds": "1" for name in often},
        **{f"{name}.replication.factor": "1" for name in internal},
        **{f"kafka.{name}.replication.factor": "1" for name in storage},
        **{f"{side}.exactly.once.source.support": "enabled" for side in ("kafka", "kvorum")},
        # The broker that will be killed has copies.
        "kafka->kvorum.replication.factor": "3",
        **{f"kvorum.{name}.replication.factor": "3" for name in storage},
        **{f"kafka->kvorum.{name}.replication.factor": "3" for name in internal[1:]},
        "kvorum->kafka.offset-syncs.topic.replication.factor": "3",
    }


class Side:
    """One of the clusters: a topic of its own whose records the other one gets.

    written: the values, in their order by partition.
    """

    def __init__(self, bootstrap: str, topic: str, replicas: int) -> None:
        self.bootstrap, self.topic = bootstrap, topic
        self.written: list[list[str]] = [[] for _ in range(PARTITIONS)]
        Topics(bootstrap).create(topic, PARTITIONS, replicas, retention_ms=RETENTION_MS)

    def write(self) -> None:
        producer = Producer(settings(self.bootstrap, enable_idempotence=True))
        for number in range(ROUND_RECORDS):
            partition = number % PARTITIONS
            values = self.written[partition]
            values.append(f"{partition}/{len(values)}")
            producer.produce(self.topic, values[-1], partition=partition)
        assert producer.flush(DEADLINE_S) == 0

    def all_values(self) -> list[str]:
        return [value for values in self.written for value in values]

    def commit_half(self, group: str) -> None:
        """As a group of consumers that has read half of each partition."""
        half = [
            TopicPartition(self.topic, partition, len(values) // 2)
            for partition, values in enumerate(self.written)
        ]
        consumer = Consumer(settings(self.bootstrap, group_id=group))
        consumer.commit(offsets=half, asynchronous=False)
        consumer.close()


def next_value(bootstrap: str, group: str, partition: TopicPartition) -> str:
    """The first record that a consumer of the group would read; empty if no offset is there."""
    consumer = Consumer(
        settings(
            bootstrap, group_id=group, enable_auto_commit=False, isolation_level="read_committed"
        )
    )
    try:
        [offset] = consumer.committed([partition], timeout=DEADLINE_S)
        if offset.offset <= 0:
            return ""
        consumer.assign([offset])
        message = consumer.poll(DEADLINE_S)
        assert message is not None and message.error() is None, "no record at the group's offset"
        return message.value().decode()
    finally:
        consumer.close()


def retention_of(bootstrap: str, topic: str) -> str | None:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin = AdminClient(settings(bootstrap))
    described = admin.describe_configs([resource])[resource].result(DEADLINE_S)
    return described["retention.ms"].value


def assert_mirrored(source: Side, target: str, group: str) -> None:
    """Every record is there once, in order; the group goes on where it was, and skips none."""
    topic = REMOTE_TOPIC[source.topic]
    assert committed_values(target, topic, PARTITIONS) == source.all_values()
    for partition, values in enumerate(source.written):
        where = TopicPartition(topic, partition)
        value = eventually(
            lambda where=where: next_value(target, group, where),
            f"an offset of group {group} for {topic}-{partition}",
        )
        assert 0 < values.index(value) <= len(values) // 2
    eventually(
        lambda: retention_of(target, topic) == RETENTION_MS, f"{topic} has its source's configs"
    )


def mirrored(source: Side, target: str) -> Callable[[], bool]:
    topic = REMOTE_TOPIC[source.topic]
    return lambda: (
        topic in Topics(target).names()
        and len(committed_values(target, topic, PARTITIONS)) >= len(source.all_values())
    )


def test_records_and_group_offsets_go_both_ways_under_kills(
    cluster: Cluster, tmp_path: Path
) -> None:
    classes = forwarded_classes(tmp_path / "classes")
    port = free_ports(3, random.Random())
    with one_kafka(tmp_path / "kafka", port) as kafka:
        orders = Side(kafka, "orders", 1)
        bills = Side(cluster.bootstrap, "bills", 3)
        properties = mirror_properties(kafka, cluster.bootstrap, port + 2)
        file = write_properties(tmp_path / "mirror.properties", properties)

        def started() -> Application:
            main_class = "org.apache.kafka.connect.mirror.MirrorMaker"
            return Application(tmp_path / "mirror", main_class, file, classes=classes)

        def write_and_await() -> None:
            orders.write()
            bills.write()
            for is_there in (mirrored(orders, cluster.bootstrap), mirrored(bills, kafka)):
                eventually(is_there, "all records are mirrored", deadline_s=2 * DEADLINE_S)

        mirror = started()
        try:
            write_and_await()
            orders.write()
            mirror.kill()
            mirror = started()
            write_and_await()
            victim = broker_name(Topics(cluster.bootstrap).leader("bills"))
            cluster.kill(victim)
            write_and_await()
            cluster.restart(victim)
            orders.commit_half("readers-orders")
            bills.commit_half("readers-bills")
            assert_mirrored(orders, cluster.bootstrap, "readers-orders")
            assert_mirrored(bills, kafka, "readers-bills")
        except AssertionError as failure:
            failure.add_note(mirror.errors()[-5_000:])
            raise
        finally:
            mirror.kill()
