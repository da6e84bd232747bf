"""What a log is, and its upkeep: rolling, retention, cleaning. `log.py` appends, reads and cuts.

Kept apart so that the hot and the rare can be read one at a time. The same rules hold: one task
owns a log, time is an argument.
"""

from __future__ import annotations

from bisect import bisect_left

from kvorum.runtime.disk import Disk
from kvorum.storage.cleaning.cleanable_range import CleaningPlan, plan_cleaning
from kvorum.storage.cleaning.cleaner import CleanerConfig, CleaningJob
from kvorum.storage.log import retention
from kvorum.storage.log import timestamp_lookup as lookup
from kvorum.storage.log.file_names import DELETED_SUFFIX, LOG_SUFFIX
from kvorum.storage.log.leader_epochs import CHECKPOINT_NAME, LeaderEpochCache
from kvorum.storage.log.model import LogConfig, OffsetOutOfRange
from kvorum.storage.log.producer_state import ProducerStateTable
from kvorum.storage.log.segment import Segment
from kvorum.storage.log.segments import SegmentList
from kvorum.storage.recovery import recovery


class LogBase:
    """State of a log, and what is done to it besides appends, reads, flushes and cuts."""

    __slots__ = (
        "_disk",
        "_durable_end_offset",
        "_end_offset",
        "_has_told_gap",
        "_has_unsynced_bytes",
        "_segments",
        "_start_offset",
        "_unsynced_since_ms",
        "config",
        "directory",
        "epochs",
        "last_gap",
        "producers",
        "torn_tail",
    )

    def __init__(
        self, disk: Disk, directory: str, config: LogConfig, loaded: recovery.Loaded
    ) -> None:
        self._disk = disk
        self.directory = directory
        self.config = config
        self.epochs: LeaderEpochCache = loaded.epochs
        self.producers: ProducerStateTable = loaded.producers
        #: The bytes that an unclean start cut off, and the last gap in the offsets that it met.
        self.torn_tail = loaded.torn_tail
        self.last_gap = loaded.last_gap
        self._segments = SegmentList(
            disk, directory, loaded.segments, index_interval_bytes=config.index_interval_bytes
        )
        self._start_offset = loaded.start_offset
        self._end_offset = loaded.end_offset
        # Recovery fsynced what it kept, and a clean close had fsynced all.
        self._durable_end_offset = loaded.end_offset
        self._has_unsynced_bytes = False
        self._has_told_gap = False
        self._unsynced_since_ms = 0

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
        return sum(segment.size_bytes for segment in self._segments.items)

    @property
    def segment_count(self) -> int:
        return len(self._segments.items)

    @property
    def segment_base_offsets(self) -> list[int]:
        return list(self._segments.bases)

    @property
    def last_epoch(self) -> int:
        """Of the last batch, -1 when unknown: what a leader is to compare with its own history. For
        a log without one it is that of what lies below its start."""
        latest_epoch = self.epochs.latest_epoch
        return self.epochs.epoch_below if latest_epoch < 0 else latest_epoch

    def batch_end_below(self, offset: int) -> int:
        """Where the last batch ends that ends at or below `offset`, or the log begins: lower than
        `offset` where compaction has left a gap. Raises CorruptData, OSError."""
        segments = self._segments
        for segment in reversed(segments.items[: bisect_left(segments.bases, offset)]):
            end_offset = lookup.last_end_below(segment, offset)
            if end_offset > segment.base_offset:
                return max(end_offset, self._start_offset)
        return self._start_offset

    def begins_below(self, offset: int) -> bool:
        """True if a segment file starts below `offset`."""
        return bool(self._segments.bases) and self._segments.bases[0] < offset

    def is_unknown_below(self, offset: int) -> bool:
        """True if files hold records below `offset` whose leader epoch is unknown."""
        is_known = offset == self._start_offset and self.epochs.epoch_below >= 0
        return self.begins_below(offset) and not is_known

    def is_bare_at(self, offset: int) -> bool:
        """True if the log is empty, begins at `offset`, and no file holds records below."""
        return self._start_offset == self._end_offset == offset and not self.begins_below(offset)

    @property
    def durable_first_offset(self) -> int:
        """Where the first segment begins, as far as every start will find it so; 0 if files were
        made or removed since, or there are none."""
        segments = self._segments
        return 0 if segments.has_unsynced_names or not segments.bases else segments.bases[0]

    @property
    def has_unflushed_roll(self) -> bool:
        """A rolled segment waits for its fsync."""
        return self._segments.has_unflushed_roll

    def needs_flush(self, now_ms: int) -> bool:
        """A rolled segment waits for its fsync, retired ones wait for the epochs' checkpoint, or
        `flush_messages` or `flush_ms` have gathered."""
        if self.has_unflushed_roll or self._has_waiting_removals:
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

    def summary(self) -> str:
        return (
            f"log={self.directory} start={self._start_offset} end={self._end_offset}"
            f" durable={self._durable_end_offset} segments={self.segment_count}"
            f" epoch={self.epochs.latest_epoch} producers={len(self.producers)}"
        )

    def reconfigure(self, config: LogConfig) -> None:
        """Follow other settings from now on; what has been written stays as it is."""
        self.config = config
        self._segments.set_index_interval(config.index_interval_bytes)

    # --- growing and shrinking ---------------------------------------------------------------

    def roll(self, *, now_ms: int) -> bool:
        """Start a new segment at `end_offset`; False when the active one is empty."""
        items = self._segments.items
        if not items or items[-1].size_bytes == 0:
            return False
        self._roll(self._end_offset, now_ms)
        return True

    def _roll(self, base_offset: int, now_ms: int) -> Segment:
        return self._segments.roll(
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

    def _write_epochs(self) -> None:
        """Replace the checkpoint, apart from a flush: by the epochs of durable records alone.

        Bad sequence: 1. a controller cuts its log above records that it has not fsynced yet, 2. an
        epoch that began with one of them is in the checkpoint, 3. the power fails: the log ends
        below, and `raft.metadata_log` takes it for one that lost its files.
        """
        durable_end_offset = self._durable_end_offset
        self._disk.write_atomic(self._epochs_path, self.epochs.to_bytes(durable_end_offset))
        starts = self.epochs.start_offsets
        self.epochs.is_dirty = bool(starts) and starts[-1] >= durable_end_offset

    @property
    def _epochs_path(self) -> str:
        return f"{self.directory}/{CHECKPOINT_NAME}"

    # --- retention ---------------------------------------------------------------------------

    def apply_retention(self, *, now_ms: int, high_watermark: int) -> list[int]:
        """Delete the segments that start offset, size and age allow; base offsets of those gone.

        Files are renamed now and removed by `remove_deleted` after `file_delete_delay_ms`. Those of
        segments that are not flushed yet wait for the next run, and readers do not see them.
        """
        segments = self._segments
        if segments.is_cleaning:
            # It waits for the next run, lest a long clean be cancelled again and again.
            return []
        count = retention.deletable_count(
            segments.items,
            start_offset=self._start_offset,
            end_offset=self._end_offset,
            high_watermark=high_watermark,
            retention_ms=self.config.retention_ms,
            retention_bytes=self.config.retention_bytes,
            now_ms=now_ms,
        )
        if count == 0:
            return []
        if count == len(segments.items):
            self._roll(self._end_offset, now_ms)
        # First the start: a disk that fails half-way must leave no hole behind it, which readers
        # would be led over in silence.
        self._start_offset = max(self._start_offset, segments.bases[count])
        # With its flush comes the snapshot of the producers at a segment's end. Bad sequence: 1. a
        # topic is idle for longer than `retention_ms`, 2. its last segment is rolled and retired,
        # 3. the process is killed, 4. a producer repeats its last batch, which nobody knows.
        count = min(count, len(segments.sealed_prefix()))
        retired: list[Segment] = []
        if count:
            segments.stop_derived_files(self._end_offset)
            segments.keep_producers(count, self.producers)
            retired = segments.retire_first(
                count, delete_at_ms=now_ms + self.config.file_delete_delay_ms
            )
        self.epochs.truncate_from_start(self._start_offset)
        return [segment.base_offset for segment in retired]

    # --- cleaning ----------------------------------------------------------------------------

    def plan_cleaning(
        self, *, checkpoint: int | None, high_watermark: int, now_ms: int
    ) -> CleaningPlan | None:
        """What a clean would do; None if nothing may be cleaned, or the log is not compacted.

        checkpoint: `end_offset` of the last clean that was done, None if there was none.
        """
        compaction = self.config.compaction
        prefix = self._segments.sealed_prefix()
        if compaction is None or not prefix or self._segments.is_cleaning:
            return None
        return plan_cleaning(
            self._segments.items[: len(prefix) + 1],
            checkpoint=checkpoint,
            start_offset=self._start_offset,
            stable_offset=self.last_stable_offset(high_watermark),
            config=compaction,
            now_ms=now_ms,
        )

    def begin_cleaning(
        self, plan: CleaningPlan, config: CleanerConfig, *, now_ms: int
    ) -> CleaningJob:
        """The job that carries out `plan`, which was just made. See `cleaner.py`."""
        items = self._segments.items
        cleaned = [s for s in items if s.base_offset < plan.first_uncleanable_offset]
        # Not what they wrote behind these segments: that may be cut yet. Bad sequence: 1. only that
        # is kept, 2. a new replica copies up to it, 3. and leads: it knows nothing of a producer.
        known = self._segments.keep_producers(len(cleaned)).ends()
        alive = self.producers.entries
        job = CleaningJob(
            self._disk,
            self.directory,
            segments=cleaned,
            plan=plan,
            aborted=[entry for segment in items for entry in segment.aborted],
            producers={key: end for key, end in known.items() if key in alive},
            log_config=self.config,
            config=config,
            now_ms=now_ms,
        )
        self._segments.begin_cleaning(job)
        return job

    def apply_swap(self, now_ms: int) -> None:
        """`CleaningJob.swap` has returned: read the new segment instead of the old ones."""
        self._segments.apply_swap(delete_at_ms=now_ms + self.config.file_delete_delay_ms)

    def end_cleaning(self, job: CleaningJob) -> None:
        """The job is done, cancelled or has failed, and its thread has returned."""
        self._segments.end_cleaning(job)

    @property
    def _has_waiting_removals(self) -> bool:
        return (
            self.config.epochs_tell_start
            and self._segments.has_deleted
            and self.epochs.is_dirty
            and bool(self._segments.items)
        )

    def take_deleted(self, now_ms: int) -> list[str]:
        """Paths of the files whose delay has passed: to remove, in a thread, since the unlink of
        a file of a gigabyte may take long. Missing ones are fine.

        None before a flush has written the epochs' checkpoint, if `epochs_tell_start`: once the
        files are gone, nothing else explains why the log begins above what the old one names.
        """
        if self._has_waiting_removals or (
            self.config.epochs_tell_start and self._segments.is_flushing
        ):
            return []
        return self._segments.take_deleted(now_ms)

    def remove_deleted(self, now_ms: int) -> int:
        """Remove the files whose delay has passed, blocking; how many segments that were."""
        paths = self.take_deleted(now_ms)
        for path in paths:
            self._disk.remove(path)
        return sum(path.endswith(LOG_SUFFIX + DELETED_SUFFIX) for path in paths)

    def forget_replicated_markers(self, high_watermark: int) -> None:
        """For a follower, whom no reader makes do so: else it gathers them for as long as it is."""
        if self.producers.unreplicated:
            self.producers.forget_replicated(high_watermark)

    def expire_producers(self, now_ms: int) -> list[int]:
        """Forget producers silent for `producer_id_expiration_ms`."""
        return self.producers.expire(now_ms, expiration_ms=self.config.producer_id_expiration_ms)
