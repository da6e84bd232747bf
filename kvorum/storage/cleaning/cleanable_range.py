"""Pure decisions of the log cleaner: the range to clean, if it is due, and which segments to group.

A log is clean below `first_dirty_offset` (the cleaner's checkpoint) and dirty up to
`first_uncleanable_offset`. Above that nothing is cleaned: the active segment, segments that are not
flushed, segments that reach the last stable offset, and segments younger than
min.compaction.lag.ms. See docs/log.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from kvorum.storage.files.model import RELATIVE_OFFSET_MAX, CompactionConfig


class CleaningFacts(Protocol):
    """The facts of a segment that the plan needs. Properties may read files."""

    base_offset: int

    @property
    def size_bytes(self) -> int: ...

    @property
    def max_timestamp_ms(self) -> int: ...

    @property
    def first_batch_timestamp_ms(self) -> int: ...


class GroupFacts(Protocol):
    """The facts of a segment that grouping needs."""

    base_offset: int

    @property
    def size_bytes(self) -> int: ...

    @property
    def offset_index_bytes(self) -> int: ...

    @property
    def time_index_bytes(self) -> int: ...


G = TypeVar("G", bound=GroupFacts)


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningPlan:
    """The range of one clean. For the offsets see the top; bytes are sums of segment sizes.

    is_overdue: a dirty record is older than max.compaction.lag.ms.
    """

    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def is_due(self, config: CompactionConfig) -> bool:
        return self.dirty_bytes > 0 and (
            self.is_overdue or self.dirty_ratio > config.min_cleanable_dirty_ratio
        )


def plan_cleaning(
    segments: Sequence[CleaningFacts],
    *,
    checkpoint: int | None,
    start_offset: int,
    stable_offset: int,
    config: CompactionConfig,
    now_ms: int,
) -> CleaningPlan | None:
    """The plan for cleaning `segments`; None if there is nothing to clean.

    segments: the candidates and, last, the first segment that is not one (at the latest the active
        one).
    checkpoint: the end of the last clean, None if there was none.
    stable_offset: the last stable offset, which is never above the high watermark.
    """
    end_offset = segments[-1].base_offset
    first_dirty = start_offset if checkpoint is None else max(checkpoint, start_offset)
    if first_dirty > end_offset:
        # The log was truncated below its clean part, or the checkpoint belongs to another log.
        if checkpoint is None or first_dirty == start_offset:
            return None
        first_dirty = start_offset
    dirty: list[CleaningFacts] = []
    clean_bytes = 0
    for at, segment in enumerate(segments[:-1]):
        following = segments[at + 1].base_offset
        if following <= first_dirty:
            clean_bytes += segment.size_bytes
            continue
        is_young = config.min_lag_ms > 0 and segment.max_timestamp_ms > now_ms - config.min_lag_ms
        if following > stable_offset or is_young:
            end_offset = segment.base_offset
            break
        dirty.append(segment)
    if not dirty:
        return None
    return CleaningPlan(
        first_dirty_offset=first_dirty,
        first_uncleanable_offset=end_offset,
        clean_bytes=clean_bytes,
        dirty_bytes=sum(segment.size_bytes for segment in dirty),
        is_overdue=_is_overdue(dirty, config, now_ms),
    )


def _is_overdue(dirty: Sequence[CleaningFacts], config: CompactionConfig, now_ms: int) -> bool:
    oldest_allowed_ms = now_ms - config.max_lag_ms
    if oldest_allowed_ms <= 0:
        return False
    return any(0 < segment.first_batch_timestamp_ms < oldest_allowed_ms for segment in dirty)


def group_segments(
    segments: Sequence[G], *, end_offset: int, segment_bytes: int, index_bytes_max: int
) -> list[list[G]]:
    """Groups of neighbouring segments that fit into one segment even if no record is removed.

    end_offset: end (exclusive) of the last of `segments`.
    """
    groups: list[list[G]] = []
    sizes = (0, 0, 0)
    for at, segment in enumerate(segments):
        following = segments[at + 1].base_offset if at + 1 < len(segments) else end_offset
        own = (segment.size_bytes, segment.offset_index_bytes, segment.time_index_bytes)
        total = (sizes[0] + own[0], sizes[1] + own[1], sizes[2] + own[2])
        fits = (
            bool(groups)
            and total[0] <= segment_bytes
            and max(total[1:]) <= index_bytes_max
            and following - 1 - groups[-1][0].base_offset <= RELATIVE_OFFSET_MAX
        )
        if fits:
            groups[-1].append(segment)
            sizes = total
        else:
            groups.append([segment])
            sizes = own
    return groups
