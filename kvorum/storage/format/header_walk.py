"""A walk over the headers of the batches in a .log file; the records are not read."""

from __future__ import annotations

from collections.abc import Iterator

from kvorum.runtime.disk import DiskFile
from kvorum.runtime.errors import CorruptData
from kvorum.storage.format.batch import (
    BATCH_LENGTH_MIN,
    HEADER,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    MAGIC,
    BatchHeader,
)

_SCAN_BYTES = 16 * 1024
"""Bytes per read: a few index intervals."""


def headers_between(file: DiskFile, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each batch between byte `position`, the start of one, and byte `end`.

    Raises CorruptData on an invalid header, and if `end` is not the end of a batch.
    """
    chunk, chunk_start = b"", position
    while position + HEADER_BYTES <= end:
        at = position - chunk_start
        if at + HEADER_BYTES > len(chunk):
            chunk, chunk_start, at = file.pread(_SCAN_BYTES, position), position, 0
            if len(chunk) < HEADER_BYTES:
                raise CorruptData(file.path, position, f"file shorter than {end} bytes")
        header = BatchHeader._make(HEADER.unpack_from(chunk, at))
        if header.magic != MAGIC or header.batch_length < BATCH_LENGTH_MIN:
            raise CorruptData(
                file.path,
                position,
                f"no batch header: magic {header.magic}, length {header.batch_length}",
            )
        next_position = position + header.batch_length + LENGTH_OVERHEAD
        if next_position > end:
            raise CorruptData(file.path, position, f"a batch runs past byte {end}")
        yield position, header
        position = next_position
    if position != end:
        raise CorruptData(file.path, position, f"{end - position} bytes are no batch")
