"""The bytes of a checkpoint file: frames with a checksum each, then a footer.

    file   = magic "KVSN" | version u16 | header frame | data frame * | footer frame
    frame  = kind u8 | length u32 | CRC-32C u32 over kind, length and payload | payload

Integers are big-endian. The header frame holds msgpack {end_offset, epoch, timestamp_ms}: what
log prefix the snapshot stands for. The footer holds msgpack {frames, bytes}: a file without a
footer, or with another count, was not finished and is refused. Payloads of data frames are opaque
here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgpack
from crc32c import crc32c

from runtime.errors import CorruptData

MAGIC = b"KVSN"
VERSION = 1
FRAME_BYTES_MAX = 64 << 20

_PREAMBLE = struct.Struct(">4sH")
_FRAME = struct.Struct(">BI")
_CRC = struct.Struct(">I")
FRAME_OVERHEAD = _FRAME.size + _CRC.size

HEADER = 1
DATA = 2
FOOTER = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotHeader:
    """The log prefix a snapshot stands for: everything below end_offset, whose last record has
    `epoch` and was written at timestamp_ms."""

    end_offset: int
    epoch: int
    timestamp_ms: int


def file_name(end_offset: int, epoch: int) -> str:
    """KRaft's name of a snapshot: `%020d-%010d.checkpoint`."""
    return f"{end_offset:020d}-{epoch:010d}.checkpoint"


def parse_file_name(name: str) -> tuple[int, int] | None:
    """(end offset, epoch) of a snapshot's name, None for any other file."""
    stem, dot, ending = name.partition(".")
    offset, dash, epoch = stem.partition("-")
    if not (dot and dash and ending == "checkpoint" and len(offset) == 20 and len(epoch) == 10):
        return None
    if not (offset.isdigit() and epoch.isdigit()):
        return None
    return int(offset), int(epoch)


def preamble() -> bytes:
    """The first bytes of every file."""
    return _PREAMBLE.pack(MAGIC, VERSION)


def encode_frame(kind: int, payload: bytes) -> bytes:
    """One frame. Raises ValueError above FRAME_BYTES_MAX."""
    if len(payload) > FRAME_BYTES_MAX:
        raise ValueError(f"a frame of {len(payload)} bytes is above {FRAME_BYTES_MAX}")
    head = _FRAME.pack(kind, len(payload))
    return head + _CRC.pack(crc32c(payload, crc32c(head))) + payload


def encode_header(header: SnapshotHeader) -> bytes:
    fields = {
        "end_offset": header.end_offset,
        "epoch": header.epoch,
        "timestamp_ms": header.timestamp_ms,
    }
    return encode_frame(HEADER, msgpack.packb(fields))


def encode_footer(*, frames: int, data_bytes: int) -> bytes:
    """frames: data frames in the file; data_bytes: sum of their payloads."""
    return encode_frame(FOOTER, msgpack.packb({"frames": frames, "bytes": data_bytes}))


def decode_file(path: str, data: bytes) -> tuple[SnapshotHeader, list[bytes]]:
    """Header and data payloads of a whole file.

    Raises CorruptData naming path, position and what does not hold; nothing is ever skipped.
    """
    if data[: _PREAMBLE.size] != preamble():
        raise CorruptData(path, 0, "not a snapshot of a version this build can read")
    header: SnapshotHeader | None = None
    payloads: list[bytes] = []
    is_finished = False
    for position, kind, payload in _frames(path, data):
        if is_finished:
            raise CorruptData(path, position, "bytes after the footer")
        if header is None:
            if kind != HEADER:
                raise CorruptData(path, position, "the first frame is not a header")
            header = SnapshotHeader(**_fields(path, position, payload))
        elif kind == DATA:
            payloads.append(payload)
        elif kind == FOOTER:
            counts = _fields(path, position, payload)
            have = {"frames": len(payloads), "bytes": sum(map(len, payloads))}
            if counts != have:
                raise CorruptData(path, position, f"the footer says {counts}, the file has {have}")
            is_finished = True
        else:
            raise CorruptData(path, position, f"a frame of unknown kind {kind}")
    if header is None or not is_finished:
        raise CorruptData(path, len(data), "the file ends without a footer")
    return header, payloads


def _frames(path: str, data: bytes) -> Iterator[tuple[int, int, bytes]]:
    position = _PREAMBLE.size
    while position < len(data):
        start = position + FRAME_OVERHEAD
        if start > len(data):
            raise CorruptData(path, position, "a frame is cut off")
        kind, length = _FRAME.unpack_from(data, position)
        if length > FRAME_BYTES_MAX or start + length > len(data):
            raise CorruptData(path, position, f"a frame of {length} bytes is cut off")
        payload = data[start : start + length]
        head = data[position : position + _FRAME.size]
        (crc,) = _CRC.unpack_from(data, position + _FRAME.size)
        if crc32c(payload, crc32c(head)) != crc:
            raise CorruptData(path, position, "a frame fails its checksum")
        yield position, kind, payload
        position = start + length


def _fields(path: str, position: int, payload: bytes) -> Any:
    try:
        return msgpack.unpackb(payload)
    except (ValueError, msgpack.UnpackException) as error:
        raise CorruptData(path, position, f"fields that are not msgpack: {error}") from error
