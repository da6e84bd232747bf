"""Making appended bytes durable, away from the thread that appends.

Order inside one flush, each step resting on the one before:
1. fsync the .log of every sealed segment, oldest first, and then write its indexes and the producer
   snapshot of its end. So an .index file proves that its .log is whole on disk.
2. fsync the .log of the active segment; write down what a start need not find out again of it
   (`recovery_state.py`), if the log keeps that.
3. fsync the folders in which files were made, or the files themselves could vanish.
4. replace the leader epoch checkpoint.
Only then may `Log.complete_flush` move `durable_end_offset`.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from kvorum.runtime.disk import Disk, DiskFile
from kvorum.storage.log.file_names import RECOVERY_SUFFIX
from kvorum.storage.log.segment import Segment
from kvorum.storage.recovery.segment_state import PendingEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedSegment:
    """A rolled segment whose derived files are not written yet."""

    segment: Segment
    snapshot_path: str
    snapshot: bytes


class FlushTicket:
    """One flush: made by `Log.begin_flush`, run anywhere once, handed to `Log.end_flush`.

    end_offset: all below is durable once the ticket has run; a truncation meanwhile lowers it.
    owes_epochs: the checkpoint was to be written and was not, because the log was cut meanwhile.
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
        # Taken here, on the appending thread: files and indexes may change hands while run() works.
        self._sealed = [(entry, entry.segment.file) for entry in sealed]
        self._indexes = [entry.segment.index_bytes() for entry in sealed]
        self._active = active
        self._directories = directories
        self._epochs = epochs
        self._recovery_state = recovery_state
        self._is_cancelled = False
        self._lock = threading.Lock()

    def run(self) -> None:
        """Do the work; may block for long. Raises OSError: then the log must be reopened.

        After a failed fsync the kernel may have dropped the dirty pages, so trying again proves
        nothing.
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
        """From now on write no index, snapshot or checkpoint: the log is about to change them.

        One of two locks in storage (the other: cleaner.py). It keeps this bad sequence out: a
        truncation removes an index file, then the flush, in its thread, writes the old one back.
        """
        with self._lock:
            self._is_cancelled = True
