"""librdkafka as the load: the acknowledged records, and those that can be read back."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, PartitionMetadata

from tests.polling import DEADLINE_S, eventually

ACKS_IN_FLIGHT_MAX = 500
CREATE_TIMEOUT_S = 5
OFFSET_NOT_AVAILABLE = 78
TOPIC_EXISTS = KafkaError.TOPIC_ALREADY_EXISTS
TIMED_OUT = KafkaError.REQUEST_TIMED_OUT
NO_ANSWER = (KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)


def settings(bootstrap: str, **more: object) -> dict[str, Any]:
    """librdkafka's configuration; underscores become dots."""
    base = {"bootstrap.servers": bootstrap, "log_level": 0, "error_cb": lambda error: None}
    return base | {key.replace("_", "."): value for key, value in more.items()}


class Topics:
    """Makes topics and watches their partitions through a real admin client."""

    def __init__(self, bootstrap: str) -> None:
        # Reconnect soon after a broker has gone.
        self._admin = AdminClient(
            settings(
                bootstrap,
                reconnect_backoff_ms=20,
                reconnect_backoff_max_ms=100,
                topic_metadata_refresh_interval_ms=1_000,
                # A paused broker keeps its connections: give it up and ask another.
                socket_timeout_ms=2_000,
            )
        )

    def create(self, name: str, partitions: int = 1, replicas: int = 3, **configs: object) -> None:
        """Make a topic; returns when the cluster has acknowledged it.

        Without an answer the request is sent again; then the first one may already have made the
        topic.
        """
        config = {key.replace("_", "."): str(value) for key, value in configs.items()}
        topic = NewTopic(name, partitions, replicas, config=config)

        def is_made() -> bool:
            made = self._admin.create_topics(
                [topic], operation_timeout=CREATE_TIMEOUT_S, request_timeout=2 * CREATE_TIMEOUT_S
            )
            try:
                made[name].result(DEADLINE_S)
            except KafkaException as error:
                code = error.args[0].code()
                assert code in (TOPIC_EXISTS, TIMED_OUT, *NO_ANSWER), error
                return code == TOPIC_EXISTS
            return True

        eventually(is_made, f"topic {name} is made")

    def names(self) -> set[str]:
        return set(self._admin.list_topics(timeout=DEADLINE_S).topics)

    def wait_names(self, wanted: set[str]) -> None:
        """Return when a broker shows these topics. One that followed a controller which is gone
        shows what was acknowledged meanwhile a moment later; a topic that is lost never shows."""
        eventually(lambda: wanted <= self.names(), f"topics are shown: {sorted(wanted)[:10]}")

    def partition(self, name: str, partition: int = 0) -> PartitionMetadata | None:
        """A partition as some broker sees it now; None if none answers or it is not there."""
        try:
            topic = self._admin.list_topics(name, timeout=3).topics[name]
        except KafkaException as error:
            assert error.args[0].code() in NO_ANSWER, error
            return None
        return topic.partitions.get(partition)

    def leader(self, name: str, partition: int = 0) -> int:
        """The partition's leader, once it has one."""

        def known() -> int:
            found = self.partition(name, partition)
            return found.leader if found is not None and found.leader > 0 else 0

        leader: int = eventually(known, f"{name}-{partition} has a leader")
        return leader

    def wait_isr(self, name: str, isr: set[int], partition: int = 0) -> None:
        """Return when the in-sync replicas are exactly these."""

        def is_so() -> bool:
            found = self.partition(name, partition)
            return found is not None and set(found.isrs) == isr

        eventually(is_so, f"the ISR of {name}-{partition} is {sorted(isr)}")


class Load:
    """An idempotent producer that writes numbered records to partitions in turn until stopped.

    acknowledged: values that the cluster answered for, in the order of their numbers by partition.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: int = 1) -> None:
        self.topic = topic
        self.partitions = partitions
        self.acknowledged: list[bytes] = []
        self.failures: list[KafkaError] = []
        self._producer = Producer(
            settings(
                bootstrap,
                enable_idempotence=True,
                acks="all",
                linger_ms=2,
                reconnect_backoff_ms=20,
                reconnect_backoff_max_ms=100,
                retry_backoff_ms=50,
                message_timeout_ms=int(DEADLINE_S * 1000),
            )
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def wait_more(self, count: int = 200) -> None:
        """Return when `count` more records have been acknowledged."""
        goal = len(self.acknowledged) + count
        eventually(
            lambda: len(self.acknowledged) >= goal or self.failures,
            f"{count} more acknowledged records",
        )
        assert self.failures == []

    def finish(self) -> None:
        """Stop writing and wait for what is under way."""
        self._stop.set()
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()
        assert self._producer.flush(DEADLINE_S) == 0

    def abandon(self) -> None:
        """Stop writing; the outcome of records in flight is unknown."""
        self._stop.set()
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()
        self._producer.purge()
        self._producer.flush(1)

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            if len(self._producer) < ACKS_IN_FLIGHT_MAX:
                value = b"%d" % number
                partition = number % self.partitions
                self._producer.produce(
                    self.topic, value, partition=partition, on_delivery=self._on_delivery
                )
                number += 1
                self._producer.poll(0)
            else:
                self._producer.poll(0.05)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            value = message.value()
            assert value is not None
            self.acknowledged.append(value)
        elif error.code() not in (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT):
            self.failures.append(error)


def read_all(bootstrap: str, topic: str, partitions: int = 1) -> list[list[bytes]]:
    """Every record of a topic from its beginning to its high watermarks, by partition."""
    consumer = Consumer(
        settings(bootstrap, group_id="reader", enable_auto_commit=False, enable_partition_eof=False)
    )
    try:
        ends = {p: _end_offset(bootstrap, TopicPartition(topic, p)) for p in range(partitions)}
        consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
        read: list[list[bytes]] = [[] for _ in range(partitions)]
        while any(len(read[p]) < ends[p] for p in range(partitions)):
            left = sum(ends[p] - len(read[p]) for p in range(partitions))
            batch = consumer.consume(min(left, 5_000), DEADLINE_S)
            assert batch, f"read {[len(r) for r in read]} of {ends}"
            for message in batch:
                if message.error() is None:
                    read[message.partition() or 0].append(message.value() or b"")
        return read
    finally:
        consumer.close()


def _end_offset(bootstrap: str, partition: TopicPartition) -> int:
    """The high watermark. A new leader may not know it yet and says so (KIP-207); ask again.

    With a new client each time: librdkafka calls a partition unknown, for good, if the first
    answer it got showed no leader, and one broker may show an election a moment after another.
    """
    known: list[int] = []

    def is_known() -> bool:
        consumer = Consumer(settings(bootstrap, group_id="ends"))
        try:
            known.append(consumer.get_watermark_offsets(partition, timeout=DEADLINE_S)[1])
        except KafkaException as error:
            passing = (OFFSET_NOT_AVAILABLE, KafkaError._UNKNOWN_PARTITION)
            assert error.args[0].retriable() or error.args[0].code() in passing, error
            return False
        finally:
            consumer.close()
        return True

    eventually(is_known, f"the end of {partition.topic}-{partition.partition}")
    return known[0]


def assert_nothing_lost(load: Load, bootstrap: str) -> None:
    """All that was acknowledged is there, nothing twice, each partition in its order."""
    by_partition = read_all(bootstrap, load.topic, load.partitions)
    found = Counter(value for values in by_partition for value in values)
    lost = [value for value in load.acknowledged if value not in found]
    assert lost == [], f"{len(lost)} acknowledged records are lost, the first {lost[:5]}"
    twice = [value for value, count in found.items() if count > 1]
    assert twice == [], f"{len(twice)} records are there twice, the first {twice[:5]}"
    for values in by_partition:
        assert [int(v) for v in values] == sorted(int(v) for v in values)


class TopicMaker:
    """Creates topics one after the other until stopped; names of those acknowledged."""

    def __init__(
        self, bootstrap: str, prefix: str, *, replicas: int = 3, pause_s: float = 0.0
    ) -> None:
        self.acknowledged: list[str] = []
        self._topics = Topics(bootstrap)
        self._prefix = prefix
        self._replicas = replicas
        self._pause_s = pause_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def wait_more(self, count: int) -> None:
        goal = len(self.acknowledged) + count
        eventually(lambda: len(self.acknowledged) >= goal, f"{count} more topics")

    def finish(self) -> set[str]:
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
        return set(self.acknowledged)

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            name = f"{self._prefix}-{number}"
            number += 1
            self._topics.create(name, replicas=self._replicas)
            self.acknowledged.append(name)
            self._stop.wait(self._pause_s)
