"""The data types of a log: its settings, the results of appends and reads, and two errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from kvorum.runtime.disk import DiskFile
from kvorum.runtime.errors import KvorumError
from kvorum.storage.format.batch import Buffer

RELATIVE_OFFSET_MAX = (1 << 31) - 1
"""Limit of offsets and positions relative to their segment: its indexes have 32 bits for each."""
DAY_MS = 86_400_000
INDEX_BYTES_MIN = 36
"""Least size of an index: room for two time index entries and the forced last one. With less, every
append would roll."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionConfig:
    """Compaction settings of one log, with the defaults of Kafka's topic configs."""

    min_cleanable_dirty_ratio: float = 0.5
    min_lag_ms: int = 0
    max_lag_ms: int = (1 << 63) - 1
    delete_retention_ms: int = DAY_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """Settings of one log, with the defaults of Kafka's configs. -1 means no limit.

    compaction: None for a log that is not compacted.
    segment_jitter_ms: up to so much is taken off segment_ms, for each segment another part.
    is_preallocated: the disk space of a segment is reserved when the segment is begun.
    keeps_recovery_state: each flush saves the state of the active segment, so that an unclean start
        need not scan it (`storage.recovery.recovery_state`). For logs with few flushes.
    refuses_missing_segments: retired segments are removed only after the leader epoch checkpoint is
        written. A start then refuses a log that begins above its first known epoch
        (`storage.recovery.missing_files`).
    """

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * DAY_MS
    segment_jitter_ms: int = 0
    is_preallocated: bool = False
    index_interval_bytes: int = 4096
    index_bytes_max: int = 10 << 20
    retention_ms: int = 7 * DAY_MS
    retention_bytes: int = -1
    max_message_bytes: int = 1_048_588
    flush_messages: int | None = None
    flush_ms: int | None = None
    file_delete_delay_ms: int = 60_000
    producer_id_expiration_ms: int = DAY_MS
    compaction: CompactionConfig | None = None
    keeps_recovery_state: bool = False
    refuses_missing_segments: bool = False

    @property
    def reserved_bytes(self) -> int:
        """Disk space to reserve for a new segment."""
        return self.segment_bytes if self.is_preallocated else 0

    def __post_init__(self) -> None:
        # File positions in the offset index are 32 bits.
        if not 0 < self.segment_bytes <= RELATIVE_OFFSET_MAX:
            raise ValueError(f"segment_bytes {self.segment_bytes} is not in 1..2^31-1")
        if self.index_bytes_max < INDEX_BYTES_MIN:
            raise ValueError(f"index_bytes_max {self.index_bytes_max} is below {INDEX_BYTES_MIN}")


class OffsetOutOfRange(KvorumError):
    """An offset outside [start_offset, end_offset]."""

    def __init__(self, offset: int, start_offset: int, end_offset: int) -> None:
        super().__init__(f"offset {offset} outside [{start_offset}, {end_offset}]")
        self.offset = offset
        self.start_offset = start_offset
        self.end_offset = end_offset


class OutOfOrderAppend(KvorumError):
    """A replicated batch that does not continue this log; no batch of the call was appended."""


class Appended(NamedTuple):
    """The result of one append; offsets are inclusive. A named tuple, as appends are frequent."""

    base_offset: int
    last_offset: int
    max_timestamp_ms: int
    size_bytes: int


class LogSlice(NamedTuple):
    """`length` bytes of whole batches at `position` of `file`; `first_offset` is the first batch's.

    The slice is valid until the log is truncated, closed or deleted, and for `file_delete_delay_ms`
    after retention has removed the segment. Call `file.fileno()` only when sending: it is -1 for a
    closed file, while a number kept from earlier may by then belong to another file.
    """

    file: DiskFile
    position: int
    length: int
    first_offset: int

    def read(self) -> bytes:
        return self.file.pread(self.length, self.position) if self.length else b""


class _NoFile:
    """The file of an empty slice; it has no bytes and cannot be written."""

    path = ""

    def fileno(self) -> int:
        return -1

    def size(self) -> int:
        return 0

    def pread(self, length: int, position: int) -> bytes:
        return b""

    def pwrite(self, data: Buffer, position: int) -> None:
        raise OSError("the file of an empty slice cannot be written")

    def truncate(self, size: int) -> None:
        raise OSError("the file of an empty slice cannot be truncated")

    def reserve(self, size: int) -> None:
        raise OSError("the file of an empty slice cannot grow")

    def sync(self) -> None:
        return

    def close(self) -> None:
        return


NO_FILE: DiskFile = _NoFile()
