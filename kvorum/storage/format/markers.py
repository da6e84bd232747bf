"""Control records that end a transaction: COMMIT and ABORT markers (KIP-98).

Key: i16 version, i16 type (0 abort, 1 commit). Value: i16 version, i32 coordinator epoch. Newer
versions only add fields at the end. The quorum's control records have no producer id and are not
markers.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from kvorum.runtime.errors import ErrorCode
from kvorum.storage.format.batch import BatchError, BatchHeader, Buffer, build_batch, iter_records

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")
_ABORT = 0
_COMMIT = 1


class Marker(NamedTuple):
    """A marker: the outcome of its transaction."""

    is_commit: bool
    coordinator_epoch: int


def read_marker(buffer: Buffer, position: int, header: BatchHeader) -> Marker | None:
    """The marker of the control batch at `position`; None if it holds none.

    It holds none if the cleaner has emptied it, or if its type is unknown to this build. Raises
    BatchError(CORRUPT_MESSAGE).
    """
    for record in iter_records(buffer, position, header):
        key, value = record.key or b"", record.value or b""
        if len(key) < _KEY.size:
            break
        kind = _KEY.unpack_from(key)[1]
        if kind not in (_ABORT, _COMMIT):
            return None
        if len(value) < _VALUE.size:
            break
        return Marker(kind == _COMMIT, _VALUE.unpack_from(value)[1])
    else:
        return None
    raise BatchError(ErrorCode.CORRUPT_MESSAGE, f"control batch {header.base_offset} is no marker")


def build_marker(
    *,
    is_commit: bool,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp_ms: int,
) -> bytearray:
    """The control batch that ends a transaction; the log sets base offset and leader epoch."""
    key = _KEY.pack(0, _COMMIT if is_commit else _ABORT)
    return build_batch(
        [(key, _VALUE.pack(0, coordinator_epoch))],
        timestamp_ms=timestamp_ms,
        is_control=True,
        is_transactional=True,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )
