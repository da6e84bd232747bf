"""Brokers with several data directories, on disks that fail when a test says so."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

from kio.schema.errors import ErrorCode as KioError

from kvorum.metadata.image.records import UNASSIGNED_DIRECTORY
from kvorum.runtime.disk import OsDisk, OsDiskFile
from kvorum.storage.format.batch import build_batch
from kvorum.storage.log.log import Log
from tests.polling import eventually
from tests.test_broker.harness import QUICK, Harness
from tests.test_broker.raw_client import RawClient, produce_values

QUIET = dataclasses.replace(
    QUICK,
    replica_high_watermark_checkpoint_interval_ms=3_600_000,
    log_flush_offset_checkpoint_interval_ms=3_600_000,
)


class FaultyDisk(OsDisk):
    """The real disk; `fail` makes a kind of call fail below a path, from then on."""

    def __init__(self) -> None:
        self.faults: list[tuple[str, str, int]] = []
        self.hits = 0

    def fail(self, operation: str, path: str, number: int) -> None:
        self.faults.append((operation, path, number))

    def check(self, operation: str, path: str) -> None:
        for wanted, below, number in self.faults:
            if wanted == operation and below in path:
                self.hits += 1
                raise OSError(number, "injected fault", path)

    def open(self, path: str) -> FaultyFile:  # type: ignore[override]
        self.check("open", path)
        return FaultyFile(self, path)

    def write_atomic(self, path: str, data: bytes) -> None:
        self.check("replace", path)
        super().write_atomic(path, data)

    def rename(self, source: str, target: str) -> None:
        self.check("rename", source)
        super().rename(source, target)

    def sync_dir(self, path: str) -> None:
        self.check("sync_dir", path + "/")
        super().sync_dir(path)

    def make_dirs(self, path: str) -> None:
        self.check("make_dirs", path + "/")
        super().make_dirs(path)


class FaultyFile(OsDiskFile):
    __slots__ = ("_disk",)

    def __init__(self, disk: FaultyDisk, path: str) -> None:
        super().__init__(path)
        self._disk = disk

    def fileno(self) -> int:
        return -1  # no sendfile: records for consumers are read through this class

    def pread(self, length: int, position: int) -> bytes:
        self._disk.check("read", self.path)
        return super().pread(length, position)

    def pwrite(self, data: bytes | bytearray | memoryview, position: int) -> None:
        self._disk.check("write", self.path)
        super().pwrite(data, position)

    def sync(self) -> None:
        self._disk.check("sync", self.path)
        super().sync()


def create(harness: Harness, name: str = "t", partitions: int = 2) -> bytes:
    """Partition i of broker 1 lies in its directory i + 1, and broker 1 leads all."""
    made = [(1, 2)] * partitions
    topic_id: bytes = harness.call(lambda: harness.cluster.controller.create(name, made))
    eventually(lambda: all(told(harness, name, p) for p in range(partitions)), "all are told")
    return topic_id


def told(harness: Harness, name: str, partition_id: int, broker_id: int = 1) -> bytes | None:
    """The directory of a replica in the metadata, None if it has none."""
    partition = harness.cluster.controller.image.topic(name).partitions[partition_id]
    found = partition.directory_of(broker_id)
    return None if found == UNASSIGNED_DIRECTORY else found


def produce(
    harness: Harness, partition_id: int = 0, broker_id: int = 1, topic: str = "t"
) -> KioError:
    client = RawClient(harness.cluster.ports[broker_id])
    batch = bytes(build_batch([(None, b"x")], timestamp_ms=int(time.time() * 1000)))
    try:
        asked = produce_values(topic, batch, acks=1, partition=partition_id)
        reply = client.call("produce", 9, asked)
        return reply.responses[0].partition_responses[0].error_code
    finally:
        client.close()


def leader(harness: Harness, partition_id: int) -> int:
    return harness.cluster.controller.image.topic("t").partitions[partition_id].leader


def isr(harness: Harness, partition_id: int) -> tuple[int, ...]:
    return harness.cluster.controller.image.topic("t").partitions[partition_id].isr


def wait_moved(harness: Harness, partition_id: int = 0) -> None:
    eventually(lambda: isr(harness, partition_id) == (2,), "broker 2 has the partition")
    assert leader(harness, partition_id) == 2


def damage(log: Log) -> Path:
    """Change a byte in the second batch. A sound batch follows it, so it is no torn tail."""
    path = Path(log.directory) / f"{log.segments.bases[0]:020d}.log"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    return path


def create_plain(harness: Harness) -> None:
    harness.call(lambda: harness.cluster.controller.create("t", [(1, 2), (1, 2)]))
