"""Which segments may go: a pure decision over what the segments say of themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class SegmentFacts(Protocol):
    """The facts that the decision needs. Properties may read files, so they are read oldest
    first."""

    base_offset: int

    @property
    def size_bytes(self) -> int: ...

    @property
    def max_timestamp_ms(self) -> int: ...

    @property
    def modified_ms(self) -> int: ...


def deletable_count(
    segments: Sequence[SegmentFacts],
    *,
    start_offset: int,
    end_offset: int,
    high_watermark: int,
    retention_ms: int,
    retention_bytes: int,
    now_ms: int,
) -> int:
    """How many of the oldest segments may be deleted; all of them only if the last has data.

    A segment goes when the next one begins at or below `start_offset`, when the log without it
    still has `retention_bytes`, or when its largest timestamp is older than `retention_ms`; and
    never when a part of it is at or above the high watermark. -1 switches a limit off. A segment
    without any timestamp is as old as the last write to its file. Kafka asks three times, for the
    start, the size and the age; what one takes is no longer too much for the next.
    """
    excess_bytes = -1
    if retention_bytes >= 0:
        excess_bytes = sum(segment.size_bytes for segment in segments) - retention_bytes
    count = 0
    for at, segment in enumerate(segments):
        is_last = at + 1 == len(segments)
        upper_offset = end_offset if is_last else segments[at + 1].base_offset
        size_bytes = segment.size_bytes
        if high_watermark < upper_offset or (is_last and size_bytes == 0):
            break
        is_below_start = not is_last and upper_offset <= start_offset
        is_excess = retention_bytes >= 0 and excess_bytes >= size_bytes
        if not (is_below_start or is_excess or _is_old(segment, retention_ms, now_ms)):
            break
        excess_bytes -= size_bytes
        count += 1
    return count


def _is_old(segment: SegmentFacts, retention_ms: int, now_ms: int) -> bool:
    if retention_ms < 0:
        return False
    max_timestamp_ms = segment.max_timestamp_ms
    if max_timestamp_ms < 0:
        max_timestamp_ms = segment.modified_ms
    return now_ms - max_timestamp_ms > retention_ms
