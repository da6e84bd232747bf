"""The tree of a MemoryDisk: visible content, durable content, and the changes in between."""

from __future__ import annotations

import random


class Inode:
    """A file: visible content, durable content, and the operations in between.

    modified_ms: as set since the last write, None if it was not set.
    """

    __slots__ = ("data", "durable", "modified_ms", "pending")

    def __init__(self) -> None:
        self.data = bytearray()
        self.durable = bytearray()
        # (position, bytes), or (size, None) for a truncation.
        self.pending: list[tuple[int, bytes | None]] = []
        self.modified_ms: int | None = None

    def apply(self, position: int, data: bytes | None) -> None:
        self.modified_ms = None
        _apply(self.data, position, data)
        self.pending.append((position, data))

    def sync(self) -> None:
        for position, data in self.pending:
            _apply(self.durable, position, data)
        self.pending.clear()

    def crash(self, rng: random.Random) -> None:
        kept = rng.randint(0, len(self.pending))
        position, data = self.pending[kept] if kept < len(self.pending) else (0, None)
        del self.pending[kept:]
        self.sync()
        if data is not None and rng.random() < 0.5:
            _apply(self.durable, position, data[: rng.randint(0, len(data))])
        self.data = bytearray(self.durable)


def _apply(target: bytearray, position: int, data: bytes | None) -> None:
    if data is None:
        if position < len(target):
            del target[position:]
        else:
            target.extend(bytes(position - len(target)))
        return
    if position > len(target):
        target.extend(bytes(position - len(target)))
    target[position : position + len(data)] = data


class Folder:
    """The names in a folder: visible, durable, and the changes in between."""

    __slots__ = ("durable", "names", "pending")

    def __init__(self) -> None:
        self.names: dict[str, Inode | Folder] = {}
        self.durable: dict[str, Inode | Folder] = {}
        # Each change is atomic: a name removed, then a name set.
        self.pending: list[tuple[str | None, str | None, Inode | Folder | None]] = []

    def change(self, removed: str | None, added: str | None, node: Inode | Folder | None) -> None:
        _change(self.names, removed, added, node)
        self.pending.append((removed, added, node))

    def sync(self) -> None:
        for change in self.pending:
            _change(self.durable, *change)
        self.pending.clear()

    def crash(self, rng: random.Random) -> None:
        del self.pending[rng.randint(0, len(self.pending)) :]
        self.sync()
        self.names = dict(self.durable)
        for name in sorted(self.names):
            self.names[name].crash(rng)


def _change(
    names: dict[str, Inode | Folder],
    removed: str | None,
    added: str | None,
    node: Inode | Folder | None,
) -> None:
    if removed is not None:
        names.pop(removed, None)
    if added is not None and node is not None:
        names[added] = node


Saved = dict[str, "bytes | Saved"]
"""A folder's durable content: name to the bytes of a file, or to another folder."""


def saved_folder(folder: Folder) -> Saved:
    """The durable content of a folder and its subfolders."""
    saved: Saved = {}
    for name, node in folder.durable.items():
        saved[name] = bytes(node.durable) if isinstance(node, Inode) else saved_folder(node)
    return saved


def restored_folder(saved: Saved) -> Folder:
    """A folder with this content, all of it durable."""
    folder = Folder()
    for name, content in saved.items():
        if isinstance(content, bytes):
            inode = Inode()
            inode.data, inode.durable = bytearray(content), bytearray(content)
            folder.names[name] = inode
        else:
            folder.names[name] = restored_folder(content)
    folder.durable = dict(folder.names)
    return folder


def used_bytes(node: Inode | Folder) -> int:
    """Size of all files in bytes, as visible."""
    if isinstance(node, Inode):
        return len(node.data)
    return sum(used_bytes(child) for child in node.names.values())
