"""Is the batch at this place of a segment whole and valid?"""

from __future__ import annotations

from crc32c import crc32c

from kvorum.storage.format.batch import (
    BATCH_LENGTH_MIN,
    CRC_START,
    HEADER,
    HEADER_BYTES,
    MAGIC,
    BatchHeader,
)

_RELATIVE_OFFSET_MAX = (1 << 31) - 1


def check_batch(
    data: bytes, at: int, base_offset: int, expected_offset: int
) -> tuple[BatchHeader | None, str]:
    """The header at `at` if the batch there is whole and valid; else None and the reason.

    base_offset: of the segment.
    expected_offset: the lowest offset that the batch may begin with.
    """
    left = len(data) - at
    if left < HEADER_BYTES:
        return None, f"{left} bytes are no batch header"
    header = BatchHeader._make(HEADER.unpack_from(data, at))
    if header.magic != MAGIC or header.batch_length < BATCH_LENGTH_MIN:
        return None, f"no batch header: magic {header.magic}, length {header.batch_length}"
    if header.size_bytes > left:
        return None, f"batch of {header.size_bytes} bytes, {left} are there"
    if header.base_offset < expected_offset or header.last_offset_delta < 0:
        return None, f"batch [{header.base_offset}, {header.last_offset}] after {expected_offset}"
    if header.last_offset - base_offset > _RELATIVE_OFFSET_MAX:
        return None, f"offset {header.last_offset} too far above base {base_offset}"
    if crc32c(memoryview(data)[at + CRC_START : at + header.size_bytes]) != header.crc:
        return None, f"the CRC of batch {header.base_offset} does not match"
    return header, ""
