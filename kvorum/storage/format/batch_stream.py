"""All batches of a segment file in order, checked, in runs of about one buffer."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from kvorum.runtime.disk import DiskFile
from kvorum.runtime.errors import CorruptData
from kvorum.storage.format.batch import HEADER_BYTES, LENGTH_OVERHEAD, BatchHeader
from kvorum.storage.format.batch_check import check_batch

_LENGTH = struct.Struct(">i")
_LENGTH_POSITION = 8


class StoredBatch(NamedTuple):
    """A batch and its position in the file."""

    position: int
    header: BatchHeader
    data: bytes


def stored_batches(
    file: DiskFile, *, size: int, base_offset: int, buffer_bytes: int
) -> Iterator[list[StoredBatch]]:
    """Runs of whole batches, each with at least one. base_offset: of the segment.

    Raises CorruptData at the first damaged batch (`batch_check`).
    """
    position, expected = 0, base_offset
    while position < size:
        chunk = file.pread(min(max(buffer_bytes, HEADER_BYTES), size - position), position)
        whole = _claimed_bytes(chunk, 0)
        if len(chunk) < whole <= size - position:
            chunk = file.pread(whole, position)
        run: list[StoredBatch] = []
        at = 0
        while at < len(chunk):
            is_cut = at + _claimed_bytes(chunk, at) > len(chunk)
            if run and is_cut and position + len(chunk) < size:
                break
            header, reason = check_batch(chunk, at, base_offset, expected)
            if header is None:
                if run:
                    # Return the valid batches first; the next round raises at the same place.
                    break
                raise CorruptData(file.path, position + at, reason)
            run.append(StoredBatch(position + at, header, chunk[at : at + header.size_bytes]))
            expected = header.end_offset
            at += header.size_bytes
        position += at
        yield run


def _claimed_bytes(chunk: bytes, at: int) -> int:
    """Size in bytes that the batch at `at` claims, but at least that of a header."""
    if at + LENGTH_OVERHEAD > len(chunk):
        return HEADER_BYTES
    (length,) = _LENGTH.unpack_from(chunk, at + _LENGTH_POSITION)
    return max(HEADER_BYTES, int(length) + LENGTH_OVERHEAD)
