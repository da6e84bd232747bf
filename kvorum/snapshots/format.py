"""The bytes of a checkpoint file: frames with a checksum each, then a footer.

    file   = magic "KVSN" | version u16 | header frame | data frame * | footer frame
    frame  = kind u8 | length u32 | CRC-32C u32 over kind, length and payload | payload

Integers are big-endian. The header frame names the part of the log that the snapshot covers: a
msgpack map {end_offset, epoch, timestamp_ms} and, only if they are not the defaults,
{kraft_version, voters}. The footer holds the msgpack map {frames, bytes}. A file without a footer,
or with other counts, was not finished and is refused. Payloads of data frames are opaque here.

Equal state must give equal bytes on every node. So no clock, no random number and no map without a
fixed order may enter a file.
"""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgpack
from crc32c import crc32c

from kvorum.runtime.errors import CorruptData, NewerFormat

if TYPE_CHECKING:
    from kvorum.runtime.async_disk import AsyncDisk

MAGIC = b"KVSN"
VERSION = 1
FRAME_BYTES_MAX = 64 << 20
"""A longer frame is damage: a flipped bit must not make a reader allocate gigabytes."""

ENDING = "checkpoint"

_PREAMBLE = struct.Struct(">4sH")
_FRAME = struct.Struct(">BI")
_CRC = struct.Struct(">I")
PREAMBLE_BYTES = _PREAMBLE.size
FRAME_OVERHEAD = _FRAME.size + _CRC.size

HEADER = 1
DATA = 2
FOOTER = 3

#: (node id, directory id as text, host, port); raft interprets them.
Voter = tuple[int, str, str, int]


class UnsupportedVersion(NewerFormat):
    """A file, perhaps undamaged, that a newer build wrote and this one cannot read."""


@dataclass(frozen=True, slots=True, order=True)
class SnapshotId:
    """The name of a snapshot: the log below end_offset, whose last record has `epoch`."""

    end_offset: int
    epoch: int


#: Id of the bootstrap checkpoint (KIP-853), which holds the first voters and no state; it is never
#: sent to other nodes.
BOOTSTRAP_ID = SnapshotId(0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotHeader:
    """The part of the log that a snapshot covers: all below end_offset; the last record has
        `epoch`.

    timestamp_ms: of the last record covered, never of a clock (see the top of the file).
    kraft_version, voters: the quorum's own state at end_offset; opaque here.
    """

    end_offset: int
    epoch: int
    timestamp_ms: int
    kraft_version: int = 0
    voters: tuple[Voter, ...] = ()

    @property
    def id(self) -> SnapshotId:
        return SnapshotId(self.end_offset, self.epoch)


def file_name(end_offset: int, epoch: int) -> str:
    """KRaft's file name of a snapshot: `%020d-%010d.checkpoint`."""
    return f"{end_offset:020d}-{epoch:010d}.{ENDING}"


def parse_file_name(name: str) -> tuple[int, int] | None:
    """(end offset, epoch) from a snapshot's file name, None for any other name."""
    stem, dot, ending = name.partition(".")
    offset, dash, epoch = stem.partition("-")
    if not (dot and dash and ending == ENDING and len(offset) == 20 and len(epoch) == 10):
        return None
    if not (stem.isascii() and offset.isdigit() and epoch.isdigit()):
        return None
    return int(offset), int(epoch)


def preamble() -> bytes:
    """The first bytes of every checkpoint file."""
    return _PREAMBLE.pack(MAGIC, VERSION)


def encode_frame(kind: int, payload: bytes) -> bytes:
    """One frame. Raises ValueError above FRAME_BYTES_MAX."""
    if len(payload) > FRAME_BYTES_MAX:
        raise ValueError(f"a frame of {len(payload)} bytes is above {FRAME_BYTES_MAX}")
    head = _FRAME.pack(kind, len(payload))
    return head + _CRC.pack(crc32c(payload, crc32c(head))) + payload


def encode_header(header: SnapshotHeader) -> bytes:
    fields: dict[str, Any] = {
        "end_offset": header.end_offset,
        "epoch": header.epoch,
        "timestamp_ms": header.timestamp_ms,
    }
    if header.kraft_version:
        fields["kraft_version"] = header.kraft_version
    if header.voters:
        fields["voters"] = header.voters
    return encode_frame(HEADER, msgpack.packb(fields))


def encode_footer(*, frames: int, data_bytes: int) -> bytes:
    """The footer frame.

    frames: number of data frames.
    data_bytes: sum of their payloads.
    """
    return encode_frame(FOOTER, msgpack.packb({"frames": frames, "bytes": data_bytes}))


class SnapshotDecoder:
    """Takes a file piece by piece and checks everything; does not read files itself.

    While `needs_more(size)` holds, the caller passes `wanted` bytes from `position` on to `accept`
    (fewer only at the end of the file), and then calls `finish`. Every fault raises CorruptData
    with path, position of the frame and reason; nothing is ever skipped.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.position = 0
        self.wanted = PREAMBLE_BYTES
        self.header: SnapshotHeader | None = None
        self.frames = 0
        self.data_bytes = 0
        self._frame_position = 0
        self._head: bytes | None = None
        self._is_finished = False

    def needs_more(self, size: int) -> bool:
        """True if there is another piece to take from a file of `size` bytes."""
        # The first piece is always requested, because an empty file is not a snapshot. An empty
        # payload is a piece too.
        return self.position < size or self.position == 0 or self.wanted == 0

    def accept(self, data: bytes) -> bytes | None:
        """Take the next piece; return the payload if it completes a data frame."""
        if self._head is None:
            self._frame_position = self.position
        if self.position == 0 and not MAGIC.startswith(data[: len(MAGIC)]):
            raise self._corrupt(f"not a Kvorum snapshot, it begins with {data[: len(MAGIC)]!r}")
        if len(data) != self.wanted:
            raise self._corrupt("the file is cut off here")
        payload = None
        wanted = FRAME_OVERHEAD
        if self.position == 0:
            self._check_preamble(data)
        elif self._head is None:
            self._head = data
            wanted = self._payload_length(data)
        else:
            payload = self._take_frame(self._head, data)
            self._head = None
        self.position += len(data)
        self.wanted = wanted
        return payload

    def finish(self) -> SnapshotHeader:
        """Check that the file is whole, and return its header. Raises CorruptData."""
        if self.header is None or not self._is_finished or self._head is not None:
            raise CorruptData(self.path, self.position, "the file ends without a footer")
        return self.header

    def _check_preamble(self, data: bytes) -> None:
        _, version = _PREAMBLE.unpack(data)
        if version != VERSION:
            reason = f"snapshot version {version}, this build reads version {VERSION}"
            raise UnsupportedVersion(self.path, len(MAGIC), reason)

    def _payload_length(self, head: bytes) -> int:
        if self._is_finished:
            raise self._corrupt("bytes after the footer")
        length: int = _FRAME.unpack_from(head)[1]
        if length > FRAME_BYTES_MAX:
            raise self._corrupt(f"a frame of {length} bytes is above {FRAME_BYTES_MAX}")
        return length

    def _take_frame(self, head: bytes, payload: bytes) -> bytes | None:
        (crc,) = _CRC.unpack_from(head, _FRAME.size)
        if crc32c(payload, crc32c(head[: _FRAME.size])) != crc:
            raise self._corrupt("a frame fails its checksum")
        kind = head[0]
        if self.header is None:
            if kind != HEADER:
                raise self._corrupt("the first frame is not a header")
            self.header = _header_of(self.path, self._frame_position, payload)
            return None
        if kind == DATA:
            self.frames += 1
            self.data_bytes += len(payload)
            return payload
        if kind != FOOTER:
            raise self._corrupt(f"a frame of unknown kind {kind}")
        counts = _unpack(self.path, self._frame_position, payload)
        have = {"frames": self.frames, "bytes": self.data_bytes}
        if counts != have:
            raise self._corrupt(f"the footer says {counts}, the file has {have}")
        self._is_finished = True
        return None

    def _corrupt(self, reason: str) -> CorruptData:
        return CorruptData(self.path, self._frame_position, reason)


def decode_file(data: bytes, path: str) -> tuple[SnapshotHeader, list[bytes]]:
    """Header and data payloads of a whole file in memory, every byte checked.

    path: the file's name in a CorruptData.
    """
    decoder = SnapshotDecoder(path)
    payloads = []
    while decoder.needs_more(len(data)):
        payload = decoder.accept(data[decoder.position : decoder.position + decoder.wanted])
        if payload is not None:
            payloads.append(payload)
    return decoder.finish(), payloads


async def read_header(disk: AsyncDisk, path: str) -> SnapshotHeader:
    """The header of a file, checked; the rest is not read.

    Raises CorruptData, OSError.
    """
    decoder = SnapshotDecoder(path)
    while decoder.header is None:
        decoder.accept(await disk.read_range(path, decoder.position, decoder.wanted))
    return decoder.header


async def iter_payloads(disk: AsyncDisk, path: str) -> AsyncIterator[bytes]:
    """The data payloads of a file, with one frame in memory at a time.

    Each payload has passed its own checksum. Only an iteration that ends without CorruptData proves
    that the file is whole, so a caller must drop its work if that is raised. Every frame is a disk
    call, during which the caller's loop runs.
    """
    decoder = SnapshotDecoder(path)
    size = await disk.size(path)
    while decoder.needs_more(size):
        data = await disk.read_range(path, decoder.position, decoder.wanted)
        payload = decoder.accept(data)
        if payload is not None:
            yield payload
    decoder.finish()


async def verify_file(disk: AsyncDisk, path: str) -> SnapshotHeader:
    """Read and check a whole file; return its header.

    Raises CorruptData, OSError.
    """
    decoder = SnapshotDecoder(path)
    size = await disk.size(path)
    while decoder.needs_more(size):
        decoder.accept(await disk.read_range(path, decoder.position, decoder.wanted))
    return decoder.finish()


def _header_of(path: str, position: int, payload: bytes) -> SnapshotHeader:
    fields = _unpack(path, position, payload)
    if not isinstance(fields, dict):
        raise CorruptData(path, position, "the header is not a map")
    unknown = sorted(str(key) for key in fields.keys() - _HEADER_KEYS)
    if unknown:
        # A field that a newer build added may matter, so it must not be ignored silently.
        raise UnsupportedVersion(
            path, position, f"header fields {', '.join(unknown)} are unknown to this build"
        )
    numbers = {key: value for key, value in fields.items() if key != "voters"}
    missing = [key for key in _NUMBERS_NEEDED if key not in numbers]
    if missing:
        raise CorruptData(path, position, f"the header lacks {', '.join(missing)}")
    for key, value in numbers.items():
        if type(value) is not int or (value < 0 and key != "timestamp_ms"):
            raise CorruptData(path, position, f"the header's {key} is {value!r}")
    voters = fields.get("voters", [])
    if not isinstance(voters, list) or not all(map(_is_voter, voters)):
        raise CorruptData(path, position, f"the header's voters are {voters!r}")
    return SnapshotHeader(**numbers, voters=tuple(tuple(voter) for voter in voters))


_NUMBERS_NEEDED = ("end_offset", "epoch", "timestamp_ms")
_HEADER_KEYS = {*_NUMBERS_NEEDED, "kraft_version", "voters"}


def _is_voter(value: Any) -> bool:
    return isinstance(value, list) and [type(part) for part in value] == [int, str, str, int]


def _unpack(path: str, position: int, payload: bytes) -> Any:
    try:
        return msgpack.unpackb(payload)
    except (ValueError, msgpack.UnpackException) as error:
        raise CorruptData(path, position, f"fields that are not msgpack: {error}") from error
