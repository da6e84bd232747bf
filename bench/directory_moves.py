"""The speed of a move between two data directories, and what producers notice of it.

    python -m bench.directory_moves localhost:9092 [--size-mb 2000]

The broker runs on this machine, is alone in its cluster, and has several `log.dirs`; it may be
Kvorum's or Apache Kafka's. The script fills a topic, measures the disk (a file of that size,
written and fsynced), and moves the replica while another topic is produced to, 200 records a second
with acks=all. It prints the speed of the move beside the disk's, and the producer's latency before
and during it.
"""

from __future__ import annotations

import argparse
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.cluster import BenchFailed, wait_for
from kvorum.client.connection import KafkaConnection

RECORDS_PER_SECOND = 200
RECORD_BYTES = 1_000
FILL_BATCH_BYTES = 100_000
TIMEOUT_S = 30.0
MOVE_TIMEOUT_S = 600.0
MOVED, PRODUCED = "moved", "produced"


class Place(NamedTuple):
    """A copy of the replica."""

    path: str
    size_bytes: int
    is_future: bool


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.directory_moves", description=__doc__)
    parser.add_argument("bootstrap")
    parser.add_argument("--size-mb", type=int, default=2_000)
    parser.add_argument("--record-bytes", type=int, default=1_000)
    options = parser.parse_args()
    host, _, port = options.bootstrap.rpartition(":")
    connection = KafkaConnection([(host, int(port))], TIMEOUT_S)
    _create(options.bootstrap)
    _fill(options.bootstrap, options.size_mb * 1_000_000, options.record_bytes)
    source = next(place for place in _places(connection) if not place.is_future)
    paths = [path for path, _ in _rows(connection) if path != source.path]
    if not paths:
        raise BenchFailed("the broker has one data directory; give it another in log.dirs")
    disk_mb_s = _disk_speed(Path(paths[0]), source.size_bytes)
    load = _Load(options.bootstrap)
    time.sleep(5)
    quiet = load.take()
    began = time.monotonic()
    _alter(connection, paths[0])
    wait_for(
        lambda: True if [p.path for p in _places(connection)] == [paths[0]] else None,
        timeout_s=MOVE_TIMEOUT_S,
        what="the replica is in the other directory",
    )
    took_s = time.monotonic() - began
    during = load.take()
    load.stop()
    move_mb_s = source.size_bytes / took_s / 1e6
    print(f"moved {source.size_bytes / 1e6:.0f} MB in {took_s:.2f} s: {move_mb_s:.0f} MB/s")
    print(f"disk {disk_mb_s:.0f} MB/s: the move has {move_mb_s / disk_mb_s:.0%} of it")
    for name, latencies in (("before", quiet), ("during", during)):
        print(
            f"producers {name}: {len(latencies)} records, p50 {_share(latencies, 0.5):.1f} ms, "
            f"p99 {_share(latencies, 0.99):.1f} ms, most {max(latencies):.1f} ms"
        )
    return 0


def _create(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.delete_topics([MOVED, PRODUCED]).values():
        if future.exception() is None:
            time.sleep(2)
    made = admin.create_topics([NewTopic(name, 1, 1) for name in (MOVED, PRODUCED)])
    for future in made.values():
        future.result()


def _fill(bootstrap: str, size_bytes: int, record_bytes: int) -> None:
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 20, "batch.size": FILL_BATCH_BYTES}
    )
    value = os.urandom(record_bytes)
    for _ in range(size_bytes // record_bytes):
        while True:
            try:
                producer.produce(MOVED, value)
                break
            except BufferError:
                producer.poll(0.05)
    producer.flush()


def _disk_speed(folder: Path, size_bytes: int) -> float:
    """MB/s at which a file is written and fsynced in that folder."""
    path, block = folder / "speed.tmp", os.urandom(1 << 20)
    began = time.monotonic()
    with path.open("wb") as file:
        for _ in range(size_bytes // len(block)):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
    took_s = time.monotonic() - began
    path.unlink()
    return size_bytes / took_s / 1e6


def _rows(connection: KafkaConnection) -> Iterator[tuple[str, Any]]:
    answer = connection.call("describe_log_dirs", 35, 4, {"topics": None}, flexible=True)
    return ((row.log_dir, row) for row in answer.results)


def _places(connection: KafkaConnection) -> list[Place]:
    return [
        Place(path, partition.partition_size, partition.is_future_key)
        for path, row in _rows(connection)
        for topic in row.topics
        if topic.name == MOVED
        for partition in topic.partitions
    ]


def _alter(connection: KafkaConnection, path: str) -> None:
    dirs = [{"path": path, "topics": [{"name": MOVED, "partitions": [0]}]}]
    answer = connection.call("alter_replica_log_dirs", 34, 2, {"dirs": dirs}, flexible=True)
    error = answer.results[0].partitions[0].error_code
    if error.value:
        raise BenchFailed(f"the move is refused: {error.name}")


class _Load:
    """A producer at a steady rate."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all"})
        self._latencies: list[float] = []
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def take(self) -> list[float]:
        """The latencies in ms since the last call."""
        taken, self._latencies = self._latencies, []
        return taken

    def stop(self) -> None:
        self._is_stopped.set()
        self._thread.join()
        self._producer.flush()

    def _run(self) -> None:
        value = os.urandom(RECORD_BYTES)
        due = time.monotonic()
        while not self._is_stopped.is_set():
            due += 1 / RECORDS_PER_SECOND
            sent = time.monotonic()

            def on_delivery(error: Any, _: Any, sent: float = sent) -> None:
                if error is None:
                    self._latencies.append((time.monotonic() - sent) * 1000)

            self._producer.produce(PRODUCED, value, on_delivery=on_delivery)
            while (left := due - time.monotonic()) > 0:
                self._producer.poll(min(left, 0.001))


def _share(values: list[float], share: float) -> float:
    return sorted(values)[min(int(len(values) * share), len(values) - 1)]


if __name__ == "__main__":
    raise SystemExit(main())
