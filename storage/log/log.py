"""The log: what raft, the metadata loop and every partition write to and read from.

One task owns a log; nothing here locks or waits. An append is one write into the page cache and is
NOT durable: durable is what lies below `durable_end_offset`, which only a completed flush moves.
Time is an argument. A log that was never appended to has no folder and no file.

Files: `segment.py`; start-up: `recovery.py`; fsync order: `flush.py`. Above it, on what it shows of
itself: `timestamp_lookup.py`, `retention.py`, and compaction in `storage.cleaning.log_cleaning`.
"""

from __future__ import annotations

import logging
from bisect import bisect_right

from kvorum.runtime.disk import Disk
from kvorum.storage.format.batch import HEADER_BYTES, BatchHeader, Buffer, read_header
from kvorum.storage.log.append_plan import Placed, place_as_follower, place_as_leader, run_that_fits
from kvorum.storage.log.file_names import LOG_SUFFIX, SNAPSHOT_SUFFIX, file_name
from kvorum.storage.log.flush import FlushTicket
from kvorum.storage.log.leader_epochs import EpochCheckpoint, LeaderEpochCache
from kvorum.storage.log.model import (
    NO_FILE,
    RELATIVE_OFFSET_MAX,
    Appended,
    LogConfig,
    LogSlice,
    OffsetOutOfRange,
    OutOfOrderAppend,
)
from kvorum.storage.log.producer_state import ProducerStateTable
from kvorum.storage.log.rolling import must_roll
from kvorum.storage.log.segment import Segment
from kvorum.storage.log.segments import SegmentList
from kvorum.storage.recovery import recovery
from kvorum.storage.recovery.producer_rebuild import rebuild_producers, remove_snapshots_above

__all__ = [
    "Appended", "FlushTicket", "Log", "LogConfig", "LogSlice",
    "OffsetOutOfRange", "OutOfOrderAppend",
]  # fmt: skip

logger = logging.getLogger("kvorum.storage")


class Log:
    """See the top of the file. Make one with `Log.open`."""

    __slots__ = (
        "_checkpoint",
        "_durable_end_offset",
        "_end_offset",
        "_has_told_gap",
        "_has_unsynced_bytes",
        "_start_offset",
        "_unsynced_since_ms",
        "config",
        "directory",
        "disk",
        "epochs",
        "last_gap",
        "producers",
        "segments",
        "torn_tail",
    )

    def __init__(
        self, disk: Disk, directory: str, config: LogConfig, loaded: recovery.Loaded
    ) -> None:
        self.disk = disk
        self.directory = directory
        self.config = config
        self.epochs: LeaderEpochCache = loaded.epochs
        self._checkpoint = EpochCheckpoint(disk, directory, loaded.epochs)
        self.producers: ProducerStateTable = loaded.producers
        #: The bytes that an unclean start cut off, and the last gap in the offsets that it met.
        self.torn_tail = loaded.torn_tail
        self.last_gap = loaded.last_gap
        self.segments = SegmentList(
            disk, directory, loaded.segments, index_interval_bytes=config.index_interval_bytes
        )
        self._start_offset = loaded.start_offset
        self._end_offset = loaded.end_offset
        # Recovery fsynced what it kept, and a clean close had fsynced all.
        self._durable_end_offset = loaded.end_offset
        self._has_unsynced_bytes = False
        self._has_told_gap = False
        self._unsynced_since_ms = 0

    @classmethod
    def open(
        cls,
        disk: Disk,
        directory: str,
        config: LogConfig,
        *,
        now_ms: int,
        recovery_point: int = 0,
        is_clean: bool = False,
        log_start_offset: int = 0,
    ) -> Log:
        """The log in `directory`; empty, and nothing made, when the folder is missing.

        is_clean: the last owner called `close`; only the last headers are read. Otherwise every
        batch from `recovery_point` on is checked, and those before in the same segment unless
        `recovery_state` tells of them; a torn tail is cut, and what remains is fsynced. Raises
        CorruptData on damage that is not a torn tail, and for a log that ends below its recovery
        point.
        """
        loaded = recovery.load(
            disk,
            directory,
            config=config,
            now_ms=now_ms,
            recovery_point=recovery_point,
            is_clean=is_clean,
            log_start_offset=log_start_offset,
        )
        return cls(disk, directory, config, loaded)

    @classmethod
    def new(cls, disk: Disk, directory: str, config: LogConfig) -> Log:
        """A log that never was: nothing lies in `directory`, and nobody looks."""
        return cls(disk, directory, config, recovery.empty(0))

    # --- state -------------------------------------------------------------------------------

    @property
    def start_offset(self) -> int:
        """First offset that may be read."""
        return self._start_offset

    @property
    def end_offset(self) -> int:
        """Offset that the next record gets."""
        return self._end_offset

    @property
    def durable_end_offset(self) -> int:
        """All below survives a power cut: the fsyncs of the last completed flush cover it."""
        return self._durable_end_offset

    def last_stable_offset(self, high_watermark: int) -> int:
        """The end (exclusive) of what read-committed consumers may read."""
        producers = self.producers
        if not producers.ongoing and not producers.unreplicated:
            return high_watermark  # as below, in fewer calls: every fetch asks
        stable_offset = producers.last_stable_offset(high_watermark)
        if stable_offset < self._start_offset:
            # DeleteRecords may go past the beginning of an open transaction.
            return min(self._start_offset, high_watermark)
        return stable_offset

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments.items)

    @property
    def segment_count(self) -> int:
        return len(self.segments.items)

    @property
    def segment_base_offsets(self) -> list[int]:
        return list(self.segments.bases)

    @property
    def last_epoch(self) -> int:
        """Of the last batch, -1 when unknown: what a leader is to compare with its own history. For
        a log without one it is that of what lies below its start."""
        latest_epoch = self.epochs.latest_epoch
        return self.epochs.epoch_below if latest_epoch < 0 else latest_epoch

    def batch_end_below(self, offset: int) -> int:
        """Where the last batch ends that ends at or below `offset`, or the log begins: lower than
        `offset` where compaction has left a gap. Raises CorruptData, OSError."""
        end_offset = self.segments.last_end_below(offset)
        return self._start_offset if end_offset is None else max(end_offset, self._start_offset)

    def begins_below(self, offset: int) -> bool:
        """True if a segment file starts below `offset`."""
        return bool(self.segments.bases) and self.segments.bases[0] < offset

    def is_unknown_below(self, offset: int) -> bool:
        """True if files hold records below `offset` whose leader epoch is unknown."""
        is_known = offset == self._start_offset and self.epochs.epoch_below >= 0
        return self.begins_below(offset) and not is_known

    def is_bare_at(self, offset: int) -> bool:
        """True if the log is empty, begins at `offset`, and no file holds records below."""
        return self._start_offset == self._end_offset == offset and not self.begins_below(offset)

    def summary(self) -> str:
        return (
            f"log={self.directory} start={self._start_offset} end={self._end_offset}"
            f" durable={self._durable_end_offset} segments={self.segment_count}"
            f" epoch={self.epochs.latest_epoch} producers={len(self.producers)}"
        )

    def reconfigure(self, config: LogConfig) -> None:
        """Follow other settings from now on; what has been written stays as it is."""
        self.config = config
        self.segments.set_index_interval(config.index_interval_bytes)

    # --- roll and start ----------------------------------------------------------------------

    def roll(self, *, now_ms: int) -> bool:
        """Start a new segment at `end_offset`; False when the active one is empty."""
        items = self.segments.items
        if not items or items[-1].size_bytes == 0:
            return False
        self._roll(self._end_offset, now_ms)
        return True

    def _roll(self, base_offset: int, now_ms: int) -> Segment:
        return self.segments.roll(
            base_offset, now_ms=now_ms, producer_snapshot=self.producers.to_bytes()
        )

    def advance_start_offset(self, offset: int) -> bool:
        """Raise `start_offset`; segments below go at the next retention run. False if not above.

        Raises OffsetOutOfRange above `end_offset`.
        """
        if offset <= self._start_offset:
            return False
        if offset > self._end_offset:
            raise OffsetOutOfRange(offset, self._start_offset, self._end_offset)
        self._start_offset = offset
        self.epochs.truncate_from_start(offset)
        return True

    # --- append ------------------------------------------------------------------------------

    def append_as_leader(
        self,
        batch: bytearray | memoryview,
        *,
        leader_epoch: int,
        now_ms: int,
        header: BatchHeader | None = None,
    ) -> Appended:
        """Give the batches in `batch` (writable) the next offsets and `leader_epoch`; append them.

        header: of the first of them, if the caller has read it and has changed nothing since.
        Batches must have passed validation: nothing is checked here but sizes. Not durable until
        flushed. Raises BatchError(RECORD_LIST_TOO_LARGE) for a batch above `segment_bytes`,
        OSError when the disk refuses; then `end_offset` tells what was kept.
        """
        placed = place_as_leader(
            batch,
            end_offset=self._end_offset,
            leader_epoch=leader_epoch,
            latest_epoch=self.epochs.latest_epoch,
            segment_bytes=self.config.segment_bytes,
            first_header=header,
        )
        return self._append(batch, placed, now_ms)

    def append_as_follower(self, batches: bytes | memoryview, *, now_ms: int) -> Appended:
        """Append batches as the leader stored them, offsets and epochs kept.

        A batch cut off at the end is left for the next fetch. Raises OutOfOrderAppend when offsets
        or epochs do not continue this log, BatchError on a CRC that does not match; nothing is
        appended then. A base offset above `end_offset` is a gap that compaction left; one below it
        fits if `base_below_start` says so.
        """
        base_offset = self.base_below_start(batches)
        placed = place_as_follower(
            batches,
            end_offset=self._end_offset if base_offset is None else base_offset,
            latest_epoch=self.epochs.latest_epoch,
        )
        if base_offset is None:
            return self._append(batches, placed, now_ms)
        start_offset = self._start_offset
        self.truncate_fully_and_start_at(base_offset, now_ms=now_ms)
        if not self.segments.items:
            self.segments.add(base_offset, now_ms=now_ms)
        self._start_offset = start_offset
        appended = self._append(batches, placed, now_ms)
        self.epochs.truncate_from_start(start_offset)
        return appended

    def base_below_start(self, batches: Buffer) -> int | None:
        """Base offset of the first of `batches` if this log is empty and begins within it: as
        DeleteRecords lets the leader's log begin. The first file is named by it then, so that a
        caller sees to it that the log's start is known without."""
        start_offset = self._start_offset
        if start_offset != self._end_offset or self.size_bytes or len(batches) < HEADER_BYTES:
            return None
        header = read_header(batches, 0)
        is_around = header.base_offset < start_offset <= header.last_offset
        return header.base_offset if is_around else None

    def _append(self, data: Buffer, placed: list[Placed], now_ms: int) -> Appended:
        count = len(placed)
        start = 0
        max_timestamp_ms = -1
        while start < count:
            segment = self._segment_for(placed[start], now_ms)
            stop, run_bytes = run_that_fits(
                placed,
                start,
                room_bytes=self.config.segment_bytes - segment.size_bytes,
                segment_base_offset=segment.base_offset,
            )
            first = placed[start].position
            if run_bytes == len(data):
                segment.write(data)
            else:
                segment.write(memoryview(data)[first : first + run_bytes])
            if not self._has_unsynced_bytes:
                self._has_unsynced_bytes = True
                self._unsynced_since_ms = now_ms
            for at, size, base_offset, last_offset, epoch, header in placed[start:stop]:
                # As header.record_timestamp_max_ms, without the call.
                timestamp_ms = header.max_timestamp_ms if header.record_count else -1
                if timestamp_ms > max_timestamp_ms:
                    max_timestamp_ms = timestamp_ms
                segment.note(base_offset, last_offset, timestamp_ms, size)
                self.epochs.assign(epoch, base_offset)
                if header.producer_id >= 0:
                    aborted = self.producers.update(header, last_offset, data, at)
                    if aborted is not None:
                        segment.aborted.append(aborted)
                self._end_offset = last_offset + 1
            start = stop
        last = placed[-1]
        return Appended(
            placed[0].base_offset,
            last.last_offset,
            max_timestamp_ms,
            last.position + last.size_bytes,
        )

    def _segment_for(self, item: Placed, now_ms: int) -> Segment:
        """The segment that takes the batch; rolls first when one of Kafka's limits says so."""
        segments = self.segments
        if not segments.items:
            # The first segment's name is where the log begins after a restart. A follower of a
            # compacted log is first sent what is left of it.
            is_near = item.last_offset - self._start_offset <= RELATIVE_OFFSET_MAX
            if not is_near:
                self._forget_epochs_below(item.base_offset)
            base_offset = self._start_offset if is_near else item.base_offset
            return segments.add(base_offset, now_ms=now_ms)
        segment = segments.items[-1]
        if must_roll(segment, item, self.config, now_ms):
            # Seed 104057: named by its first batch, behind a gap that compaction has left, it would
            # look to an unclean start as if the one before had lost its end, and be cut.
            is_near = item.last_offset - self._end_offset <= RELATIVE_OFFSET_MAX
            if segment.size_bytes and is_near:
                return self._roll(self._end_offset, now_ms)
            if segment.size_bytes == 0 and len(segments.items) == 1:
                self._forget_epochs_below(item.base_offset)
            return self._roll(item.base_offset, now_ms)
        if segment.has_saved_indexes:
            segments.unseal(segment)
        return segment

    def _forget_epochs_below(self, base_offset: int) -> None:
        """Before the log's first segment comes to begin there, above where the log did, with no
        record between: a start would miss those of an epoch known before (`lost_files.py`)."""
        # A flush under way has these at hand, and would write them over what is written here.
        self.segments.stop_derived_files(self._end_offset)
        self.epochs.truncate_from_start(base_offset)
        if self.disk.exists(self.directory):
            self._checkpoint.write(self._durable_end_offset)

    # --- read --------------------------------------------------------------------------------

    def read(
        self, offset: int, *, bytes_max: int, end_offset: int, at_least_one_batch: bool = True
    ) -> LogSlice:
        """Whole batches of one segment, the first holding `offset`, all ending <= `end_offset`.

        end_offset: exclusive; the high watermark, the last stable offset, or the log's end. Length
        0 when there is nothing to serve. Raises OffsetOutOfRange, CorruptData.
        """
        log_end_offset = self._end_offset
        if end_offset > log_end_offset:
            end_offset = log_end_offset
        if offset >= end_offset or offset < self._start_offset:
            if offset < self._start_offset or offset > log_end_offset:
                raise OffsetOutOfRange(offset, self._start_offset, log_end_offset)
            return LogSlice(NO_FILE, 0, 0, offset)
        segments = self.segments.items
        at = len(segments) - 1
        if offset < segments[at].base_offset:
            at = max(0, bisect_right(self.segments.bases, offset) - 1)
        while at < len(segments):
            segment = segments[at]
            found = segment.locate(
                offset,
                bytes_max=bytes_max if bytes_max > 0 else 0,
                end_offset=end_offset,
                at_least_one_batch=at_least_one_batch,
            )
            if found is not None:
                return LogSlice(segment.file, *found)
            # Compaction can leave a gap at the end of a segment.
            at += 1
            if self.config.compaction is None and not self._has_told_gap and at < len(segments):
                self._tell_gap(offset, segments[at])
        return LogSlice(NO_FILE, 0, 0, offset)

    def _tell_gap(self, offset: int, following: Segment) -> None:
        """Once: the log may have been compacted before, so that it is no proof of damage."""
        self._has_told_gap = True
        logger.warning(
            "%s: no batch holds offset %d; the next is in %s. Compaction leaves such gaps, and so "
            "does a removed file",
            self.directory, offset, following.path(LOG_SUFFIX),
        )  # fmt: skip

    # --- flush -------------------------------------------------------------------------------

    @property
    def has_unflushed_roll(self) -> bool:
        """A rolled segment waits for its fsync."""
        return self.segments.has_unflushed_roll

    @property
    def has_waiting_removals(self) -> bool:
        return (
            self.config.epochs_tell_start
            and self.segments.has_deleted
            and self.epochs.is_dirty
            and bool(self.segments.items)
        )

    def needs_flush(self, now_ms: int) -> bool:
        """A rolled segment waits for its fsync, retired ones wait for the epochs' checkpoint, or
        `flush_messages` or `flush_ms` have gathered."""
        if self.has_unflushed_roll or self.has_waiting_removals:
            return True
        config = self.config
        limit = config.flush_messages
        if limit is not None and self._end_offset - self._durable_end_offset >= limit:
            return True
        return (
            config.flush_ms is not None
            and self._has_unsynced_bytes
            and now_ms - self._unsynced_since_ms >= config.flush_ms
        )

    def begin_flush(self) -> FlushTicket:
        """Gather what a flush must fsync. One flush at a time; run it, then `end_flush`.

        Raises OSError and CorruptData, of the last batch: nothing has begun then.
        """
        epochs = self._checkpoint.pending() if self.segments.items else None
        ticket = self.segments.begin_flush(
            end_offset=self._end_offset,
            has_unsynced_bytes=self._has_unsynced_bytes,
            epochs=epochs,
            producers=self.producers if self.config.keeps_recovery_state else None,
        )
        if epochs is not None:
            self.epochs.is_dirty = False
        self._has_unsynced_bytes = False
        return ticket

    def complete_flush(self, ticket: FlushTicket) -> None:
        """The ticket has run: its end offset is durable from here on.

        Unless the log was cut meanwhile, which kept the checkpoint from being written: a start that
        scans from `durable_end_offset` on takes the epochs before from there. The next flush tells.
        """
        self.segments.complete_flush(ticket)
        if ticket.owes_epochs:
            self.epochs.is_dirty = True
        else:
            self._durable_end_offset = max(self._durable_end_offset, ticket.end_offset)

    def end_flush(self, ticket: FlushTicket) -> None:
        """End the ticket's run, whether it succeeded (see `complete_flush`) or not: after a failure
        the log must be reopened. Files that were closed meanwhile are let go either way."""
        if ticket.is_done:
            self.complete_flush(ticket)
        else:
            self.segments.fail_flush()

    def flush(self) -> None:
        """Begin, run and complete one flush, blocking. Raises OSError, CorruptData."""
        ticket = self.begin_flush()
        try:
            ticket.run()
        finally:
            self.end_flush(ticket)

    # --- cut ---------------------------------------------------------------------------------

    def end_if_cut(self, offset: int) -> int:
        """Where `truncate_to` would leave the end: below `offset` if compaction has left a gap
        there. Ends a clean under way, as the cut will. Raises CorruptData."""
        segments = self.segments
        if offset >= self._end_offset or not segments.items or offset < segments.bases[0]:
            return min(offset, self._end_offset)
        # What it has swapped on disk and not in memory yet may have a gap that the old segments
        # have not: the cut would end below what is said here.
        segments.stop_cleaning()
        segment = segments.items[bisect_right(segments.bases, offset) - 1]
        return segment.last_end_below(offset)

    def truncate_to(self, offset: int) -> None:
        """Drop every batch whose last offset is >= `offset`; fsynced on return.

        Epochs that start at or above the new end go too, even when no batch does. A caller that
        keeps a recovery-point checkpoint lowers it first: with a point above the log's end, a tail
        torn later would look like damage below the recovery point.
        """
        segments = self.segments
        if offset >= self._end_offset or not segments.items:
            self.epochs.truncate_from_end(min(offset, self._end_offset))
            return
        if offset < segments.bases[0]:
            self.truncate_fully_and_start_at(offset)
            return
        segments.stop_cleaning()
        segments.stop_derived_files(offset)
        # First: what the checkpoint names and the log lacks was lost (`raft.metadata_log`).
        self.epochs.truncate_from_end(offset)
        self._checkpoint.write(self._durable_end_offset)
        # Newest first: a crash on the way leaves a shorter log and no hole.
        while segments.bases[-1] > offset:
            segments.drop_last()
        active = segments.items[-1]
        segments.unseal(active)
        segments.forget_recovery_state(active)
        active.load_tail()
        # Else: 1. the cut below is durable, 2. the power fails, 3. the segments behind are back and
        # this one's index, which proves it whole: what was cut passes for a gap of compaction.
        segments.sync_directories()
        active.cut(offset)
        segments.sync_directories()
        self._end_offset = active.end_offset
        # A cut within a batch takes all of it, and no flush may claim a part.
        segments.stop_derived_files(self._end_offset)
        if self._end_offset < self._start_offset:
            self._start_offset = self._end_offset
            self.epochs.epoch_below = -1
        self._durable_end_offset = min(self._durable_end_offset, self._end_offset)
        self.epochs.truncate_from_end(self._end_offset)
        self._checkpoint.write(self._durable_end_offset)
        self.producers = rebuild_producers(
            self.disk, self.directory, segments.items, end_offset=self._end_offset
        )
        if self.config.keeps_recovery_state:
            segments.save_recovery_state(self.producers)

    def truncate_fully_and_start_at(self, offset: int, *, now_ms: int = 0) -> None:
        """Drop everything; the log is empty with start and end at `offset`. Durable on return."""
        segments = self.segments
        segments.stop_cleaning()
        segments.stop_derived_files(0)
        self.epochs.clear()
        if self.disk.exists(self.directory):
            self._checkpoint.write(self._durable_end_offset)
        while segments.items:
            segments.drop_last()
        remove_snapshots_above(self.disk, self.directory, -1)
        self.producers.clear()
        self._start_offset = self._end_offset = self._durable_end_offset = offset
        if offset > 0:
            # An empty segment whose name keeps the offset over a restart.
            segments.add(offset, now_ms=now_ms)
        if self.disk.exists(self.directory):
            segments.sync_directories()

    # --- end ---------------------------------------------------------------------------------

    def close(self) -> None:
        """Flush, write indexes and producer snapshot, close the files. Raises OSError, CorruptData.

        After it `Log.open(is_clean=True)` is allowed.
        """
        self.segments.stop_cleaning()
        items = self.segments.items
        if items:
            self.flush()
            active = items[-1]
            if not active.has_saved_indexes:
                active.save_indexes(active.index_bytes())
            name = file_name(self._end_offset, SNAPSHOT_SUFFIX)
            self.disk.write_atomic(f"{self.directory}/{name}", self.producers.to_bytes())
        self.segments.close_files()

    def abandon(self) -> None:
        """Close the files and write nothing: the disk below is gone. Unclean for the next start."""
        self.segments.stop_cleaning()
        self.segments.close_files()

    def delete(self) -> None:
        """Remove the folder and all in it; the log must not be used afterwards."""
        self.segments.stop_cleaning()
        # A flush under way would write them by their names, and another log may have these soon.
        self.segments.stop_derived_files(0)
        self.segments.close_files()
        self.disk.remove_tree(self.directory)
