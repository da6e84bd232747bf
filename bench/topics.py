"""Topics through librdkafka's AdminClient: creation rates, and the first write after a start."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from typing import Any

from bench import encryption
from bench.cluster import (
    START_TIMEOUT_S,
    BenchCluster,
    BenchFailed,
    bootstrap_of,
    wait_for,
    wait_for_port,
)
from bench.observe import BrokerView, PartitionView

REPLICAS = 3
MIN_INSYNC_REPLICAS = 2
BATCH_TOPICS = 100
REQUEST_TIMEOUT_S = 60.0
_OPERATION_TIMEOUT_S = 30.0
_RETRY_S = 0.01
_FIRST_TRY_TIMEOUT_S = 2.0
#: While a cluster starts, a refused connection is retried at this interval, and not after up to ten
#: seconds, so that the figure measures the cluster and not librdkafka's backoff.
_FIRST_BACKOFF_MS = 20
_FIRST_BACKOFF_MAX_MS = 100
_SETTLE_TIMEOUT_S = 90.0
_LEADERS_TIMEOUT_S = 120.0
_LEADERS_POLL_S = 0.01


def open_admin(bootstrap: str) -> Any:
    """An AdminClient that is connected."""
    from confluent_kafka.admin import AdminClient

    settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "log_level": 2}
    admin = AdminClient(settings | encryption.client_settings())
    admin.list_topics(timeout=_OPERATION_TIMEOUT_S)
    return admin


def new_topic(name: str, partitions: int = 1) -> Any:
    """A topic with three replicas of which two must be in sync."""
    from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

    return NewTopic(
        name,
        partitions,
        REPLICAS,
        config={"min.insync.replicas": str(MIN_INSYNC_REPLICAS)},
    )


def create(admin: Any, topics: Sequence[Any]) -> None:
    """Send one request; returns when every topic is created. Raises BenchFailed for a refusal."""
    from confluent_kafka import KafkaException

    futures = admin.create_topics(
        list(topics), operation_timeout=_OPERATION_TIMEOUT_S, request_timeout=REQUEST_TIMEOUT_S
    )
    for name, future in futures.items():
        try:
            future.result()
        except KafkaException as error:
            raise BenchFailed(f"topic {name} was not created: {error}") from error


def delete(admin: Any, names: Sequence[str]) -> None:
    """Delete topics, 100 in a request. Raises BenchFailed for a refusal."""
    from confluent_kafka import KafkaException

    for start in range(0, len(names), BATCH_TOPICS):
        futures = admin.delete_topics(
            list(names[start : start + BATCH_TOPICS]),
            operation_timeout=_OPERATION_TIMEOUT_S,
            request_timeout=REQUEST_TIMEOUT_S,
        )
        for name, future in futures.items():
            try:
                future.result()
            except KafkaException as error:
                raise BenchFailed(f"topic {name} was not deleted: {error}") from error


def seconds_to_first_write(cluster: BenchCluster) -> float:
    """Launch a cluster; returns the seconds until an acks=all record to a new topic with three
    replicas is acknowledged.

    The client tries from the moment a port is open. Raises BenchFailed after START_TIMEOUT_S.
    """
    from confluent_kafka import KafkaException, Producer
    from confluent_kafka.admin import AdminClient

    config: dict[str, Any] = {
        "bootstrap.servers": bootstrap_of(cluster),
        "reconnect.backoff.ms": _FIRST_BACKOFF_MS,
        "reconnect.backoff.max.ms": _FIRST_BACKOFF_MAX_MS,
        "log_level": 0,
        **encryption.client_settings(),
    }
    began = time.monotonic()
    cluster.launch()
    wait_for_port(cluster.brokers, START_TIMEOUT_S)
    admin = AdminClient(config)

    def is_created() -> bool | None:
        futures = admin.create_topics(
            [new_topic("first")],
            operation_timeout=_FIRST_TRY_TIMEOUT_S,
            request_timeout=_FIRST_TRY_TIMEOUT_S,
        )
        try:
            futures["first"].result()
        except KafkaException as error:
            # An earlier try that timed out may have created it.
            return True if error.args[0].name() == "TOPIC_ALREADY_EXISTS" else None
        return True

    wait_for(is_created, timeout_s=START_TIMEOUT_S, what="a topic is created", poll_s=_RETRY_S)
    acknowledged_at: list[float] = []
    producer = Producer({**config, "acks": "all", "linger.ms": 0})

    def on_delivery(error: Any, message: Any) -> None:
        if error is None:
            acknowledged_at.append(time.monotonic())

    producer.produce("first", b"k" * 100, partition=0, on_delivery=on_delivery)
    producer.flush(START_TIMEOUT_S)
    if not acknowledged_at:
        raise BenchFailed("the first write was not acknowledged")
    return acknowledged_at[0] - began


def single_per_second(admin: Any, count: int, prefix: str) -> float:
    """Topics per second if each is requested after the previous one exists."""
    began = time.perf_counter()
    for number in range(count):
        create(admin, [new_topic(f"{prefix}-{number}")])
    return count / (time.perf_counter() - began)


def batch_per_second(admin: Any, count: int, prefix: str) -> float:
    """Topics per second, 100 in a request, one request after the other."""
    topics = [new_topic(f"{prefix}-{number}") for number in range(count)]
    began = time.perf_counter()
    for start in range(0, count, BATCH_TOPICS):
        create(admin, topics[start : start + BATCH_TOPICS])
    return count / (time.perf_counter() - began)


def seconds_to_leaders(
    cluster: BenchCluster, admin: Any, topics: Sequence[Any]
) -> tuple[float, float]:
    """Create topics in one request; returns the seconds until all are shown, and until all are
    served.

    Shown: every broker's Metadata names a leader of each partition. Served: for each partition a
    broker answers as its leader; Metadata may name leaders before they have opened their logs.
    """
    wanted = {topic.topic: topic.num_partitions for topic in topics}
    with contextlib.ExitStack() as stack:
        views = [stack.enter_context(BrokerView(address)) for address in cluster.brokers]
        began = time.perf_counter()
        futures = admin.create_topics(
            list(topics), operation_timeout=_OPERATION_TIMEOUT_S, request_timeout=REQUEST_TIMEOUT_S
        )
        for view in views:

            def is_shown(view: BrokerView = view) -> bool | None:
                return True if _has_leaders(view.topics(list(wanted)), wanted) else None

            wait_for(
                is_shown,
                timeout_s=_LEADERS_TIMEOUT_S,
                what="a leader for each partition",
                poll_s=_LEADERS_POLL_S,
            )
        shown_s = time.perf_counter() - began
        missing = {(name, index) for name, count in wanted.items() for index in range(count)}

        def is_served() -> bool | None:
            for view in views:
                asked: dict[str, list[int]] = {}
                for name, index in missing:
                    asked.setdefault(name, []).append(index)
                missing.difference_update(view.served(asked))
            return None if missing else True

        wait_for(
            is_served,
            timeout_s=_LEADERS_TIMEOUT_S,
            what="each partition is served",
            poll_s=_LEADERS_POLL_S,
        )
        served_s = time.perf_counter() - began
    for future in futures.values():
        future.result()
    return shown_s, served_s


def _has_leaders(known: dict[str, dict[int, PartitionView]], wanted: dict[str, int]) -> bool:
    return all(
        len(known.get(name, {})) == count
        and all(partition.leader >= 0 for partition in known[name].values())
        for name, count in wanted.items()
    )


def wait_in_sync(cluster: BenchCluster, name: str, partitions: int) -> dict[int, PartitionView]:
    """The topic's partitions once every broker shows a leader and all replicas in sync."""
    views: dict[int, PartitionView] = {}
    for address in cluster.brokers:
        with BrokerView(address) as view:

            def is_whole(view: BrokerView = view) -> dict[int, PartitionView] | None:
                found = view.topics([name]).get(name, {})
                whole = len(found) == partitions and all(
                    p.leader >= 0 and len(p.isr) == REPLICAS for p in found.values()
                )
                return found if whole else None

            views = wait_for(
                is_whole, timeout_s=_SETTLE_TIMEOUT_S, what=f"all replicas of {name} in sync"
            )
    return views


def wait_gone(cluster: BenchCluster, names: Sequence[str]) -> None:
    """Return when no broker shows any of the topics."""
    for address in cluster.brokers:
        with BrokerView(address) as view:

            def is_gone(view: BrokerView = view) -> bool | None:
                return None if view.topics(names) else True

            wait_for(is_gone, timeout_s=_SETTLE_TIMEOUT_S, what="deleted topics are gone")
