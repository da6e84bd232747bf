"""A small application: it places orders in a topic and reads them back."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, Producer, TopicPartition


def place_orders(bootstrap_servers: str, topic: str, names: list[str]) -> None:
    """Write one record for each order. Raises RuntimeError if one is not acknowledged."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "enable.idempotence": True})
    failures: list[str] = []

    def delivered(error: object, _: object) -> None:
        if error is not None:
            failures.append(str(error))

    for name in names:
        producer.produce(topic, name.encode(), partition=0, on_delivery=delivered)
    left = producer.flush(30)
    if failures or left:
        raise RuntimeError(f"{len(failures) + left} orders are not placed: {failures[:3]}")


def read_orders(bootstrap_servers: str, topic: str, count: int, timeout_s: float = 30) -> list[str]:
    """The first `count` orders; fewer if they do not come within the time."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "orders"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[str] = []
    ends_at = time.monotonic() + timeout_s
    try:
        while len(found) < count and time.monotonic() < ends_at:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                found.append(message.value().decode())
    finally:
        consumer.close()
    return found
