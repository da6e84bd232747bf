"""A move between directories with the process killed, or the power cut, at every disk call.

After each the broker starts again on the same disk, and the move goes on or is complete: the
replica has every record that it must have, and one folder.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random

import pytest

from kvorum.broker.config.broker_config import BrokerConfig
from kvorum.broker.log_dirs.log_directories import FoundDirectory
from kvorum.broker.manager import background_jobs, directory_moves
from kvorum.broker.manager.replica_manager import ReplicaManager
from kvorum.broker.partition.core.batch_validation import ProduceTerms
from kvorum.broker.partition.replica import Replica
from kvorum.metadata.image.features import SUPPORTED
from kvorum.metadata.image.records import BrokerRegistrationChange, Endpoint, RegisterBroker
from kvorum.runtime.errors import ErrorCode
from kvorum.runtime.memory_disk import MemoryDisk, PowerCut
from kvorum.storage.format.batch import build_batch, iter_headers, iter_records
from tests.polling import until
from tests.test_broker.harness import BrokerSide, FakeController

IDS = {"a": b"a" * 16, "b": b"b" * 16}
CONFIG = dataclasses.replace(BrokerConfig(), log_segment_bytes=600)
STRIDE = 3
"""Threads vary the order of the disk calls a little, so that runs meet all of them."""
DELETED = 3
"""The log start that was acknowledged before the move."""


class LoneBroker:
    """A broker with two directories on a disk in memory, and no network."""

    def __init__(self, disk: MemoryDisk) -> None:
        self.disk = disk
        for path in IDS:
            self.disk.make_dirs(path)
            self.disk.sync_dir(path)
        self.disk.sync_dir("")
        self.controller = FakeController()
        self.durable_end = 0
        self.appended = 0

    def start(self) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        self.manager = ReplicaManager(
            broker_id=1, data_directories=list(IDS), config=CONFIG,
            controller=BrokerSide(self.controller, 1), disk=self.disk,
            peer_address=lambda peer: None, rng=random.Random(self.disk.operation_count),
        )  # fmt: skip
        self.manager.load(found={p: FoundDirectory(directory_id=i) for p, i in IDS.items()})
        image = self.controller.image
        self.controller.managers[1] = self.manager
        epoch = image.end_offset + 1
        endpoint = Endpoint("PLAINTEXT", "127.0.0.1", 1)
        registration = RegisterBroker(
            1, epoch, bytes(16), (endpoint,), features=SUPPORTED, log_dirs=tuple(IDS.values())
        )
        self.controller.managers.clear()
        self.controller.commit(registration)
        self.controller.commit(BrokerRegistrationChange(1, epoch, is_fenced=False))
        self.controller.managers[1] = self.manager
        self.manager.publish(None, self.controller.image)
        self.manager.start()

    @property
    def replica(self) -> Replica:
        replica = self.manager.registry.find_by_name("t", 0)
        assert replica is not None, self.manager.registry.broken
        return replica

    def append(self) -> None:
        batch = bytearray(build_batch([(None, b"%d" % self.appended)], timestamp_ms=1))
        terms = ProduceTerms(acks=1, version=9, now_ms=0, wall_ms=1, unpacking=None)
        if self.replica.append_own(batch, terms) is ErrorCode.NONE:
            self.appended += 1

    def content(self) -> list[int]:
        log, offset = self.replica.log, self.replica.log.start_offset
        found: list[int] = []
        while offset < log.end_offset:
            part = log.read(offset, bytes_max=1 << 20, end_offset=log.end_offset)
            data = part.read()
            for position, header in iter_headers(data):
                for record in iter_records(data, position, header):
                    if record.offset >= log.start_offset:
                        assert record.value == b"%d" % record.offset
                        found.append(record.offset)
                offset = header.end_offset
        return found

    def folders(self) -> list[str]:
        return [
            f"{path}/{name}"
            for path in IDS
            for name in self.disk.list_dir(path)
            if name.startswith("t-0")
        ]

    async def halt(self) -> None:
        await self.manager.fetchers.stop()
        await self.manager.assignments.stop()
        await self.manager.cleaner.stop()
        await self.manager.moves.halt()
        await self.manager._background_jobs.stop()


class CutAfterSwap(MemoryDisk):
    """Power fails when the names of the destination are to be made durable after the swap."""

    def sync_dir(self, path: str) -> None:
        if path == "b" and self.exists("b/t-0"):
            self.cut_power_after(0)
        super().sync_dir(path)


async def until_cut(broker: LoneBroker, operations: int | None) -> bool:
    """Move the replica from a to b with appends meanwhile; True if the disk's end came first."""
    broker.start()
    broker.controller.create("t", [(1,)], {"file.delete.delay.ms": "0"})
    for _ in range(20):
        broker.append()
    replica = broker.replica
    replica.log.flush()
    replica.sync_identity()
    replica.move_start(DELETED)
    checkpoints = replica.log_dir.store.checkpoints
    checkpoints.collect_log_offsets([replica])
    checkpoints.write_log_offsets()
    broker.durable_end = replica.log.durable_end_offset
    if operations is not None:
        broker.disk.cut_power_after(operations)
    try:
        await broker.manager.moves.alter({("t", 0): "b"})
        for turn in range(100_000):
            if broker.disk.has_lost_power:
                return True
            if turn % 20 == 0 and broker.appended < 60:
                broker.append()
            if turn % 50 == 0 and not replica.log.segments.is_flushing:
                replica.log.flush()
            broker.durable_end = max(broker.durable_end, replica.log.durable_end_offset)
            if broker.folders() == ["b/t-0"] and broker.appended >= 60:
                return False
            await asyncio.sleep(0)
        raise AssertionError(f"the move does not end: {broker.folders()} {broker.appended}")
    except PowerCut:
        return True
    finally:
        await broker.halt()


async def after_the_end(broker: LoneBroker, is_kill: bool) -> None:
    broker.start()
    replica = broker.replica
    assert not replica.is_offline
    content = broker.content()
    least = broker.appended if is_kill else broker.durable_end
    assert content == list(range(DELETED, replica.log.end_offset))
    assert replica.log.end_offset >= least
    had_begun = replica.future is not None or replica.log_dir.path == "b"
    await until(lambda: replica.future is None and len(broker.folders()) == 1, "one folder is left")
    assert broker.content() == content
    assert replica.log_dir.path == ("b" if had_begun else "a")
    assert broker.folders() == [f"{replica.log_dir.path}/t-0"]
    assert broker.manager.directories.offline == []
    await broker.halt()


@pytest.mark.parametrize("is_kill", [True, False])
def test_an_end_at_any_disk_call_loses_nothing_and_leaves_one_replica(
    is_kill: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory_moves, "REMOVAL_CHECK_MS", 2)
    monkeypatch.setattr(background_jobs, "REMOVAL_INTERVAL_MS", 2)
    operations = 0 if is_kill else 1
    while True:
        broker = LoneBroker(MemoryDisk(random.Random(operations)))
        is_cut = asyncio.run(until_cut(broker, operations))
        if is_kill:
            broker.disk.calm()
            broker.disk.has_lost_power = False
            broker.disk.kill_process()
        else:
            broker.disk.crash()
        try:
            asyncio.run(after_the_end(broker, is_kill))
        except BaseException as failure:
            failure.add_note(f"after {operations} disk calls")
            raise
        if not is_cut:
            break
        operations += STRIDE
    assert operations > 50, "the end came at every step of a move"


def test_each_half_of_a_swap_that_power_undoes_is_mended(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Both renames of a swap are names in folders, and power can undo either without the other."""
    monkeypatch.setattr(directory_moves, "REMOVAL_CHECK_MS", 2)
    monkeypatch.setattr(background_jobs, "REMOVAL_INTERVAL_MS", 2)
    halves = set()
    for seed in range(24):
        broker = LoneBroker(CutAfterSwap(random.Random(seed)))
        assert asyncio.run(until_cut(broker, None))
        broker.disk.crash()
        halves.add(tuple(name.rpartition("-")[2] for name in broker.folders()))
        broker.disk.__class__ = MemoryDisk
        asyncio.run(after_the_end(broker, False))
    assert halves == {("0", "future"), ("0", "0"), ("delete", "0"), ("delete", "future")}
