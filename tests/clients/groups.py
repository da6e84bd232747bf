"""A topic with records, and consumers in groups that share it: for tests with real clients."""

from __future__ import annotations

import json
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer

from tests.live.clients import Topics, settings
from tests.polling import DEADLINE_S, eventually

RECORDS_PER_PARTITION = 30
SESSION_TIMEOUT_MS = 6_000
QUICK_GROUPS = ("group.initial.rebalance.delay.ms=100", "group.min.session.timeout.ms=1000")
"""Broker properties that shorten the delays of groups in tests."""


def fill(bootstrap: str, topic: str, partitions: int = 4, replicas: int = 3) -> None:
    """Make the topic and put numbered records into each of its partitions."""
    Topics(bootstrap).create(topic, partitions=partitions, replicas=replicas)
    produce(bootstrap, topic, partitions)


def produce(bootstrap: str, topic: str, partitions: int = 4) -> None:
    producer = Producer(settings(bootstrap, acks="all"))
    for partition in range(partitions):
        for number in range(RECORDS_PER_PARTITION):
            producer.produce(topic, b"%d/%d" % (partition, number), partition=partition)
    assert producer.flush(DEADLINE_S) == 0


def consumer(bootstrap: str, group_id: str, **more: object) -> Consumer:
    """A consumer for tests; a value of None in `more` leaves that property unset."""
    base: dict[str, object] = {
        "group_id": group_id,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "session_timeout_ms": SESSION_TIMEOUT_MS,
        "heartbeat_interval_ms": 300,
        "reconnect_backoff_ms": 20,
        "reconnect_backoff_max_ms": 200,
    }
    given = {key: value for key, value in (base | more).items() if value is not None}
    return Consumer(settings(bootstrap, **given))


class Reader:
    """A subscribed consumer. owned: its partitions now; seen: (partition, offset) it has read."""

    def __init__(self, bootstrap: str, group_id: str, topic: str, **more: object) -> None:
        self.client = consumer(bootstrap, group_id, **more)
        self.seen: list[tuple[int, int]] = []
        self.assigned: list[list[int]] = []
        self.revoked: list[list[int]] = []
        self.client.subscribe(
            [topic],
            on_assign=lambda _, rows: self.assigned.append(sorted(r.partition for r in rows)),
            on_revoke=lambda _, rows: self.revoked.append(sorted(r.partition for r in rows)),
        )

    @property
    def owned(self) -> list[int]:
        return sorted(row.partition for row in self.client.assignment())

    def poll(self, timeout_s: float = 0.05) -> None:
        message = self.client.poll(timeout_s)
        if message is not None and message.error() is None:
            self.seen.append((message.partition(), message.offset()))

    def commit(self) -> Any:
        """Commit what was read, and wait for the answer."""
        return self.client.commit(asynchronous=False)

    def close(self) -> None:
        self.client.close()


def together(readers: list[Reader], condition: Any, what: str) -> None:
    """Poll all of them until the condition holds."""

    def is_so() -> bool:
        for reader in readers:
            reader.poll()
        return bool(condition())

    eventually(is_so, what)


def is_shared(readers: list[Reader], partitions: int = 4) -> bool:
    """Every partition has one owner, every reader has some."""
    owned = [row for reader in readers for row in reader.owned]
    return sorted(owned) == list(range(partitions)) and all(reader.owned for reader in readers)


def has_read(readers: list[Reader], end_offset: int) -> bool:
    """True if every owner has read the last record below `end_offset` in each of its partitions.
    Earlier owners may have read some of these records too, before they gave the partition back.
    """
    return all(
        (partition, end_offset - 1) in one.seen for one in readers for partition in one.owned
    )


def committed_offsets(bootstrap: str, group_id: str, topic: str, partitions: int = 4) -> list[int]:
    """Committed offsets of the group, by partition, as a client that is no member reads them."""
    from confluent_kafka import TopicPartition

    reader = consumer(bootstrap, group_id)

    def read() -> list[int]:
        try:
            rows = reader.committed([TopicPartition(topic, p) for p in range(partitions)], 5)
        except KafkaException as error:
            assert error.args[0].retriable(), error
            return []
        return [row.offset for row in rows]

    try:
        return eventually(read, f"the committed offsets of {group_id} are read")
    finally:
        reader.close()


def described(cluster, group):
    """Partitions of each member, as the cluster's own command shows them."""
    done = cluster.cli("groups", "describe", group, "-o", "json")
    if done.returncode != 0:
        return None
    (found,) = json.loads(done.stdout)
    return found
