"""The interface between storage and the disk, as narrow as storage needs it.

`OsDisk` implements `Disk` and `DiskFile` with the operating system. `runtime.memory_disk`
implements them for the simulator and for tests; it loses unsynced bytes and fails on request. Every
call blocks. A caller that must not block, such as the event loop for an fsync, uses a thread.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import shutil
import sys
from collections.abc import Callable
from typing import Protocol


class DiskFile(Protocol):
    """One open file, read and written by absolute position."""

    @property
    def path(self) -> str: ...

    def fileno(self) -> int:
        """Descriptor for sendfile, or -1 if this disk has none."""
        ...

    def size(self) -> int: ...

    def pread(self, length: int, position: int) -> bytes:
        """Up to `length` bytes from `position`; fewer only at the end of the file."""
        ...

    def pwrite(self, data: bytes | bytearray | memoryview, position: int) -> None:
        """Write all of `data` at `position`. Raises OSError; a part may have been written then."""
        ...

    def truncate(self, size: int) -> None: ...

    def reserve(self, size: int) -> None:
        """Reserve disk space for a file of this size, whose size stays as it is; a later `truncate`
        releases what is not used. Does nothing where the file system cannot. Raises OSError."""
        ...

    def sync(self) -> None:
        """Return once every byte written so far survives a power loss (fdatasync)."""
        ...

    def close(self) -> None: ...


class Disk(Protocol):
    """A tree of files."""

    def open(self, path: str) -> DiskFile:
        """Open for reading and writing, created if missing; its folder must exist."""
        ...

    def exists(self, path: str) -> bool: ...

    def modified_ms(self, path: str) -> int:
        """Time of the last write in ms since 1970. Raises FileNotFoundError."""
        ...

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Set the time of the last write. Raises FileNotFoundError."""
        ...

    def list_dir(self, path: str) -> list[str]:
        """Names in a folder, sorted; empty if the folder is missing."""
        ...

    def make_dirs(self, path: str) -> None: ...

    def remove(self, path: str) -> None:
        """Remove a file; a missing one is no error."""
        ...

    def remove_tree(self, path: str) -> None:
        """Remove a folder with its content; a missing one is no error."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Replace `target` by `source` atomically, within one folder tree."""
        ...

    def sync_dir(self, path: str) -> None:
        """Return once all names created, renamed or removed in this folder survive a power loss."""
        ...

    def read_bytes(self, path: str) -> bytes: ...

    def boot_id(self) -> str:
        """An id that stays the same until the machine restarts; "" if it is unknown.

        While it is the same, everything written is still there, fsynced or not.
        """
        ...

    def write_atomic(self, path: str, data: bytes) -> None:
        """Replace the content of a file; a crash leaves the old or the new content, whole.

        Writes `path.tmp`, fsyncs it, renames it, fsyncs the folder.
        """
        ...


_BOOT_ID = "/proc/sys/kernel/random/boot_id"


def overwrite(disk: Disk, path: str, data: bytes) -> None:
    """Give the file this content, fsynced on return; a crash before that may leave any part of it.

    For files that are read only after something else has marked them as whole. The caller must
    fsync the folder. Raises OSError.
    """
    file = disk.open(path)
    try:
        file.truncate(0)
        file.pwrite(data, 0)
        file.sync()
    finally:
        file.close()


class OsDiskFile:
    """A file of the operating system. Its errors name the file, unlike those of a descriptor."""

    __slots__ = ("_fd", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def fileno(self) -> int:
        return self._fd

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def pread(self, length: int, position: int) -> bytes:
        try:
            data = os.pread(self._fd, length, position)
            if len(data) == length or not data:
                return data
            parts = [data]
            got = len(data)
            while got < length and (data := os.pread(self._fd, length - got, position + got)):
                parts.append(data)
                got += len(data)
        except OSError as failure:
            failure.filename = self.path
            raise
        return b"".join(parts)

    def pwrite(self, data: bytes | bytearray | memoryview, position: int) -> None:
        try:
            written = os.pwrite(self._fd, data, position)
            if written == len(data):
                return
            view = memoryview(data)
            while written < len(view):
                written += os.pwrite(self._fd, view[written:], position + written)
        except OSError as failure:
            failure.filename = self.path
            raise

    def truncate(self, size: int) -> None:
        try:
            os.ftruncate(self._fd, size)
        except OSError as failure:
            failure.filename = self.path
            raise

    def reserve(self, size: int) -> None:
        if sys.platform != "linux":
            return
        error = _reserve(self._fd, size)
        if error and error not in (errno.EOPNOTSUPP, errno.ENOSYS):
            raise OSError(error, os.strerror(error), self.path)

    def sync(self) -> None:
        try:
            _fdatasync(self._fd)
        except OSError as failure:
            failure.filename = self.path
            raise

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class OsDisk:
    """The file system of the operating system."""

    def open(self, path: str) -> OsDiskFile:
        return OsDiskFile(path)

    def exists(self, path: str) -> bool:
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        modified_ns = modified_ms * 1_000_000
        os.utime(path, ns=(modified_ns, modified_ns))

    def list_dir(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return []

    def make_dirs(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def remove(self, path: str) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            return

    def remove_tree(self, path: str) -> None:
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            return

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def sync_dir(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        except OSError as failure:
            failure.filename = path
            raise
        finally:
            os.close(fd)

    def read_bytes(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def boot_id(self) -> str:
        try:
            return self.read_bytes(_BOOT_ID).decode("ascii").strip()
        except OSError:
            return ""  # not Linux

    def write_atomic(self, path: str, data: bytes) -> None:
        temporary = path + ".tmp"
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
            os.fsync(fd)
        except OSError as failure:
            failure.filename = temporary
            raise
        finally:
            os.close(fd)
        os.replace(temporary, path)
        self.sync_dir(os.path.dirname(path) or ".")


def _fdatasync_or_fsync() -> Callable[[int], None]:
    # macOS has no fdatasync; fsync is the closest call there.
    return getattr(os, "fdatasync", os.fsync)


_fdatasync = _fdatasync_or_fsync()

_KEEP_SIZE = 1
"""FALLOC_FL_KEEP_SIZE of fallocate(2)."""


def _reserve(fd: int, size: int) -> int:
    """Linux's fallocate, which Python lacks: posix_fallocate would let the file grow, and the size
    of a segment's file says where its batches end. Returns an errno, 0 for none."""
    return 0 if _fallocate()(fd, _KEEP_SIZE, 0, size) == 0 else ctypes.get_errno()


@functools.cache
def _fallocate() -> Callable[[int, int, int, int], int]:
    function = ctypes.CDLL(None, use_errno=True).fallocate
    function.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return function
