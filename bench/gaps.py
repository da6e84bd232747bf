"""Gaps in service around a fault, as clients see them.

Both loads are open loops: they send at a fixed rate even if no answers come, so a request that
hangs hides nothing. The figure is the longest time between two successes.
"""

from __future__ import annotations

import signal
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bench.cluster import (
    BenchCluster,
    BenchFailed,
    active_controller,
    bootstrap_of,
    broker_process,
    strike,
)
from bench.figures import Delivery, compare_deliveries, longest_gap
from bench.processes import ClusterProcess
from bench.topics import create, new_topic, open_admin, wait_in_sync

GAP_PARTITIONS = 9
TOPIC_EVERY_S = 0.02
RECORD_EVERY_S = 0.01
RECORD_BYTES = 100
STEADY_BEFORE_S = 2.0
#: The load continues at least this long after the fault, so that a second interruption counts too.
STEADY_AFTER_S = 5.0
RECOVERY_TIMEOUT_S = 90.0
_STEADY_SILENCE_S = 0.5
_TOPICS_MAX = 5_000
_SETTLED_TIMEOUT_S = 90.0
_FLUSH_TIMEOUT_S = 60.0
_READ_TIMEOUT_S = 60.0
_REQUEST_TIMEOUT_S = 60.0
_CREATED_CODES = (None, "TOPIC_ALREADY_EXISTS")


class _TopicLoad(threading.Thread):
    """Creates a new topic every TOPIC_EVERY_S."""

    def __init__(self, admin: Any, prefix: str) -> None:
        super().__init__(name="bench-topics", daemon=True)
        self._admin = admin
        self._prefix = prefix
        self._stop_wanted = threading.Event()
        self._outstanding: list[Any] = []
        self.successes: list[float] = []
        self.refusals: list[str] = []
        self.unanswered = 0
        self.names: list[str] = []

    def run(self) -> None:
        due = time.monotonic()
        while not self._stop_wanted.is_set():
            self._ask(f"{self._prefix}-{len(self.names)}")
            due += TOPIC_EVERY_S
            self._stop_wanted.wait(max(0.0, due - time.monotonic()))

    def stop(self) -> None:
        """Send no more requests; returns when each has an answer, or counts as never answered."""
        self._stop_wanted.set()
        self.join()
        deadline = time.monotonic() + _SETTLED_TIMEOUT_S
        for future in self._outstanding:
            # The callback records the outcome; this only waits for the end.
            try:
                future.exception(timeout=max(0.0, deadline - time.monotonic()))
            except TimeoutError:
                self.unanswered += 1

    def _ask(self, name: str) -> None:
        if len(self.names) >= _TOPICS_MAX:
            return
        self.names.append(name)
        futures = self._admin.create_topics(
            [new_topic(name)],
            operation_timeout=_REQUEST_TIMEOUT_S,
            request_timeout=_REQUEST_TIMEOUT_S,
        )
        self._outstanding.append(futures[name])
        futures[name].add_done_callback(self._on_answer)

    def _on_answer(self, future: Any) -> None:
        error = future.exception()
        code = None if error is None else error.args[0].name()
        if code in _CREATED_CODES:
            self.successes.append(time.monotonic())
        else:
            self.refusals.append(str(code))


def controller_gap_s(
    cluster: BenchCluster, *, number: signal.Signals, prefix: str
) -> tuple[float, list[str]]:
    """Inject a fault at the active controller under a load of topic creation.

    Returns the gap and the error codes of refused requests. A stopped controller is resumed, a
    killed one restarted.
    """
    admin = open_admin(bootstrap_of(cluster))
    create(admin, [new_topic(f"{prefix}-before")])
    load = _TopicLoad(admin, prefix)
    load.start()
    victim: ClusterProcess | None = None
    try:
        time.sleep(STEADY_BEFORE_S)
        if not load.successes:
            raise BenchFailed("no topic was created before the fault")
        victim = active_controller(cluster)
        struck_at = strike(victim, number)
        _wait_steady([load.successes], struck_at)
        until = time.monotonic()
    finally:
        if victim is not None and number == signal.SIGSTOP:
            strike(victim, signal.SIGCONT)
        load.stop()
    if number == signal.SIGKILL:
        cluster.restart(victim)
    if load.unanswered:
        raise BenchFailed(f"{load.unanswered} requests without an answer after the fault")
    return longest_gap(load.successes, struck_at, until), load.refusals


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerGap:
    """Gaps in seconds, of the worst partition of each kind. acknowledged, refused: records."""

    led_s: float
    others_s: float
    acknowledged: int
    refused: int
    delivery: Delivery


class _RecordLoad(threading.Thread):
    """An idempotent acks=all producer: a numbered record to each partition every 10 ms."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        from confluent_kafka import Producer

        super().__init__(name="bench-records", daemon=True)
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 0,
                "log_level": 0,
            }
        )
        self._stop_wanted = threading.Event()
        self.successes: dict[int, list[float]] = {i: [] for i in range(GAP_PARTITIONS)}
        self.acknowledged: dict[int, list[int]] = defaultdict(list)
        self.refused = 0
        self.left = 0

    def run(self) -> None:
        due = time.monotonic()
        value = 0
        while not self._stop_wanted.is_set():
            for partition in range(GAP_PARTITIONS):
                self._producer.produce(
                    self._topic,
                    value.to_bytes(8, "big").ljust(RECORD_BYTES, b"k"),
                    partition=partition,
                    on_delivery=self._on_delivery,
                )
            value += 1
            due += RECORD_EVERY_S
            self._producer.poll(max(0.0, due - time.monotonic()))
            while (left_s := due - time.monotonic()) > 0:
                self._producer.poll(left_s)
        self.left = self._producer.flush(_FLUSH_TIMEOUT_S)

    def stop(self) -> None:
        self._stop_wanted.set()
        self.join()

    def _on_delivery(self, error: Any, message: Any) -> None:
        if error is not None:
            self.refused += 1
            return
        partition = message.partition()
        self.successes[partition].append(time.monotonic())
        self.acknowledged[partition].append(_value_of(message))


def broker_gap(cluster: BenchCluster, *, topic: str, victim_index: int) -> BrokerGap:
    """Kill a broker under an acks=all load. victim_index: index in the brokers' ids.

    Leaves the broker dead.
    """
    bootstrap = bootstrap_of(cluster)
    create(open_admin(bootstrap), [new_topic(topic, GAP_PARTITIONS)])
    wait_in_sync(cluster, topic, GAP_PARTITIONS)
    load = _RecordLoad(bootstrap, topic)
    load.start()
    try:
        time.sleep(STEADY_BEFORE_S)
        # Read again just before the fault, since leaders may have moved.
        partitions = wait_in_sync(cluster, topic, GAP_PARTITIONS)
        leaders = sorted({view.leader for view in partitions.values()})
        if len(leaders) < 2:
            raise BenchFailed(f"broker {leaders} leads every partition of {topic}")
        victim_id = leaders[victim_index % len(leaders)]
        struck_at = strike(broker_process(cluster, victim_id), signal.SIGKILL)
        _wait_steady(list(load.successes.values()), struck_at)
        until = time.monotonic()
    finally:
        load.stop()
    if load.left:
        raise BenchFailed(f"{load.left} records without an outcome after the fault")
    gaps = {i: longest_gap(load.successes[i], struck_at, until) for i in partitions}
    led = [gaps[i] for i, view in partitions.items() if view.leader == victim_id]
    others = [gaps[i] for i, view in partitions.items() if view.leader != victim_id]
    return BrokerGap(
        led_s=max(led),
        others_s=max(others),
        acknowledged=sum(len(values) for values in load.acknowledged.values()),
        refused=load.refused,
        delivery=compare_deliveries(load.acknowledged, read_back(bootstrap, topic)),
    )


def read_back(bootstrap: str, topic: str) -> dict[int, list[int]]:
    """The values in each partition, in the order of the log."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench-read-back",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    values: dict[int, list[int]] = defaultdict(list)
    ended: set[int] = set()
    deadline = time.monotonic() + _READ_TIMEOUT_S
    try:
        consumer.assign([TopicPartition(topic, i, 0) for i in range(GAP_PARTITIONS)])
        while len(ended) < GAP_PARTITIONS:
            if time.monotonic() > deadline:
                raise BenchFailed(f"{topic} could not be read back in {_READ_TIMEOUT_S:g} s")
            message: Any
            for message in consumer.consume(1_000, timeout=0.1):
                error = message.error()
                if error is None:
                    values[message.partition()].append(_value_of(message))
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended.add(message.partition())
    finally:
        consumer.close()
    return values


def _value_of(message: Any) -> int:
    return int.from_bytes(message.value()[:8], "big")


def _wait_steady(streams: Sequence[Sequence[float]], struck_at: float) -> None:
    """Return when every stream of successes has run for a while without a longer pause."""
    deadline = struck_at + RECOVERY_TIMEOUT_S
    steady_since: float | None = None
    while True:
        now = time.monotonic()
        is_flowing = all(stream and now - stream[-1] < _STEADY_SILENCE_S for stream in streams)
        if not is_flowing:
            steady_since = None
        elif steady_since is None:
            steady_since = now
        if (
            steady_since is not None
            and now - steady_since > STEADY_BEFORE_S
            and now - struck_at > STEADY_AFTER_S
        ):
            return
        if now > deadline:
            raise BenchFailed(f"no steady flow within {RECOVERY_TIMEOUT_S:g} s of the fault")
        time.sleep(0.02)
