"""The scenarios of scenarios.json with aiokafka.

`python -m tests.clients.script_aiokafka BOOTSTRAP PREFIX NAME...`
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.admin import NewPartitions, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, ProducerFenced

from tests.clients.script import CODECS, Outcome, codec_value, error_name, failed, run
from tests.clients.script_aiokafka_base import (
    BOOTSTRAP,
    NAMES,
    a_consumer,
    a_producer,
    an_admin,
    assigned,
    committed,
    create,
    described,
    fill,
    make,
    name,
    partitions_of,
    take,
)
from tests.polling import until


async def codec(codec_name: str) -> Outcome:
    topic = await make(f"codec-{codec_name}")
    compression = None if codec_name == "none" else codec_name
    async with a_producer(compression_type=compression, linger_ms=20) as client:
        for i in range(20):
            headers = [("h", b"%d" % i)]
            await client.send(topic, codec_value(i), key=b"k%d" % i, headers=headers)
        await client.flush()
    async with assigned(topic) as reader:
        found = await take(reader, 20)
    return {
        "records": len(found),
        "key": found[19].key.decode(),
        "header": found[19].headers[0][1].decode(),
        "value_bytes": len(found[19].value),
    }


async def nulls() -> Outcome:
    topic = await make("nulls")
    async with a_producer() as client:
        await client.send_and_wait(topic, b"v")
        await client.send_and_wait(topic, None, key=b"k")
    async with assigned(topic) as reader:
        found = await take(reader, 2)
    return {
        "keys": [row.key and row.key.decode() for row in found],
        "values": [row.value and row.value.decode() for row in found],
    }


async def seek_offset() -> Outcome:
    topic = await make("seek-offset")
    await fill(topic, count=20)
    async with assigned(topic) as reader:
        await take(reader, 20)
        reader.seek(TopicPartition(topic, 0), 13)
        return {"offsets": [row.offset for row in await take(reader, 7)]}


async def seek_time() -> Outcome:
    topic = await make("seek-time")
    base = int(time.time()) * 1000 - 3_600_000
    async with a_producer() as client:
        for i in range(10):
            await client.send_and_wait(topic, b"v", timestamp_ms=base + i * 1000)
    partition = TopicPartition(topic, 0)
    async with assigned(topic) as reader:
        found = await reader.offsets_for_times({partition: base + 5_500})
        reader.seek(partition, found[partition].offset)
        return {"offset": (await take(reader, 1))[0].offset}


async def pause() -> Outcome:
    topic = await make("pause", 2)
    await fill(topic, 2, 5)
    async with a_consumer() as reader:
        reader.assign([TopicPartition(topic, p) for p in range(2)])
        reader.pause(TopicPartition(topic, 0))
        first = {row.partition for row in await take(reader, 5)}
        reader.resume(TopicPartition(topic, 0))
        then = {row.partition for row in await take(reader, 5)}
    return {"first": list(first), "then": list(then)}


async def idempotent() -> Outcome:
    topic = await make("idempotent")
    await fill(topic, count=200, enable_idempotence=True, max_batch_size=200)
    async with assigned(topic) as reader:
        found = await take(reader, 200)
    is_in_order = [row.value for row in found] == [b"%d" % i for i in range(200)]
    return {"records": len(found), "in_order": is_in_order}


async def transaction() -> Outcome:
    topic = await make("transaction")
    async with a_producer(transactional_id=topic) as client:
        for number in range(3):
            await client.begin_transaction()
            for i in range(5):
                await client.send_and_wait(topic, b"%d/%d" % (number, i))
            if number == 1:
                await client.abort_transaction()
            else:
                await client.commit_transaction()
    async with assigned(topic, isolation_level="read_committed") as reader:
        seen = await take(reader, 10)
    async with assigned(topic, isolation_level="read_uncommitted") as reader:
        every = await take(reader, 15)
    numbers = dict.fromkeys(row.value.decode().split("/")[0] for row in seen)
    return {"committed": list(numbers), "uncommitted": len(every)}


async def transaction_offsets() -> Outcome:
    topic = await make("transaction-offsets")
    found: list[int] = []

    async def is_committed() -> bool:
        return await committed(topic, topic) >= 0

    async with a_producer(transactional_id=topic) as client:
        for is_kept in (False, True):
            await client.begin_transaction()
            await client.send_and_wait(topic, b"v")
            await client.send_offsets_to_transaction({TopicPartition(topic, 0): 10}, topic)
            if is_kept:
                await client.commit_transaction()
                # A commit is answered before its markers are written.
                await until(is_committed, "the markers")
            else:
                await client.abort_transaction()
            found.append(await committed(topic, topic))
    return {"after_abort": found[0], "after_commit": found[1]}


async def commit_sync() -> Outcome:
    topic = await make("commit-sync")
    await fill(topic, count=20)
    async with a_consumer(topic, group_id=topic) as reader:
        await take(reader, 20)
        await reader.commit({TopicPartition(topic, 0): 10})
    async with a_consumer(topic, group_id=topic) as reader:
        first = (await take(reader, 1))[0].offset
        return {"committed": await committed(topic, topic), "next": first}


async def pattern() -> Outcome:
    for last in "ab":
        await fill(await make(f"pattern-{last}"))
    async with a_consumer(group_id=name("pattern")) as reader:
        reader.subscribe(pattern=f"^{name('pattern-')}.*")
        found = await take(reader, 2)
    return {"topics": sorted(row.topic.removeprefix(name("")) for row in found)}


class Assigns(ConsumerRebalanceListener):
    """Counts the assignments of one consumer."""

    def __init__(self) -> None:
        self.count = 0

    async def on_partitions_revoked(self, revoked: object) -> None:
        """Nothing to do: the scenario keeps nothing for its partitions."""

    async def on_partitions_assigned(self, assigned: object) -> None:
        self.count += 1


async def member(stack: contextlib.AsyncExitStack, topic: str, **more: object) -> Any:
    """A consumer of the topic in the group of its name, and a counter of its assignments."""
    client = await stack.enter_async_context(a_consumer(group_id=topic, **more))
    assigns = Assigns()
    client.subscribe([topic], listener=assigns)
    return client, assigns


def held(client: AIOKafkaConsumer) -> list[int]:
    return sorted(row.partition for row in client.assignment())


async def rebalance() -> Outcome:
    topic = await make("rebalance", 4)
    async with contextlib.AsyncExitStack() as stack:
        one, _ = await member(stack, topic)
        await until(lambda: len(held(one)) == 4, "the first has all")
        async with contextlib.AsyncExitStack() as inner:
            two, _ = await member(inner, topic)
            await until(lambda: len(held(one)) == len(held(two)) == 2, "each has two")
            together = [len(held(one)), len(held(two))]
        await until(lambda: len(held(one)) == 4, "the other has all again")
        return {"together": together, "alone": len(held(one))}


async def static_member() -> Outcome:
    topic = await make("static-member", 4)
    async with contextlib.AsyncExitStack() as stack:
        one, assigns = await member(stack, topic, group_instance_id="one")
        await until(lambda: len(held(one)) == 4, "the first has all")
        async with contextlib.AsyncExitStack() as inner:
            two, _ = await member(inner, topic, group_instance_id="two")
            await until(lambda: len(held(one)) == len(held(two)) == 2, "each has two")
            before, count = held(two), assigns.count
        again, _ = await member(stack, topic, group_instance_id="two")
        await until(lambda: len(held(again)) == 2, "it is back")
        return {
            "same_partitions": before == held(again),
            "others_rebalanced": assigns.count - count,
        }


async def list_offsets() -> Outcome:
    topic = await make("list-offsets")
    await fill(topic, count=20)
    partition = TopicPartition(topic, 0)
    async with a_consumer() as reader:
        return {
            "earliest": (await reader.beginning_offsets([partition]))[partition],
            "latest": (await reader.end_offsets([partition]))[partition],
        }


async def delete_records() -> Outcome:
    topic = await make("delete-records")
    await fill(topic, count=20)
    partition = TopicPartition(topic, 0)
    async with an_admin() as admin:
        low = (await admin.delete_records({partition: RecordsToDelete(7)}))[partition]
    async with assigned(topic) as reader:
        earliest = (await reader.beginning_offsets([partition]))[partition]
        first = (await take(reader, 1))[0].offset
    return {"low": low, "earliest": earliest, "first": first}


async def retention(topic: str) -> str:
    resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs={"retention.ms": None})
    async with an_admin() as admin:
        (answer,) = await admin.describe_configs([resource])
    return str(answer.to_object()["resources"][0]["config_entries"][0]["config_value"])


async def admin_topics() -> Outcome:
    topic = await make("admin-topics", 3, {"retention.ms": "3600000"})
    rows: list[Any] = []

    async def is_there() -> bool:
        # Judge and keep one answer: the next broker that is asked may not know of it yet.
        rows[:] = (await described(topic))["partitions"]
        return len(rows) == 3

    await until(is_there, "it is described")
    before = await retention(topic)

    async def is_altered() -> bool:
        return await retention(topic) == "7200000"

    async def has_grown() -> bool:
        return await partitions_of(topic) == 5

    gone: list[int] = []

    async def is_gone() -> bool:
        gone[:] = [(await described(topic))["error_code"]]
        return gone != [0]

    async with an_admin() as admin:
        change = {"retention.ms": "7200000"}
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, change)])
        await until(is_altered, "it is altered")
        await admin.create_partitions({topic: NewPartitions(5)})
        await until(has_grown, "it has grown")
        await admin.delete_topics([topic])
        await until(is_gone, "it is gone")
    return {
        "partitions": len(rows),
        "replicas": len(rows[0]["replicas"]),
        "retention": before,
        "altered": "7200000",
        "grown": 5,
        "after_delete": error_name(gone[0]),
    }


async def refusal(action: Awaitable[Any]) -> Outcome:
    """The error that is raised."""
    try:
        await action
    except KafkaError as error:
        code = getattr(error, "errno", None)
        return {"error": repr(error)} if code is None or code < 0 else failed(code)
    return failed(None)


async def code_of(action: Awaitable[int]) -> Outcome:
    return failed(await action)


async def unknown_topic() -> Outcome:
    return failed((await described(name("unknown")))["error_code"])


async def topic_exists() -> Outcome:
    return failed(await create(await make("exists")))


async def fewer_partitions() -> Outcome:
    topic = await make("fewer", 3)
    async with an_admin() as admin:
        return await refusal(admin.create_partitions({topic: NewPartitions(2)}))


async def too_large() -> Outcome:
    topic = await make("too-large", configs={"max.message.bytes": "1000"})
    async with a_producer() as client:
        return await refusal(client.send_and_wait(topic, b"x" * 5_000))


async def out_of_range() -> Outcome:
    topic = await make("out-of-range")
    await fill(topic)
    async with assigned(topic, auto_offset_reset="none") as reader:
        reader.seek(TopicPartition(topic, 0), 1_000)
        return await refusal(take(reader, 1))


async def fenced() -> Outcome:
    topic = await make("fenced")
    old = AIOKafkaProducer(bootstrap_servers=BOOTSTRAP, transactional_id=topic)
    await old.start()
    await old.begin_transaction()
    await old.send_and_wait(topic, b"old")
    async with a_producer(transactional_id=topic) as young:
        await young.begin_transaction()
        await young.send_and_wait(topic, b"young")
        try:
            await old.commit_transaction()
            found = failed(None)
        except ProducerFenced:
            found = {"is_fenced": True}
        await young.commit_transaction()
    with contextlib.suppress(KafkaError):
        await old.stop()
    return found


async def not_enough_replicas() -> Outcome:
    # aiokafka retries until request_timeout_ms has passed.
    async with a_producer(acks="all", request_timeout_ms=2_000) as client:
        return await refusal(client.send_and_wait(name("not-enough-replicas"), b"v"))


SCENARIOS: dict[str, Callable[[], Any]] = {
    f"codec-{each}": partial(codec, each) for each in CODECS
} | {
    "nulls": nulls,
    "seek-offset": seek_offset,
    "seek-time": seek_time,
    "pause": pause,
    "idempotent": idempotent,
    "transaction": transaction,
    "transaction-offsets": transaction_offsets,
    "commit-sync": commit_sync,
    "pattern": pattern,
    "rebalance": rebalance,
    "static-member": static_member,
    "list-offsets": list_offsets,
    "delete-records": delete_records,
    "admin-topics": admin_topics,
    "error-unknown-topic": unknown_topic,
    "error-topic-exists": topic_exists,
    "error-topic-name": lambda: code_of(create(name("not a name!"))),
    "error-replication-factor": lambda: code_of(create(name("nine"), 1, 9)),
    "error-config": lambda: code_of(create(name("config"), configs={"retention.ms": "never"})),
    "error-fewer-partitions": fewer_partitions,
    "error-too-large": too_large,
    "error-out-of-range": out_of_range,
    "error-fenced": fenced,
    "error-not-enough-replicas": not_enough_replicas,
}


def in_a_loop(scenario: Callable[[], Any]) -> Outcome:
    found: Outcome = asyncio.run(scenario())
    return found


if __name__ == "__main__":
    run({key: partial(in_a_loop, value) for key, value in SCENARIOS.items()}, NAMES, KafkaError)
