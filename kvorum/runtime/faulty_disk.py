"""A disk and a clock with the faults that a fault board names, around the operating system's own.

Only a node that the chaos lab started has them. A call that meets no fault does what `OsDisk` does,
after one read of the board. The clock of deadlines (`monotonic_ms`) has no faults: a step of NTP
does not move it either.
"""

from __future__ import annotations

import asyncio
import errno
import os
import threading
import time
from typing import Any

from kvorum.runtime.async_disk import AsyncFile, OsAsyncDisk
from kvorum.runtime.clock import monotonic_ms, wall_ms
from kvorum.runtime.disk import OsDisk, OsDiskFile
from kvorum.runtime.fault_board import FaultBoard, Word

_WAIT_S = 0.01
"""A delayed fsync looks at the board so often: it ends soon after its fault."""

_SYNC_DELAY_US = int(Word.SYNC_DELAY_US)
_SYNC_ERRNO = int(Word.SYNC_ERRNO)
_WRITE_ERRNO = int(Word.WRITE_ERRNO)
_ROOM_BYTES = int(Word.ROOM_BYTES)
_CLOCK_OFFSET_MS = int(Word.CLOCK_OFFSET_MS)


class FaultGate:
    """Lets disk calls pass, delays them or refuses them, as one board says. Thread-safe."""

    __slots__ = ("_lock", "words")

    def __init__(self, board: FaultBoard) -> None:
        self.words = board.words
        # A broker's event loop and its threads write at the same time.
        self._lock = threading.Lock()

    def before_sync(self, path: str) -> None:
        """Return when the fsync may happen. Raises OSError if it fails by a fault."""
        words = self.words
        if words[_SYNC_DELAY_US]:
            self._count(Word.DELAYED_SYNCS)
            began_ns = time.monotonic_ns()
            while (left_s := self._left_s(began_ns)) > 0:
                time.sleep(min(left_s, _WAIT_S))
        self.refuse(words[_SYNC_ERRNO], path)

    def _left_s(self, began_ns: int) -> float:
        spent_ns = time.monotonic_ns() - began_ns
        return (self.words[_SYNC_DELAY_US] * 1_000 - spent_ns) / 1e9

    def before_change(self, path: str) -> None:
        """Check for a fault before a call that changes a file and needs no room. Raises OSError."""
        if self.words[_WRITE_ERRNO]:
            self.refuse(self.words[_WRITE_ERRNO], path)

    def take_room(self, grows_by: int, path: str) -> None:
        """Take room for bytes by which a file grows. Raises OSError (ENOSPC) if there is none."""
        if grows_by <= 0:
            return
        words = self.words
        with self._lock:
            room_bytes = words[_ROOM_BYTES]
            is_full = 0 <= room_bytes < words[Word.USED_BYTES] + grows_by
            if not is_full:
                words[Word.USED_BYTES] += grows_by
        if is_full:
            self.refuse(errno.ENOSPC, path)

    def refuse(self, number: int, path: str) -> None:
        """Raise the OSError of that number; 0 is none."""
        if number:
            self._count(Word.FAILED_CALLS)
            raise OSError(number, f"{os.strerror(number)} (a fault of the chaos lab)", path)

    def _count(self, word: Word) -> None:
        with self._lock:
            self.words[word] += 1


class FaultyFile(OsDiskFile):
    """An open file of a FaultyDisk."""

    __slots__ = ("_gate",)

    def __init__(self, path: str, gate: FaultGate) -> None:
        super().__init__(path)
        self._gate = gate

    def pwrite(self, data: bytes | bytearray | memoryview, position: int) -> None:
        gate = self._gate
        if gate.words[_WRITE_ERRNO]:
            gate.before_change(self.path)
        if gate.words[_ROOM_BYTES] >= 0:
            gate.take_room(position + len(data) - self.size(), self.path)
        super().pwrite(data, position)

    def truncate(self, size: int) -> None:
        self._gate.before_change(self.path)
        super().truncate(size)

    def sync(self) -> None:
        self._gate.before_sync(self.path)
        super().sync()


class FaultyDisk(OsDisk):
    """The file system of the operating system, with faults."""

    def __init__(self, gate: FaultGate) -> None:
        self._gate = gate

    def open(self, path: str) -> FaultyFile:
        return FaultyFile(path, self._gate)

    def sync_dir(self, path: str) -> None:
        self._gate.before_sync(path)
        super().sync_dir(path)

    def write_atomic(self, path: str, data: bytes) -> None:
        temporary = path + ".tmp"
        self._gate.before_change(temporary)
        if self._gate.words[_ROOM_BYTES] >= 0:
            self._gate.take_room(len(data), temporary)
        self._gate.before_sync(temporary)
        super().write_atomic(path, data)


class _FaultyAsyncFile:
    """An `AsyncFile` around the operating system's, with faults."""

    __slots__ = ("_file", "_gate", "_path")

    def __init__(self, file: AsyncFile, path: str, gate: FaultGate) -> None:
        self._file = file
        self._path = path
        self._gate = gate

    async def write(self, data: bytes) -> None:
        self._gate.before_change(self._path)
        if self._gate.words[_ROOM_BYTES] >= 0:
            self._gate.take_room(len(data), self._path)
        await self._file.write(data)

    async def sync(self) -> None:
        await asyncio.to_thread(self._gate.before_sync, self._path)
        await self._file.sync()

    async def close(self) -> None:
        await self._file.close()


class FaultyAsyncDisk(OsAsyncDisk):
    """The file system of the operating system for coroutines, with faults."""

    def __init__(self, gate: FaultGate) -> None:
        self._gate = gate

    async def open_write(self, path: str, *, append: bool) -> Any:
        return _FaultyAsyncFile(await super().open_write(path, append=append), path, self._gate)

    async def sync_dir(self, path: str) -> None:
        await asyncio.to_thread(self._gate.before_sync, path)
        await super().sync_dir(path)


class FaultyClock:
    """The operating system's clock, whose wall clock is off by what the board says."""

    __slots__ = ("_words",)

    monotonic_ms = staticmethod(monotonic_ms)

    def __init__(self, board: FaultBoard) -> None:
        self._words = board.words

    def wall_ms(self) -> int:
        return wall_ms() + self._words[_CLOCK_OFFSET_MS]
