"""The codecs of record batches, in the framing that Java clients and librdkafka accept.

Brokers keep batches as sent unless compression.type says otherwise. These functions serve
recompression, builders, the checks of clients' batches, lookups inside a batch, and the dump.
`decompress` has a limit, so that a small payload cannot expand to gigabytes.
"""

from __future__ import annotations

import enum
import functools
import struct
from types import ModuleType
from typing import Any

from kvorum.runtime.errors import KvorumError

XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER = XERIAL_MAGIC + struct.pack(">ii", 1, 1)
XERIAL_BLOCK_BYTES = 32 * 1024
"""Uncompressed bytes per block, as in snappy-java."""

LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_FIXED_MASK, _LZ4_FIXED = 0xE3, 0x60
"""Required flags: version 1, independent blocks, reserved bits zero."""
_LZ4_BLOCK_CHECKSUM = 0x10
_LZ4_CONTENT_SIZE = 0x08
_LZ4_CONTENT_CHECKSUM = 0x04
_LZ4_NOT_PACKED = 1 << 31
_LZ4_SIZE = struct.Struct("<I")

ZSTD_LEVEL = 3
LZ4_LEVEL = 9

_GUESS_RATIO = 4
_GUESS_BYTES_MIN = 64 * 1024
_GROWTH = 4
#: cramjam's message for a too small output buffer; any other message means damaged input.
_BUFFER_FULL = "whole buffer"


class Codec(enum.IntEnum):
    """Bits 0-2 of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class CompressionError(KvorumError):
    """A payload that does not have the format of its codec, or exceeds the caller's limit."""


class UnpacksToMore(CompressionError):
    """A payload whose uncompressed bytes exceed the caller's limit."""


def compress(codec: Codec, data: bytes | bytearray | memoryview, level: int | None = None) -> bytes:
    """Compress the records of a batch. level: on the codec's own scale, None for Kafka's default.

    lz4 is written with independent blocks and without content checksum, because Java refuses linked
    blocks. snappy is written as a xerial stream, which Java reads.
    """
    cramjam = _cramjam()
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            return bytes(cramjam.gzip.compress(data, level=level))
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(data, level=ZSTD_LEVEL if level is None else level))
        case Codec.LZ4:
            packer = cramjam.lz4.Compressor(
                level=LZ4_LEVEL if level is None else level,
                content_checksum=False,
                block_linked=False,
            )
            packer.compress(bytes(data))
            return bytes(packer.finish())
        case Codec.SNAPPY:
            parts = [XERIAL_HEADER]
            view = memoryview(data)
            for start in range(0, len(view), XERIAL_BLOCK_BYTES):
                block = cramjam.snappy.compress_raw(bytes(view[start : start + XERIAL_BLOCK_BYTES]))
                parts += (struct.pack(">i", len(block)), bytes(block))
            return b"".join(parts)


def decompress(
    codec: Codec, data: bytes | bytearray | memoryview, *, bytes_max: int
) -> bytes | memoryview:
    """Decompress the records of a batch, to at most `bytes_max` bytes. Raises CompressionError.

    snappy is accepted as a xerial stream and raw (librdkafka writes it raw).
    """
    payload = bytes(data)
    cramjam = _cramjam()
    match codec:
        case Codec.NONE:
            return payload
        case Codec.GZIP:
            return _bounded(cramjam.gzip, payload, bytes_max)
        case Codec.ZSTD:
            return _bounded(cramjam.zstd, payload, bytes_max)
        case Codec.LZ4:
            return _bounded(cramjam.lz4, payload, bytes_max)
        case Codec.SNAPPY:
            if payload.startswith(XERIAL_MAGIC):
                return _xerial(cramjam, payload, bytes_max)
            return _raw_snappy(cramjam, payload, bytes_max)


def check_lz4_frame(data: bytes) -> None:
    """Refuse a frame that Java's consumers cannot read, although `decompress` can.

    Java reads exactly one frame of independent blocks (Kafka's Lz4BlockInputStream). `decompress`
    checks the other header fields, the header checksum and the blocks. Raises CompressionError.
    """
    if not data.startswith(LZ4_MAGIC) or len(data) < 7:
        raise CompressionError("no lz4 frame")
    flags = data[4]
    if flags & _LZ4_FIXED_MASK != _LZ4_FIXED:
        raise CompressionError(
            f"an lz4 frame of flags {flags:#04x}: of another version, or its blocks refer to"
            " others or to a dictionary"
        )
    at = 15 if flags & _LZ4_CONTENT_SIZE else 7
    overhead = 8 if flags & _LZ4_BLOCK_CHECKSUM else 4
    size_of = _LZ4_SIZE.unpack_from
    try:
        while size := size_of(data, at)[0]:
            if size in (1, _LZ4_NOT_PACKED):
                # Java takes either size for the end of the frame.
                raise CompressionError("an lz4 block without content")
            at += overhead + (size & ~_LZ4_NOT_PACKED)
    except struct.error as error:
        raise CompressionError("an lz4 frame without its end") from error
    at += 8 if flags & _LZ4_CONTENT_CHECKSUM else 4
    if at != len(data):
        raise CompressionError(f"an lz4 frame of {at} bytes in {len(data)}")


@functools.cache
def _cramjam() -> Any:
    # The import takes 20 ms, which a broker without compressed batches need not spend.
    import cramjam

    return cramjam


def _bounded(codec: Any, payload: bytes, bytes_max: int) -> memoryview:
    size = min(bytes_max, max(_GUESS_BYTES_MIN, len(payload) * _GUESS_RATIO))
    while True:
        output = bytearray(size)
        try:
            written = codec.decompress_into(payload, output)
            return memoryview(output)[:written]
        except _error_types() as error:
            if _BUFFER_FULL not in str(error):
                raise CompressionError(f"damaged payload: {error}") from error
            if size >= bytes_max:
                raise UnpacksToMore(f"unpacks to more than {bytes_max} bytes") from error
        size = min(bytes_max, size * _GROWTH)


def _raw_snappy(cramjam: Any, payload: bytes, bytes_max: int) -> bytes:
    try:
        size = cramjam.snappy.decompress_raw_len(payload)
        if size > bytes_max:
            raise UnpacksToMore(f"unpacks to {size} bytes, more than {bytes_max}")
        return bytes(cramjam.snappy.decompress_raw(payload))
    except _error_types() as error:
        raise CompressionError(f"damaged snappy block: {error}") from error


def _xerial(cramjam: Any, payload: bytes, bytes_max: int) -> bytes:
    parts: list[bytes] = []
    left = bytes_max
    position = len(XERIAL_HEADER)
    while position < len(payload):
        if position + 4 > len(payload):
            raise CompressionError("xerial stream ends inside a block length")
        size = int.from_bytes(payload[position : position + 4], "big", signed=True)
        position += 4
        if size < 0 or position + size > len(payload):
            raise CompressionError(f"xerial block of {size} bytes runs past the payload")
        block = _raw_snappy(cramjam, payload[position : position + size], left)
        left -= len(block)
        parts.append(block)
        position += size
    return b"".join(parts)


def _error_types() -> tuple[type[BaseException], ...]:
    cramjam: ModuleType = _cramjam()
    return (cramjam.DecompressionError, ValueError)
