"""A disk in memory that behaves like a real disk in the worst case.

Written bytes are visible at once, but survive `crash()` only if they were synced. Of the unsynced
writes to a file, a random number survives in their order, and the next one may be torn. Names
follow the same rule for each folder: created, renamed and removed names become durable in their
order. Only `sync_dir` makes this certain; the fsync of a file does not save its name. Only
`crash()` and injected faults are random, so one seed decides a run.

Not modelled: writes to one file that reach the disk out of order, and renames between folders
(refused).
"""

from __future__ import annotations

import errno
import random
from dataclasses import dataclass

from kvorum.runtime.disk import overwrite
from kvorum.runtime.memory_disk_tree import (
    Folder,
    Inode,
    Saved,
    restored_folder,
    saved_folder,
    used_bytes,
)

Data = bytes | bytearray | memoryview


class PowerCut(Exception):
    """Raised by the operation that `cut_power_after` chose; the caller must call `crash()` next."""


class Killed(PowerCut):
    """The process ends in the middle of a call; its machine goes on and loses no written byte."""


@dataclass(slots=True, kw_only=True)
class _Fault:
    operation: str
    path_part: str
    error_number: int
    count: int


class MemoryFile:
    """An open file of a MemoryDisk; unusable after `close` or a crash."""

    __slots__ = ("_disk", "_inode", "_life", "path")

    def __init__(self, disk: MemoryDisk, path: str, inode: Inode) -> None:
        self.path = path
        self._disk = disk
        self._inode: Inode | None = inode
        self._life = disk.crash_count

    def fileno(self) -> int:
        return -1

    def size(self) -> int:
        return len(self._open_inode().data)

    def pread(self, length: int, position: int) -> bytes:
        inode = self._open_inode()
        self._disk.before("read", self.path)
        return bytes(inode.data[position : position + length])

    def pwrite(self, data: Data, position: int) -> None:
        inode = self._open_inode()
        content = bytes(data)
        try:
            self._disk.before("write", self.path, grows_by=position + len(content) - self.size())
        except OSError:
            # As on a full disk, some of the bytes may have been written.
            inode.apply(position, content[: self._disk.rng.randint(0, len(content))])
            raise
        except PowerCut:
            inode.apply(position, content)
            raise
        inode.apply(position, content)

    def truncate(self, size: int) -> None:
        inode = self._open_inode()
        self._disk.before("truncate", self.path)
        if size != len(inode.data):
            inode.apply(size, None)

    def reserve(self, size: int) -> None:
        self._open_inode()

    def sync(self) -> None:
        inode = self._open_inode()
        self._disk.before("sync", self.path)
        inode.sync()

    def close(self) -> None:
        self._inode = None

    def _open_inode(self) -> Inode:
        if self._inode is None or self._life != self._disk.crash_count:
            raise OSError(errno.EBADF, "file is closed", self.path)
        return self._inode


class MemoryDisk:
    """Implements `runtime.disk.Disk` in memory; see the top of the file.

    rng: decides what survives a crash.
    capacity_bytes: ENOSPC above it, None for no limit.
    is_withdrawn: every call fails, because the process that used the disk has ended.
    has_lost_power: PowerCut was raised, and `crash` has not been called yet.
    """

    def __init__(self, rng: random.Random, *, capacity_bytes: int | None = None) -> None:
        self.rng = rng
        self.capacity_bytes = capacity_bytes
        self.crash_count = 0
        self._boots = 0
        self.operation_count = 0
        self.has_lost_power = False
        self.is_withdrawn = False
        self.clock_ms = 0
        self._root = Folder()
        self._faults: list[_Fault] = []
        self._operations_left: int | None = None

    # --- faults ------------------------------------------------------------------------------

    def crash(self) -> None:
        """Lose power and restart: unsynced bytes and names are lost by the rules above.

        Every open file becomes unusable; injected faults and a planned power cut are cancelled.
        """
        self.crash_count += 1
        self._boots += 1
        self.has_lost_power = False
        self._faults.clear()
        self._operations_left = None
        self._root.crash(self.rng)

    def kill_process(self) -> None:
        """End the process but not the machine: open files become unusable, no byte is lost."""
        self.crash_count += 1

    def calm(self) -> None:
        """Cancel injected faults, a planned power cut and the capacity limit."""
        self._faults.clear()
        self._operations_left = None
        self.capacity_bytes = None

    def save(self) -> Saved:
        """All durable content, for `restore`; unsynced content is left out."""
        return saved_folder(self._root)

    def restore(self, saved: Saved) -> None:
        """Put back the content from `save`; open files become unusable."""
        self.crash_count += 1
        self._boots += 1
        self._root = restored_folder(saved)

    def cut_power_after(self, operations: int) -> None:
        """Let `operations` more changing operations pass; the one after them raises PowerCut."""
        self._operations_left = operations

    def fail(
        self, operation: str, *, path_part: str = "", error_number: int = errno.EIO, count: int = 1
    ) -> None:
        """Make the next `count` operations fail with OSError if their path contains `path_part`.

        operation: open, read, write, truncate, sync, sync_dir, set_modified, rename or remove.
        """
        self._faults.append(
            _Fault(operation=operation, path_part=path_part, error_number=error_number, count=count)
        )

    def flip_bits(self, path: str, position: int, mask: int = 0xFF) -> None:
        """Damage one stored byte, as a failing disk does; durable at once."""
        inode = self._inode(path)
        inode.sync()
        inode.durable[position] ^= mask
        inode.data[position] ^= mask

    def used_bytes(self) -> int:
        return used_bytes(self._root)

    def before(self, operation: str, path: str, *, grows_by: int = 0) -> None:
        """Count an operation before it runs, and raise a fault if one is due."""
        if self.is_withdrawn:
            raise OSError(errno.EIO, "the process has ended", path)
        for fault in self._faults:
            if fault.operation == operation and fault.path_part in path:
                fault.count -= 1
                if fault.count == 0:
                    self._faults.remove(fault)
                raise OSError(fault.error_number, "injected fault", path)
        if operation == "read":
            return
        self.operation_count += 1
        limit = self.capacity_bytes
        if limit is not None and grows_by > 0 and self.used_bytes() + grows_by > limit:
            raise OSError(errno.ENOSPC, "no space left on the memory disk", path)
        if self._operations_left is not None:
            if self._operations_left == 0:
                self.has_lost_power = True
                raise PowerCut(f"at {operation} of {path}")
            self._operations_left -= 1

    # --- the Disk protocol -------------------------------------------------------------------

    def open(self, path: str) -> MemoryFile:
        folder, name = self._parent(path)
        node = folder.names.get(name)
        if node is None:
            self.before("open", path)
            node = Inode()
            folder.change(None, name, node)
        if isinstance(node, Folder):
            raise IsADirectoryError(errno.EISDIR, "is a folder", path)
        return MemoryFile(self, path, node)

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def modified_ms(self, path: str) -> int:
        """The time set since the last write, else `clock_ms`: no other times are kept."""
        modified_ms = self._inode(path).modified_ms
        return self.clock_ms if modified_ms is None else modified_ms

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        inode = self._inode(path)
        self.before("set_modified", path)
        inode.modified_ms = modified_ms

    def list_dir(self, path: str) -> list[str]:
        node = self._find(path)
        return sorted(node.names) if isinstance(node, Folder) else []

    def make_dirs(self, path: str) -> None:
        folder = self._root
        for part in _parts(path):
            node = folder.names.get(part)
            if node is None:
                self.before("make_dirs", path)
                node = Folder()
                folder.change(None, part, node)
            if not isinstance(node, Folder):
                raise NotADirectoryError(errno.ENOTDIR, "is a file", path)
            folder = node

    def remove(self, path: str) -> None:
        folder, name = self._parent(path, must_exist=False)
        if name not in folder.names:
            return
        if isinstance(folder.names[name], Folder):
            raise IsADirectoryError(errno.EISDIR, "is a folder", path)
        self.before("remove", path)
        folder.change(name, None, None)

    def remove_tree(self, path: str) -> None:
        folder, name = self._parent(path, must_exist=False)
        if name not in folder.names:
            return
        node = folder.names[name]
        if isinstance(node, Folder):
            for child in sorted(node.names):
                self.remove_tree(f"{path}/{child}")
        self.before("remove", path)
        folder.change(name, None, None)

    def rename(self, source: str, target: str) -> None:
        folder, name = self._parent(source)
        target_folder, target_name = self._parent(target)
        if folder is not target_folder:
            raise OSError(errno.EXDEV, "rename between folders is not modelled", source)
        if name not in folder.names:
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        self.before("rename", source)
        folder.change(name, target_name, folder.names[name])

    def sync_dir(self, path: str) -> None:
        node = self._find(path)
        if not isinstance(node, Folder):
            raise FileNotFoundError(errno.ENOENT, "no such folder", path)
        self.before("sync_dir", path)
        node.sync()

    def boot_id(self) -> str:
        return f"boot-{self._boots}"

    def read_bytes(self, path: str) -> bytes:
        self.before("read", path)
        return bytes(self._inode(path).data)

    def write_atomic(self, path: str, data: bytes) -> None:
        temporary = path + ".tmp"
        overwrite(self, temporary, data)
        self.rename(temporary, path)
        self.sync_dir(path.rpartition("/")[0] or ".")

    # --- the tree ----------------------------------------------------------------------------

    def _find(self, path: str) -> Inode | Folder | None:
        node: Inode | Folder = self._root
        for part in _parts(path):
            if not isinstance(node, Folder):
                return None
            child = node.names.get(part)
            if child is None:
                return None
            node = child
        return node

    def _inode(self, path: str) -> Inode:
        node = self._find(path)
        if not isinstance(node, Inode):
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return node

    def _parent(self, path: str, *, must_exist: bool = True) -> tuple[Folder, str]:
        parts = _parts(path)
        node = self._find("/".join(parts[:-1]))
        if not isinstance(node, Folder):
            if must_exist:
                raise FileNotFoundError(errno.ENOENT, "no such folder", path)
            # An empty folder outside the tree, in which nothing is found.
            node = Folder()
        return node, parts[-1]


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]
