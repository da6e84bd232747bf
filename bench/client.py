"""librdkafka workloads, the same for both sides: produce, consume, latency.

This file and results.md name all client settings that differ from librdkafka's defaults.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bench import encryption
from bench.cluster import BenchFailed, wait_for

LINGER_MS = 5
BATCH_BYTES = 1_000_000
#: Records that librdkafka queues before produce() blocks; below its 1 GB limit, so that the
#: client's own memory has no effect.
QUEUE_RECORDS_MAX = 200_000
QUEUE_KB_MAX = 131_072
#: With the default of 1,000 ms the client pauses for a second each time its queue is full, which
#: costs the faster broker more.
FETCH_QUEUE_BACKOFF_MS = 1

FLUSH_TIMEOUT_S = 120.0
REPLICATION_TIMEOUT_S = 60.0
CONSUME_TIMEOUT_S = 120.0
METADATA_TIMEOUT_S = 30.0
_CHUNK_RECORDS = 500
#: Records of one consume call. With 10,000 the first records have left the processor's caches
#: before the last ones arrive, and the client becomes the limit sooner.
CONSUME_RECORDS = 500
_FULL_QUEUE_POLL_S = 0.002
_LATENCY_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """`records` records of record_bytes each, in `seconds`."""

    records: int
    record_bytes: int
    seconds: float

    @property
    def mb_per_s(self) -> float:
        return self.records * self.record_bytes / self.seconds / 1e6

    @property
    def thousands_per_s(self) -> float:
        return self.records / self.seconds / 1e3

    @property
    def gigabytes(self) -> float:
        return self.records * self.record_bytes / 1e9


def produce(
    bootstrap: str,
    topic: str,
    *,
    partitions: int,
    records: int,
    record_bytes: int,
    acks: str,
) -> Throughput:
    """Write `records` records evenly, as fast as the client can; the clock stops at the last ack.

    The topic must be empty: its records are counted afterwards. Raises BenchFailed if one is
    missing.
    """
    from confluent_kafka import Producer

    producer = Producer(
        {
            **_common(bootstrap),
            "acks": acks,
            "linger.ms": LINGER_MS,
            "batch.size": BATCH_BYTES,
            "queue.buffering.max.messages": QUEUE_RECORDS_MAX,
            "queue.buffering.max.kbytes": QUEUE_KB_MAX,
        }
    )
    payload = b"k" * record_bytes
    # One record to each partition opens the connections before the clock starts.
    for partition in range(partitions):
        producer.produce(topic, payload, partition=partition)
    _flush(producer)
    chunk = [{"value": payload}] * _CHUNK_RECORDS
    began = time.perf_counter()
    left, partition = records, 0
    while left:
        wanted = chunk if left >= _CHUNK_RECORDS else chunk[:left]
        sent = producer.produce_batch(topic, wanted, partition=partition)
        left -= sent
        partition = (partition + 1) % partitions
        producer.poll(0 if sent == len(wanted) else _FULL_QUEUE_POLL_S)
    _flush(producer)
    seconds = time.perf_counter() - began
    _await_count(bootstrap, topic, partitions, records + partitions)
    return Throughput(records=records, record_bytes=record_bytes, seconds=seconds)


def _await_count(bootstrap: str, topic: str, partitions: int, records: int) -> None:
    """Return when `records` records are below the high watermark. Raises BenchFailed.

    After acks=1 the followers may be behind; they must not catch up during the next figure.
    """
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({**_common(bootstrap), "group.id": "bench-count"})
    stored = 0

    def is_whole() -> bool | None:
        nonlocal stored
        marks = [
            consumer.get_watermark_offsets(TopicPartition(topic, i), timeout=METADATA_TIMEOUT_S)
            for i in range(partitions)
        ]
        stored = sum(high - low for low, high in marks)
        return True if stored >= records else None

    try:
        wait_for(is_whole, timeout_s=REPLICATION_TIMEOUT_S, what=f"{topic} is replicated")
    except BenchFailed as error:
        raise BenchFailed(f"{topic} holds {stored} records, {records} were sent") from error
    finally:
        consumer.close()
    if stored != records:
        raise BenchFailed(f"{topic} holds {stored} records, {records} were sent")


def consume(
    bootstrap: str, topic: str, *, partitions: int, records: int, record_bytes: int
) -> Throughput:
    """Read a topic that holds at least `records` records of one size, from its beginning."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            **_common(bootstrap),
            "group.id": "bench-consume",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.queue.backoff.ms": FETCH_QUEUE_BACKOFF_MS,
        }
    )
    try:
        consumer.list_topics(topic, timeout=METADATA_TIMEOUT_S)
        # Messages make no reference cycles; collections would examine the live ones again and
        # again.
        gc.disable()
        began = time.perf_counter()
        deadline = began + CONSUME_TIMEOUT_S
        consumer.assign([TopicPartition(topic, i, 0) for i in range(partitions)])
        seen = 0
        while seen < records:
            messages = consumer.consume(min(CONSUME_RECORDS, records - seen), timeout=0.05)
            seen += len(messages)
            if messages and messages[-1].error() is not None:
                raise BenchFailed(f"consuming {topic}: {messages[-1].error()}")
            if time.perf_counter() > deadline:
                raise BenchFailed(f"{seen} of {records} records came in {CONSUME_TIMEOUT_S:g} s")
        seconds = time.perf_counter() - began
        # An error among the messages would have been counted as a record.
        read = consumer.position([TopicPartition(topic, i) for i in range(partitions)])
        if sum(position.offset for position in read) != seen:
            raise BenchFailed(f"{seen} messages of {topic} are not {seen} records")
    finally:
        gc.enable()
        consumer.close()
    return Throughput(records=seen, record_bytes=record_bytes, seconds=seconds)


def latencies_ms(
    bootstrap: str, topic: str, *, partitions: int, records: int, record_bytes: int
) -> list[float]:
    """Milliseconds from produce() to its acknowledgement (acks=all, linger 0), one record in
    flight."""
    from confluent_kafka import Producer

    producer = Producer({**_common(bootstrap), "acks": "all", "linger.ms": 0})
    payload = b"k" * record_bytes
    acknowledged_at: list[float] = []

    def on_delivery(error: Any, message: Any) -> None:
        if error is not None:
            raise BenchFailed(f"latency: {error}")
        acknowledged_at.append(time.perf_counter())

    found: list[float] = []
    for number in range(-partitions, records):
        acknowledged_at.clear()
        began = time.perf_counter()
        producer.produce(topic, payload, partition=number % partitions, on_delivery=on_delivery)
        while not acknowledged_at:
            producer.poll(1.0)
            if time.perf_counter() - began > _LATENCY_TIMEOUT_S:
                raise BenchFailed(f"no acknowledgement within {_LATENCY_TIMEOUT_S:g} s")
        # The first record of each partition opens a connection and is not counted.
        if number >= 0:
            found.append((acknowledged_at[0] - began) * 1e3)
    return found


def _common(bootstrap: str) -> Mapping[str, Any]:
    common = {"bootstrap.servers": bootstrap, "log_level": 2, "allow.auto.create.topics": False}
    return common | encryption.client_settings()


def _flush(producer: Any) -> None:
    left = producer.flush(FLUSH_TIMEOUT_S)
    if left:
        raise BenchFailed(f"{left} records without acknowledgement after {FLUSH_TIMEOUT_S:g} s")
