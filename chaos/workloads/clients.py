"""librdkafka clients with the settings that all workloads share: quick to connect again, quiet."""

from __future__ import annotations

from typing import Any

_QUICK: dict[str, Any] = {
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
    "retry.backoff.ms": 50,
    "socket.timeout.ms": 5_000,
    "topic.metadata.refresh.fast.interval.ms": 50,
    "log_level": 2,
}


def open_producer(bootstrap: str, **settings: Any) -> Any:
    """An idempotent acks=all producer. Settings are librdkafka's, `_` in place of `.`."""
    from confluent_kafka import Producer

    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "acks": "all",
            "request.timeout.ms": 5_000,
            **_QUICK,
            **_named(settings),
        }
    )


def open_consumer(bootstrap: str, **settings: Any) -> Any:
    """A read-committed consumer that commits only what it is told to."""
    from confluent_kafka import Consumer

    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 100,
            "fetch.error.backoff.ms": 50,
            "fetch.queue.backoff.ms": 10,
            **_QUICK,
            **_named(settings),
        }
    )


def open_admin(bootstrap: str) -> Any:
    """A client for administrators' requests."""
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": bootstrap, **_QUICK})


def _named(settings: dict[str, Any]) -> dict[str, Any]:
    return {key.replace("_", "."): value for key, value in settings.items()}
