"""Record batch v2 (magic 2): header, checksum, building and reading.

A batch is stored as it was sent. Its leader writes only base offset and leader epoch, which lie
before the checksummed part. `client_batch` checks what a client may send. Format: KIP-98; layout:
`HEADER` below.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from crc32c import crc32c

from kvorum.runtime.errors import ErrorCode, KvorumError
from kvorum.storage.format.compression import Codec, CompressionError, compress, decompress
from kvorum.storage.format.record_codec import (
    Record,
    add_records,
    encode_record,
    read_record,
    read_time,
    varint,
    wrapped_int64,
)

__all__ = [
    "BatchError",
    "BatchHeader",
    "Buffer",
    "Record",
    "build_batch",
    "check_crc",
    "encode_record",
    "iter_headers",
    "iter_records",
    "iter_times",
    "read_header",
    "restamp",
    "seal_batch",
    "stamp",
    "stamp_log_append_time",
    "varint",
]

Buffer = bytes | bytearray | memoryview

MAGIC = 2
HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES = 61
LENGTH_OVERHEAD = 12
"""Bytes of base offset and length; the length field does not count them."""
BATCH_LENGTH_MIN = HEADER_BYTES - LENGTH_OVERHEAD
MAGIC_AT = 16
CRC_START = 21

CODEC_MASK = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40
ATTRIBUTES_AT = 22
"""Place in a batch of the byte with the bits above; the byte before it has none."""

SEQUENCE_MODULUS = 1 << 31
DECOMPRESSED_BYTES_MAX = 256 << 20
"""Default limit of a batch's uncompressed bytes, far above any message size limit in use."""

_BASE_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")
_CRC = struct.Struct(">I")
_CRC_POSITION = 17
_ATTRIBUTES = struct.Struct(">h")
_MAX_TIMESTAMP_POSITION = 35


class BatchError(KvorumError):
    """A batch that is refused; `code` is Kafka's error code for the reason.

    record_errors: (index in the batch, sentence) for each record at fault, if known.
    """

    def __init__(
        self, code: ErrorCode, reason: str, record_errors: Sequence[tuple[int, str]] = ()
    ) -> None:
        super().__init__(f"{code.name}: {reason}")
        self.code = code
        self.reason = reason
        self.record_errors = record_errors


class BatchHeader(NamedTuple):
    """The 61 bytes before the records, field by field.

    A named tuple and not a dataclass: every batch needs one, and `_make` from the unpacked tuple
    costs a tenth of a frozen dataclass.
    """

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """Size of the whole batch in bytes."""
        return self.batch_length + LENGTH_OVERHEAD

    @property
    def last_offset(self) -> int:
        """Offset of the last record, inclusive; compaction does not change it."""
        return self.base_offset + self.last_offset_delta

    @property
    def end_offset(self) -> int:
        """First offset after the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record, wrapping at 2^31; -1 without a producer sequence."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) % SEQUENCE_MODULUS

    @property
    def record_timestamp_max_ms(self) -> int:
        """Largest timestamp of a record; -1 if compaction has removed them all."""
        return self.max_timestamp_ms if self.record_count else -1

    @property
    def compression_code(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        return self.attributes & LOG_APPEND_TIME_BIT != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_BIT != 0

    @property
    def has_delete_horizon(self) -> bool:
        return self.attributes & DELETE_HORIZON_BIT != 0


# --- headers ---------------------------------------------------------------------------------


def read_header(buffer: Buffer, position: int) -> BatchHeader:
    """The header at `position`, unchecked. Raises BatchError if it is cut off."""
    try:
        return BatchHeader._make(HEADER.unpack_from(buffer, position))
    except struct.error as error:
        raise BatchError(
            ErrorCode.CORRUPT_MESSAGE,
            f"a batch header needs {HEADER_BYTES} bytes, {len(buffer) - position} are left",
        ) from error


def iter_headers(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each whole batch; a batch that is cut off at the end is left out.

    Raises BatchError on an impossible length.
    """
    position = 0
    size = len(buffer)
    while position + HEADER_BYTES <= size:
        header = BatchHeader._make(HEADER.unpack_from(buffer, position))
        if header.batch_length < BATCH_LENGTH_MIN:
            raise BatchError(
                ErrorCode.CORRUPT_MESSAGE, f"batch length {header.batch_length} at byte {position}"
            )
        next_position = position + header.batch_length + LENGTH_OVERHEAD
        if next_position > size:
            return
        yield position, header
        position = next_position


def check_crc(buffer: Buffer, position: int, header: BatchHeader) -> bool:
    """True if the stored CRC-32C matches the bytes from 21 to the end of the batch."""
    view = memoryview(buffer)[position + CRC_START : position + header.batch_length + 12]
    return bool(crc32c(view) == header.crc)


def stamp(
    buffer: bytearray | memoryview, position: int, *, base_offset: int, leader_epoch: int
) -> None:
    """Write base offset and leader epoch in place; the CRC covers neither."""
    _BASE_OFFSET.pack_into(buffer, position, base_offset)
    _LEADER_EPOCH.pack_into(buffer, position + 12, leader_epoch)


def stamp_log_append_time(
    buffer: bytearray | memoryview, position: int, header: BatchHeader, *, timestamp_ms: int
) -> BatchHeader:
    """Turn the batch into a LogAppendTime batch, in place. Returns the new header.

    Sets bit 3 and the maximum timestamp, and renews the CRC. Used before the append, in topics with
    message.timestamp.type=LogAppendTime. All records then have the maximum timestamp; their deltas
    stay as they are.
    """
    return restamp(
        buffer,
        position,
        header,
        attributes=header.attributes | LOG_APPEND_TIME_BIT,
        max_timestamp_ms=timestamp_ms,
    )


def restamp(
    buffer: bytearray | memoryview,
    position: int,
    header: BatchHeader,
    *,
    attributes: int,
    max_timestamp_ms: int,
) -> BatchHeader:
    """Set attributes and maximum timestamp in place, and renew the CRC. Returns the new header."""
    _ATTRIBUTES.pack_into(buffer, position + CRC_START, attributes)
    _BASE_OFFSET.pack_into(buffer, position + _MAX_TIMESTAMP_POSITION, max_timestamp_ms)
    _renew_crc(buffer, position, header.size_bytes)
    return read_header(buffer, position)


def _renew_crc(buffer: bytearray | memoryview, position: int, size_bytes: int) -> None:
    crc = crc32c(memoryview(buffer)[position + CRC_START : position + size_bytes])
    _CRC.pack_into(buffer, position + _CRC_POSITION, crc)


# --- building --------------------------------------------------------------------------------


def build_batch(
    records: Sequence[tuple[bytes | None, bytes | None]],
    *,
    timestamp_ms: int | Sequence[int],
    base_offset: int = 0,
    leader_epoch: int = 0,
    is_control: bool = False,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
    compression: Codec = Codec.NONE,
) -> bytearray:
    """A batch of (key, value) records without headers.

    timestamp_ms: one for all records, or one for each of them.
    """
    parts = [bytes(HEADER_BYTES)]
    if isinstance(timestamp_ms, int):
        base_timestamp_ms = max_timestamp_ms = timestamp_ms
        add_records(parts, records)
    else:
        base_timestamp_ms, max_timestamp_ms = timestamp_ms[0], max(timestamp_ms)
        parts += (
            encode_record(
                offset_delta=delta,
                timestamp_delta_ms=at_ms - base_timestamp_ms,
                key=key,
                value=value,
            )
            for delta, ((key, value), at_ms) in enumerate(zip(records, timestamp_ms, strict=True))
        )
    attributes = int(compression)
    if is_control:
        attributes |= CONTROL_BIT
    if is_transactional:
        attributes |= TRANSACTIONAL_BIT
    if compression is not Codec.NONE:
        parts = [parts[0], compress(compression, b"".join(parts[1:]))]
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=len(records) - 1,
        base_timestamp_ms=base_timestamp_ms,
        max_timestamp_ms=max_timestamp_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )
    return seal_batch(header, parts)


def seal_batch(header: BatchHeader, parts: list[bytes]) -> bytearray:
    """Join `parts`, the first of which is 61 empty bytes, and write header, length and CRC."""
    buffer = bytearray().join(parts)
    HEADER.pack_into(buffer, 0, *header._replace(batch_length=len(buffer) - LENGTH_OVERHEAD))
    _renew_crc(buffer, 0, len(buffer))
    return buffer


# --- reading records -------------------------------------------------------------------------


def iter_records(
    buffer: Buffer,
    position: int,
    header: BatchHeader,
    *,
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
) -> Iterator[Record]:
    """The records of the batch at `position`, uncompressed.

    Timestamps are absolute; under LogAppendTime all are the batch's maximum. Raises
    BatchError(CORRUPT_MESSAGE) on records that cannot be parsed.
    """
    data = _unpacked(buffer, position, header, decompressed_bytes_max)
    at = 0
    fixed_timestamp_ms = header.max_timestamp_ms if header.is_log_append_time else None
    for _ in range(header.record_count):
        try:
            delta_ms, offset_delta, key, value, headers, at = read_record(data, at)
        except (IndexError, ValueError) as error:
            raise _no_record(header, error) from error
        timestamp_ms = fixed_timestamp_ms
        if timestamp_ms is None:
            timestamp_ms = wrapped_int64(header.base_timestamp_ms + delta_ms)
        yield Record(header.base_offset + offset_delta, timestamp_ms, key, value, headers)


def iter_times(buffer: Buffer, position: int, header: BatchHeader) -> Iterator[tuple[int, int]]:
    """(timestamp, offset) of each record, as in `iter_records`. Keys, values and headers, of which
    a record may have very many, are skipped."""
    data = _unpacked(buffer, position, header, DECOMPRESSED_BYTES_MAX)
    at = 0
    fixed_timestamp_ms = header.max_timestamp_ms if header.is_log_append_time else None
    for _ in range(header.record_count):
        try:
            delta_ms, offset_delta, at = read_time(data, at)
        except (IndexError, ValueError) as error:
            raise _no_record(header, error) from error
        timestamp_ms = fixed_timestamp_ms
        if timestamp_ms is None:
            timestamp_ms = wrapped_int64(header.base_timestamp_ms + delta_ms)
        yield timestamp_ms, header.base_offset + offset_delta


def _unpacked(buffer: Buffer, position: int, header: BatchHeader, bytes_max: int) -> bytes:
    start = position + HEADER_BYTES
    data = bytes(memoryview(buffer)[start : position + header.size_bytes])
    if not header.attributes & CODEC_MASK:
        return data
    try:
        codec = Codec(header.attributes & CODEC_MASK)
        return bytes(decompress(codec, data, bytes_max=bytes_max))
    except (ValueError, CompressionError) as error:
        raise BatchError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error


def _no_record(header: BatchHeader, error: Exception) -> BatchError:
    return BatchError(ErrorCode.CORRUPT_MESSAGE, f"a record of batch {header.base_offset}: {error}")
