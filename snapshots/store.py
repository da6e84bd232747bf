"""Snapshots in a folder: written whole or not at all, read checked, the newest good one found.

Files are handled through aiofiles: a snapshot is a cold path and must not hold the loop.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

import aiofiles
import aiofiles.os

from runtime.disk import OsDisk
from runtime.errors import CorruptData
from snapshots.format import (
    DATA,
    SnapshotHeader,
    decode_file,
    encode_footer,
    encode_frame,
    encode_header,
    file_name,
    parse_file_name,
    preamble,
)

PART_SUFFIX = ".part"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A snapshot that passed every check. payloads: its data frames, in order."""

    path: str
    header: SnapshotHeader
    payloads: tuple[bytes, ...]


async def write_snapshot(directory: str, header: SnapshotHeader, payloads: Iterable[bytes]) -> str:
    """Write a snapshot into `directory`; its path.

    Durable on return: the part file is fsynced before its rename, the folder after it. A crash in
    between leaves a part file that nobody reads.
    """
    path = os.path.join(directory, file_name(header.end_offset, header.epoch))
    part = path + PART_SUFFIX
    frames = 0
    data_bytes = 0
    async with aiofiles.open(part, "wb") as file:
        await file.write(preamble() + encode_header(header))
        for payload in payloads:
            await file.write(encode_frame(DATA, payload))
            frames += 1
            data_bytes += len(payload)
        await file.write(encode_footer(frames=frames, data_bytes=data_bytes))
        await file.flush()
        await aiofiles.os.wrap(os.fsync)(file.fileno())
    await aiofiles.os.replace(part, path)
    await aiofiles.os.wrap(OsDisk().sync_dir)(directory)
    return path


async def read_snapshot(path: str) -> Snapshot:
    """A snapshot, checked whole. Raises CorruptData, OSError."""
    async with aiofiles.open(path, "rb") as file:
        data = await file.read()
    header, payloads = decode_file(path, data)
    named = parse_file_name(os.path.basename(path))
    if named is not None and named != (header.end_offset, header.epoch):
        raise CorruptData(path, 0, f"named {named}, but it holds {header}")
    return Snapshot(path=path, header=header, payloads=tuple(payloads))


async def newest_snapshot(directory: str) -> tuple[Snapshot | None, list[CorruptData]]:
    """The newest good snapshot, None if there is none, and what was wrong with newer ones."""
    refused: list[CorruptData] = []
    names = [n for n in await aiofiles.os.listdir(directory) if parse_file_name(n) is not None]
    for name in sorted(names, reverse=True):
        try:
            return await read_snapshot(os.path.join(directory, name)), refused
        except CorruptData as error:
            refused.append(error)
    return None, refused
