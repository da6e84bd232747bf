"""The segments of one log and their files: created, sealed, flushed, dropped, deleted.

`log.py` handles offsets and this module handles files, so that each can be read separately.
"""

from __future__ import annotations

import dataclasses
import logging
import sys
from bisect import bisect_left, bisect_right
from contextlib import suppress
from typing import TYPE_CHECKING

from kvorum.runtime.disk import Disk, DiskFile
from kvorum.runtime.errors import CorruptData, invariant
from kvorum.storage.files.file_names import (
    DELETED_SUFFIX,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    RECOVERY_SUFFIX,
    SNAPSHOT_SUFFIX,
    file_name,
    mark_deleted,
)
from kvorum.storage.files.model import LogSlice
from kvorum.storage.files.producer_state import ProducerStateTable, read_snapshot, write_snapshot
from kvorum.storage.files.segment import Segment
from kvorum.storage.files.transaction_index import AbortedTransaction, collect_aborted
from kvorum.storage.log.flush import FlushTicket, SealedSegment
from kvorum.storage.recovery.producer_rebuild import producers_at
from kvorum.storage.recovery.recovery_state import RecoveryStateWriter

if TYPE_CHECKING:
    from kvorum.storage.cleaning.cleaner import CleaningJob

logger = logging.getLogger("kvorum.storage")


class SegmentList:
    """Segments in order of base offset; the last one is active.

    `bases` mirrors the base offsets for bisection.
    """

    __slots__ = (
        "_cleaning",
        "_close_later",
        "_deleted",
        "_dirty_directories",
        "_disk",
        "_has_told_gap",
        "_index_interval_bytes",
        "_is_flush_running",
        "_is_held",
        "_is_unseal_unsynced",
        "_recovery_state",
        "_sealed",
        "_ticket",
        "bases",
        "directory",
        "items",
        "reserved_bytes",
    )

    def __init__(
        self, disk: Disk, directory: str, items: list[Segment], *, index_interval_bytes: int
    ) -> None:
        self._disk = disk
        self.directory = directory
        self.items = items
        self.bases = [segment.base_offset for segment in items]
        self._index_interval_bytes = index_interval_bytes
        #: Disk space to reserve for each new segment; 0 for none.
        self.reserved_bytes = 0
        self._sealed: list[SealedSegment] = []
        self._deleted: list[tuple[int, Segment]] = []
        self._dirty_directories: set[str] = set()
        self._is_unseal_unsynced = False
        self._ticket: FlushTicket | None = None
        self._is_flush_running = False
        self._is_held = False
        self._has_told_gap = False
        self._close_later: list[DiskFile] = []
        self._cleaning: CleaningJob | None = None
        self._recovery_state = RecoveryStateWriter()

    @property
    def is_cleaning(self) -> bool:
        return self._cleaning is not None

    @property
    def has_unflushed_roll(self) -> bool:
        """True if a rolled segment still waits for its fsync and its derived files."""
        return bool(self._sealed)

    @property
    def has_deleted(self) -> bool:
        """True if files of retired segments still exist."""
        return bool(self._deleted)

    @property
    def is_flushing(self) -> bool:
        return self._ticket is not None

    @property
    def has_unsynced_names(self) -> bool:
        """True if a power loss may undo that files were created, renamed or removed."""
        return bool(self._dirty_directories) or self._ticket is not None

    @property
    def durable_first_offset(self) -> int:
        """Base offset of the first segment, if every start will find it so. 0 if files were created
        or removed and not fsynced since, or if there are none."""
        return 0 if self.has_unsynced_names or not self.bases else self.bases[0]

    # --- reading -----------------------------------------------------------------------------

    def last_end_below(self, offset: int) -> int | None:
        """End offset of the last batch that ends at or below `offset`; None if there is none.
        Raises CorruptData, OSError."""
        for segment in reversed(self.items[: bisect_left(self.bases, offset)]):
            end_offset = segment.last_end_below(offset)
            if end_offset > segment.base_offset:
                return end_offset
        return None

    def available(self, offset: int, *, end_offset: int) -> tuple[int, bool]:
        """The result of an unlimited `Log.read`: its length in bytes, and whether a later
        segment has more.

        The bytes begin with the batch that holds `offset` and go up to `end_offset`, within one
        segment.
        """
        at = max(0, bisect_right(self.bases, offset) - 1)
        found = self.items[at].locate(
            offset, bytes_max=sys.maxsize, end_offset=end_offset, at_least_one_batch=True
        )
        has_more = at + 1 < len(self.bases) and self.bases[at + 1] < end_offset
        return (0 if found is None else found[1]), has_more

    def aborted_in(self, found: LogSlice, *, end_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions in the result of a `Log.read`, and maybe some later ones.

        end_offset: the one given to that read. Raises CorruptData on a damaged .txnindex.
        """
        at = max(0, bisect_right(self.bases, found.first_offset) - 1)
        per_segment = [segment.aborted for segment in self.items[at:]]
        if not any(per_segment):
            return []
        upper = self.items[at].indexes[0].upper_offset(found.position + found.length)
        if upper is None and at + 1 < len(self.bases):
            upper = self.bases[at + 1]
        return collect_aborted(
            per_segment,
            found.first_offset,
            end_offset if upper is None else min(end_offset, upper),
        )

    def hold_files(self) -> None:
        """Keep every file open from now on: a thread reads slices of them."""
        self._is_held = True

    def release_files(self) -> None:
        """End `hold_files`: close the files that were dropped meanwhile."""
        self._is_held = False
        self._close_postponed()

    def tell_gap(self, offset: int, following: Segment) -> None:
        """Warn once of a gap, which proves no damage: the log may have been compacted earlier."""
        if self._has_told_gap:
            return
        self._has_told_gap = True
        logger.warning(
            "%s: no batch holds offset %d; the next is in %s. Compaction leaves such gaps, and so "
            "does a removed file",
            self.directory, offset, following.path(LOG_SUFFIX),
        )  # fmt: skip

    # --- growing -----------------------------------------------------------------------------

    def set_index_interval(self, index_interval_bytes: int) -> None:
        """Set the index interval from the active segment on; sealed indexes stay as they are."""
        self._index_interval_bytes = index_interval_bytes
        if self.items:
            self.items[-1].index_interval_bytes = index_interval_bytes

    def add(self, base_offset: int, *, now_ms: int) -> Segment:
        """Add a new, empty, active segment; the log's first segment also creates the folder."""
        if not self.items and not self._disk.exists(self.directory):
            self._disk.make_dirs(self.directory)
            self._dirty_directories.add(self.directory.rpartition("/")[0] or ".")
        segment = Segment(
            self._disk,
            self.directory,
            base_offset,
            created_ms=now_ms,
            index_interval_bytes=self._index_interval_bytes,
        )
        segment.start_empty()
        if self.reserved_bytes:
            segment.file.reserve(self.reserved_bytes)
        self._dirty_directories.add(self.directory)
        self.items.append(segment)
        self.bases.append(base_offset)
        return segment

    def roll(self, base_offset: int, *, now_ms: int, producer_snapshot: bytes) -> Segment:
        """Seal the active segment and begin the next; an empty active segment is replaced.

        producer_snapshot: producer state at `base_offset`, written with the next flush.
        """
        old = self.items[-1]
        if old.size_bytes == 0:
            self.drop_last()
            return self.add(base_offset, now_ms=now_ms)
        old.forget_recent()
        self.release_reserved()
        if old.has_saved_indexes:
            # The segment was closed cleanly and not appended to since. Its indexes and producer
            # snapshot are on disk, so no flush will come that removes its recovery state.
            self.forget_recovery_state(old)
        else:
            if self._is_unseal_unsynced:
                # Bad sequence without this fsync:
                # 1. After a power loss, the removed index of the old segment is back.
                # 2. The tail of the old segment is lost.
                # 3. The new segment is there. Recovery would read the index as proof that the old
                #    segment was whole, and report damage.
                self._disk.sync_dir(self.directory)
                self._is_unseal_unsynced = False
            path = self._snapshot_path(base_offset)
            self._sealed.append(
                SealedSegment(segment=old, snapshot_path=path, snapshot=producer_snapshot)
            )
        return self.add(base_offset, now_ms=now_ms)

    def release_reserved(self) -> None:
        """Give back the reserved disk space that the active segment does not use. Raises
        OSError."""
        if self.reserved_bytes and self.items:
            active = self.items[-1]
            active.file.truncate(active.size_bytes)

    def unseal(self, segment: Segment) -> None:
        """Remove the index files of the active segment, before it changes (see segment.py)."""
        self._sealed = [item for item in self._sealed if item.segment is not segment]
        if segment.unseal():
            self._dirty_directories.add(self.directory)
            self._is_unseal_unsynced = True

    # --- flushing ----------------------------------------------------------------------------

    def begin_flush(
        self,
        *,
        end_offset: int,
        has_unsynced_bytes: bool,
        epochs: tuple[str, bytes] | None,
        producers: ProducerStateTable | None = None,
    ) -> FlushTicket:
        """Gather what must be fsynced to make all records below `end_offset` durable.

        producers: state at `end_offset`, for a log that keeps the recovery state of its active
            segment.
        """
        invariant(
            self._ticket is None,
            f"{self.directory}: a flush is under way, or failed and the log must be reopened",
        )
        recovery_state = None
        if producers is not None and self.items and not self.items[-1].has_saved_indexes:
            recovery_state = self._recovery_state.entry_of(self.items[-1], producers)
            if recovery_state is not None and recovery_state.is_new_file:
                self._dirty_directories.add(self.directory)
        self._ticket = FlushTicket(
            self._disk,
            end_offset=end_offset,
            sealed=list(self._sealed),
            active=self.items[-1].file if has_unsynced_bytes and self.items else None,
            directories=sorted(self._dirty_directories),
            epochs=epochs,
            recovery_state=recovery_state,
        )
        self._is_flush_running = True
        self._dirty_directories.clear()
        return self._ticket

    def complete_flush(self, ticket: FlushTicket) -> None:
        invariant(ticket is self._ticket and ticket.is_done, "completed a flush that did not run")
        self._ticket = None
        self._is_flush_running = False
        self._sealed = [item for item in self._sealed if not item.segment.has_saved_indexes]
        self._close_postponed()

    def fail_flush(self) -> None:
        """Release the files after a failed flush; the log must be reopened before another."""
        self._is_flush_running = False
        self._close_postponed()

    def cancel_derived_files(self, offset: int) -> None:
        """Keep a running flush from writing derived files, and from claiming more than `offset`."""
        if self._ticket is not None:
            self._ticket.cancel_derived_files()
            self._ticket.end_offset = min(self._ticket.end_offset, offset)
            self._recovery_state.forget()

    def forget_recovery_state(self, segment: Segment) -> None:
        """Remove the recovery state of `segment`, before its batches change. Durable with the next
        `sync_directories`."""
        self._recovery_state.forget()
        self._disk.remove(segment.path(RECOVERY_SUFFIX))
        self._dirty_directories.add(self.directory)

    def save_recovery_state(self, producers: ProducerStateTable) -> None:
        """Save the recovery state of the active segment after a truncation.

        A broker that was killed often truncates when it comes back. If it were killed again before
        a flush, the next start would scan the whole segment. Raises OSError.
        """
        pending = self._recovery_state.entry_of(self.items[-1], producers)
        if pending is not None:
            pending.write(self._disk)
            self._dirty_directories.add(self.directory)

    def sync_directories(self) -> None:
        """Fsync every folder in which a file was created, renamed or removed."""
        for directory in sorted(self._dirty_directories | {self.directory}):
            self._disk.sync_dir(directory)
        self._dirty_directories.clear()
        self._is_unseal_unsynced = False

    # --- shrinking ---------------------------------------------------------------------------

    def drop_last(self) -> None:
        """Remove the last segment and its files at once."""
        segment = self.items.pop()
        self.bases.pop()
        self._sealed = [item for item in self._sealed if item.segment is not segment]
        self.forget_recovery_state(segment)
        self._close_file(segment)
        for suffix in (*INDEX_SUFFIXES, LOG_SUFFIX):
            self._disk.remove(segment.path(suffix))

    def ensure_producer_snapshot(
        self, count: int, producers: ProducerStateTable | None = None
    ) -> ProducerStateTable:
        """Ensure that a producer snapshot exists at the end of the first `count` segments.

        Call this before batches of these segments are removed; it returns the producer state there.
        A flush normally writes the snapshot. It is missing if the process was killed first and a
        later start made the indexes, if a clean removed it, or if it was damaged. A later snapshot
        is no replacement, because a truncation may remove it.

        producers: the state of the whole log, if the segments are removed as they are. None if they
            are compacted: they will be read again, and a transaction that is open at their end must
            be known, so that its abort takes effect.
        """
        offset = self.bases[count]
        path = self._snapshot_path(offset)
        if self._disk.exists(path):
            with suppress(CorruptData):
                return read_snapshot(self._disk, path)
        if producers is not None:
            # Do not use the batches: reading the headers of a gigabyte would block the loop for
            # long.
            known = producers.until(offset)
        else:
            first = self.items[:count]
            known = producers_at(self._disk, self.directory, first, end_offset=offset)
        write_snapshot(self._disk, path, known)
        self._disk.sync_dir(self.directory)
        return known

    def _snapshot_path(self, offset: int) -> str:
        return f"{self.directory}/{file_name(offset, SNAPSHOT_SUFFIX)}"

    def retire_first(self, count: int, *, delete_at_ms: int) -> list[Segment]:
        """Take the oldest segments out of the log; their files are renamed to `.deleted`.

        Raises OSError; the segments not renamed yet then stay in the log.
        """
        retired = self.items[:count]
        for segment in retired:
            # The open file stays open, so that slices returned earlier remain readable.
            _ = segment.file
            mark_deleted(self._disk, self.directory, segment.base_offset)
            for suffix in (SNAPSHOT_SUFFIX, RECOVERY_SUFFIX):
                self._disk.remove(segment.path(suffix))
            del self.items[0], self.bases[0]
            self._deleted.append((delete_at_ms, segment))
        self._sealed = [item for item in self._sealed if item.segment not in retired]
        self._dirty_directories.add(self.directory)
        return retired

    def take_deleted(self, now_ms: int) -> list[str]:
        """Close the retired segments whose delay has passed; return the paths to remove."""
        due = [segment for due_ms, segment in self._deleted if due_ms <= now_ms]
        self._deleted = [item for item in self._deleted if item[0] > now_ms]
        for segment in due:
            self._close_file(segment)
        return [
            segment.path(suffix) + DELETED_SUFFIX
            for segment in due
            for suffix in (LOG_SUFFIX, *INDEX_SUFFIXES)
        ]

    # --- cleaning ----------------------------------------------------------------------------

    def sealed_prefix(self) -> list[Segment]:
        """The oldest segments up to the first that is not flushed with its indexes; never all."""
        waiting = {id(item.segment) for item in self._sealed}
        prefix: list[Segment] = []
        for segment in self.items[:-1]:
            if not segment.has_saved_indexes or id(segment) in waiting:
                break
            prefix.append(segment)
        return prefix

    def begin_cleaning(self, job: CleaningJob) -> None:
        invariant(self._cleaning is None, f"{self.directory}: two cleans at once")
        for segment in job.segments:
            # Open the file here: in the thread, opening by name could create a new file for a
            # retired segment.
            _ = segment.file
        self._cleaning = job

    def apply_swap(self, *, delete_at_ms: int) -> None:
        """Apply in memory the swap that `CleaningJob.swap` made on disk, if it made one."""
        job = self._cleaning
        if job is None or job.pending is None:
            return
        (old, new), job.pending = job.pending, None
        if not job.is_swapped:
            return
        job.is_swapped = False
        at = self.items.index(old[0])
        self.items[at : at + len(old)] = [new]
        self.bases[at : at + len(old)] = [new.base_offset]
        self._deleted.extend((delete_at_ms, segment) for segment in old)

    def stop_cleaning(self) -> None:
        """Cancel the running clean before segments change; from here on it touches no file."""
        if self._cleaning is not None:
            self._cleaning.cancel()
            self.apply_swap(delete_at_ms=0)

    def end_cleaning(self, job: CleaningJob) -> None:
        """Drop a clean whose thread has finished."""
        invariant(job is self._cleaning, "ended a clean that is not under way")
        self.apply_swap(delete_at_ms=0)
        self._cleaning = None
        self._close_postponed()

    # --- the end -----------------------------------------------------------------------------

    def move_to(self, directory: str) -> None:
        """Go on in `directory`, the new name of the folder, without a flush or clean under way."""
        invariant(self._ticket is None, f"{self.directory}: renamed while a flush is under way")
        self.directory = directory
        for segment in [*self.items, *(segment for _, segment in self._deleted)]:
            segment.directory = directory
        self._sealed = [
            dataclasses.replace(
                item, snapshot_path=f"{directory}/{item.snapshot_path.rpartition('/')[2]}"
            )
            for item in self._sealed
        ]
        self._recovery_state.forget()
        # The next flush makes the new name durable before it claims a record.
        self._dirty_directories = {directory, directory.rpartition("/")[0] or "."}

    def close_files(self) -> None:
        for segment in [*self.items, *(segment for _, segment in self._deleted)]:
            self._close_file(segment)
        self.items, self.bases, self._deleted = [], [], []

    @property
    def _is_in_use(self) -> bool:
        """True while a thread may use the files."""
        return self._is_flush_running or self._is_held or self._cleaning is not None

    def _close_file(self, segment: Segment) -> None:
        file = segment.take_file()
        if file is None:
            return
        if not self._is_in_use:
            file.close()
        else:
            # The running flush, clean or copy may be about to use the file.
            self._close_later.append(file)

    def _close_postponed(self) -> None:
        if not self._is_in_use:
            for file in self._close_later:
                file.close()
            self._close_later.clear()
