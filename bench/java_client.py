"""Load by Apache Kafka's own performance tools, the same against Kvorum and Apache Kafka.

librdkafka joins records into large requests with any broker. Java's producer sends a batch as soon
as a connection can take one: its requests are smaller, and there are more of them.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from bench.client import BATCH_BYTES, LINGER_MS, Throughput
from bench.cluster import BenchFailed

BUFFER_BYTES = 134_217_728
_TIMEOUT_S = 240.0
FLAGS = ("-Xmx512m", "-XX:+UseG1GC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error")
_PRODUCED = re.compile(r"^(\d+) steady state records sent, ([\d.]+) records/sec", re.MULTILINE)
_LARGE_BATCHES = (
    f"batch.size={BATCH_BYTES}", f"linger.ms={LINGER_MS}", f"buffer.memory={BUFFER_BYTES}"
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaProduce:
    """One run of kafka-producer-perf-test.

    key: of the figure. share: this run's share of the load's records. properties: of the producer,
    besides the addresses.
    """

    key: str
    record_bytes: int
    share: float
    properties: tuple[str, ...]


PRODUCES: tuple[JavaProduce, ...] = (
    JavaProduce(
        key="java_all_mb_s", record_bytes=1_000, share=1.0, properties=("acks=all", *_LARGE_BATCHES)
    ),
    # Batches of 16 KB, the client's default.
    JavaProduce(key="java_default_mb_s", record_bytes=1_000, share=0.4, properties=("acks=all",)),
    JavaProduce(
        key="java_lz4_mb_s",
        record_bytes=100,
        share=3.0,
        properties=("acks=all", "compression.type=lz4", *_LARGE_BATCHES),
    ),
    JavaProduce(
        key="java_one_mb_s", record_bytes=1_000, share=1.0, properties=("acks=1", *_LARGE_BATCHES)
    ),
)
CONSUMED_KEY = "java_all_mb_s"
"""The case whose topic the consumer reads afterwards."""


def produce(library: Path, bootstrap: str, topic: str, case: JavaProduce, records: int) -> float:
    """MB/s of `records` records, after half as many more that warm up the JVM and the brokers.

    Raises BenchFailed.
    """
    warm = records // 2
    out = _run(
        library,
        "org.apache.kafka.tools.ProducerPerformance",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--throughput", "-1"),
        *("--num-records", str(records + warm), "--warmup-records", str(warm)),
        *("--record-size", str(case.record_bytes), "--reporting-interval", "3600000"),
        *("--command-property", *case.properties),
    )
    found = _PRODUCED.search(out)
    if found is None:
        raise BenchFailed(f"{case.key}: the producer's tool said {out[-500:]!r}")
    return int(float(found[2])) * case.record_bytes / 1e6


def consume(library: Path, bootstrap: str, topic: str, records: int, record_bytes: int) -> float:
    """MB/s of reading `records` records, from the group's assignment on. Raises BenchFailed."""
    out = _run(
        library,
        "org.apache.kafka.tools.ConsumerPerformance",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--num-records", str(records)),
        *("--timeout", "60000", "--hide-header"),
    )
    # ..., records, records/s, rebalance ms, fetch ms, MB/s, records/s of fetching alone
    fields = [field.strip() for field in out.strip().splitlines()[-1].split(",")]
    if len(fields) != 10 or int(fields[4]) < records:
        raise BenchFailed(f"the consumer's tool said {out[-500:]!r}")
    fetching = Throughput(
        records=int(fields[4]), record_bytes=record_bytes, seconds=int(fields[7]) / 1e3
    )
    return fetching.mb_per_s


def _run(library: Path, main_class: str, *arguments: str) -> str:
    command = ["java", *FLAGS, "-cp", f"{library}/*", main_class, *arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S
        )
    except subprocess.TimeoutExpired as error:
        raise BenchFailed(f"{main_class} did not end within {_TIMEOUT_S:g} s") from error
    if done.returncode != 0:
        raise BenchFailed(f"{main_class} ended with {done.returncode}: {done.stderr[-500:]}")
    return done.stdout
