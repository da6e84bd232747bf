"""How fast Spark reads a topic, beside one consumer of librdkafka: `python -m bench.spark_source`.

Both read the same topic in turn, in one run, from one broker of Kvorum on loopback. Each reading
adds up the bytes of the values, so that no record can be left out unseen.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.machine import describe_machine
from kvorum.analytics.kafka_source import register
from kvorum.analytics.session import open_session
from kvorum.chaos.testing.cluster import Cluster

TOPIC = "bench-spark"
RECORD_BYTES = 100
_CONSUME_RECORDS = 10_000
_SILENCE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """One way to read the whole topic; `read` returns the bytes of all values."""

    name: str
    read: Callable[[], int]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; prints the table. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.spark_source", description=__doc__)
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5, help="readings by each (default: 5)")
    parser.add_argument("--driver-memory", default="2g")
    options = parser.parse_args(arguments)
    machine = describe_machine()
    with (
        tempfile.TemporaryDirectory(prefix="kvorum-bench-") as folder,
        Cluster(
            controllers=1, brokers=1, proxies=False, metrics=False, directory=Path(folder, "data")
        ) as cluster,
    ):
        cluster.create_topic(TOPIC, partitions=options.partitions)
        write_records(cluster.bootstrap_servers, options.records, options.partitions)
        spark = open_session("local[2]", options.driver_memory, folder)
        try:
            register(spark)
            readers = make_readers(spark, cluster.bootstrap_servers, options.partitions)
            rates = measure(readers, options.records, options.rounds)
        finally:
            spark.stop()
    for name, value in machine.items():
        print(f"- {name}: {value}")
    print()
    print("\n".join(table(rates)))
    return 0


def write_records(servers: str, count: int, partitions: int) -> None:
    """Fill the topic; each value has RECORD_BYTES bytes."""
    from confluent_kafka import Producer

    producer = Producer(
        {"bootstrap.servers": servers, "linger.ms": 50, "batch.size": 1_000_000,
         "queue.buffering.max.messages": 500_000}
    )  # fmt: skip
    value = b"x" * RECORD_BYTES
    for number in range(count):
        while True:
            try:
                producer.produce(TOPIC, value, partition=number % partitions)
                break
            except BufferError:
                producer.poll(0.05)
    if left := producer.flush(_SILENCE_S):
        raise RuntimeError(f"{left} records were not written within {_SILENCE_S:g} s")


def make_readers(spark: Any, servers: str, partitions: int) -> list[Reader]:
    """The consumer, Spark with all columns of a record, and Spark with the values alone."""
    options = {"kafka.bootstrap.servers": servers, "subscribe": TOPIC}
    whole = spark.read.format("kvorum").options(**options).load()
    values = spark.read.format("kvorum").schema("value binary").options(**options).load()
    return [
        Reader(name="one consumer", read=lambda: consume(servers, partitions)),
        Reader(name="Spark, all columns", read=lambda: add_up(whole)),
        Reader(name="Spark, values alone", read=lambda: add_up(values)),
    ]


def add_up(frame: Any) -> int:
    """The bytes of all values. Python data sources hand every column to the JVM, used or not."""
    (row,) = frame.selectExpr("sum(length(value)) AS bytes").collect()
    return int(row.bytes)


def consume(servers: str, partitions: int) -> int:
    """The same by one consumer, in batches, as quickly as it can."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "bench", "enable.auto.commit": False,
         "enable.partition.eof": True, "fetch.queue.backoff.ms": 1}
    )  # fmt: skip
    consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(partitions)])
    read_bytes, ended = 0, 0
    deadline = time.monotonic() + _SILENCE_S
    try:
        while ended < partitions:
            messages = consumer.consume(_CONSUME_RECORDS, 0.05)
            for message in messages:
                if message.error() is None:
                    read_bytes += len(message.value() or b"")
                else:
                    ended += 1
            if messages:
                deadline = time.monotonic() + _SILENCE_S
            elif time.monotonic() > deadline:
                raise RuntimeError(f"no record for {_SILENCE_S:g} s after {read_bytes} bytes")
    finally:
        consumer.close()
    return read_bytes


def measure(readers: Sequence[Reader], records: int, rounds: int) -> dict[str, list[float]]:
    """Records a second of each reading. One round before the first is not counted."""
    rates: dict[str, list[float]] = {reader.name: [] for reader in readers}
    for number in range(rounds + 1):
        for reader in readers:
            began = time.monotonic()
            read_bytes = reader.read()
            elapsed_s = time.monotonic() - began
            if read_bytes != records * RECORD_BYTES:
                raise RuntimeError(
                    f"{reader.name} read {read_bytes} bytes of {records * RECORD_BYTES}"
                )
            if number:
                rates[reader.name].append(records / elapsed_s)
            print(f"round {number}: {reader.name}: {records / elapsed_s:,.0f}/s", file=sys.stderr)
    return rates


def table(rates: Mapping[str, Sequence[float]]) -> list[str]:
    """Rows of Markdown; the share is of the first reader's median."""
    base = statistics.median(next(iter(rates.values())))
    rows = ["| reader | records/s, median | lowest | highest | share |", "|---|---|---|---|---|"]
    for name, found in rates.items():
        middle = statistics.median(found)
        rows.append(
            f"| {name} | {middle:,.0f} | {min(found):,.0f} | {max(found):,.0f} "
            f"| {middle / base:.0%} |"
        )
    return rows


if __name__ == "__main__":
    sys.exit(main())
