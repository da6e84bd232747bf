"""Makes appended bytes durable, outside the thread that appends.

Order within one flush; each step depends on the one before:
1. Fsync the .log of every sealed segment, oldest first. Then write its indexes and the producer
   snapshot at its end. So an .index file proves that its .log is whole on disk.
2. Fsync the .log of the active segment. If the log keeps recovery state, save the segment's state,
   so that a start need not scan it (`storage.recovery.recovery_state`).
3. Fsync the folders in which files were created; otherwise the files themselves could vanish.
4. Replace the leader epoch checkpoint.

Only then may `Log.complete_flush` raise `durable_end_offset`.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from kvorum.runtime.disk import Disk, DiskFile
from kvorum.storage.files.file_names import RECOVERY_SUFFIX
from kvorum.storage.files.segment import Segment
from kvorum.storage.recovery.recovery_state import PendingEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedSegment:
    """A rolled segment whose indexes and producer snapshot are not written yet."""

    segment: Segment
    snapshot_path: str
    snapshot: bytes


class FlushTicket:
    """One flush: created by `Log.begin_flush`, run once in any thread, passed to `Log.end_flush`.

    end_offset: all records below are durable once the ticket has run; a truncation meanwhile lowers
        it.
    owes_epochs: the epoch checkpoint was not written, because the log was truncated meanwhile.
    """

    __slots__ = (
        "_active",
        "_directories",
        "_disk",
        "_epochs",
        "_indexes",
        "_is_cancelled",
        "_lock",
        "_recovery_state",
        "_sealed",
        "end_offset",
        "is_done",
        "owes_epochs",
        "sealed",
    )

    def __init__(
        self,
        disk: Disk,
        *,
        end_offset: int,
        sealed: list[SealedSegment],
        active: DiskFile | None,
        directories: list[str],
        epochs: tuple[str, bytes] | None,
        recovery_state: PendingEntry | None = None,
    ) -> None:
        self.end_offset = end_offset
        self.is_done = False
        self.owes_epochs = False
        self.sealed = sealed
        self._disk = disk
        # Read here, on the appending thread: files and indexes may be replaced while run() works.
        self._sealed = [(entry, entry.segment.file) for entry in sealed]
        self._indexes = [entry.segment.index_bytes() for entry in sealed]
        self._active = active
        self._directories = directories
        self._epochs = epochs
        self._recovery_state = recovery_state
        self._is_cancelled = False
        self._lock = threading.Lock()

    def run(self) -> None:
        """Run the flush; may block for long. Raises OSError: then the log must be reopened.

        After a failed fsync the kernel may have dropped the dirty pages, so a second fsync would
        prove nothing.
        """
        for (entry, file), indexes in zip(self._sealed, self._indexes, strict=True):
            file.sync()
            with self._lock:
                if not self._is_cancelled:
                    entry.segment.save_indexes(indexes)
                    self._disk.write_atomic(entry.snapshot_path, entry.snapshot)
                    self._disk.remove(entry.segment.path(RECOVERY_SUFFIX))
        if self._active is not None:
            self._active.sync()
        if self._recovery_state is not None:
            with self._lock:
                if not self._is_cancelled:
                    self._recovery_state.write(self._disk)
        for directory in self._directories:
            self._disk.sync_dir(directory)
        with self._lock:
            if self._epochs is not None:
                if self._is_cancelled:
                    self.owes_epochs = True
                else:
                    self._disk.write_atomic(*self._epochs)
        self.is_done = True

    def cancel_derived_files(self) -> None:
        """Write no index, snapshot or checkpoint from now on: the log is about to change them.

        The lock is one of two in storage (the other is in cleaner.py). Bad sequence without it: a
        truncation removes an index file, then the flush in its thread writes the old one back.
        """
        with self._lock:
            self._is_cancelled = True
