"""Encoding of records inside a batch: zigzag varints, lengths first. For batches see `batch.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

INT32_MIN, INT32_MAX = -(1 << 31), (1 << 31) - 1
INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1
VARINT32_BYTES_MAX = 5


class Record(NamedTuple):
    """One record of a batch. headers: (key, value) pairs in order; keys may repeat."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()


def varint(value: int) -> bytes:
    """A zigzag variable-length integer of up to 64 bits, as used inside records."""
    raw = (value << 1) ^ (value >> 63)
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


def wrapped_int64(value: int) -> int:
    """The low 64 bits of a sum or difference, signed, as in Java's long arithmetic."""
    if INT64_MIN <= value <= INT64_MAX:
        return value
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


# Lengths and offset deltas are nearly always small, so a table replaces the loop above.
_TABLE_SIZE = 4096
_TABLE = [bytes((i << 1,)) for i in range(64)]
_TABLE += [bytes(((i << 1) & 0x7F | 0x80, i >> 6)) for i in range(64, _TABLE_SIZE)]


def encode_record(
    *,
    offset_delta: int,
    timestamp_delta_ms: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[bytes, bytes | None]] = (),
) -> bytes:
    """The bytes of one record in a batch, length first. The general, slower form."""
    parts = [b"\x00", varint(timestamp_delta_ms), varint(offset_delta)]
    _add_bytes(parts, key)
    _add_bytes(parts, value)
    parts.append(varint(len(headers)))
    for header_key, header_value in headers:
        _add_bytes(parts, header_key)
        _add_bytes(parts, header_value)
    body = b"".join(parts)
    return varint(len(body)) + body


def _add_bytes(parts: list[bytes], value: bytes | None) -> None:
    if value is None:
        parts.append(b"\x01")
    else:
        parts += (varint(len(value)), value)


def add_records(parts: list[bytes], records: Sequence[tuple[bytes | None, bytes | None]]) -> None:
    """Append the bytes of (key, value) records to `parts`; no headers, timestamp deltas 0.

    The fast form of `encode_record`: the controller builds batches of thousands of records.
    """
    table = _TABLE
    for offset_delta, (key, value) in enumerate(records):
        offset = table[offset_delta] if offset_delta < _TABLE_SIZE else varint(offset_delta)
        # 3 = attributes, timestamp delta 0 and header count 0, one byte each.
        length = 3 + len(offset)
        if key is None:
            key_length, key = b"\x01", b""
            length += 1
        else:
            size = len(key)
            key_length = table[size] if size < _TABLE_SIZE else varint(size)
            length += len(key_length) + size
        if value is None:
            value_length, value = b"\x01", b""
            length += 1
        else:
            size = len(value)
            value_length = table[size] if size < _TABLE_SIZE else varint(size)
            length += len(value_length) + size
        record_length = table[length] if length < _TABLE_SIZE else varint(length)
        parts += (record_length, b"\0\0", offset, key_length, key, value_length, value, b"\0")


RecordFields = tuple[
    int, int, bytes | None, bytes | None, tuple[tuple[bytes, bytes | None], ...], int
]
"""(timestamp delta, offset delta, key, value, headers, position after the record)."""


def read_record(data: bytes, at: int) -> RecordFields:
    """The record at `at`. Raises IndexError or ValueError on bytes that are not a record."""
    length, at = read_varint(data, at)
    stop = at + length
    if length < 0 or stop > len(data):
        raise IndexError(f"{length} bytes run past the batch")
    timestamp_delta_ms, at = read_varint(data, at + 1)
    offset_delta, at = read_varint(data, at)
    key, at = _read_bytes(data, at)
    value, at = _read_bytes(data, at)
    count, at = read_varint(data, at)
    headers: tuple[tuple[bytes, bytes | None], ...] = ()
    if count:
        headers, at = _read_record_headers(data, at, count)
    if at != stop:
        raise ValueError(f"{length} bytes long but ends {at - stop} bytes off")
    return timestamp_delta_ms, offset_delta, key, value, headers, at


def read_time(data: bytes, at: int) -> tuple[int, int, int]:
    """(timestamp delta, offset delta, position after the record) of the record at `at`.

    The rest of the record is skipped by its length. Raises the errors of `read_record`.
    """
    length, at = read_varint(data, at)
    stop = at + length
    if length < 0 or stop > len(data):
        raise IndexError(f"{length} bytes run past the batch")
    timestamp_delta_ms, at = read_varint(data, at + 1)
    offset_delta, _ = read_varint(data, at)
    return timestamp_delta_ms, offset_delta, stop


def _read_record_headers(
    data: bytes, at: int, count: int
) -> tuple[tuple[tuple[bytes, bytes | None], ...], int]:
    if count < 0 or count > len(data) - at:
        raise ValueError(f"claims {count} headers")
    headers: list[tuple[bytes, bytes | None]] = []
    for _ in range(count):
        key, at = _read_bytes(data, at)
        value, at = _read_bytes(data, at)
        if key is None:
            raise ValueError("a header without key")
        headers.append((key, value))
    return tuple(headers), at


def _read_bytes(data: bytes, at: int) -> tuple[bytes | None, int]:
    length, at = read_varint(data, at)
    if length < 0:
        return None, at
    stop = at + length
    if stop > len(data):
        raise IndexError(f"{length} bytes run past the batch")
    return data[at:stop], stop


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """The zigzag varint at `at`, and the position after it.

    Raises IndexError if the data ends inside it, ValueError if it has more than ten bytes or 64
    bits.
    """
    byte = data[at]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    raw = byte & 0x7F
    shift = 7
    while byte >= 0x80:
        at += 1
        byte = data[at]
        raw |= (byte & 0x7F) << shift
        shift += 7
        if shift > 70:
            raise ValueError("a varint of more than ten bytes")
    if raw >> 64:
        raise ValueError("a varint of more than 64 bits")
    return (raw >> 1) ^ -(raw & 1), at + 1


def read_varint32(data: bytes, at: int) -> tuple[int, int]:
    """Like `read_varint`, for all fields but timestamps: at most five bytes and 32 bits, the limits
    of Java's consumers."""
    byte = data[at]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    high = data[at + 1]
    if high < 0x80:
        raw = byte & 0x7F | high << 7
        return (raw >> 1) ^ -(raw & 1), at + 2
    value, end = read_varint(data, at)
    if end - at > VARINT32_BYTES_MAX:
        raise ValueError("a varint of more than five bytes")
    if not INT32_MIN <= value <= INT32_MAX:
        raise ValueError("a varint of more than 32 bits")
    return value, end
