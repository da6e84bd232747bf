"""The disk as coroutines, as narrow as snapshots need it.

The second seam between storage and the world, beside `runtime.disk`: a snapshot is long and cold,
so its writer and reader give way at every disk call. `OsAsyncDisk` runs each call in a thread
through aiofiles; the simulator brings another in which a crash can come between any two calls.
The log does not use it: a thread pool keeps no order between calls that are not awaited in turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import Any, Protocol

import aiofiles
import aiofiles.os

from kvorum.runtime.disk import OsDisk


class AsyncFile(Protocol):
    """A file open for writing at its end. Its opener closes it, on every way out."""

    async def write(self, data: bytes) -> None:
        """Write all of data. Raises OSError; part may then have been written."""
        ...

    async def sync(self) -> None:
        """Return only when every byte written so far survives a power cut (fsync)."""
        ...

    async def close(self) -> None: ...


class AsyncDisk(Protocol):
    """A tree of files. Every method may raise OSError."""

    async def open_write(self, path: str, *, append: bool) -> AsyncFile:
        """Open for writing, made if missing (its folder must exist).

        append: write behind what is there; else what is there is dropped.
        """
        ...

    async def read_range(self, path: str, position: int, count: int) -> bytes:
        """Up to `count` bytes from `position`; fewer only where the file ends.

        Raises FileNotFoundError.
        """
        ...

    async def size(self, path: str) -> int:
        """Bytes in a file. Raises FileNotFoundError."""
        ...

    async def exists(self, path: str) -> bool: ...

    async def list_dir(self, path: str) -> list[str]:
        """Names in a folder, sorted; empty if the folder is missing."""
        ...

    async def rename(self, source: str, target: str) -> None:
        """Atomic replacement of `target` by `source`, within one folder."""
        ...

    async def remove(self, path: str) -> None:
        """Remove a file; missing is fine."""
        ...

    async def sync_dir(self, path: str) -> None:
        """Make names created, renamed or removed in this folder survive a power cut."""
        ...

    async def make_dirs(self, path: str) -> None: ...


class OsAsyncFile:
    """A file of the operating system, behind a buffer that `sync` and `close` empty."""

    __slots__ = ("_file",)

    def __init__(self, file: Any) -> None:
        self._file = file

    async def write(self, data: bytes) -> None:
        await self._file.write(data)

    async def sync(self) -> None:
        await self._file.flush()
        await _fsync(self._file.fileno())

    async def close(self) -> None:
        await self._file.close()


class OsAsyncDisk:
    """The operating system's files; each call runs in the loop's thread pool."""

    async def open_write(self, path: str, *, append: bool) -> OsAsyncFile:
        opening = asyncio.ensure_future(_open(path, "ab" if append else "wb"))
        try:
            return OsAsyncFile(await asyncio.shield(opening))
        except asyncio.CancelledError:
            # The thread opens the file all the same, and may empty it: wait, lest it does so
            # after the next writer has begun, and close what nobody else will.
            with contextlib.suppress(OSError):
                await (await opening).close()
            raise

    async def read_range(self, path: str, position: int, count: int) -> bytes:
        data: bytes = await _read_range(path, position, count)
        return data

    async def size(self, path: str) -> int:
        size: int = await aiofiles.os.path.getsize(path)
        return size

    async def exists(self, path: str) -> bool:
        exists: bool = await aiofiles.os.path.exists(path)
        return exists

    async def list_dir(self, path: str) -> list[str]:
        names: list[str] = await _list_dir(path)
        return names

    async def rename(self, source: str, target: str) -> None:
        await aiofiles.os.replace(source, target)

    async def remove(self, path: str) -> None:
        await _remove(path)

    async def sync_dir(self, path: str) -> None:
        await _sync_dir(path)

    async def make_dirs(self, path: str) -> None:
        await aiofiles.os.makedirs(path, exist_ok=True)


async def _open(path: str, mode: str) -> Any:
    return await aiofiles.open(path, mode)


def _blocking_read_range(path: str, position: int, count: int) -> bytes:
    # One trip to the thread, where open, seek, read and close of an aiofiles file are four.
    with open(path, "rb") as file:
        file.seek(position)
        return file.read(count)


_fsync = aiofiles.os.wrap(os.fsync)
_read_range = aiofiles.os.wrap(_blocking_read_range)
_list_dir = aiofiles.os.wrap(OsDisk().list_dir)
_remove = aiofiles.os.wrap(OsDisk().remove)
_sync_dir = aiofiles.os.wrap(OsDisk().sync_dir)
