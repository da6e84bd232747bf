"""Recompression of a client's batch for the topic's compression.type. Pure."""

from __future__ import annotations

from typing import NamedTuple

from kvorum.storage.format.batch import (
    CODEC_MASK,
    CRC_START,
    DECOMPRESSED_BYTES_MAX,
    HEADER_BYTES,
    BatchHeader,
    Buffer,
    seal_batch,
)
from kvorum.storage.format.compression import Codec, compress, decompress

_ATTRIBUTES_END = CRC_START + 2


class TargetCompression(NamedTuple):
    """The codec of a topic's compression.type. level: None for the codec's default."""

    codec: Codec
    level: int | None = None

    def fits(self, batch: Buffer) -> bool:
        """True if the batch has this codec, at any level, or is too short to have one."""
        if len(batch) < _ATTRIBUTES_END:
            return True
        return batch[_ATTRIBUTES_END - 1] & CODEC_MASK == self.codec


def packed_anew(
    batch: Buffer, header: BatchHeader, target_compression: TargetCompression
) -> bytearray:
    """The batch with the same records in another codec.

    Only codec, length and CRC of its header change. header: of the batch, which has passed the
    checks of `client_batch`. Raises CompressionError.
    """
    records = decompress(
        Codec(header.attributes & CODEC_MASK),
        memoryview(batch)[HEADER_BYTES:],
        bytes_max=DECOMPRESSED_BYTES_MAX,
    )
    attributes = header.attributes & ~CODEC_MASK | target_compression.codec
    body = compress(target_compression.codec, records, target_compression.level)
    return seal_batch(header._replace(attributes=attributes), [bytes(HEADER_BYTES), body])
