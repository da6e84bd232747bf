"""The snapshots in a folder: written atomically, checked when read.

A folder has one writer at a time, and a part file belongs to its writer alone. No call may block
the event loop, so all disk access goes through an `AsyncDisk`, the real one or the simulator's.
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import os
from collections.abc import Iterable
from dataclasses import dataclass

from kvorum.runtime.async_disk import AsyncDisk, AsyncFile
from kvorum.runtime.errors import CorruptData, KvorumError, invariant
from kvorum.snapshots.format import (
    BOOTSTRAP_ID,
    DATA,
    SnapshotHeader,
    SnapshotId,
    encode_footer,
    encode_frame,
    encode_header,
    file_name,
    iter_payloads,
    parse_file_name,
    preamble,
    verify_file,
)

__all__ = [
    "PositionOutOfRange",
    "Snapshot",
    "SnapshotId",
    "SnapshotNotFound",
    "SnapshotStore",
    "read_snapshot",
    "verify_named",
]

PART_SUFFIX = ".part"
DELETED_SUFFIX = ".deleted"

CHUNK_BYTES_MAX = 8 << 20
"""Limit of one read_chunk, whatever the request: Kafka's largest fetch response."""


class SnapshotNotFound(KvorumError):
    """The folder does not have that snapshot, or no longer (Kafka: SNAPSHOT_NOT_FOUND, 98)."""


class PositionOutOfRange(KvorumError):
    """A position outside the snapshot's bytes (Kafka: POSITION_OUT_OF_RANGE, 99)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A snapshot that passed every check. payloads: its data frames, in order."""

    path: str
    header: SnapshotHeader
    payloads: tuple[bytes, ...]


async def read_snapshot(disk: AsyncDisk, path: str) -> Snapshot:
    """A whole snapshot in memory, checked, for tools. Raises CorruptData, OSError."""
    header = await verify_named(disk, path)
    payloads = [payload async for payload in iter_payloads(disk, path)]
    return Snapshot(path=path, header=header, payloads=tuple(payloads))


async def verify_named(disk: AsyncDisk, path: str) -> SnapshotHeader:
    """Check a whole file and, if it is named like a snapshot, its name; return its header.

    Raises CorruptData, OSError.
    """
    header = await verify_file(disk, path)
    named = parse_file_name(os.path.basename(path))
    if named is not None and SnapshotId(*named) != header.id:
        held = file_name(header.end_offset, header.epoch)
        raise CorruptData(path, 0, f"by its header this is {held}")
    return header


class SnapshotStore:
    """The snapshots in one folder, which must exist before the first one is written.

    The bootstrap checkpoint (offset 0, epoch 0) is in the same folder but is not a snapshot: it is
    not listed, not served and not removed.
    """

    def __init__(self, disk: AsyncDisk, directory: str) -> None:
        self.disk = disk
        self.directory = directory

    def path(self, id: SnapshotId) -> str:
        return f"{self.directory}/{file_name(id.end_offset, id.epoch)}"

    def part_path(self, id: SnapshotId) -> str:
        """Path of the part file, which collects the bytes until they are complete."""
        return self.path(id) + PART_SUFFIX

    async def list(self) -> builtins.list[SnapshotId]:
        """Ids of the snapshots in the folder, ascending; unchecked."""
        named = map(parse_file_name, await self.disk.list_dir(self.directory))
        found = [SnapshotId(*name) for name in named if name is not None]
        return sorted(id for id in found if id != BOOTSTRAP_ID)

    async def size(self, id: SnapshotId) -> int:
        """Size of a snapshot in bytes. Raises SnapshotNotFound."""
        self._refuse_bootstrap(id)
        try:
            return await self.disk.size(self.path(id))
        except FileNotFoundError as error:
            raise SnapshotNotFound(f"no snapshot {self.path(id)}") from error

    async def write(self, header: SnapshotHeader, payloads: Iterable[bytes]) -> SnapshotId:
        """Write a snapshot and return its id.

        payloads: data frames, taken one by one between disk calls, so each should be small.

        Durable on return: the part file is fsynced before its rename, the folder after it. After an
        error nothing new is visible, and the part file is removed if possible. A crash or a
        cancellation may leave a part file, which is never read; the next writer or `clean_up`
        removes it.
        """
        try:
            file = await self.disk.open_write(self.part_path(header.id), append=False)
            try:
                await _write_frames(file, header, payloads)
                await file.sync()
            finally:
                await file.close()
        except Exception:
            # `payloads` may raise any Exception. A cancelled or discarded coroutine does not get
            # here, because it must not begin another disk call.
            await self.drop_part(header.id)
            raise
        await self.publish(header.id)
        return header.id

    async def publish(self, id: SnapshotId) -> None:
        """Give a complete, fsynced part file its final name; durable on return.

        Raises OSError; the snapshot is then not visible, unless it was before.
        """
        path = self.path(id)
        was_there = await self.disk.exists(path)
        try:
            await self.disk.rename(self.part_path(id), path)
        except OSError:
            await self.drop_part(id)
            raise
        try:
            # The log is trimmed because this snapshot exists, so it must survive a power loss.
            await self.disk.sync_dir(self.directory)
        except OSError:
            # A name that was there before is durable and stays. Bad sequence if a new name stayed:
            # 1. This fsync fails.
            # 2. The name is listed as a snapshot.
            # 3. The log is trimmed.
            # 4. The power fails, and the name is gone.
            if not was_there:
                with contextlib.suppress(OSError):
                    await self.disk.remove(path)
            raise

    async def drop_part(self, id: SnapshotId) -> None:
        """Remove a part file if possible; otherwise `clean_up` removes it later."""
        with contextlib.suppress(OSError):
            await self.disk.remove(self.part_path(id))

    async def check_all(self) -> builtins.list[tuple[SnapshotId, SnapshotHeader | CorruptData]]:
        """Every snapshot, the oldest first, checked as a whole: its header, or what is wrong with
        it. Raises OSError if the disk fails."""
        found: builtins.list[tuple[SnapshotId, SnapshotHeader | CorruptData]] = []
        for id in await self.list():
            path = self.path(id)
            try:
                found.append((id, await verify_named(self.disk, path)))
            except CorruptData as error:
                found.append((id, error))
            except OSError as error:
                # A sector that cannot be read counts as damage; any other error is the disk's
                # failure.
                if error.errno != errno.EIO:
                    raise
                found.append((id, CorruptData(path, 0, f"cannot be read: {error}")))
        return found

    async def bootstrap(self) -> SnapshotHeader | None:
        """Header of the bootstrap checkpoint, checked as a whole. Raises CorruptData."""
        path = self.path(BOOTSTRAP_ID)
        if not await self.disk.exists(path):
            return None
        return await verify_named(self.disk, path)

    async def remove(self, id: SnapshotId) -> None:
        """Remove a snapshot. Raises SnapshotNotFound.

        It is renamed first, so that after a crash its name is gone or its file is whole.
        """
        invariant(id != BOOTSTRAP_ID, "the bootstrap checkpoint is never removed")
        path = self.path(id)
        try:
            await self.disk.rename(path, path + DELETED_SUFFIX)
        except FileNotFoundError as error:
            raise SnapshotNotFound(f"no snapshot {path}") from error
        await self.disk.remove(path + DELETED_SUFFIX)
        await self.disk.sync_dir(self.directory)

    async def clean_up(self) -> None:
        """Remove leftovers of an interrupted write, fetch or removal; at a start, before `list`.

        The remaining names are durable on return. A process that died between rename and fsync of
        the folder has left a name for which the log must not be trimmed yet.
        """
        names = await self.disk.list_dir(self.directory)
        for name in filter(_is_leftover, names):
            await self.disk.remove(f"{self.directory}/{name}")
        if any(_is_leftover(name) or parse_file_name(name) is not None for name in names):
            await self.disk.sync_dir(self.directory)

    async def read_chunk(self, id: SnapshotId, position: int, count: int) -> tuple[bytes, int]:
        """Up to `count` bytes (at most CHUNK_BYTES_MAX) from `position`, and the size of the file.

        Raises PositionOutOfRange, and SnapshotNotFound, also if the snapshot is removed meanwhile.
        """
        total = await self.size(id)
        if not 0 <= position < total:
            raise PositionOutOfRange(f"{self.path(id)} has {total} bytes, none at {position}")
        count = min(max(count, 0), CHUNK_BYTES_MAX)
        try:
            return await self.disk.read_range(self.path(id), position, count), total
        except FileNotFoundError as error:
            raise SnapshotNotFound(f"no snapshot {self.path(id)} any more") from error

    def _refuse_bootstrap(self, id: SnapshotId) -> None:
        if id == BOOTSTRAP_ID:
            raise SnapshotNotFound("the bootstrap checkpoint is not served")


async def _write_frames(file: AsyncFile, header: SnapshotHeader, payloads: Iterable[bytes]) -> None:
    frames = 0
    data_bytes = 0
    await file.write(preamble() + encode_header(header))
    for payload in payloads:
        await file.write(encode_frame(DATA, payload))
        frames += 1
        data_bytes += len(payload)
    await file.write(encode_footer(frames=frames, data_bytes=data_bytes))


def _is_leftover(name: str) -> bool:
    stem, ending = os.path.splitext(name)
    return ending in (PART_SUFFIX, DELETED_SUFFIX) and parse_file_name(stem) is not None
