"""Checks every batch of a log that was not closed cleanly.

The walk checks CRC, magic, rising offsets and epochs. It repairs only a torn tail: bytes at or
above the recovery point that no valid batch follows. For any other fault it raises CorruptData with
file, byte and reason, because truncating there could drop acknowledged records.

Segments after a torn one are dropped only if the torn one has no .index file and ends above the
recovery point. The index is written after the .log was fsynced (flush.py), so without it no later
segment was ever durable.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from dataclasses import dataclass, replace

from kvorum.runtime.disk import Disk
from kvorum.runtime.errors import CorruptData
from kvorum.storage.files.file_names import (
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    RECOVERY_SUFFIX,
    SNAPSHOT_SUFFIX,
    file_name,
)
from kvorum.storage.files.leader_epochs import LeaderEpochCache
from kvorum.storage.files.model import LogSlice
from kvorum.storage.files.producer_state import ProducerStateTable, read_snapshot, write_snapshot
from kvorum.storage.files.segment import Segment
from kvorum.storage.format.batch import (
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    MAGIC,
    BatchError,
    BatchHeader,
)
from kvorum.storage.format.batch_check import check_batch
from kvorum.storage.recovery.producer_rebuild import producers_at, remove_snapshots_above
from kvorum.storage.recovery.recovery_state import Resumed, write_recovery_state

_READ_BYTES = 1 << 20
_MAGIC_POSITION = 16
_LENGTH = struct.Struct(">i")


@dataclass(frozen=True, slots=True, kw_only=True)
class TornTail:
    """The bytes that a start truncated: `removed_bytes` of file `path` from byte `position` on.

    removed_segments: the number of later segments that were removed too.
    """

    path: str
    position: int
    removed_bytes: int
    reason: str
    removed_segments: int

    def __str__(self) -> str:
        also = f" and {self.removed_segments} segments behind it" if self.removed_segments else ""
        return (
            f"{self.path}: torn tail of {self.removed_bytes} bytes cut at byte {self.position}"
            f"{also}: {self.reason}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetGap:
    """No batch holds the offsets from `offset` up to `next_offset` (exclusive); the next batch is
    at byte `position` of file `path`. Only compaction may leave such gaps."""

    path: str
    position: int
    offset: int
    next_offset: int


class BatchWalk:
    """Checks every batch from one segment on, and shortens the list by the segments it drops."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        segments: list[Segment],
        epochs: LeaderEpochCache,
        recovery_point: int,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._segments = segments
        self._epochs = epochs
        self._recovery_point = recovery_point
        self.producers = ProducerStateTable()
        self.last_gap: OffsetGap | None = None
        self.batch_ends: dict[int, int] = {}
        """For each epoch, the end of the batch before its first one (see
        `LeaderEpochCache.restore`)."""
        self._batch_end = 0

    def run(
        self, first: int, resumed: Resumed | None = None, *, keeps_recovery_state: bool = False
    ) -> TornTail | None:
        """Walk from segment `first` on. Returns the tail that was truncated, if any; everything
                that is kept is fsynced.

        resumed: the recovery state of segment `first`.
        keeps_recovery_state: save the state found.
        """
        disk, directory, segments = self._disk, self._directory, self._segments
        if resumed is not None:
            scan_start, self.producers = resumed.end_offset, resumed.producers
        else:
            scan_start = segments[first].base_offset
            self.producers = producers_at(disk, directory, segments[:first], end_offset=scan_start)
        # Snapshots at the start of a segment are checked when the walk gets there.
        bases = {segment.base_offset for segment in segments}
        remove_snapshots_above(disk, directory, scan_start, kept=bases)
        torn_tail: TornTail | None = None
        self._batch_end = scan_start
        at = first
        while at < len(segments):
            segment = segments[at]
            following = segments[at + 1].base_offset if at + 1 < len(segments) else None
            # An index file beside the last segment proves nothing: a clean close may have written
            # it, and its removal before the next append may have been lost. For other segments,
            # `SegmentList.roll` has fsynced that removal.
            has_proof = segment.has_saved_indexes and following is not None
            if at > first or resumed is None:
                segment.reset_for_scan()
            torn_tail = self._scan(segment, has_proof)
            if following is not None:
                torn_tail = torn_tail or self._check_end(segment, following, has_proof)
            is_proven = has_proof and torn_tail is None
            if not is_proven:
                segment.unseal()
            segment.file.sync()
            if torn_tail is not None:
                removed = segments[at + 1 :]
                remove_segments(disk, removed)
                del segments[at + 1 :]
                torn_tail = replace(torn_tail, removed_segments=len(removed))
            elif following is not None:
                segment.forget_recent()
                save = segment.renew_indexes if is_proven else segment.save_indexes
                save(segment.index_bytes())
                self._renew_snapshot(following)
            at += 1
        known = resumed.end_offset if resumed is not None and resumed.is_newest else -1
        if keeps_recovery_state and segments[-1].end_offset != known:
            # The caller's recovery point will be the end of the log. Without a saved state the next
            # start would walk this segment again, and a broker that is killed every minute would
            # walk ever more.
            write_recovery_state(disk, segments[-1], self.producers)
        disk.sync_dir(directory)
        # The folder itself may have been created after the last flush.
        disk.sync_dir(directory.rpartition("/")[0] or ".")
        return torn_tail

    def _renew_snapshot(self, offset: int) -> None:
        path = f"{self._directory}/{file_name(offset, SNAPSHOT_SUFFIX)}"
        if self._disk.exists(path):
            # Bad sequence without the old snapshot:
            # 1. Retention removes all batches of a producer.
            # 2. A clean removes the snapshots below this one.
            # 3. The process is killed, with a recovery point further down. No batch and no snapshot
            #    below knows the producer, and its repeated batch is appended once more.
            with suppress(CorruptData):
                self.producers.complete(read_snapshot(self._disk, path))
        write_snapshot(self._disk, path, self.producers)

    def _check_end(self, segment: Segment, following: int, has_proof: bool) -> TornTail | None:
        """Check that a segment reaches the next one; return a torn tail if later segments must go.

        A gap that the segment's indexes prove, or that ends at or below the recovery point, is
        noted in `last_gap`. Raises CorruptData for an overlap, and for an unproven gap around the
        recovery point.
        """
        path, size = segment.file.path, segment.size_bytes
        if segment.end_offset > following:
            raise CorruptData(path, size, f"batches run past offset {following}")
        if segment.end_offset == following:
            return None
        reason = f"it ends at offset {segment.end_offset}, the next segment begins at {following}"
        if not has_proof and following > self._recovery_point:
            if segment.end_offset < self._recovery_point:
                # Fail before a file is removed: the segment may be replaced by hand with a copy.
                raise CorruptData(
                    path, size, f"{reason}, and it was flushed up to {self._recovery_point}"
                )
            return TornTail(
                path=path, position=size, removed_bytes=0, reason=reason, removed_segments=0
            )
        self.last_gap = OffsetGap(
            path=path, position=size, offset=segment.end_offset, next_offset=following
        )
        return None

    def _scan(self, segment: Segment, has_proof: bool) -> TornTail | None:
        """Note every batch that is not noted yet; truncate a torn tail and return it."""
        file, epochs = segment.file, self._epochs
        size = file.size()
        position = segment.size_bytes
        chunk, chunk_start = b"", position
        while position < size:
            at = position - chunk_start
            needed = _batch_bytes_at(chunk, at)
            if at + needed > len(chunk) and chunk_start + len(chunk) < size:
                chunk = file.pread(max(_READ_BYTES, needed), position)
                chunk_start, at = position, 0
                needed = _batch_bytes_at(chunk, at)
                if needed > len(chunk) and position + len(chunk) < size:
                    chunk = file.pread(min(needed, size - position), position)
            header, reason = check_batch(chunk, at, segment.base_offset, segment.end_offset)
            if header is None:
                _refuse_unless_torn(
                    segment, position, size, reason, self._recovery_point, has_proof
                )
                file.truncate(position)
                return TornTail(
                    path=file.path,
                    position=position,
                    removed_bytes=size - position,
                    reason=reason,
                    removed_segments=0,
                )
            self._check_place(header, segment, position)
            segment.note(
                header.base_offset,
                header.last_offset,
                header.record_timestamp_max_ms,
                header.size_bytes,
            )
            if header.leader_epoch != epochs.latest_epoch:
                self.batch_ends[header.leader_epoch] = self._batch_end
                epochs.assign(header.leader_epoch, header.base_offset)
            self._batch_end = header.last_offset + 1
            self._note_producer(segment, header, chunk, at)
            position += header.size_bytes
        return None

    def _note_producer(self, segment: Segment, header: BatchHeader, chunk: bytes, at: int) -> None:
        try:
            aborted = self.producers.update(header, header.last_offset, chunk, at)
        except BatchError as error:
            raise CorruptData(segment.file.path, segment.size_bytes, error.reason) from error
        if aborted is not None:
            segment.aborted.append(aborted)

    def _check_place(self, header: BatchHeader, segment: Segment, position: int) -> None:
        latest_epoch = self._epochs.latest_epoch
        if header.leader_epoch < latest_epoch:
            raise CorruptData(
                segment.file.path,
                position,
                f"batch of epoch {header.leader_epoch} after epoch {latest_epoch}",
            )
        if header.base_offset > segment.end_offset:
            self.last_gap = OffsetGap(
                path=segment.file.path,
                position=position,
                offset=segment.end_offset,
                next_offset=header.base_offset,
            )


def _batch_bytes_at(chunk: bytes, at: int) -> int:
    """Size in bytes that the batch at `at` claims, but at least that of a header.

    The caller limits the size to the file, so a damaged length of two gigabytes is harmless.
    """
    if at + LENGTH_OVERHEAD > len(chunk):
        return HEADER_BYTES
    (length,) = _LENGTH.unpack_from(chunk, at + 8)
    return max(HEADER_BYTES, int(length) + LENGTH_OVERHEAD)


def first_damage(found: LogSlice, data: bytes) -> CorruptData | None:
    """The fault of the first damaged batch in a slice that was read as `data`; None if all are
    valid. `data` is shorter than the slice if the file has been truncated meanwhile."""
    at, expected_offset = 0, found.first_offset
    while at < found.length:
        header, reason = check_batch(data, at, found.first_offset, expected_offset)
        if header is None:
            return CorruptData(found.file.path, found.position + at, reason)
        at += header.size_bytes
        expected_offset = header.end_offset
    return None


def _refuse_unless_torn(
    segment: Segment, position: int, size: int, reason: str, recovery_point: int, has_proof: bool
) -> None:
    """Raise CorruptData unless the bytes from `position` on can be a write that a crash cut off."""
    path = segment.file.path
    if segment.end_offset < recovery_point:
        raise CorruptData(path, position, f"{reason}; below the recovery point {recovery_point}")
    if has_proof:
        raise CorruptData(path, position, f"{reason}; the segment had been fsynced whole")
    start = position + 1
    rest = segment.file.pread(size - start, start)
    behind = find_batch(rest, segment.base_offset, segment.end_offset)
    if behind is not None:
        raise CorruptData(
            path, position, f"{reason}; a valid batch follows at byte {start + behind}"
        )


def find_batch(data: bytes, base_offset: int, expected_offset: int) -> int | None:
    """Position of the first valid batch in `data`, at any byte; None if there is none."""
    at = data.find(MAGIC, _MAGIC_POSITION)
    while at >= 0:
        candidate = at - _MAGIC_POSITION
        header, _ = check_batch(data, candidate, base_offset, expected_offset)
        if header is not None:
            return candidate
        at = data.find(MAGIC, at + 1)
    return None


def remove_segments(disk: Disk, segments: list[Segment]) -> None:
    close_files(segments)
    # Newest first, so that a crash on the way leaves a shorter log and no hole.
    for segment in reversed(segments):
        for suffix in (RECOVERY_SUFFIX, *INDEX_SUFFIXES, LOG_SUFFIX):
            disk.remove(segment.path(suffix))
    if segments:
        disk.sync_dir(segments[0].directory)


def close_files(segments: list[Segment]) -> None:
    """Close the files of a log that is not opened after all, or of segments to be removed."""
    for segment in segments:
        file = segment.take_file()
        if file is not None:
            file.close()
