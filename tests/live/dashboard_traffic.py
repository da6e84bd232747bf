"""The clients of the cluster in the dashboard's picture."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from tests.live.clients import NO_ANSWER, TIMED_OUT, Topics, settings

RECORDS_PER_S = 800
RECORD_BYTES = 400
TOPICS = {"orders": 6, "payments": 3}
"""Partitions of the topics that clients write and read."""
LOAD = (
    f"{RECORDS_PER_S} records a second with acks=all, three transactional producers, three groups,"
    " and a client whose records are refused"
)


def make_topics(bootstrap: str) -> None:
    topics = Topics(bootstrap)
    for name, partitions in TOPICS.items():
        topics.create(name, partitions=partitions, min_insync_replicas=2)
    topics.create("profiles", cleanup_policy="compact")


class Traffic:
    """Steady clients until `finish`, which raises what any of them met."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._stop = threading.Event()
        clients: list[Callable[[], None]] = [
            self._produce,
            self._change_configs,
            self._be_refused,
            *(partial(self._transact, f"till-{number}") for number in range(3)),
            *(partial(self._consume, "billing", "orders", "classic") for _ in range(2)),
            partial(self._consume, "bookkeeping", "payments", "classic"),
            partial(self._consume, "search", "orders", "consumer"),
        ]
        self._threads = ThreadPoolExecutor(len(clients))
        self._running: list[Future[None]] = [self._threads.submit(client) for client in clients]

    def finish(self) -> None:
        self._stop.set()
        self._threads.shutdown()
        for client in self._running:
            client.result()

    def _produce(self) -> None:
        refused: list[KafkaError] = []
        producer = Producer(
            settings(self._bootstrap, acks="all", enable_idempotence=True, linger_ms=5)
        )
        ticks_per_s = 20
        while not self._stop.wait(1 / ticks_per_s):
            for _ in range(RECORDS_PER_S // ticks_per_s):
                producer.produce(
                    "orders",
                    b"v" * RECORD_BYTES,
                    on_delivery=lambda error, _: refused.append(error) if error else None,
                )
            producer.poll(0)
        assert producer.flush(30) == 0
        assert refused == []

    def _transact(self, name: str) -> None:
        """A transaction every second. One that meets a fault is aborted; the next one follows."""
        producer = Producer(settings(self._bootstrap, transactional_id=name))
        producer.init_transactions(30)
        while not self._stop.wait(1):
            producer.begin_transaction()
            try:
                for _ in range(50):
                    producer.produce("payments", b"v" * RECORD_BYTES)
                producer.commit_transaction(30)
            except KafkaException as error:
                if not error.args[0].txn_requires_abort():
                    raise
                producer.abort_transaction(30)

    def _be_refused(self) -> None:
        """Records without a key for a compacted topic, one a second."""
        errors: set[str] = set()
        producer = Producer(settings(self._bootstrap))
        while not self._stop.wait(1):
            producer.produce(
                "profiles", b"v", on_delivery=lambda error, _: errors.add(error.name())
            )
            producer.poll(0)
        assert producer.flush(30) == 0
        assert errors == {"INVALID_RECORD"}

    def _consume(self, group: str, topic: str, protocol: str) -> None:
        consumer = Consumer(settings(self._bootstrap, group_id=group, group_protocol=protocol))
        consumer.subscribe([topic])
        while not self._stop.is_set():
            consumer.poll(0.2)
        consumer.close()

    def _change_configs(self) -> None:
        """Gives the quorum something to commit. A change without an answer is not repeated."""
        admin = AdminClient(settings(self._bootstrap))
        number = 0
        while not self._stop.wait(0.5):
            number += 1
            entry = ConfigEntry(
                "retention.ms", str(10**8 + number), incremental_operation=AlterConfigOpType.SET
            )
            resource = ConfigResource(ResourceType.TOPIC, "orders", incremental_configs=[entry])
            for answer in admin.incremental_alter_configs([resource]).values():
                try:
                    answer.result()
                except KafkaException as error:
                    code = error.args[0]
                    if not code.retriable() and code.code() not in (TIMED_OUT, *NO_ANSWER):
                        raise
