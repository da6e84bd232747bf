"""Lookup of records by timestamp, through segments, time index, headers and records."""

from __future__ import annotations

from collections.abc import Iterator

from kvorum.storage.files.segment import Segment
from kvorum.storage.format.batch import BatchHeader, iter_times
from kvorum.storage.log.log import Log

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
    """The batches of one segment that may hold its largest timestamp, in order.

    The time index names the first batch with the largest timestamp, up to its last entry below
    end_offset. Batches after that entry, at most about an index interval, are candidates too. If
    the named batch lies below start_offset, wholly or in part, every batch above start_offset is a
    candidate.
    """
    offset_index, time_index = segment.indexes
    # Read only now: max_timestamp is set when the indexes are loaded, which a start does not do.
    _, newest = segment.max_timestamp
    known: int | None = newest
    tail = segment.size_bytes
    if newest >= end_offset:
        known = time_index.last_offset_below(end_offset)
        # The time index covers every batch before the tail, because a batch gets its entries in
        # both indexes together.
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
    """The largest timestamp of the batch's records from `start_offset` on."""
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
