"""Finding records of a log by timestamp: segment by largest one, time index, headers, records."""

from __future__ import annotations

from collections.abc import Iterator

from kvorum.storage.format.batch import BatchHeader, iter_times
from kvorum.storage.log.log import Log
from kvorum.storage.log.segment import Segment

Found = tuple[int, int, int]
"""(timestamp_ms, offset, leader epoch)."""


def find_by_timestamp(log: Log, timestamp_ms: int, *, end_offset: int) -> Found | None:
    """The first record below `end_offset` with a timestamp >= `timestamp_ms`."""
    start_offset, end_offset = log.start_offset, min(end_offset, log.end_offset)
    for segment in log.segments.items:
        if segment.base_offset >= end_offset:
            return None
        if segment.max_timestamp_ms < timestamp_ms:
            continue
        offset_index, time_index = segment.indexes
        position = offset_index.lookup(time_index.lookup(timestamp_ms))
        for at, header in segment.headers(position):
            if header.base_offset >= end_offset:
                return None
            if header.record_timestamp_max_ms < timestamp_ms or header.last_offset < start_offset:
                continue
            found = _first_record(segment, at, header, timestamp_ms, start_offset)
            if found is not None:
                return found if found[1] < end_offset else None
    return None


def find_max_timestamp(log: Log, *, end_offset: int) -> Found | None:
    """The first record below `end_offset` that has the largest timestamp there."""
    start_offset, end_offset = log.start_offset, min(end_offset, log.end_offset)
    best: tuple[int, Segment, int, BatchHeader] | None = None
    for segment in log.segments.items:
        if segment.base_offset >= end_offset:
            break
        if best is not None and segment.max_timestamp_ms <= best[0]:
            continue
        for at, header in _candidates(segment, start_offset, end_offset):
            largest_ms = _largest_timestamp_ms(segment, at, header, start_offset)
            if largest_ms >= 0 and (best is None or largest_ms > best[0]):
                best = (largest_ms, segment, at, header)
    if best is None:
        return None
    timestamp_ms, segment, at, header = best
    return _first_record(segment, at, header, timestamp_ms, start_offset)


def _candidates(
    segment: Segment, start_offset: int, end_offset: int
) -> list[tuple[int, BatchHeader]]:
    """Batches that may hold the maximum, in order.

    The first one that has the largest timestamp of all below the end is known: from the time index
    up to its last entry there, and behind it an index interval is looked at. Only if the start cuts
    that one off, or through it, all that is above the start may hold the maximum.
    """
    offset_index, time_index = segment.indexes
    # Only now: it comes with the indexes, which a start leaves on disk.
    _, newest = segment.max_timestamp
    known: int | None = newest
    tail = segment.size_bytes
    if newest >= end_offset:
        known = time_index.last_offset_below(end_offset)
        # Batches before the tail are in the time index: a batch gets its entries of both indexes
        # together.
        tail = offset_index.lookup(end_offset - 1)
    found: list[tuple[int, BatchHeader]] = []
    if known is not None:
        for at, header in segment.headers(offset_index.lookup(known)):
            if header.last_offset >= known:
                if header.base_offset >= start_offset:
                    found.append((at, header))
                else:
                    tail = offset_index.lookup(start_offset)
                break
    for at, header in segment.headers(tail):
        if header.last_offset >= end_offset:
            break
        if header.last_offset >= start_offset:
            found.append((at, header))
    return found


def _largest_timestamp_ms(
    segment: Segment, position: int, header: BatchHeader, start_offset: int
) -> int:
    """Of the records from `start_offset` on, which may lie inside the batch."""
    if header.base_offset >= start_offset:
        return header.record_timestamp_max_ms
    return max((ms for ms, _ in _times_from(segment, position, header, start_offset)), default=-1)


def _first_record(
    segment: Segment, position: int, header: BatchHeader, timestamp_ms: int, start_offset: int
) -> Found | None:
    for record_ms, offset in _times_from(segment, position, header, start_offset):
        if record_ms >= timestamp_ms:
            return record_ms, offset, header.leader_epoch
    return None


def _times_from(
    segment: Segment, position: int, header: BatchHeader, start_offset: int
) -> Iterator[tuple[int, int]]:
    """(timestamp, offset) of the records from `start_offset` on."""
    batch = segment.file.pread(header.size_bytes, position)
    return (found for found in iter_times(batch, 0, header) if found[1] >= start_offset)
