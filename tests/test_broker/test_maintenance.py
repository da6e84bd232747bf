"""Background jobs while a topic is deleted, a disk fails or a batch is damaged under them."""

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

from kvorum.broker.purgatory.deadlines import Deadlines
from kvorum.broker.purgatory.pending_produce import PendingAck, PendingAcks, PendingProduce
from kvorum.metadata.image.records import RemoveTopic
from kvorum.runtime.disk import OsDisk, OsDiskFile
from kvorum.runtime.errors import CorruptData, ErrorCode
from kvorum.storage.format.batch import build_batch
from kvorum.wire.produce_codec import ProducedPartition
from tests.polling import eventually
from tests.test_broker.harness import Harness
from tests.test_broker.raw_client import RawClient, produce_values
from tests.test_broker.several_directories import QUIET, FaultyDisk, produce


class Gate:
    """A gate in a background job: open at first, and closed by the test."""

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
        """Run `job`; when it waits at the gate, run `meanwhile` and open the gate."""
        self.shut()
        running = asyncio.run_coroutine_threadsafe(job, harness.loop)
        assert self._reached.wait(15)
        meanwhile()
        self._open.set()
        running.result(15)


class GatedDisk(OsDisk):
    """A disk whose checkpoints and fsyncs wait at the gate, for paths that contain `at`."""

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
        eventually(lambda p=partition_id: is_flushed(harness, p), "it is flushed")
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
    # Seed 110027: the new log's checkpoints held the offsets of the old one. A log start above its
    # end discarded the new log at the next start; a recovery point above its end made the start
    # refuse it.
    disk = GatedDisk(gate, "broker-1-1/")
    harness = Harness(tmp_path, count=1, config=QUIET, directory_count=2, disks={1: disk})
    cluster, controller = harness.cluster, harness.cluster.controller
    harness.call(lambda: controller.create("a", [(1,)]))
    topic_id = harness.call(lambda: controller.create("t", [(1,)]))
    for topic, count in (("a", 1), ("t", 5)):
        for _ in range(count):
            produce(harness, topic=topic)
    maintenance = cluster.brokers[1].manager._background_jobs
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
    assert cluster.replica(1, "t").log_dir.path.endswith("broker-1-2")
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
    flush = harness.cluster.brokers[1].manager._background_jobs._flush_all()
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
    eventually(lambda: damaged.is_offline, "it is offline")
    produce(harness, 1)
    eventually(lambda: is_flushed(harness, 1), "the other one is flushed")


def test_a_disk_that_fails_when_a_flush_begins_takes_its_directory_down_and_no_other(
    harness: Harness, faulty: FaultyDisk
) -> None:
    faulty.fail("read", "broker-1-1/t-0", errno.EIO)
    produce(harness, 0)
    produce(harness, 1)
    manager = harness.cluster.brokers[1].manager
    eventually(lambda: manager.directories.offline_count == 1, "the directory is offline")
    eventually(lambda: is_flushed(harness, 1), "the other one is flushed")


def test_a_log_that_is_found_damaged_at_an_orderly_stop_keeps_no_other_from_being_closed(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = harness.cluster
    log = cluster.replica(1, "t", 0).log

    def close(_: Any) -> None:
        raise CorruptData(log.directory, 7, "no batch header")

    # Another log in the directory of partition 0, to be closed after it.
    harness.call(lambda: cluster.controller.create("u", [(1,)] * 2))
    produce(harness, topic="u")
    other = cluster.replica(1, "u", 0).log
    assert cluster.replica(1, "u", 0).log_dir is cluster.replica(1, "t", 0).log_dir
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
    eventually(lambda: disk.checkpoints_written == 2, "recovery points and starts go without it")
    maintenance = harness.cluster.brokers[1].manager._background_jobs
    harness.run(maintenance._flush_sealed())
    assert disk.checkpoints_written == 2
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
    harness.run(manager._background_jobs._flush_sealed())
    replica = harness.cluster.replica(1, "c")

    async def look() -> bool:
        manager.cleaner._retry_at_ms.clear()
        for segment in replica.log.segments.items[:-1]:
            segment.first_timestamp_ms = -1  # as after a start: it is read again
        faulty.fail("read", "/c-0/", number)
        return await manager.cleaner.clean_dirtiest()

    failures = manager.cleaner.failures
    assert harness.run(look()) is False
    assert manager.cleaner.failures == failures + 1
    assert manager.directories.offline_count == offline_count
    assert replica.is_offline == bool(offline_count)


def test_a_watermark_that_nobody_holds_back_any_more_rises_without_a_fetch(
    harness: Harness,
) -> None:
    # A follower that was about to join fell silent, which only the clock shows. Bug: acks=all
    # waited until its deadline.
    replica = harness.cluster.replica(1, "t", 0)
    end_offset = replica.log.end_offset
    heard: list[dict[int, ErrorCode]] = []
    waiting = PendingAcks(lambda: heard.append(waiting.errors), Deadlines(lambda: 0))

    def hold_back() -> None:
        replica.core.high_watermark = end_offset - 1
        waiting.wait_for(0)
        replica.wait_for_replication(PendingAck(end_offset, waiting, 0))

    harness.call(hold_back)
    harness.run(harness.cluster.brokers[1].manager._background_jobs._check_isr())
    assert replica.core.high_watermark == end_offset and heard == [{}]


def test_an_append_whose_disk_fails_before_it_waits_is_answered_at_once(harness: Harness) -> None:
    # The disk fails at another partition of the same request. Bug: the request was answered only at
    # its deadline.
    replica = harness.cluster.replica(1, "t", 0)
    sent: list[list[ProducedPartition]] = []
    waiting = PendingProduce([ProducedPartition(0)], sent.append, Deadlines(lambda: 0))

    def fail_and_wait() -> None:
        replica.go_offline()
        waiting.wait_for(0)
        replica.wait_for_replication(PendingAck(99, waiting, 0))

    harness.call(fail_and_wait)
    (answers,) = sent
    assert [p.error for p in answers] == [ErrorCode.KAFKA_STORAGE_ERROR]


def test_a_follower_tells_its_leader_of_a_start_that_its_own_retention_moved(
    tmp_path: Path,
) -> None:
    harness = Harness(tmp_path, count=2, config=QUIET)
    configs = {"retention.ms": "3600000", "segment.bytes": "1000000"}
    harness.call(lambda: harness.cluster.controller.create("old", [(1, 2)], configs))
    client = RawClient(harness.cluster.ports[1])
    long_ago_ms = int(time.time() * 1000) - 36_000_000
    for _ in range(3):
        batch = bytes(build_batch([(None, bytes(600_000))], timestamp_ms=long_ago_ms))
        client.call("produce", 9, produce_values("old", batch, acks=-1))
    client.close()
    leader, follower = (harness.cluster.replica(broker_id, "old") for broker_id in (1, 2))
    eventually(lambda: follower.core.high_watermark == 3, "the follower has them")
    harness.run(harness.cluster.brokers[2].manager._background_jobs._apply_retention())
    assert follower.log.start_offset == 3 > leader.log.start_offset
    eventually(lambda: leader.core.followers[2].start_offset == 3, "the leader has heard of it")
    harness.close()


def test_what_could_not_be_removed_is_removed_later(
    harness: Harness, faulty: FaultyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Bug: after an error that is not the disk's, such as a full file table, the space was never
    # freed.
    manager = harness.cluster.brokers[1].manager
    log_dir = harness.cluster.replica(1, "t", 0).log_dir
    topic_id = harness.cluster.replica(1, "t", 0).core.topic_id
    remove_tree = faulty.remove_tree

    def fail(path: str) -> None:
        raise OSError(errno.EMFILE, "too many open files", path)

    monkeypatch.setattr(faulty, "remove_tree", fail)
    harness.call(lambda: harness.cluster.controller.commit(RemoveTopic(topic_id)))
    harness.run(manager._background_jobs._remove_deleted())
    monkeypatch.setattr(faulty, "remove_tree", remove_tree)
    harness.run(manager._background_jobs._remove_deleted())
    assert not [name for name in os.listdir(log_dir.path) if name.endswith("-delete")]
