"""What runs on a timer, while a topic goes, a disk fails or a batch is damaged under it."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from metadata.records import RemoveTopic
from runtime.disk import OsDisk, OsDiskFile
from runtime.errors import CorruptData
from storage.batch import build_batch
from tests.test_broker.harness import Harness, wait_until
from tests.test_broker.raw_client import RawClient, produce_values
from tests.test_broker.test_log_directories import QUIET, FaultyDisk, produce


class Gate:
    """Lets one thing go on, unless it was shut."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._reached = threading.Event()
        self._open.set()

    def shut(self) -> None:
        self._reached.clear()
        self._open.clear()

    def pass_through(self) -> None:
        if not self._open.is_set():
            self._reached.set()
            assert self._open.wait(15)

    def let_go_after(self, harness: Harness, job: Any, meanwhile: Callable[[], None]) -> None:
        """Run `job`, and `meanwhile` once it has come to the gate."""
        self.shut()
        running = asyncio.run_coroutine_threadsafe(job, harness.loop)
        assert self._reached.wait(15)
        meanwhile()
        self._open.set()
        running.result(15)


class GatedDisk(OsDisk):
    """at: what in a path is waited for, with checkpoints and with fsyncs."""

    def __init__(self, gate: Gate, at: str) -> None:
        self.gate, self.at = gate, at
        self.checkpoints_written = 0

    def open(self, path: str) -> GatedFile:  # type: ignore[override]
        return GatedFile(self, path)

    def write_atomic(self, path: str, data: bytes) -> None:
        if path.endswith("-offset-checkpoint"):
            self.checkpoints_written += 1
            if self.at in path:
                self.gate.pass_through()
        super().write_atomic(path, data)


class GatedFile(OsDiskFile):
    __slots__ = ("_disk",)

    def __init__(self, disk: GatedDisk, path: str) -> None:
        super().__init__(path)
        self._disk = disk

    def sync(self) -> None:
        if self._disk.at in self.path:
            self._disk.gate.pass_through()
        super().sync()


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def faulty() -> FaultyDisk:
    return FaultyDisk()


@pytest.fixture
def harness(tmp_path: Path, faulty: FaultyDisk) -> Iterator[Harness]:
    """One broker with two directories; partition i of t lies in directory i + 1."""
    often = replace(QUIET, log_flush_offset_checkpoint_interval_ms=100)
    harness = Harness(tmp_path, count=1, config=often, directory_count=2, disks={1: faulty})
    harness.call(lambda: harness.cluster.controller.create("t", [(1,), (1,)]))
    for partition_id in (0, 1):
        produce(harness, partition_id)
        wait_until(lambda p=partition_id: is_flushed(harness, p), "it is flushed")
    yield harness
    faulty.faults.clear()
    harness.close()


def is_flushed(harness: Harness, partition_id: int) -> bool:
    log = harness.cluster.replica(1, "t", partition_id).log
    return log.durable_end_offset == log.end_offset > 0


@pytest.mark.parametrize("checkpoint", ["log offsets", "high watermarks"])
def test_a_topic_made_anew_while_another_directory_is_written_has_none_of_the_old_ones_offsets(
    tmp_path: Path, gate: Gate, checkpoint: str
) -> None:
    # Seed 110027. With the old log's start above its end the new log was thrown away at the next
    # start, and with its recovery point refused.
    disk = GatedDisk(gate, "broker-1-1/")
    harness = Harness(tmp_path, count=1, config=QUIET, directory_count=2, disks={1: disk})
    cluster, controller = harness.cluster, harness.cluster.controller
    harness.call(lambda: controller.create("a", [(1,)]))
    topic_id = harness.call(lambda: controller.create("t", [(1,)]))
    for topic, count in (("a", 1), ("t", 5)):
        for _ in range(count):
            produce(harness, topic=topic)
    maintenance = cluster.brokers[1].manager._maintenance
    harness.run(maintenance._flush_all())
    harness.call(lambda: cluster.replica(1, "t").move_start(5))

    def make_anew() -> None:
        harness.call(lambda: controller.commit(RemoveTopic(topic_id)))
        harness.call(lambda: controller.create("t", [(1,)]))

    jobs = {
        "log offsets": maintenance._checkpoint_log_offsets,
        "high watermarks": maintenance._checkpoint_high_watermarks,
    }
    gate.let_go_after(harness, jobs[checkpoint](), make_anew)
    for _ in range(2):
        produce(harness, topic="t")
    assert cluster.replica(1, "t").home.path.endswith("broker-1-2")
    harness.run(cluster.crash_broker(1))
    harness.run(cluster.start_broker(1))
    replica = cluster.replica(1, "t")
    assert (replica.log.start_offset, replica.log.end_offset) == (0, 2)
    harness.close()


def test_a_topic_that_is_deleted_during_its_flush_leaves_no_file_open(
    tmp_path: Path, gate: Gate
) -> None:
    harness = Harness(tmp_path, count=1, config=QUIET, disks={1: GatedDisk(gate, "t-0/0")})
    controller = harness.cluster.controller
    topic_id = harness.call(lambda: controller.create("t", [(1,)]))
    produce(harness)
    flush = harness.cluster.brokers[1].manager._maintenance._flush_all()
    gate.let_go_after(
        harness, flush, lambda: harness.call(lambda: controller.commit(RemoveTopic(topic_id)))
    )
    left = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if is_open(fd)]
    assert not [path for path in left if f"{tmp_path}" in path and ".log" in path]
    harness.close()


def is_open(fd: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{fd}")


def test_a_batch_damaged_before_its_flush_costs_its_replica_and_no_other(harness: Harness) -> None:
    damaged = harness.cluster.replica(1, "t", 0)
    path = Path(damaged.log.directory) / f"{0:020d}.log"
    produce(harness, 0)
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2 + 16)
        file.write(b"\0")
    wait_until(lambda: damaged.is_offline, "it is offline")
    produce(harness, 1)
    wait_until(lambda: is_flushed(harness, 1), "the other one is flushed")


def test_a_disk_that_fails_when_a_flush_begins_takes_its_directory_down_and_no_other(
    harness: Harness, faulty: FaultyDisk
) -> None:
    faulty.fail("read", "broker-1-1/t-0", errno.EIO)
    produce(harness, 0)
    produce(harness, 1)
    manager = harness.cluster.brokers[1].manager
    wait_until(lambda: manager.directories.offline_count == 1, "the directory is offline")
    wait_until(lambda: is_flushed(harness, 1), "the other one is flushed")


def test_a_log_that_is_found_damaged_at_an_orderly_stop_keeps_no_other_from_being_closed(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = harness.cluster
    log = cluster.replica(1, "t", 0).log

    def close(_: Any) -> None:
        raise CorruptData(log.directory, 7, "no batch header")

    # The home of partition 0 has another one after it.
    harness.call(lambda: cluster.controller.create("u", [(1,)] * 2))
    produce(harness, topic="u")
    other = cluster.replica(1, "u", 0).log
    assert cluster.replica(1, "u", 0).home is cluster.replica(1, "t", 0).home
    whole = type(log).close
    monkeypatch.setattr(type(log), "close", lambda it: close(it) if it is log else whole(it))
    harness.run(cluster.stop_broker(1))
    assert "t-0 is not closed in good order" in caplog.text
    assert (Path(log.directory).parent / "unclean-logs").read_text() == "t-0\n"
    assert (Path(other.directory) / f"{1:020d}.snapshot").exists()


def test_a_replica_that_went_offline_with_a_rolled_segment_costs_no_further_checkpoints(
    tmp_path: Path, gate: Gate
) -> None:
    disk = GatedDisk(gate, "nowhere")
    harness = Harness(tmp_path, count=1, config=QUIET, disks={1: disk})
    harness.call(lambda: harness.cluster.controller.create("t", [(1,)]))
    produce(harness)
    replica = harness.cluster.replica(1, "t")

    def fail() -> None:
        replica.log.roll(now_ms=0)
        replica.fail(CorruptData("t-0", 0, "damage"), "read")

    harness.call(fail)
    maintenance = harness.cluster.brokers[1].manager._maintenance
    before = disk.checkpoints_written
    harness.run(maintenance._flush_sealed())
    assert disk.checkpoints_written == before
    harness.close()


@pytest.mark.parametrize(("number", "offline_count"), [(errno.EIO, 1), (errno.EMFILE, 0)])
def test_a_disk_that_fails_while_the_cleaner_looks_for_work_ends_no_broker(
    harness: Harness, faulty: FaultyDisk, number: int, offline_count: int
) -> None:
    configs = {
        "cleanup.policy": "compact",
        "segment.bytes": "4000",
        "min.cleanable.dirty.ratio": "0.99",
        "max.compaction.lag.ms": "86400000",
    }
    harness.call(lambda: harness.cluster.controller.create("c", [(1,)], configs))
    client = RawClient(harness.cluster.ports[1])
    for at in range(60):
        batch = build_batch([(b"k", b"x" * 200)], timestamp_ms=int(time.time() * 1000) + at)
        client.call("produce", 9, produce_values("c", bytes(batch), acks=1, partition=0))
    client.close()
    manager = harness.cluster.brokers[1].manager
    harness.run(manager._maintenance._flush_sealed())
    replica = harness.cluster.replica(1, "c")

    async def look() -> bool:
        manager.cleaner._retry_at_ms.clear()
        for segment in replica.log._segments.items[:-1]:
            segment.first_timestamp_ms = -1  # as after a start: it is read again
        faulty.fail("read", "/c-0/", number)
        return await manager.cleaner.clean_dirtiest()

    failures = manager.cleaner.failures
    assert harness.run(look()) is False
    assert manager.cleaner.failures == failures + 1
    assert manager.directories.offline_count == offline_count
    assert replica.is_offline == bool(offline_count)
