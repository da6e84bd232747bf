"""Coroutines over a MemoryDisk in virtual time: no event loop, no thread, no clock.

Every call of a `SimAsyncDisk` first yields a `Pause` to the code that drives the coroutine, and
acts when it is resumed. The simulator resumes it after some virtual time, or never. So a crash can
happen between any two disk calls, and during a call (`MemoryDisk.cut_power_after`).
"""

from __future__ import annotations

import errno
import types
from collections.abc import Coroutine, Generator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from kvorum.runtime.errors import InvariantViolated, KvorumError, invariant
from kvorum.runtime.memory_disk import MemoryDisk, MemoryFile

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """A coroutine is about to make this disk call; resume the coroutine to make it."""

    operation: str
    path: str


@types.coroutine
def pause(operation: str, path: str) -> Generator[Pause, None, None]:
    """Yield to the code that drives the coroutine."""
    yield Pause(operation=operation, path=path)


class SimAsyncFile:
    """Implements `runtime.async_disk.AsyncFile`."""

    __slots__ = ("_file", "_position")

    def __init__(self, file: MemoryFile, position: int) -> None:
        self._file = file
        self._position = position

    async def write(self, data: bytes) -> None:
        await pause("write", self._file.path)
        self._file.pwrite(data, self._position)
        self._position += len(data)

    async def sync(self) -> None:
        await pause("sync", self._file.path)
        self._file.sync()

    async def close(self) -> None:
        # The one call without a pause. It changes nothing on the disk, and it is in `finally`,
        # where a coroutine that a crash closed (SimTask.drop) may not yield any more.
        self._file.close()


class SimAsyncDisk:
    """Implements `runtime.async_disk.AsyncDisk` over a MemoryDisk, across its crashes."""

    def __init__(self, disk: MemoryDisk) -> None:
        self.disk = disk

    async def open_write(self, path: str, *, append: bool) -> SimAsyncFile:
        await self._pause("open", path)
        file = self.disk.open(path)
        if not append:
            file.truncate(0)
        return SimAsyncFile(file, file.size())

    async def read_range(self, path: str, position: int, count: int) -> bytes:
        await self._pause("read", path)
        return self._existing(path).pread(count, position)

    async def size(self, path: str) -> int:
        await self._pause("size", path)
        return self._existing(path).size()

    async def exists(self, path: str) -> bool:
        await self._pause("exists", path)
        return self.disk.exists(path)

    async def list_dir(self, path: str) -> list[str]:
        await self._pause("list_dir", path)
        return self.disk.list_dir(path)

    async def rename(self, source: str, target: str) -> None:
        await self._pause("rename", source)
        self.disk.rename(source, target)

    async def remove(self, path: str) -> None:
        await self._pause("remove", path)
        self.disk.remove(path)

    async def sync_dir(self, path: str) -> None:
        await self._pause("sync_dir", path)
        self.disk.sync_dir(path)

    async def make_dirs(self, path: str) -> None:
        await self._pause("make_dirs", path)
        self.disk.make_dirs(path)

    async def _pause(self, operation: str, path: str) -> None:
        life = self.disk.crash_count
        await pause(operation, path)
        invariant(life == self.disk.crash_count, f"a coroutine outlived a crash: {operation}")

    def _existing(self, path: str) -> MemoryFile:
        # MemoryDisk.open creates a missing file, as storage needs it; a read must not.
        if not self.disk.exists(path):
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return self.disk.open(path)


class SimTask(Generic[T]):
    """One coroutine and its progress.

    result: its return value.
    error: the OSError or KvorumError that it ended with. `step` raises a power cut, a broken
        invariant and any other error, for the simulator to handle.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine = coroutine
        self.is_finished = False
        self.result: T | None = None
        self.error: OSError | KvorumError | None = None
        #: The disk call that the coroutine is about to make; None before the first step and after
        #: the last.
        self.pause: Pause | None = None

    def step(self) -> bool:
        """Run to the next pause. Returns False if the coroutine has ended."""
        if self.is_finished:
            return False
        self.pause = None
        # If an exception leaves the lines below, the coroutine has ended too.
        self.is_finished = True
        try:
            self.pause = self._coroutine.send(None)
            self.is_finished = False
        except StopIteration as end:
            self.result = end.value
        except InvariantViolated:
            raise
        except (OSError, KvorumError) as error:
            self.error = error
        return not self.is_finished

    def drop(self) -> None:
        """Close the coroutine, as a crash does: no more of it runs."""
        self.is_finished = True
        self.pause = None
        self._coroutine.close()


def run_now(coroutine: Coroutine[Any, Any, T]) -> T:
    """Drive a coroutine to its end at once, without waiting at its pauses; raises the coroutine's
    exceptions."""
    while True:
        try:
            coroutine.send(None)
        except StopIteration as end:
            result: T = end.value
            return result
