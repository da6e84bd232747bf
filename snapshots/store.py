"""Snapshots in a folder: written whole or not at all, read checked, the newest good one found.

One writer a folder at a time: a name's part file is its writer's alone. Nothing here may hold the
loop, so all of it goes through an `AsyncDisk`, which is the real one or the simulator's.
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
"""Most that read_chunk gives at once, whatever is asked for: Kafka's largest answer to a fetch."""


class SnapshotNotFound(KvorumError):
    """No such snapshot here, or not any more (Kafka: SNAPSHOT_NOT_FOUND, 98)."""


class PositionOutOfRange(KvorumError):
    """A position at which the snapshot has no byte (Kafka: POSITION_OUT_OF_RANGE, 99)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A snapshot that passed every check. payloads: its data frames, in order."""

    path: str
    header: SnapshotHeader
    payloads: tuple[bytes, ...]


async def read_snapshot(disk: AsyncDisk, path: str) -> Snapshot:
    """A snapshot, checked whole and held whole: for tools. Raises CorruptData, OSError."""
    header = await verify_named(disk, path)
    payloads = [payload async for payload in iter_payloads(disk, path)]
    return Snapshot(path=path, header=header, payloads=tuple(payloads))


async def verify_named(disk: AsyncDisk, path: str) -> SnapshotHeader:
    """Check a whole file, and its name if it has a snapshot's; its header.

    Raises CorruptData, OSError.
    """
    header = await verify_file(disk, path)
    named = parse_file_name(os.path.basename(path))
    if named is not None and SnapshotId(*named) != header.id:
        held = file_name(header.end_offset, header.epoch)
        raise CorruptData(path, 0, f"by its header this is {held}")
    return header


class SnapshotStore:
    """The snapshots of one folder, which must exist before the first is written.

    The bootstrap checkpoint (offset 0, epoch 0) lies in the same folder but is no snapshot of it:
    not listed, not served, not removed.
    """

    def __init__(self, disk: AsyncDisk, directory: str) -> None:
        self.disk = disk
        self.directory = directory

    def path(self, id: SnapshotId) -> str:
        return f"{self.directory}/{file_name(id.end_offset, id.epoch)}"

    def part_path(self, id: SnapshotId) -> str:
        """Where the bytes gather before they are whole."""
        return self.path(id) + PART_SUFFIX

    async def list(self) -> builtins.list[SnapshotId]:
        """Ids of the snapshots here, ascending; unchecked."""
        named = map(parse_file_name, await self.disk.list_dir(self.directory))
        found = [SnapshotId(*name) for name in named if name is not None]
        return sorted(id for id in found if id != BOOTSTRAP_ID)

    async def size(self, id: SnapshotId) -> int:
        """Bytes of a snapshot. Raises SnapshotNotFound."""
        self._refuse_bootstrap(id)
        try:
            return await self.disk.size(self.path(id))
        except FileNotFoundError as error:
            raise SnapshotNotFound(f"no snapshot {self.path(id)}") from error

    async def write(self, header: SnapshotHeader, payloads: Iterable[bytes]) -> SnapshotId:
        """Write a snapshot; its id.

        payloads: data frames, taken one by one between disk calls, so each should be small.
        Durable on return: the part file is fsynced before its rename, the folder after it. On an
        error nothing new is visible, the part is removed if the disk lets it, the error goes on.
        After a crash or a cancellation a part may be left, which nobody reads and the next writer
        or `clean_up` takes away.
        """
        try:
            file = await self.disk.open_write(self.part_path(header.id), append=False)
            try:
                await _write_frames(file, header, payloads)
                await file.sync()
            finally:
                await file.close()
        except Exception:
            # Whatever it was, the source of the payloads included; a coroutine that is being
            # cancelled or thrown away passes by, for it may not begin another disk call.
            await self.drop_part(header.id)
            raise
        await self.publish(header.id)
        return header.id

    async def publish(self, id: SnapshotId) -> None:
        """Give a part file, whole and fsynced, its final name; durable on return.

        Raises OSError; the snapshot is then not visible, unless it was so before.
        """
        path = self.path(id)
        was_there = await self.disk.exists(path)
        try:
            await self.disk.rename(self.part_path(id), path)
        except OSError:
            await self.drop_part(id)
            raise
        try:
            # The log is trimmed on the word of this snapshot; that rests on this fsync.
            await self.disk.sync_dir(self.directory)
        except OSError:
            # 1. This fsync fails, 2. the name stays and is listed, 3. the log is trimmed, 4. the
            # power fails and the name is gone. A name that was there before is durable: it stays.
            if not was_there:
                with contextlib.suppress(OSError):
                    await self.disk.remove(path)
            raise

    async def drop_part(self, id: SnapshotId) -> None:
        """Remove a part file if the disk lets it; `clean_up` is the second chance."""
        with contextlib.suppress(OSError):
            await self.disk.remove(self.part_path(id))

    async def newest_good(self) -> tuple[SnapshotId | None, builtins.list[CorruptData]]:
        """The newest snapshot that passes every check, and what was wrong with newer ones."""
        refused: builtins.list[CorruptData] = []
        for id in reversed(await self.list()):
            try:
                await verify_named(self.disk, self.path(id))
            except CorruptData as error:
                refused.append(error)
            except OSError as error:
                # A sector that cannot be read is damage too; anything else is the disk's failure.
                if error.errno != errno.EIO:
                    raise
                refused.append(CorruptData(self.path(id), 0, f"cannot be read: {error}"))
            else:
                return id, refused
        return None, refused

    async def bootstrap(self) -> SnapshotHeader | None:
        """Header of the bootstrap checkpoint, checked whole. Raises CorruptData."""
        path = self.path(BOOTSTRAP_ID)
        if not await self.disk.exists(path):
            return None
        return await verify_named(self.disk, path)

    async def remove(self, id: SnapshotId) -> None:
        """Remove a snapshot. Raises SnapshotNotFound.

        Renamed first: a crash leaves it whole under its name, or not under its name.
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
        """Remove what a crash left of writing, fetching and removing. At the start, before `list`.

        Names found are durable on return: a process that died between rename and fsync of the
        folder left a name on which nobody may trim the log yet.
        """
        names = await self.disk.list_dir(self.directory)
        for name in filter(_is_leftover, names):
            await self.disk.remove(f"{self.directory}/{name}")
        if any(_is_leftover(name) or parse_file_name(name) is not None for name in names):
            await self.disk.sync_dir(self.directory)

    async def read_chunk(self, id: SnapshotId, position: int, count: int) -> tuple[bytes, int]:
        """Up to `count` bytes (at most CHUNK_BYTES_MAX) from `position`, and the file's size.

        Raises SnapshotNotFound, also if it is removed meanwhile, and PositionOutOfRange.
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
