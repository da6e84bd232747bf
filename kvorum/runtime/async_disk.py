"""The disk as coroutines, as narrow as snapshots need it.

Beside `runtime.disk`, this is the second interface between storage and the disk. A snapshot is long
and not urgent, so its writer and reader let the event loop run at every disk call. `OsAsyncDisk`
runs each call in a thread through aiofiles. The simulator has an implementation in which a crash
can come between any two calls. The log does not use it: a thread pool keeps no order between calls
that are not awaited one by one.
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
    """A file open for writing at its end. Its opener must close it in every case."""

    async def write(self, data: bytes) -> None:
        """Write all of data. Raises OSError; a part may have been written then."""
        ...

    async def sync(self) -> None:
        """Return once every byte written so far survives a power loss (fsync)."""
        ...

    async def close(self) -> None: ...


class AsyncDisk(Protocol):
    """A tree of files. Every method may raise OSError."""

    async def open_write(self, path: str, *, append: bool) -> AsyncFile:
        """Open for writing; create the file if it is missing (its folder must exist).

        append: write behind the present content; otherwise the present content is dropped.
        """
        ...

    async def read_range(self, path: str, position: int, count: int) -> bytes:
        """Up to `count` bytes from `position`; fewer only at the end of the file.

        Raises FileNotFoundError.
        """
        ...

    async def size(self, path: str) -> int:
        """Size of a file in bytes. Raises FileNotFoundError."""
        ...

    async def exists(self, path: str) -> bool: ...

    async def list_dir(self, path: str) -> list[str]:
        """Names in a folder, sorted; empty if the folder is missing."""
        ...

    async def rename(self, source: str, target: str) -> None:
        """Replace `target` by `source` atomically, within one folder."""
        ...

    async def remove(self, path: str) -> None:
        """Remove a file; a missing one is no error."""
        ...

    async def sync_dir(self, path: str) -> None:
        """Return once all names created, renamed or removed in this folder survive a power loss."""
        ...

    async def make_dirs(self, path: str) -> None: ...


class OsAsyncFile:
    """A file of the operating system, with a buffer that `sync` and `close` write out."""

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
    """The file system of the operating system; each call runs in the loop's thread pool."""

    async def open_write(self, path: str, *, append: bool) -> OsAsyncFile:
        opening = asyncio.ensure_future(_open(path, "ab" if append else "wb"))
        try:
            return OsAsyncFile(await asyncio.shield(opening))
        except asyncio.CancelledError:
            # The thread opens the file in any case, and may truncate it. Wait for it, so that it
            # cannot do so after the next writer has begun, and close the file, which nobody else
            # will.
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
    # One call in the thread; open, seek, read and close of an aiofiles file would be four.
    with open(path, "rb") as file:
        file.seek(position)
        return file.read(count)


_fsync = aiofiles.os.wrap(os.fsync)
_read_range = aiofiles.os.wrap(_blocking_read_range)
_list_dir = aiofiles.os.wrap(OsDisk().list_dir)
_remove = aiofiles.os.wrap(OsDisk().remove)
_sync_dir = aiofiles.os.wrap(OsDisk().sync_dir)
