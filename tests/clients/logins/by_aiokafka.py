"""Logins with aiokafka. Its exceptions say only that no broker could be reached; its log says
why.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaError

from tests.clients.logins.script import DEADLINE_S, Heard, Question, names_in, run, token


class Provider(AbstractTokenProvider):
    def __init__(self, text: str) -> None:
        self._text = text

    async def token(self) -> str:
        return self._text


def answer(question: Question) -> Any:
    heard = Heard()
    logging.getLogger("aiokafka").addHandler(heard)
    try:
        return asyncio.run(use(question))
    except TimeoutError:
        return "nothing in time"
    except KafkaError as error:
        return {"error": type(error).__name__, "log": sorted(heard.names | names_in(str(error)))}
    finally:
        logging.getLogger("aiokafka").removeHandler(heard)


async def use(question: Question) -> str:
    common = settings(question)
    producer = AIOKafkaProducer(**common, request_timeout_ms=round(DEADLINE_S * 1_000))
    await producer.start()
    try:
        await producer.send_and_wait(question["topic"], b"aiokafka")
    finally:
        await producer.stop()
    consumer = AIOKafkaConsumer(
        question["topic"], **common, group_id=question["group"], auto_offset_reset="earliest"
    )
    await consumer.start()
    try:
        async with asyncio.timeout(DEADLINE_S):
            await consumer.getone()
    finally:
        await consumer.stop()
    return "read"


def settings(question: Question) -> dict[str, Any]:
    found: dict[str, Any] = {
        "bootstrap_servers": question["bootstrap"],
        "security_protocol": question["protocol"],
    }
    if question["protocol"].endswith("SSL"):
        context = ssl.create_default_context(cafile=question["ca"])
        if question["certificate"]:
            context.load_cert_chain(question["certificate"])
        found["ssl_context"] = context
    if question["mechanism"]:
        found["sasl_mechanism"] = question["mechanism"]
        found["sasl_plain_username"] = question["user"]
        found["sasl_plain_password"] = question["password"]
    if question["token"]:
        found["sasl_oauth_token_provider"] = Provider(token(question))
    return found


if __name__ == "__main__":
    run(answer)
