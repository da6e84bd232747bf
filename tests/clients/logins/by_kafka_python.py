"""Logins with kafka-python. Its exceptions say little, its log more."""

from __future__ import annotations

import logging
from typing import Any

from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError
from kafka.net.sasl.oauth import AbstractTokenProvider

from tests.clients.logins.script import DEADLINE_S, Heard, Question, names_in, run, token

_MS = round(DEADLINE_S * 1_000)


class Provider(AbstractTokenProvider):
    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def token(self) -> str:
        return self._text


def answer(question: Question) -> Any:
    heard = Heard()
    logging.getLogger("kafka").addHandler(heard)
    try:
        return use(question)
    except KafkaError as error:
        return {"error": type(error).__name__, "log": sorted(heard.names | names_in(str(error)))}
    finally:
        logging.getLogger("kafka").removeHandler(heard)


def use(question: Question) -> str:
    common = settings(question)
    producer = KafkaProducer(**common, max_block_ms=_MS, retries=0)
    try:
        producer.send(question["topic"], b"kafka-python").get(DEADLINE_S)
    finally:
        producer.close(timeout=1)
    consumer = KafkaConsumer(
        question["topic"],
        **common,
        group_id=question["group"],
        auto_offset_reset="earliest",
        consumer_timeout_ms=_MS,
    )
    try:
        return "read" if next(iter(consumer), None) is not None else "nothing in time"
    finally:
        consumer.close()


def settings(question: Question) -> dict[str, Any]:
    found: dict[str, Any] = {
        "bootstrap_servers": question["bootstrap"],
        "security_protocol": question["protocol"],
        "ssl_cafile": question["ca"],
        "bootstrap_timeout_ms": 3_000,
    }
    if question["certificate"]:
        found["ssl_certfile"] = question["certificate"]
        found["ssl_keyfile"] = question["certificate"]
    if question["mechanism"]:
        found["sasl_mechanism"] = question["mechanism"]
        found["sasl_plain_username"] = question["user"]
        found["sasl_plain_password"] = question["password"]
    if question["token"]:
        found["sasl_oauth_token_provider"] = Provider(token(question))
    return found


if __name__ == "__main__":
    run(answer)
