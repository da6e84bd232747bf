"""Retention: a pure decision on which segments to delete, and their removal from the log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kvorum.storage.files.file_names import DELETED_SUFFIX, LOG_SUFFIX
from kvorum.storage.files.segment import Segment
from kvorum.storage.log.log import Log


class RetentionFacts(Protocol):
    """The facts of a segment that the decision needs. Properties may read files, so they are read
    oldest segment first."""

    base_offset: int

    @property
    def size_bytes(self) -> int: ...

    @property
    def max_timestamp_ms(self) -> int: ...

    @property
    def modified_ms(self) -> int: ...


def apply_retention(log: Log, *, now_ms: int, high_watermark: int) -> list[int]:
    """Delete the segments that start offset, size and age allow; return their base offsets.

    Files are renamed now; `remove_deleted` removes them after `file_delete_delay_ms`. Segments that
    are not flushed yet wait for the next run, but readers no longer see them.
    """
    segments = log.segments
    if segments.is_cleaning:
        # Retention waits for the next run, so that a long clean is not cancelled again and again.
        return []
    count = deletable_count(
        segments.items,
        start_offset=log.start_offset,
        end_offset=log.end_offset,
        high_watermark=high_watermark,
        retention_ms=log.config.retention_ms,
        retention_bytes=log.config.retention_bytes,
        now_ms=now_ms,
    )
    if count == 0:
        return []
    if count == len(segments.items):
        log.roll(now_ms=now_ms)
    # Raise the start offset first. If the disk fails half-way, a hole above the log start would be
    # skipped by readers silently.
    log.advance_start_offset(segments.bases[count])
    # A segment waits for its flush, which writes the producer snapshot at its end. Bad sequence
    # without that:
    # 1. A topic is idle for longer than `retention_ms`.
    # 2. Its last segment is rolled and retired.
    # 3. The process is killed.
    # 4. A producer repeats its last batch, and the log no longer knows that producer.
    count = min(count, len(segments.sealed_prefix()))
    retired: list[Segment] = []
    if count:
        segments.cancel_derived_files(log.end_offset)
        segments.ensure_producer_snapshot(count, log.producers)
        retired = segments.retire_first(
            count, delete_at_ms=now_ms + log.config.file_delete_delay_ms
        )
    return [segment.base_offset for segment in retired]


def take_deleted(log: Log, now_ms: int) -> list[str]:
    """Paths of the files whose delay has passed. Remove them in a thread, because unlinking a file
    of a gigabyte may take long. Missing files are no error.

    With `refuses_missing_segments`, returns none until a flush has written the epoch checkpoint:
    the old checkpoint names epochs whose records only these files hold.
    """
    if log.has_waiting_removals or (
        log.config.refuses_missing_segments and log.segments.is_flushing
    ):
        return []
    return log.segments.take_deleted(now_ms)


def remove_deleted(log: Log, now_ms: int) -> int:
    """Remove the files whose delay has passed, blocking; return the number of segments removed."""
    paths = take_deleted(log, now_ms)
    for path in paths:
        log.disk.remove(path)
    return sum(path.endswith(LOG_SUFFIX + DELETED_SUFFIX) for path in paths)


def deletable_count(
    segments: Sequence[RetentionFacts],
    *,
    start_offset: int,
    end_offset: int,
    high_watermark: int,
    retention_ms: int,
    retention_bytes: int,
    now_ms: int,
) -> int:
    """The number of oldest segments that may be deleted; all of them only if the last has records.

    A segment is deleted in any of these cases, unless it reaches to the high watermark or above:
    - The next segment begins at or below `start_offset`.
    - The log without it still has `retention_bytes`.
    - Its largest timestamp is older than `retention_ms`.

    -1 switches a limit off. A segment without timestamps is as old as the last write to its file.
    Kafka makes three passes, for start, size and age; a segment deleted in one pass does not count
    in the next.
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


def _is_old(segment: RetentionFacts, retention_ms: int, now_ms: int) -> bool:
    if retention_ms < 0:
        return False
    max_timestamp_ms = segment.max_timestamp_ms
    if max_timestamp_ms < 0:
        max_timestamp_ms = segment.modified_ms
    return now_ms - max_timestamp_ms > retention_ms
