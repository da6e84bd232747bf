"""Reads a log's folder for tools; nothing is opened for writing, locked or repaired.

The folder may be a copy, or that of a running node. A start and this module distinguish a torn tail
from damage by the same rules (`batch_walk.py`), but here the tail is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from kvorum.runtime.errors import CorruptData
from kvorum.storage.files.file_names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    file_name,
    offsets_of,
)
from kvorum.storage.format.batch import BatchHeader
from kvorum.storage.format.batch_check import check_batch
from kvorum.storage.recovery.batch_walk import OffsetGap, find_batch


class ReadableDisk(Protocol):
    """The methods of `runtime.disk.Disk` that read a folder; none of them can change it."""

    def list_dir(self, path: str) -> list[str]: ...

    def read_bytes(self, path: str) -> bytes: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TornEnd:
    """The end of the whole batches: `left_bytes` of file `path` from `position` on are torn.

    later_segments: number of later segments that a start would drop too.
    """

    path: str
    position: int
    left_bytes: int
    reason: str
    later_segments: int

    def __str__(self) -> str:
        also = f" and {self.later_segments} segments behind it" if self.later_segments else ""
        return (
            f"{self.path}: torn tail of {self.left_bytes} bytes at byte {self.position}{also} is "
            f"left alone: {self.reason}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundLog:
    """The valid batches of a folder, from start_offset up to end_offset (exclusive), in order.

    last_gap: of the offsets that no batch holds. A caller that knows the snapshots must judge it.
    """

    start_offset: int
    end_offset: int
    batches: bytes
    torn_end: TornEnd | None = None
    last_gap: OffsetGap | None = None


def read_log(disk: ReadableDisk, directory: str) -> FoundLog | None:
    """The whole log in `directory`, held in memory; None if there is no segment.

    Raises CorruptData for damage other than a torn tail, OSError, and FileNotFoundError if a
    segment disappears during the read, as it may in a folder in use.
    """
    names = disk.list_dir(directory)
    bases = offsets_of(names, LOG_SUFFIX)
    if not bases:
        return None
    present = set(names)
    walk = _Walk(bases[0])
    for at, base_offset in enumerate(bases):
        path = f"{directory}/{file_name(base_offset, LOG_SUFFIX)}"
        behind = bases[at + 1 :]
        is_sealed = bool(behind) and all(
            file_name(base_offset, suffix) in present
            for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX)
        )
        walk.read_segment(path, base_offset, disk.read_bytes(path), behind, is_sealed)
        if walk.torn_end is not None:
            break
    return FoundLog(
        start_offset=bases[0],
        end_offset=walk.end_offset,
        batches=b"".join(walk.pieces),
        torn_end=walk.torn_end,
        last_gap=walk.last_gap,
    )


class _Walk:
    """Collects segments until one ends in a torn tail."""

    def __init__(self, start_offset: int) -> None:
        self.pieces: list[bytes] = []
        self.end_offset = start_offset
        self.torn_end: TornEnd | None = None
        self.last_gap: OffsetGap | None = None
        self._epoch = -1

    def read_segment(
        self, path: str, base_offset: int, data: bytes, behind: list[int], is_sealed: bool
    ) -> None:
        """Read one segment. is_sealed: its indexes prove that it was fsynced whole."""
        self.end_offset = base_offset
        position = 0
        reason = ""
        while position < len(data):
            header, reason = check_batch(data, position, base_offset, self.end_offset)
            if header is None:
                break
            self._append_batch(path, position, header)
            position += header.size_bytes
        if position < len(data):
            self._refuse_unless_torn(path, base_offset, data, position, reason, is_sealed)
        elif behind:
            reason = self._check_end(path, position, behind[0], is_sealed)
        self.pieces.append(data[:position] if position < len(data) else data)
        if reason:
            self.torn_end = TornEnd(
                path=path,
                position=position,
                left_bytes=len(data) - position,
                reason=reason,
                later_segments=len(behind),
            )

    def _append_batch(self, path: str, position: int, header: BatchHeader) -> None:
        if header.leader_epoch < self._epoch:
            reason = f"batch of epoch {header.leader_epoch} after epoch {self._epoch}"
            raise CorruptData(path, position, reason)
        self._epoch = header.leader_epoch
        if header.base_offset > self.end_offset:
            self._note_gap(path, position, header.base_offset)
        self.end_offset = header.end_offset

    def _check_end(self, path: str, position: int, following: int, is_sealed: bool) -> str:
        """The reason if a segment ends too early; "" if it reaches the next or the gap is noted."""
        if self.end_offset > following:
            raise CorruptData(path, position, f"batches run past offset {following}")
        if self.end_offset == following:
            return ""
        if is_sealed:
            self._note_gap(path, position, following)
            return ""
        return f"it ends at offset {self.end_offset}, the next segment begins at {following}"

    def _note_gap(self, path: str, position: int, next_offset: int) -> None:
        self.last_gap = OffsetGap(
            path=path, position=position, offset=self.end_offset, next_offset=next_offset
        )

    def _refuse_unless_torn(
        self,
        path: str,
        base_offset: int,
        data: bytes,
        position: int,
        reason: str,
        is_sealed: bool,
    ) -> None:
        if is_sealed:
            raise CorruptData(path, position, f"{reason}; the segment had been fsynced whole")
        start = position + 1
        found = find_batch(data[start:], base_offset, self.end_offset)
        if found is not None:
            raise CorruptData(
                path, position, f"{reason}; a valid batch follows at byte {start + found}"
            )
