"""One clean of one log: read the keys of the dirty part, then rewrite the segments. Blocking.

`log_cleaning.begin` creates a job. Its owner calls `advance` repeatedly, in a thread, until the job
is done. When a group of segments is ready, `swap` (in the thread) replaces it on disk, and
`log_cleaning.apply_swap` (on the log's own thread) in memory. `log_cleaning.end` ends the job. The
job reads only sealed segments, which do not change: a truncation cancels the job first.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kvorum.runtime.disk import Disk
from kvorum.runtime.errors import CorruptData, invariant, required
from kvorum.storage.cleaning.batch_cleaning import BatchCleaner, keys_of
from kvorum.storage.cleaning.cleanable_range import CleaningPlan, group_segments
from kvorum.storage.cleaning.cleaned_transactions import CleanedTransactions
from kvorum.storage.cleaning.offset_map import OffsetMap
from kvorum.storage.cleaning.segment_swap import (
    CLEANED_SUFFIX,
    discard_cleaned,
    remove_stale_snapshots,
    swap_in,
    write_cleaned,
)
from kvorum.storage.files.file_names import LOG_SUFFIX
from kvorum.storage.files.model import LogConfig
from kvorum.storage.files.producer_state import ProducerEnd
from kvorum.storage.files.segment import Segment
from kvorum.storage.files.transaction_index import AbortedTransaction
from kvorum.storage.format.batch import BatchError, BatchHeader, read_header
from kvorum.storage.format.batch_stream import StoredBatch, stored_batches
from kvorum.storage.format.markers import read_marker


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerConfig:
    """Settings of all cleans, with the defaults of Kafka's log.cleaner.*.

    dedupe_buffer_bytes: memory of the offset map.
    io_buffer_bytes: size of a read or write.
    """

    dedupe_buffer_bytes: int = 128 << 20
    load_factor: float = 0.9
    io_buffer_bytes: int = 512 << 10


@dataclass(slots=True, kw_only=True)
class CleaningStats:
    """The counters of a clean so far. Mutable, because the job updates them."""

    bytes_read: int = 0
    bytes_written: int = 0
    keys: int = 0
    segments_before: int = 0
    segments_after: int = 0


class CleaningJob:
    """One clean; see the top of the file.

    end_offset: the log is clean below it once the job is done.
    pending: (old segments, new one) to be swapped next.
    is_swapped: the swap is done on disk and not yet in memory.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        *,
        segments: Sequence[Segment],
        plan: CleaningPlan,
        aborted: Iterable[AbortedTransaction],
        producers: Mapping[int, ProducerEnd],
        log_config: LogConfig,
        config: CleanerConfig,
        now_ms: int,
    ) -> None:
        self.plan = plan
        self.stats = CleaningStats()
        self.pending: tuple[list[Segment], Segment] | None = None
        self.is_swapped = False
        self.is_cancelled = False
        self.is_done = False
        # A truncation waits for this lock while files are renamed, and for nothing else.
        self.lock = threading.Lock()
        self._disk = disk
        self._directory = directory
        self._segments = list(segments)
        # Read the times now, because the call takes a file's name: a truncation may remove the
        # files later.
        self._modified_ms = {segment: segment.modified_ms for segment in segments}
        self._aborted = list(aborted)
        self._producers = dict(producers)
        self._log_config = log_config
        self._config = config
        self._now_ms = now_ms
        self._offsets = OffsetMap(
            buffer_bytes=config.dedupe_buffer_bytes, load_factor=config.load_factor
        )
        self._written_base_offset: int | None = None
        self._steps = self._work()

    @property
    def end_offset(self) -> int:
        return max(self._offsets.latest_offset + 1, self.plan.first_dirty_offset)

    @property
    def segments(self) -> list[Segment]:
        return self._segments

    def advance(self) -> int:
        """Process about one buffer, in a thread; return the bytes read and written.

        Check `pending` and `is_done` afterwards. Raises CorruptData on a damaged batch, and
        OSError; the job is of no more use then.
        """
        invariant(self.pending is None, f"{self._directory}: a swap is due")
        if self.is_cancelled:
            self.is_done = True
            return 0
        before = self.stats.bytes_read + self.stats.bytes_written
        if next(self._steps, None) is None:
            self.is_done = True
        return self.stats.bytes_read + self.stats.bytes_written - before

    def swap(self) -> None:
        """Put the pending segment in place on disk, unless the job was cancelled. In a thread.

        Raises OSError: then the log must be reopened, because its folder is between two states.
        """
        with self.lock:
            if self.is_cancelled or self.pending is None:
                return
            old, new = self.pending
            replaced = [segment.base_offset for segment in old]
            end_offset = self._following(self._segments.index(old[-1]))
            remove_stale_snapshots(self._disk, self._directory, new.base_offset, end_offset)
            # From here on the swap can only be finished, by the next start if need be. The
            # `.cleaned` files belong to it now, and `discard` must not remove an index among them.
            self._written_base_offset = None
            swap_in(self._disk, self._directory, new.base_offset, replaced)
            new.adopt()
            self.is_swapped = True

    def cancel(self) -> None:
        """Touch no file from now on; waits for a running swap."""
        with self.lock:
            self.is_cancelled = True

    def discard(self) -> None:
        """Remove the segment that was written and not swapped in. In a thread. Raises OSError."""
        self._steps.close()
        if self._written_base_offset is not None:
            discard_cleaned(self._disk, self._directory, self._written_base_offset)

    # --- the work ----------------------------------------------------------------------------

    def _work(self) -> Generator[bool, None, None]:
        yield from self._fill_map()
        cleaner = BatchCleaner(
            offsets=self._offsets,
            transactions=CleanedTransactions(self._aborted),
            producers=self._producers,
            now_ms=self._now_ms,
            delete_retention_ms=required(
                self._log_config.compaction, "only a compacted log is cleaned"
            ).delete_retention_ms,
        )
        count = sum(segment.base_offset < self.end_offset for segment in self._segments)
        groups = group_segments(
            self._segments[:count],
            end_offset=self._following(count - 1),
            segment_bytes=self._log_config.segment_bytes,
            index_bytes_max=self._log_config.index_bytes_max,
        )
        for group in groups:
            yield from self._clean_group(group, cleaner)
            self.stats.segments_before += len(group)
            self.stats.segments_after += 1

    def _following(self, at: int) -> int:
        """Base offset of the segment after `self._segments[at]`."""
        if at + 1 < len(self._segments):
            return self._segments[at + 1].base_offset
        return self.plan.first_uncleanable_offset

    def _fill_map(self) -> Iterator[bool]:
        """Put the keys of the dirty part into the offset map, as far as there is room."""
        offsets = self._offsets
        first_dirty = self.plan.first_dirty_offset
        offsets.latest_offset = first_dirty - 1
        transactions = CleanedTransactions(self._aborted)
        for at, segment in enumerate(self._segments):
            following = self._following(at)
            if following <= first_dirty:
                continue
            for piece in self._pieces(segment):
                for position, header, batch in piece:
                    if not self._take_keys(segment, position, header, batch, transactions):
                        return
                yield True
            # The segment may end in a gap, so the clean must not end at its last batch. Otherwise
            # the log would be due again at once, for ever.
            offsets.latest_offset = following - 1

    def _take_keys(
        self,
        segment: Segment,
        position: int,
        header: BatchHeader,
        batch: bytes,
        transactions: CleanedTransactions,
    ) -> bool:
        """Put the keys of a batch into the offset map; False if they no longer fit."""
        offsets = self._offsets
        first_dirty = self.plan.first_dirty_offset
        keys: list[tuple[bytes, int]] = []
        try:
            if header.is_control:
                if header.producer_id >= 0:
                    transactions.is_marker_without_records(header, read_marker(batch, 0, header))
            elif not transactions.is_aborted(header) and header.last_offset >= first_dirty:
                keys = keys_of(batch, header)
        except BatchError as error:
            raise CorruptData(segment.file.path, position, error.reason) from error
        # Either all keys of a batch are in the map or none; the first batch always fits.
        if len(offsets) and len(offsets) + len(keys) > offsets.capacity:
            return False
        for key, offset in keys:
            if offset >= first_dirty:
                offsets.put(key, offset)
        if header.last_offset >= first_dirty:
            offsets.latest_offset = header.last_offset
        self.stats.keys = len(offsets)
        return True

    def _clean_group(self, group: list[Segment], cleaner: BatchCleaner) -> Iterator[bool]:
        """Write the surviving records of a group as one segment, and set it as pending."""
        new = Segment(
            self._disk,
            self._directory,
            group[0].base_offset,
            created_ms=group[-1].created_ms,
            index_interval_bytes=self._log_config.index_interval_bytes,
            name_suffix=CLEANED_SUFFIX,
        )
        self._written_base_offset = new.base_offset
        discard_cleaned(self._disk, self._directory, new.base_offset)
        new.start_empty()
        try:
            for segment in group:
                for piece in self._pieces(segment):
                    self._write(new, self._cleaned(segment, piece, cleaner))
                    yield True
            new.aborted = cleaner.take_kept_aborted()
            # Retention takes the time of the last write as the age of batches without timestamps.
            # With the time of each clean they would outlive retention.ms for ever.
            modified_ms = max(self._modified_ms[segment] for segment in group)
            self._disk.set_modified_ms(new.path(LOG_SUFFIX), modified_ms)
            write_cleaned(self._disk, new)
        finally:
            # Close it also if the job is cancelled; `adopt` opens it again under its new name.
            file = new.take_file()
            if file is not None:
                file.close()
        self.pending = (group, new)
        yield True

    def _cleaned(
        self,
        segment: Segment,
        piece: list[StoredBatch],
        cleaner: BatchCleaner,
    ) -> list[bytes | bytearray]:
        kept = []
        for position, header, batch in piece:
            try:
                left = cleaner.clean(batch, header)
            except BatchError as error:
                raise CorruptData(segment.file.path, position, error.reason) from error
            if left is not None:
                kept.append(left)
        return kept

    def _write(self, new: Segment, batches: list[bytes | bytearray]) -> None:
        if not batches:
            return
        new.write(b"".join(batches))
        for batch in batches:
            header = read_header(batch, 0)
            new.note(
                header.base_offset,
                header.last_offset,
                header.record_timestamp_max_ms,
                header.size_bytes,
            )
            self.stats.bytes_written += header.size_bytes

    def _pieces(self, segment: Segment) -> Iterator[list[StoredBatch]]:
        """All batches of a segment, in runs of about one buffer."""
        for piece in stored_batches(
            segment.file,
            size=segment.size_bytes,
            base_offset=segment.base_offset,
            buffer_bytes=self._config.io_buffer_bytes,
        ):
            self.stats.bytes_read += sum(batch.header.size_bytes for batch in piece)
            yield piece
