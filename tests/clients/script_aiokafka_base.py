"""Creates topics, writes and reads for the scenarios' program of aiokafka."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError

from tests.clients.script import REPLICAS, arguments, error_name
from tests.polling import DEADLINE_S, until

BOOTSTRAP, PREFIX, NAMES = arguments()
logging.getLogger("aiokafka").setLevel(logging.CRITICAL + 1)


def name(of: str) -> str:
    return f"{PREFIX}-{of}"


@contextlib.asynccontextmanager
async def an_admin() -> AsyncIterator[AIOKafkaAdminClient]:
    client = AIOKafkaAdminClient(bootstrap_servers=BOOTSTRAP)
    await client.start()
    try:
        yield client
    finally:
        await client.close()


@contextlib.asynccontextmanager
async def a_producer(**more: object) -> AsyncIterator[AIOKafkaProducer]:
    # With the default, acks=1, an acknowledged record may not be committed yet.
    settings: dict[str, object] = {"acks": "all", **more}
    async with AIOKafkaProducer(bootstrap_servers=BOOTSTRAP, **settings) as client:
        yield client


@contextlib.asynccontextmanager
async def a_consumer(*topics: str, **more: object) -> AsyncIterator[AIOKafkaConsumer]:
    base: dict[str, object] = {
        "enable_auto_commit": False,
        "auto_offset_reset": "earliest",
        "session_timeout_ms": 6_000,
        "heartbeat_interval_ms": 200,
        "fetch_max_wait_ms": 200,
    }
    async with AIOKafkaConsumer(*topics, bootstrap_servers=BOOTSTRAP, **(base | more)) as client:
        yield client


@contextlib.asynccontextmanager
async def assigned(topic: str, **more: object) -> AsyncIterator[AIOKafkaConsumer]:
    async with a_consumer(**more) as client:
        client.assign([TopicPartition(topic, 0)])
        yield client


async def create(
    topic: str, partitions: int = 1, replicas: int = REPLICAS, configs: dict[str, str] | None = None
) -> int:
    """The error code of the answer."""
    async with an_admin() as admin:
        asked = NewTopic(topic, partitions, replicas, topic_configs=configs or {})
        answer = await admin.create_topics([asked])
    ((_, code, *_),) = answer.topic_errors
    return int(code)


async def described(topic: str) -> dict[str, Any]:
    async with an_admin() as admin:
        (found,) = await admin.describe_topics([topic])
    return dict(found)


async def partitions_of(topic: str) -> int:
    """The number of partitions with a leader; 0 for an unknown topic."""
    return sum(row["leader"] > 0 for row in (await described(topic))["partitions"])


async def make(of: str, partitions: int = 1, configs: dict[str, str] | None = None) -> str:
    code = await create(name(of), partitions, configs=configs)
    if code:
        raise KafkaError(error_name(code))

    async def has_leaders() -> bool:
        return await partitions_of(name(of)) == partitions

    await until(has_leaders, "leaders")
    return name(of)


async def fill(topic: str, partitions: int = 1, count: int = 1, **more: object) -> None:
    async with a_producer(**more) as client:
        sent = [
            await client.send(topic, b"%d" % number, partition=partition)
            for partition in range(partitions)
            for number in range(count)
        ]
        await asyncio.gather(*sent)


async def take(client: AIOKafkaConsumer, count: int) -> list[Any]:
    found: list[Any] = []
    async with asyncio.timeout(DEADLINE_S):
        while len(found) < count:
            for rows in (await client.getmany(timeout_ms=200)).values():
                found.extend(rows)
    return found


async def committed(group: str, topic: str) -> int:
    async with an_admin() as admin:
        found = await admin.list_consumer_group_offsets(group)
    row = found.get(TopicPartition(topic, 0))
    return -1 if row is None else int(row.offset)
