"""One segment: a .log file of batches, with its indexes.

Files are opened when first needed. The active segment also remembers the positions of its latest
batches (`_ends`, `_positions`). So a caught-up fetcher's read takes two bisections and no file
read.

Recovery depends on this invariant: a segment has an .index file only while its .log is sealed or
closed, and fsynced. Before a caller appends to such a segment again, it removes the .index file
(`unseal`).
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import TypeVar

from kvorum.runtime.disk import Disk, DiskFile, overwrite
from kvorum.runtime.errors import CorruptData
from kvorum.storage.files.file_names import (
    INDEX_SUFFIX,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    file_name,
)
from kvorum.storage.files.index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, OffsetIndex, TimeIndex
from kvorum.storage.files.transaction_index import AbortedTransaction, pack_aborted, parse_aborted
from kvorum.storage.format.batch import BatchHeader
from kvorum.storage.format.header_walk import headers_between

RECENT_BATCHES_MAX = 4096
"""Number of batches of the active segment whose positions are remembered; at 1 KB each, 4 MB."""
logger = logging.getLogger("kvorum.storage")

T = TypeVar("T")

_NOTHING_RECENT = 1 << 63


IndexBytes = tuple[bytes, bytes, bytes]
"""Contents of .index, .timeindex and .txnindex; the last is empty when there is no such file."""


class Segment:
    """The batches from `base_offset` up to the next segment."""

    __slots__ = (
        "_aborted",
        "_bases",
        "_bytes_since_index",
        "_disk",
        "_ends",
        "_file",
        "_indexes",
        "_name_suffix",
        "_positions",
        "_recent_floor",
        "_size",
        "base_offset",
        "created_ms",
        "directory",
        "end_offset",
        "first_timestamp_ms",
        "has_saved_indexes",
        "index_interval_bytes",
        "max_timestamp",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        base_offset: int,
        *,
        created_ms: int,
        index_interval_bytes: int,
        has_saved_indexes: bool = False,
        name_suffix: str = "",
    ) -> None:
        """name_suffix: appended to the file names while the segment is not part of a log yet."""
        self._disk = disk
        self._name_suffix = name_suffix
        self.directory = directory
        self.base_offset = base_offset
        self.created_ms = created_ms
        self.index_interval_bytes = index_interval_bytes
        self.has_saved_indexes = has_saved_indexes
        self.end_offset = base_offset
        self.first_timestamp_ms = -1
        self.max_timestamp = (-1, base_offset)
        self._file: DiskFile | None = None
        self._size = -1
        self._indexes: tuple[OffsetIndex, TimeIndex] | None = None
        self._aborted: list[AbortedTransaction] | None = None
        self._bytes_since_index = 0
        self.forget_recent()

    # --- files -------------------------------------------------------------------------------

    def path(self, suffix: str) -> str:
        return f"{self.directory}/{file_name(self.base_offset, suffix)}{self._name_suffix}"

    @property
    def file(self) -> DiskFile:
        if self._file is None:
            self._file = self._disk.open(self.path(LOG_SUFFIX))
        return self._file

    @property
    def size_bytes(self) -> int:
        if self._size < 0:
            self._size = self.file.size()
        return self._size

    def adopt(self) -> None:
        """Go on under the final file names, which the files have just got; sealed from now on."""
        file = self.take_file()
        if file is not None:
            file.close()
        self._name_suffix = ""
        self.has_saved_indexes = True
        self.forget_recent()

    def take_file(self) -> DiskFile | None:
        """Hand over the open file; the caller must close it."""
        file, self._file = self._file, None
        return file

    # --- append ------------------------------------------------------------------------------

    def start_empty(self) -> None:
        """Create the file of a new active segment."""
        self._size = 0
        self._indexes = (OffsetIndex(self.base_offset), TimeIndex(self.base_offset))
        self._aborted = []
        self._recent_floor = self.base_offset
        self.file.truncate(0)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write whole batches at the end of the file in one write; `note` must follow.

        After a failed write the file is truncated again. Otherwise a whole batch of the failed
        write could remain after the next write and pass for data. Raises OSError.
        """
        try:
            self.file.pwrite(data, self._size)
        except OSError:
            self.file.truncate(self._size)
            raise

    def note(
        self, base_offset: int, last_offset: int, max_timestamp_ms: int, size_bytes: int
    ) -> None:
        """Account for the next batch of the file, which begins where the noted part ends."""
        position = self._size
        if max_timestamp_ms > self.max_timestamp[0]:
            self.max_timestamp = (max_timestamp_ms, last_offset)
        if position == 0:
            self.first_timestamp_ms = max_timestamp_ms
        if self._bytes_since_index > self.index_interval_bytes:
            offset_index, time_index = self.indexes
            offset_index.append(last_offset, position)
            time_index.maybe_append(*self.max_timestamp)
            self._bytes_since_index = 0
        self._bytes_since_index += size_bytes
        self._size = position + size_bytes
        self.end_offset = last_offset + 1
        ends = self._ends
        ends.append(last_offset + 1)
        self._bases.append(base_offset)
        self._positions.append(position)
        if len(ends) > RECENT_BATCHES_MAX:
            half = RECENT_BATCHES_MAX // 2
            self._recent_floor = ends[half - 1]
            del ends[:half], self._bases[:half], self._positions[:half]

    def forget_recent(self) -> None:
        """Forget the positions of the latest batches, as when the segment is no longer active."""
        self._bases: list[int] = []
        self._ends: list[int] = []
        self._positions: list[int] = []
        # The positions of all batches that end above this offset are remembered.
        self._recent_floor = _NOTHING_RECENT

    # --- indexes -----------------------------------------------------------------------------

    @property
    def indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        """Both indexes: from their files, or rebuilt from the headers if those are damaged."""
        if self._indexes is None:
            self._indexes = self._load_indexes() or self._rebuild_indexes()
        return self._indexes

    def _load_indexes(self) -> tuple[OffsetIndex, TimeIndex] | None:
        if not self.has_saved_indexes:
            return None
        offset_index, time_index = OffsetIndex(self.base_offset), TimeIndex(self.base_offset)
        offset_bytes = self._disk.read_bytes(self.path(INDEX_SUFFIX))
        time_bytes = self._disk.read_bytes(self.path(TIME_INDEX_SUFFIX))
        # A damaged index is no loss: it holds only what the batches hold too.
        if offset_index.load(offset_bytes, log_size_bytes=self.size_bytes) is not None:
            return None
        if time_index.load(time_bytes) is not None:
            return None
        if not time_bytes and self.first_batch_timestamp_ms >= 0:
            # The file was emptied after it was written. A lookup by time would skip the segment.
            return None
        self.max_timestamp = time_index.last()
        return offset_index, time_index

    def _rebuild_indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        offset_index, time_index = OffsetIndex(self.base_offset), TimeIndex(self.base_offset)
        since = 0
        largest = (-1, self.base_offset)
        for position, header in self.headers(0):
            if header.record_timestamp_max_ms > largest[0]:
                largest = (header.record_timestamp_max_ms, header.last_offset)
            if since > self.index_interval_bytes:
                offset_index.append(header.last_offset, position)
                time_index.maybe_append(*largest)
                since = 0
            since += header.size_bytes
        time_index.maybe_append(*largest)
        self.max_timestamp = largest
        return offset_index, time_index

    @property
    def max_timestamp_ms(self) -> int:
        """Largest timestamp of any batch, -1 if there is none."""
        _ = self.indexes
        return self.max_timestamp[0]

    @property
    def first_batch_timestamp_ms(self) -> int:
        """Largest timestamp of the first batch, -1 if there is none."""
        if self.first_timestamp_ms < 0 and self.size_bytes:
            _, header = next(self.headers(0))
            self.first_timestamp_ms = header.record_timestamp_max_ms
        return self.first_timestamp_ms

    @property
    def modified_ms(self) -> int:
        """Time of the last write to the .log file."""
        return self._disk.modified_ms(self.path(LOG_SUFFIX))

    @property
    def offset_index_bytes(self) -> int:
        return len(self.indexes[0]) * OFFSET_ENTRY_BYTES

    @property
    def time_index_bytes(self) -> int:
        return len(self.indexes[1]) * TIME_ENTRY_BYTES

    @property
    def aborted(self) -> list[AbortedTransaction]:
        """Transactions with their ABORT marker here. Raises CorruptData on a damaged .txnindex."""
        if self._aborted is None:
            path = self.path(TRANSACTION_INDEX_SUFFIX)
            entries: list[AbortedTransaction] = []
            if self.has_saved_indexes and self._disk.exists(path):
                entries = parse_aborted(self._disk.read_bytes(path), path)
                if not entries:
                    raise CorruptData(path, 0, "it is empty, and was written with an entry")
            self._aborted = entries
        return self._aborted

    @aborted.setter
    def aborted(self, entries: list[AbortedTransaction]) -> None:
        self._aborted = entries

    def index_bytes(self) -> IndexBytes:
        """The contents of the index files; the .timeindex with its forced last entry."""
        offset_index, time_index = self.indexes
        time_index.maybe_append(*self.max_timestamp)
        return offset_index.to_bytes(), time_index.to_bytes(), pack_aborted(self.aborted)

    def save_indexes(self, contents: IndexBytes) -> None:
        """Write and fsync the index files. The .log must have been fsynced before (see the top).

        The .index file comes last, because it proves that the others are whole.
        """
        for suffix, data in zip(reversed(INDEX_SUFFIXES), reversed(contents), strict=True):
            if suffix == TRANSACTION_INDEX_SUFFIX and not data:
                self._disk.remove(self.path(suffix))
                continue
            overwrite(self._disk, self.path(suffix), data)
        self.has_saved_indexes = True

    def renew_indexes(self, contents: IndexBytes) -> None:
        """Replace existing index files one by one; no file is missing at any moment.

        Bad sequence if a file could be missing:
        1. Compaction left a gap after this segment.
        2. A crash loses the .index file.
        3. The next start has no proof that the segment was whole. It takes the gap for a torn tail
           and drops every later segment.
        """
        for suffix, data in zip(reversed(INDEX_SUFFIXES), reversed(contents), strict=True):
            path = self.path(suffix)
            if suffix == TRANSACTION_INDEX_SUFFIX and not data:
                self._disk.remove(path)
            elif not self._disk.exists(path) or self._disk.read_bytes(path) != data:
                self._disk.write_atomic(path, data)

    def unseal(self) -> bool:
        """Load the indexes and remove their files, as the .log will change. True if there were
        any."""
        had_files = self.has_saved_indexes
        _ = self.indexes, self.aborted
        if had_files:
            self.has_saved_indexes = False
            # The .index file first: without it the others prove nothing.
            for suffix in INDEX_SUFFIXES:
                self._disk.remove(self.path(suffix))
        return had_files

    # --- loading and cutting -------------------------------------------------------------------

    def load_tail(self) -> None:
        """Find end offset, largest timestamp and recent positions by walking the last headers.

        For a cleanly closed segment: only the batches after the last index entry are read.
        """
        offset_index, _ = self.indexes
        self._restart_at(offset_index.last_position())
        if self._size and self.first_timestamp_ms < 0:
            for _, header in self.headers(0):
                self.first_timestamp_ms = header.record_timestamp_max_ms
                break

    def resume(
        self,
        *,
        indexes: tuple[OffsetIndex, TimeIndex],
        aborted: list[AbortedTransaction],
        max_timestamp: tuple[int, int],
        size_bytes: int,
    ) -> None:
        """Take over the state of the first `size_bytes` of the file; `note` continues after them.

        Raises CorruptData if no batch ends there.
        """
        self._indexes, self._aborted = indexes, aborted
        self.max_timestamp = max_timestamp
        self._size = size_bytes
        self.load_tail()

    def reset_for_scan(self) -> None:
        """Drop all derived state, because recovery is about to note every batch again."""
        self._indexes = (OffsetIndex(self.base_offset), TimeIndex(self.base_offset))
        self._aborted = []
        self.max_timestamp = (-1, self.base_offset)
        self.first_timestamp_ms = -1
        self.end_offset = self.base_offset
        self._bytes_since_index = 0
        self._size = 0
        self.forget_recent()
        self._recent_floor = self.base_offset

    def cut(self, offset: int) -> None:
        """Drop the batches whose last offset is >= `offset`; fsynced on return.

        The fsync is required. A power loss could undo the truncation and keep later appends; old
        batches would then follow new ones.
        """
        position = self.position_of(offset)
        if position is None:
            return
        offset_index, time_index = self.indexes
        self.file.truncate(position)
        self.file.sync()
        offset_index.truncate_to_position(position)
        time_index.truncate_to(offset)
        self.aborted = [entry for entry in self.aborted if entry.last_offset < offset]
        self.max_timestamp = time_index.last()
        self._size = position
        if position == 0:
            self.first_timestamp_ms = -1
        self._restart_at(offset_index.last_position())

    def _restart_at(self, position: int) -> None:
        """Note the batches again from `position`, the start of a batch, to the end of the file."""
        size = self.size_bytes
        self.end_offset = self.base_offset
        self.forget_recent()
        self._recent_floor = self.base_offset
        self._bytes_since_index = 0
        for at, header in self.headers(position, stop=size):
            if at == position:
                self._recent_floor = header.base_offset
            self._size = at
            self.note(
                header.base_offset,
                header.last_offset,
                header.record_timestamp_max_ms,
                header.size_bytes,
            )
        self._size = size

    # --- reading -----------------------------------------------------------------------------

    def headers(
        self, position: int, *, stop: int | None = None
    ) -> Iterator[tuple[int, BatchHeader]]:
        """Walk the headers of whole batches from `position`, the start of a batch, up to `stop`.

        Raises CorruptData on bytes that are not a batch header.
        """
        return headers_between(self.file, position, self.size_bytes if stop is None else stop)

    def position_of(self, offset: int) -> int | None:
        """Position of the first batch in this segment that ends above `offset`, None without
        one."""
        if offset >= self._recent_floor:
            at = bisect_right(self._ends, offset)
            return self._positions[at] if at < len(self._ends) else None
        found = self.by_index(lambda: self._first_above(offset))
        return None if found is None else found[0]

    def _first_above(self, offset: int) -> tuple[int, BatchHeader] | None:
        start = self.indexes[0].lookup(offset)
        for position, header in self.headers(start):
            if header.end_offset > offset:
                if position == start > 0 and header.base_offset > offset:
                    path = self.path(INDEX_SUFFIX)
                    raise CorruptData(path, 0, f"byte {start} lies behind offset {offset}")
                return position, header
        return None

    def last_end_below(self, offset: int) -> int:
        """End offset of the last batch that ends at or below `offset`; the base offset if there is
        none. Raises CorruptData."""
        return self.by_index(lambda: self._last_end(offset))

    def _last_end(self, offset: int) -> int:
        start = self.indexes[0].lookup(offset - 1)
        end_offset = self.base_offset
        for position, header in self.headers(start):
            if header.end_offset > offset:
                if position == start > 0:
                    path = self.path(INDEX_SUFFIX)
                    raise CorruptData(path, 0, f"byte {start} lies behind offset {offset - 1}")
                break
            end_offset = header.end_offset
        return end_offset

    def by_index(self, find: Callable[[], T]) -> T:
        """The result of `find`, which uses the index; a misleading index is rebuilt first.

        The index holds only what the batches hold too, so its damage is no damage of the batches.
        Raises CorruptData if the batches are damaged.
        """
        try:
            return find()
        except CorruptData as damage:
            self._indexes = self._rebuild_indexes()
            logger.warning("%s was wrong, and is made anew: %s", self.path(INDEX_SUFFIX), damage)
            if self.has_saved_indexes:
                self.renew_indexes(self.index_bytes())
            return find()

    def locate(
        self, offset: int, *, bytes_max: int, end_offset: int, at_least_one_batch: bool
    ) -> tuple[int, int, int] | None:
        """(position, length, base offset) of the batches to return; None if none ends above
        `offset`.

        The batches are whole, begin with the one that holds `offset`, and end at or below
        `end_offset`. They have at most `bytes_max` bytes, unless the first alone is larger and
        `at_least_one_batch` is set.
        """
        if offset < self._recent_floor:
            return self.by_index(
                lambda: self._locate_by_index(offset, bytes_max, end_offset, at_least_one_batch)
            )
        ends, positions = self._ends, self._positions
        first = bisect_right(ends, offset)
        count = len(ends)
        if first == count:
            return None
        stop = count if ends[-1] <= end_offset else bisect_right(ends, end_offset)
        start = positions[first]
        stop_position = self._size if stop == count else positions[stop]
        if stop_position - start > bytes_max:
            stop = bisect_right(positions, start + bytes_max) - 1
            if stop == first and at_least_one_batch:
                stop += 1
            stop_position = self._size if stop == count else positions[stop]
        return start, max(0, stop_position - start), self._bases[first]

    def _locate_by_index(
        self, offset: int, bytes_max: int, end_offset: int, at_least_one_batch: bool
    ) -> tuple[int, int, int] | None:
        found = self._first_above(offset)
        if found is None:
            return None
        start, first = found
        offset_index = self.indexes[0]
        if first.end_offset > end_offset:
            return start, 0, first.base_offset
        limit = start + bytes_max
        if limit >= self._size and end_offset >= self.end_offset > self.base_offset:
            return start, self._size - start, first.base_offset
        stop = start
        walk_from = min(offset_index.floor_position(limit), offset_index.lookup(end_offset))
        for position, header in self.headers(max(start, walk_from)):
            stop = position
            next_position = position + header.size_bytes
            if next_position > limit or header.end_offset > end_offset:
                break
            stop = next_position
        if stop == start and at_least_one_batch:
            stop = start + first.size_bytes
        return start, stop - start, first.base_offset
