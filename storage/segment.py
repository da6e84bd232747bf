"""One segment: a .log file of batches with its two indexes.

Files are opened when first needed. The active segment also remembers where its latest batches lie
(`_ends`, `_positions`), so that the tail reads of caught-up fetchers cost two bisections and no
read of the file.

Invariant that recovery rests on: the .index file of a segment exists only while its .log is sealed
or closed and fsynced. Whoever appends to such a segment again removes it first (`unseal`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from runtime.disk import Disk, DiskFile
from runtime.errors import CorruptData
from storage.batch import (
    BATCH_LENGTH_MIN,
    HEADER,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    MAGIC,
    BatchHeader,
)
from storage.index import OffsetIndex, TimeIndex

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
SNAPSHOT_SUFFIX = ".snapshot"
DELETED_SUFFIX = ".deleted"

RECENT_BATCHES_MAX = 4096
"""Batches of the active segment whose place is remembered; at 1 KB each the last 4 MB."""
_SCAN_BYTES = 16 * 1024
"""Read at once when walking headers: a few index intervals."""
_NOTHING_RECENT = 1 << 63
NAME_DIGITS = 20


def file_name(base_offset: int, suffix: str) -> str:
    """Kafka's file name: the base offset as 20 digits."""
    return f"{base_offset:020d}{suffix}"


def offsets_of(names: list[str], suffix: str) -> list[int]:
    """Base offsets of the files with this suffix among `names`, ascending."""
    length = NAME_DIGITS + len(suffix)
    return sorted(
        int(name[:NAME_DIGITS])
        for name in names
        if len(name) == length and name.endswith(suffix) and name[:NAME_DIGITS].isdigit()
    )


class Segment:
    """The batches from `base_offset` up to the next segment."""

    __slots__ = (
        "_bases",
        "_bytes_since_index",
        "_disk",
        "_ends",
        "_file",
        "_indexes",
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
    ) -> None:
        self._disk = disk
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
        self._bytes_since_index = 0
        self.forget_recent()

    # --- files -------------------------------------------------------------------------------

    def path(self, suffix: str) -> str:
        return f"{self.directory}/{file_name(self.base_offset, suffix)}"

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

    def take_file(self) -> DiskFile | None:
        """The open file, which the caller now has to close."""
        file, self._file = self._file, None
        return file

    # --- append ------------------------------------------------------------------------------

    def start_empty(self) -> None:
        """Begin as a new active segment; makes the file."""
        self._size = 0
        self._indexes = (OffsetIndex(self.base_offset), TimeIndex(self.base_offset))
        self._recent_floor = self.base_offset
        self.file.truncate(0)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Put whole batches at the end in one write. Nothing is noted until it succeeded.

        On failure the file is cut back, so that no whole batch of the failed write can stand behind
        the next one's bytes and pass for data. Raises OSError.
        """
        try:
            self.file.pwrite(data, self._size)
        except OSError:
            self.file.truncate(self._size)
            raise

    def note(
        self, base_offset: int, last_offset: int, max_timestamp_ms: int, size_bytes: int
    ) -> None:
        """Account for the batch that now stands at the end of the noted part of the file."""
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
        """Drop the tail memory, as when the segment is no longer the active one."""
        self._bases: list[int] = []
        self._ends: list[int] = []
        self._positions: list[int] = []
        # Batches that end above this offset are all remembered.
        self._recent_floor = _NOTHING_RECENT

    # --- indexes -----------------------------------------------------------------------------

    @property
    def indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        """Both indexes; read from their files, or rebuilt from the headers if those are unfit."""
        if self._indexes is None:
            self._indexes = self._load_indexes() or self._rebuild_indexes()
        return self._indexes

    def _load_indexes(self) -> tuple[OffsetIndex, TimeIndex] | None:
        if not self.has_saved_indexes:
            return None
        offset_index, time_index = OffsetIndex(self.base_offset), TimeIndex(self.base_offset)
        offset_bytes = self._disk.read_bytes(self.path(INDEX_SUFFIX))
        time_bytes = self._disk.read_bytes(self.path(TIME_INDEX_SUFFIX))
        # An unfit index is no loss: it holds nothing that the batches do not.
        if offset_index.load(offset_bytes, log_size_bytes=self.size_bytes) is not None:
            return None
        if time_index.load(time_bytes) is not None:
            return None
        self.max_timestamp = time_index.last()
        return offset_index, time_index

    def _rebuild_indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        offset_index, time_index = OffsetIndex(self.base_offset), TimeIndex(self.base_offset)
        since = 0
        largest = (-1, self.base_offset)
        for position, header in self.headers(0):
            if header.max_timestamp_ms > largest[0]:
                largest = (header.max_timestamp_ms, header.last_offset)
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

    def index_bytes(self) -> tuple[bytes, bytes]:
        """Contents of .index and .timeindex, the latter with its forced last entry."""
        offset_index, time_index = self.indexes
        time_index.maybe_append(*self.max_timestamp)
        return offset_index.to_bytes(), time_index.to_bytes()

    def save_indexes(self, contents: tuple[bytes, bytes]) -> None:
        """Write and fsync both files. Only after the .log itself was fsynced (see the top)."""
        for suffix, data in zip((TIME_INDEX_SUFFIX, INDEX_SUFFIX), contents[::-1], strict=True):
            file = self._disk.open(self.path(suffix))
            try:
                file.truncate(0)
                file.pwrite(data, 0)
                file.sync()
            finally:
                file.close()
        self.has_saved_indexes = True

    def unseal(self) -> bool:
        """Before bytes change again: load the indexes and remove their files. True if any were."""
        had_files = self.has_saved_indexes
        _ = self.indexes
        if had_files:
            self.has_saved_indexes = False
            self._disk.remove(self.path(INDEX_SUFFIX))
            self._disk.remove(self.path(TIME_INDEX_SUFFIX))
        return had_files

    # --- loading and cutting -------------------------------------------------------------------

    def load_tail(self) -> None:
        """Find end offset, largest timestamp and the tail memory by walking the last headers.

        For a segment that was closed cleanly: only what lies behind its last index entry is read.
        """
        offset_index, _ = self.indexes
        self._restart_at(offset_index.last_position())
        if self._size and self.first_timestamp_ms < 0:
            for _, header in self.headers(0):
                self.first_timestamp_ms = header.max_timestamp_ms
                break

    def reset_for_scan(self) -> None:
        """Forget everything derived; recovery is about to note every batch again."""
        self._indexes = (OffsetIndex(self.base_offset), TimeIndex(self.base_offset))
        self.max_timestamp = (-1, self.base_offset)
        self.first_timestamp_ms = -1
        self.end_offset = self.base_offset
        self._bytes_since_index = 0
        self._size = 0
        self.forget_recent()
        self._recent_floor = self.base_offset

    def cut(self, offset: int) -> None:
        """Drop the batches whose last offset is >= `offset`; fsynced on return.

        The fsync is not optional: with the cut lost and later appends kept by a power cut, old
        batches would stand behind new ones.
        """
        position = self.position_of(offset)
        if position is None:
            return
        offset_index, time_index = self.indexes
        self.file.truncate(position)
        self.file.sync()
        offset_index.truncate_to_position(position)
        time_index.truncate_to(offset)
        self.max_timestamp = time_index.last()
        self._size = position
        if position == 0:
            self.first_timestamp_ms = -1
        self._restart_at(offset_index.last_position())

    def _restart_at(self, position: int) -> None:
        """Note again the batches from `position`, the start of a batch, to the end of the file."""
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
                header.max_timestamp_ms,
                header.size_bytes,
            )
        self._size = size

    # --- reading -----------------------------------------------------------------------------

    def headers(
        self, position: int, *, stop: int | None = None
    ) -> Iterator[tuple[int, BatchHeader]]:
        """Walk the headers of whole batches from `position`, the start of a batch, up to `stop`.

        Raises CorruptData on a header that cannot be one.
        """
        end = self.size_bytes if stop is None else stop
        file = self.file
        chunk, chunk_start = b"", position
        while position + HEADER_BYTES <= end:
            at = position - chunk_start
            if at + HEADER_BYTES > len(chunk):
                chunk, chunk_start, at = file.pread(_SCAN_BYTES, position), position, 0
                if len(chunk) < HEADER_BYTES:
                    raise CorruptData(file.path, position, f"file shorter than {end} bytes")
            header = BatchHeader._make(HEADER.unpack_from(chunk, at))
            if header.magic != MAGIC or header.batch_length < BATCH_LENGTH_MIN:
                raise CorruptData(
                    file.path,
                    position,
                    f"no batch header: magic {header.magic}, length {header.batch_length}",
                )
            next_position = position + header.batch_length + LENGTH_OVERHEAD
            if next_position > end:
                raise CorruptData(file.path, position, f"a batch runs past byte {end}")
            yield position, header
            position = next_position
        if position != end:
            raise CorruptData(file.path, position, f"{end - position} bytes are no batch")

    def position_of(self, offset: int) -> int | None:
        """Start of the first batch that ends above `offset`; None if there is none here."""
        if offset >= self._recent_floor:
            at = bisect_right(self._ends, offset)
            return self._positions[at] if at < len(self._ends) else None
        found = self._first_above(offset)
        return None if found is None else found[0]

    def _first_above(self, offset: int) -> tuple[int, BatchHeader] | None:
        for position, header in self.headers(self.indexes[0].lookup(offset)):
            if header.end_offset > offset:
                return position, header
        return None

    def locate(
        self, offset: int, *, bytes_max: int, end_offset: int, at_least_one_batch: bool
    ) -> tuple[int, int, int] | None:
        """(position, length, base offset) of the batches to serve; None if none ends above.

        Whole batches from the one that ends above `offset`, all ending at or below `end_offset`,
        `bytes_max` in all unless the first alone is larger and `at_least_one_batch` holds.
        """
        if offset < self._recent_floor:
            return self._locate_by_index(offset, bytes_max, end_offset, at_least_one_batch)
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
