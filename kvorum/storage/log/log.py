"""The log that raft, the metadata loop and every partition write to and read from.

One task owns a log; it has no locks and never waits. An append is one write into the page cache. It
is NOT durable until a completed flush raises `durable_end_offset` above it. The time is an
argument. A log that was never appended to has no folder and no file.

Files: `segment.py`; start: `storage.recovery`; order of fsyncs: `flush.py`. Built on the public
methods of `Log`: `timestamp_lookup.py`, `retention.py`, and compaction in `storage.cleaning`.
"""

from __future__ import annotations

from bisect import bisect_right

from kvorum.runtime.disk import Disk
from kvorum.storage.files.file_names import SNAPSHOT_SUFFIX, file_name
from kvorum.storage.files.leader_epochs import EpochCheckpoint, LeaderEpochCache
from kvorum.storage.files.model import (
    NO_FILE,
    RELATIVE_OFFSET_MAX,
    Appended,
    LogConfig,
    LogSlice,
    OffsetOutOfRange,
    OutOfOrderAppend,
)
from kvorum.storage.files.producer_state import ProducerStateTable
from kvorum.storage.files.segment import Segment
from kvorum.storage.format.batch import HEADER_BYTES, BatchHeader, Buffer, read_header
from kvorum.storage.log.append_plan import (
    Placed,
    must_roll,
    place_as_follower,
    place_as_leader,
    run_that_fits,
)
from kvorum.storage.log.flush import FlushTicket
from kvorum.storage.log.segments import SegmentList
from kvorum.storage.recovery import recovery
from kvorum.storage.recovery.producer_rebuild import rebuild_producers, remove_snapshots_above

__all__ = ["Log", "LogConfig", "LogSlice", "OffsetOutOfRange", "OutOfOrderAppend"]


class Log:
    """One log; see the top of the file. `Log.open` creates it."""

    __slots__ = (
        "_checkpoint",
        "_durable_end_offset",
        "_end_offset",
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
        #: The bytes that an unclean start truncated, and the last gap in the offsets that it found.
        self.torn_tail = loaded.torn_tail
        self.last_gap = loaded.last_gap
        self.segments = SegmentList(
            disk, directory, loaded.segments, index_interval_bytes=config.index_interval_bytes
        )
        self.segments.reserved_bytes = config.reserved_bytes
        self._start_offset = loaded.start_offset
        self._end_offset = loaded.end_offset
        # Recovery fsynced what it kept, and a clean close had fsynced all.
        self._durable_end_offset = loaded.end_offset
        self._has_unsynced_bytes = False
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
        """Open the log in `directory`. A missing folder gives an empty log and is not created.

        is_clean: the last owner called `close`, so only the last headers are read. Otherwise every
            batch from `recovery_point` on is checked, and those before in its segment unless a
            saved recovery state covers them. A torn tail is truncated, and the rest is fsynced.
            Raises CorruptData on other damage, and for a log that ends below its recovery point.
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
        """A new, empty log. `directory` must not exist; the disk is not read."""
        return cls(disk, directory, config, recovery.empty(0))

    # --- state -------------------------------------------------------------------------------

    @property
    def start_offset(self) -> int:
        """First offset that may be read; Kafka's log start offset."""
        return self._start_offset

    @property
    def end_offset(self) -> int:
        """Offset that the next record gets."""
        return self._end_offset

    @property
    def durable_end_offset(self) -> int:
        """End (exclusive) of the fsynced records, as of the last completed flush."""
        return self._durable_end_offset

    def last_stable_offset(self, high_watermark: int) -> int:
        """End (exclusive) of the records that read-committed consumers may read."""
        producers = self.producers
        if not producers.ongoing and not producers.unreplicated:
            return high_watermark  # same result as below with fewer calls, because every fetch asks
        stable_offset = producers.last_stable_offset(high_watermark)
        if stable_offset < self._start_offset:
            # DeleteRecords may move the log start past the beginning of an open transaction.
            return min(self._start_offset, high_watermark)
        return stable_offset

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments.items)

    @property
    def segment_count(self) -> int:
        return len(self.segments.items)

    @property
    def last_epoch(self) -> int:
        """Leader epoch of the last batch, of an empty log the batch below its start; -1 if unknown.
        The leader compares it with its own history."""
        latest_epoch = self.epochs.latest_epoch
        return self.epochs.epoch_before_start if latest_epoch < 0 else latest_epoch

    def batch_end_below(self, offset: int) -> int:
        """End offset of the last batch that ends at or below `offset`, else the log start. It is
        below `offset` if that is in a batch or a gap. Raises CorruptData, OSError."""
        end_offset = self.segments.last_end_below(offset)
        return self._start_offset if end_offset is None else max(end_offset, self._start_offset)

    def begins_below(self, offset: int) -> bool:
        """True if a segment file starts below `offset`."""
        return bool(self.segments.bases) and self.segments.bases[0] < offset

    def has_unknown_epochs_below(self, offset: int) -> bool:
        """True if the log knows no epoch for records below `offset`, which is at most its start."""
        is_known = offset == self._start_offset and self.epochs.epoch_before_start >= 0
        return self.begins_below(offset) and not is_known

    def is_empty_at(self, offset: int) -> bool:
        """True if the log is empty, begins at `offset`, and has no file with records below."""
        return self._start_offset == self._end_offset == offset and not self.begins_below(offset)

    def summary(self) -> str:
        return (
            f"log={self.directory} start={self._start_offset} end={self._end_offset}"
            f" durable={self._durable_end_offset} segments={self.segment_count}"
            f" epoch={self.epochs.latest_epoch} producers={len(self.producers)}"
        )

    def reconfigure(self, config: LogConfig) -> None:
        """Use other settings from now on; existing files stay as they are."""
        self.config = config
        self.segments.set_index_interval(config.index_interval_bytes)
        self.segments.reserved_bytes = config.reserved_bytes

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
        """Raise `start_offset`; the next retention run deletes segments below. False if not higher.

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
        """Write the next offsets and `leader_epoch` into the batches in `batch`, and append them.

        The batches must have passed validation: only sizes are checked. They are not durable until
        a flush. Raises BatchError(RECORD_LIST_TOO_LARGE) for a batch above `segment_bytes`, OSError
        if the disk fails; `end_offset` then tells what was kept.
        header: of the first batch, if the caller has read it and has changed nothing since.
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
        """Append batches as the leader stored them, with their offsets and epochs.

        A batch cut off at the end is left for the next fetch. A base offset may be above
        `end_offset`, after a compaction gap; below it only in an empty log whose start lies inside
        the batch. Raises OutOfOrderAppend, or BatchError if a CRC does not match.
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
        """Base offset of the first batch if this log is empty and starts inside that batch, else
        None. DeleteRecords can move a leader's log start into a batch. That batch names this log's
        first segment, so the caller must keep the log start in its checkpoint."""
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
                # The same as header.record_timestamp_max_ms, without the call.
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
        """The segment that takes the batch; rolls first if one of Kafka's limits requires it."""
        segments = self.segments
        if not segments.items:
            # Named after the log start: a restarted log begins at the first segment's name. Named
            # after the batch if relative offsets cannot reach that far (compacted logs).
            is_near = item.last_offset - self._start_offset <= RELATIVE_OFFSET_MAX
            if not is_near:
                self._forget_epochs_below(item.base_offset)
            base_offset = self._start_offset if is_near else item.base_offset
            return segments.add(base_offset, now_ms=now_ms)
        segment = segments.items[-1]
        if must_roll(segment, item, self.config, now_ms):
            # A segment that begins after a compaction gap would make the segment before it look
            # torn. An unclean start would then drop the new segment (seed 104057).
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
        """Forget the epochs below `base_offset`, at which the first segment is about to begin.
        Recovery would take a known epoch without records as a sign of missing files
        (`storage.recovery.missing_files`)."""
        # A running flush still holds the old epochs and would overwrite this checkpoint.
        self.segments.cancel_derived_files(self._end_offset)
        self.epochs.truncate_from_start(base_offset)
        if self.disk.exists(self.directory):
            self._checkpoint.write(self._durable_end_offset)

    # --- read --------------------------------------------------------------------------------

    def read(
        self, offset: int, *, bytes_max: int, end_offset: int, at_least_one_batch: bool = True
    ) -> LogSlice:
        """Whole batches of one segment; the first holds `offset`, all end at or below `end_offset`.

        end_offset: exclusive; the high watermark, the last stable offset, or the end of the log.
            The length is 0 if there is nothing to return. Raises OffsetOutOfRange, CorruptData.
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
            if self.config.compaction is None and at < len(segments):
                self.segments.tell_gap(offset, segments[at])
        return LogSlice(NO_FILE, 0, 0, offset)

    # --- flush -------------------------------------------------------------------------------

    @property
    def has_unflushed_roll(self) -> bool:
        """True if a rolled segment waits for its fsync."""
        return self.segments.has_unflushed_roll

    @property
    def has_waiting_removals(self) -> bool:
        return (
            self.config.refuses_missing_segments
            and self.segments.has_deleted
            and self.epochs.is_dirty
            and bool(self.segments.items)
        )

    def needs_flush(self, now_ms: int) -> bool:
        """True if a flush is due: a rolled segment waits for its fsync, retired segments wait for
        the epoch checkpoint, or `flush_messages` or `flush_ms` is reached."""
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
        """Gather what a flush must fsync. Run the ticket, then call `end_flush`; one at a time.

        Raises OSError, and CorruptData for the last batch; then no flush has begun.
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
        """Raise `durable_end_offset` to the end offset of the ticket, which has run.

        After a truncation during the flush it stays, as the epoch checkpoint was not written: an
        unclean start needs the epochs below `durable_end_offset`. The next flush writes it.
        """
        self.segments.complete_flush(ticket)
        if ticket.owes_epochs:
            self.epochs.is_dirty = True
        else:
            self._durable_end_offset = max(self._durable_end_offset, ticket.end_offset)

    def end_flush(self, ticket: FlushTicket) -> None:
        """End a flush, whether its ticket succeeded or failed; after a failure the log must be
        reopened. Files that were closed during the flush are released in both cases."""
        if ticket.is_done:
            self.complete_flush(ticket)
        else:
            self.segments.fail_flush()

    def flush(self) -> None:
        """Run one flush from begin to end, blocking. Raises OSError, CorruptData."""
        ticket = self.begin_flush()
        try:
            ticket.run()
        finally:
            self.end_flush(ticket)

    # --- cut ---------------------------------------------------------------------------------

    def end_if_cut(self, offset: int) -> int:
        """The end offset that `truncate_to(offset)` would leave; lower than `offset` in a
        compaction gap. Stops a running clean, as the truncation will. Raises CorruptData."""
        segments = self.segments
        if offset >= self._end_offset or not segments.items or offset < segments.bases[0]:
            return min(offset, self._end_offset)
        # A segment that the clean has swapped on disk, but not yet in memory, may have a gap that
        # the old ones lack: the truncation would then end lower than the result here.
        segments.stop_cleaning()
        segment = segments.items[bisect_right(segments.bases, offset) - 1]
        return segment.last_end_below(offset)

    def truncate_to(self, offset: int) -> None:
        """Drop every batch whose last offset is >= `offset`; fsynced on return.

        Epochs that start at or above the new end are dropped even if no batch is. A caller that
        keeps a recovery-point checkpoint lowers it first. If the recovery point were above the end
        of the log, a tail torn later would look like damage below it.
        """
        segments = self.segments
        if offset >= self._end_offset or not segments.items:
            self.epochs.truncate_from_end(min(offset, self._end_offset))
            return
        if offset < segments.bases[0]:
            self.truncate_fully_and_start_at(offset)
            return
        segments.stop_cleaning()
        segments.cancel_derived_files(offset)
        # First, because a start refuses a log that lacks a known epoch (`raft.node.metadata_log`).
        self.epochs.truncate_from_end(offset)
        self._checkpoint.write(self._durable_end_offset)
        # Newest first, so that a crash on the way leaves a shorter log and no hole.
        while segments.bases[-1] > offset:
            segments.drop_last()
        active = segments.items[-1]
        segments.unseal(active)
        segments.forget_recovery_state(active)
        active.load_tail()
        # Make the removals durable before the truncation. Bad sequence otherwise: 1. The truncation
        # becomes durable. 2. The power fails. 3. The removed segments and this one's index are
        # back. The index says that this one is whole, so the truncated records pass for a gap.
        segments.sync_directories()
        active.cut(offset)
        segments.sync_directories()
        self._end_offset = active.end_offset
        # Truncation inside a batch removes the whole batch; no flush may claim a part of it.
        segments.cancel_derived_files(self._end_offset)
        if self._end_offset < self._start_offset:
            self._start_offset = self._end_offset
            self.epochs.epoch_before_start = -1
        self._durable_end_offset = min(self._durable_end_offset, self._end_offset)
        self.epochs.truncate_from_end(self._end_offset)
        self._checkpoint.write(self._durable_end_offset)
        self.producers = rebuild_producers(
            self.disk, self.directory, segments.items, end_offset=self._end_offset
        )
        if self.config.keeps_recovery_state:
            segments.save_recovery_state(self.producers)

    def truncate_fully_and_start_at(self, offset: int, *, now_ms: int = 0) -> None:
        """Drop all records; start and end of the empty log are `offset`. Durable on return."""
        segments = self.segments
        segments.stop_cleaning()
        segments.cancel_derived_files(0)
        self.epochs.clear()
        if self.disk.exists(self.directory):
            self._checkpoint.write(self._durable_end_offset)
        while segments.items:
            segments.drop_last()
        remove_snapshots_above(self.disk, self.directory, -1)
        self.producers.clear()
        self._start_offset = self._end_offset = self._durable_end_offset = offset
        if offset > 0:
            # An empty segment, whose name keeps the offset across a restart.
            segments.add(offset, now_ms=now_ms)
        if self.disk.exists(self.directory):
            segments.sync_directories()

    # --- end ---------------------------------------------------------------------------------

    def close(self) -> None:
        """Flush, write indexes and producer snapshot, close the files. Raises OSError, CorruptData.

        The next start may then use `Log.open(is_clean=True)`.
        """
        self.segments.stop_cleaning()
        items = self.segments.items
        if items:
            self.segments.release_reserved()
            self.flush()
            active = items[-1]
            if not active.has_saved_indexes:
                active.save_indexes(active.index_bytes())
            name = file_name(self._end_offset, SNAPSHOT_SUFFIX)
            self.disk.write_atomic(f"{self.directory}/{name}", self.producers.to_bytes())
        self.segments.close_files()

    def move_to(self, directory: str, equal: Log | None = None) -> None:
        """Go on in `directory`, the new name of this log's folder. Durable with the next flush.
        equal: a log with the same records, whose leader epochs and producers this log takes over.
        If power undoes the new name, that log counts again."""
        if equal is not None:
            self.epochs, self.producers = equal.epochs, equal.producers
            self._durable_end_offset = min(self._durable_end_offset, equal.durable_end_offset)
        self.epochs.is_dirty = True
        self.directory = directory
        self._checkpoint = EpochCheckpoint(self.disk, directory, self.epochs)
        self.segments.move_to(directory)

    def abandon(self) -> None:
        """Close the files and write nothing, because the disk failed. The next start is unclean."""
        self.segments.stop_cleaning()
        self.segments.close_files()

    def delete(self) -> None:
        """Remove the folder with all its files; the log must not be used afterwards."""
        self.segments.stop_cleaning()
        # A running flush would write files by name, and another log may soon use the same names.
        self.segments.cancel_derived_files(0)
        self.segments.close_files()
        self.disk.remove_tree(self.directory)
