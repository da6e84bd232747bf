"""librdkafka clients with the settings that all loads share: quick to connect again, quiet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvorum.chaos.addresses import client_of
from kvorum.client.librdkafka import QUICK

_QUICK: Mapping[str, Any] = {**QUICK, "socket.timeout.ms": 5_000, "log_level": 2}

QUICK_SHARE: Mapping[str, Any] = {
    **QUICK,
    "socket.timeout.ms": 20_000,
    "fetch.wait.max.ms": 100,
    "log_level": 2,
}
"""Of a member of a share group. Its time-out is longer: a member that closes a slow connection
gives up the records that it holds, and nothing in the history would tell."""


def open_producer(bootstrap: str, settings: Mapping[str, Any]) -> Any:
    """An idempotent acks=all producer. settings: librdkafka's, over the shared ones."""
    from confluent_kafka import Producer

    return Producer(
        {
            **client_of(bootstrap),
            "enable.idempotence": True,
            "acks": "all",
            "request.timeout.ms": 5_000,
            "retry.backoff.max.ms": 500,
            **_QUICK,
            **settings,
        }
    )


def open_consumer(bootstrap: str, settings: Mapping[str, Any]) -> Any:
    """A read-committed consumer that commits only what it is told to. settings: as open_producer;
    librdkafka requires a group.id."""
    from confluent_kafka import Consumer

    return Consumer(
        {
            **client_of(bootstrap),
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 100,
            "fetch.error.backoff.ms": 50,
            "fetch.queue.backoff.ms": 10,
            **_QUICK,
            **settings,
        }
    )


def open_admin(bootstrap: str) -> Any:
    """A client for administrators' requests."""
    from confluent_kafka.admin import AdminClient

    return AdminClient({**client_of(bootstrap), **_QUICK})
