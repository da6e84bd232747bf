"""Logins with librdkafka."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer

from tests.clients.logins.script import DEADLINE_S, Question, run, token

_WRITERS = (KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError._TRANSPORT)


def answer(question: Question) -> Any:
    errors: list[KafkaError] = []
    common = settings(question) | {"error_cb": errors.append, "log_level": 0}
    producer = Producer(common | {"message.timeout.ms": round(DEADLINE_S * 1_000)})
    delivered: list[KafkaError | None] = []
    producer.produce(
        question["topic"], b"librdkafka", on_delivery=lambda error, _: delivered.append(error)
    )
    end = time.monotonic() + DEADLINE_S
    while not delivered and time.monotonic() < end:
        producer.poll(0.05)
        told = [error for error in errors if error.code() in _WRITERS]
        if told:
            return said(told[0])
    if not delivered:
        return "nothing in time"
    return said(delivered[0]) if delivered[0] is not None else read(question, common)


def read(question: Question, common: dict[str, Any]) -> Any:
    own = {"group.id": question["group"], "auto.offset.reset": "earliest"}
    consumer = Consumer(common | own)
    consumer.subscribe([question["topic"]])
    try:
        found = consumer.poll(DEADLINE_S)
        if found is None:
            return "nothing in time"
        return "read" if found.error() is None else said(found.error())
    finally:
        consumer.close()


def settings(question: Question) -> dict[str, Any]:
    found: dict[str, Any] = {
        "bootstrap.servers": question["bootstrap"],
        "security.protocol": question["protocol"],
        "ssl.ca.location": question["ca"],
    }
    if question["certificate"]:
        found["ssl.certificate.location"] = question["certificate"]
        found["ssl.key.location"] = question["certificate"]
    if question["mechanism"]:
        found["sasl.mechanism"] = question["mechanism"]
        found["sasl.username"] = question["user"]
        found["sasl.password"] = question["password"]
    if question["token"]:
        found["oauth_cb"] = lambda _: (token(question), time.time() + 300)
    return found


def said(error: KafkaError) -> dict[str, str]:
    """The error's name, and the broker's message if it sent one.

    A failed TLS handshake gives one of two errors: the broker's alert and the end of the connection
    race."""
    if error.code() in (KafkaError._SSL, KafkaError._TRANSPORT):
        return {"error": "_SSL or _TRANSPORT"}
    text = error.str()
    _, mark, words = text.partition("broker response: ")
    if not mark:
        _, _, words = text.partition("SASL authentication error: ")
    return {"error": error.name(), "says": words.partition(" (after")[0]}


if __name__ == "__main__":
    run(answer)
