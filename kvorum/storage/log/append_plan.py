"""The plan of one append: offsets and epochs of its batches, the checks that read no file, and if
the log rolls."""

from __future__ import annotations

import zlib
from typing import NamedTuple

from kvorum.runtime.errors import ErrorCode, invariant
from kvorum.storage.files.index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES
from kvorum.storage.files.model import RELATIVE_OFFSET_MAX, LogConfig, OutOfOrderAppend
from kvorum.storage.files.segment import Segment
from kvorum.storage.format.batch import (
    CONTROL_BIT,
    HEADER_BYTES,
    BatchError,
    BatchHeader,
    Buffer,
    check_crc,
    iter_headers,
    read_header,
    stamp,
)
from kvorum.storage.format.markers import read_marker


class Placed(NamedTuple):
    """One batch of an append, with the offsets that it gets in the log."""

    position: int
    size_bytes: int
    base_offset: int
    last_offset: int
    leader_epoch: int
    header: BatchHeader


def place_as_leader(
    batch: bytearray | memoryview,
    *,
    end_offset: int,
    leader_epoch: int,
    latest_epoch: int,
    segment_bytes: int,
    first_header: BatchHeader | None = None,
) -> list[Placed]:
    """Give the batches offsets from `end_offset` on and write them into the batches.

    first_header: of the first batch, None to read it here. Raises BatchError(RECORD_LIST_TOO_LARGE)
        for a batch above `segment_bytes`.
    """
    invariant(leader_epoch >= latest_epoch, f"append in epoch {leader_epoch} after {latest_epoch}")
    position = 0
    placed: list[Placed] = []
    total = len(batch)
    while position < total:
        header = first_header or read_header(batch, position)
        first_header = None
        size = header.size_bytes
        if size > segment_bytes:
            raise BatchError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"batch of {size} bytes, segment.bytes {segment_bytes}",
            )
        invariant(
            HEADER_BYTES <= size <= total - position, "append of bytes that are no whole batches"
        )
        if header.attributes & CONTROL_BIT:
            _check_marker(batch, position, header)
        stamp(batch, position, base_offset=end_offset, leader_epoch=leader_epoch)
        last_offset = end_offset + header.last_offset_delta
        placed.append(Placed(position, size, end_offset, last_offset, leader_epoch, header))
        end_offset = last_offset + 1
        position += size
    invariant(placed, "append of no batch")
    return placed


def _check_marker(batch: Buffer, position: int, header: BatchHeader) -> None:
    """Raise BatchError for an unreadable marker now, before anything is written."""
    if header.producer_id >= 0:
        read_marker(batch, position, header)


def place_as_follower(batches: Buffer, *, end_offset: int, latest_epoch: int) -> list[Placed]:
    """The whole batches as the leader placed them, after a check that they continue the log.

    end_offset: of this log. Raises OutOfOrderAppend, and BatchError on a bad CRC or if no batch is
        whole.
    """
    placed: list[Placed] = []
    for position, header in iter_headers(batches):
        base_offset, last_offset = header.base_offset, header.last_offset
        if base_offset < end_offset or last_offset < base_offset:
            raise OutOfOrderAppend(
                f"batch [{base_offset}, {last_offset}] at end offset {end_offset}"
            )
        if header.leader_epoch < latest_epoch:
            raise OutOfOrderAppend(
                f"batch {base_offset} of epoch {header.leader_epoch} after epoch {latest_epoch}"
            )
        if not check_crc(batches, position, header):
            raise BatchError(ErrorCode.CORRUPT_MESSAGE, f"the CRC of batch {base_offset} is wrong")
        if header.attributes & CONTROL_BIT:
            _check_marker(batches, position, header)
        end_offset, latest_epoch = last_offset + 1, header.leader_epoch
        size = header.size_bytes
        placed.append(Placed(position, size, base_offset, last_offset, latest_epoch, header))
    if not placed:
        raise BatchError(ErrorCode.CORRUPT_MESSAGE, f"no whole batch in {len(batches)} bytes")
    return placed


def run_that_fits(
    placed: list[Placed], start: int, *, room_bytes: int, segment_base_offset: int
) -> tuple[int, int]:
    """The end of the batches from `start` on that one write may put into a segment: (index after
    the last one, size in bytes). There is at least one such batch.

    room_bytes: the space left in the segment.
    """
    total = placed[start].size_bytes
    stop = start + 1
    while stop < len(placed):
        item = placed[stop]
        if total + item.size_bytes > room_bytes:
            break
        if item.last_offset - segment_base_offset > RELATIVE_OFFSET_MAX:
            break
        total += item.size_bytes
        stop += 1
    return stop, total


def _jitter_ms(segment: Segment, config: LogConfig) -> int:
    """The part of segment_ms by which this segment ends earlier, so that the logs of a broker do
    not all roll at once. It comes from the segment's name and is the same after a restart."""
    most_ms = min(config.segment_jitter_ms, config.segment_ms)
    if most_ms <= 0:
        return 0
    return zlib.crc32(segment.path("").encode()) % most_ms


def must_roll(segment: Segment, item: Placed, config: LogConfig, now_ms: int) -> bool:
    """True if the active `segment` cannot or should not take the batch `item`: Kafka's limits of
    size, age, offsets and index entries."""
    size = segment.size_bytes
    if size == 0:
        return item.last_offset - segment.base_offset > RELATIVE_OFFSET_MAX
    if size + item.size_bytes > config.segment_bytes:
        return True
    if segment.first_timestamp_ms >= 0:
        age_ms = item.header.max_timestamp_ms - segment.first_timestamp_ms
    else:
        age_ms = now_ms - segment.created_ms
    if age_ms > config.segment_ms - _jitter_ms(segment, config):
        return True
    if item.last_offset - segment.base_offset > RELATIVE_OFFSET_MAX:
        return True
    offset_index, time_index = segment.indexes
    return (
        len(offset_index) >= config.index_bytes_max // OFFSET_ENTRY_BYTES
        or len(time_index) >= config.index_bytes_max // TIME_ENTRY_BYTES - 1
    )
