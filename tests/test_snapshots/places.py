"""Folders for snapshots on the real disk and in memory, and coroutines that a crash cuts short at a
given disk call."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from typing import Any

from kvorum.chaos.sim.kernel.async_disk import SimAsyncDisk, SimTask, run_now
from kvorum.runtime.async_disk import OsAsyncDisk
from kvorum.runtime.errors import CorruptData
from kvorum.runtime.memory_disk import MemoryDisk
from kvorum.snapshots.format import SnapshotDecoder, SnapshotHeader
from kvorum.snapshots.store import SnapshotStore

FOLDER = "log/__cluster_metadata-0"
OLD = SnapshotHeader(end_offset=3, epoch=1, timestamp_ms=10)
NEW = SnapshotHeader(
    end_offset=7,
    epoch=2,
    timestamp_ms=20,
    kraft_version=1,
    voters=((1, "AAAAAAAAAAAAAAAAAAAAAQ", "localhost", 9093),),
)
PAYLOADS = [b"first", b"", b"third" * 50]


@dataclass
class Place:
    """One store and how its coroutines are run."""

    store: SnapshotStore
    run: Any

    def names(self):
        return self.run(self.store.disk.list_dir(self.store.directory))

    def bytes_of(self, path):
        return self.run(self.store.disk.read_range(path, 0, 1 << 20))

    def put(self, path, data):
        async def story():
            file = await self.store.disk.open_write(path, append=False)
            await file.write(data)
            await file.sync()
            await file.close()

        self.run(story())


def os_place(tmp_path):
    return Place(SnapshotStore(OsAsyncDisk(), str(tmp_path)), asyncio.run)


def memory_place(seed=0, **limits):
    """An empty folder, durable, on a disk in memory."""
    disk = MemoryDisk(random.Random(seed), **limits)
    disk.make_dirs(FOLDER)
    for folder in ("", "log", FOLDER):
        disk.sync_dir(folder)
    return Place(SnapshotStore(SimAsyncDisk(disk), FOLDER), run_now)


def pauses_of(coroutine):
    """The number of disk calls that a coroutine makes; runs it to its end."""
    task = SimTask(coroutine)
    count = 0
    while task.step():
        count += 1
    assert task.error is None, task.error
    return count


def crash_before_call(place, coroutine, number):
    """Let `number` disk calls of a coroutine happen, then cut the power."""
    task = SimTask(coroutine)
    for _ in range(number + 1):
        task.step()
    place.store.disk.disk.crash()
    task.drop()


def decode_file(path, data):
    """The header and payloads of a snapshot that is given as bytes."""
    decoder = SnapshotDecoder(path)
    payloads = []
    while decoder.needs_more(len(data)):
        payload = decoder.accept(data[decoder.position : decoder.position + decoder.wanted])
        if payload is not None:
            payloads.append(payload)
    return decoder.finish(), payloads


def newest_good(place):
    """The newest snapshot that passes every check, and the faults of newer ones."""
    refused = []
    for id, found in reversed(place.run(place.store.check_all())):
        if not isinstance(found, CorruptData):
            assert found.id == id
            return id, refused
        refused.append(found)
    return None, refused
