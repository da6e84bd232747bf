"""Offset index and time index of a segment, with Kafka's entries and meaning.

Offset entry, 8 bytes: i32 (last offset of a batch - base offset), i32 file position where that
batch STARTS. An entry is added once more than `index_interval_bytes` of batches have passed since
the last one, so the first batch of a segment never has one.

Time entry, 12 bytes: i64 largest timestamp so far, i32 (last offset of the batch that holds it -
base offset). It is added together with an offset entry, and once at the end; timestamps strictly
rise.

Both indexes are in memory while needed. The file is written as a whole when the segment is sealed
or closed (`Segment.save_indexes`), because until then recovery rebuilds it from the batches anyway.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right

OFFSET_ENTRY_BYTES = 8
TIME_ENTRY_BYTES = 12
_POSITION_MAX = (1 << 31) - 1
_TIME_ENTRY = struct.Struct(">qi")


class OffsetIndex:
    """Sparse map from offset to file position."""

    __slots__ = ("base_offset", "positions", "relative_offsets")

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.relative_offsets = array("i")
        self.positions = array("i")

    def __len__(self) -> int:
        return len(self.positions)

    def append(self, last_offset: int, position: int) -> None:
        """Add the batch that starts at `position` and ends with `last_offset` (inclusive).

        A batch that starts above 2^31-1 gets no entry; a lookup walks to it from the last entry.
        Such positions occur if a clean adds more bytes than it frees, by writing delete horizons
        into a segment of maximum size.
        """
        if position > _POSITION_MAX:
            return
        self.relative_offsets.append(last_offset - self.base_offset)
        self.positions.append(position)

    def lookup(self, offset: int) -> int:
        """Position of a batch at or before the one that holds `offset`; 0 if none is known."""
        at = bisect_right(self.relative_offsets, offset - self.base_offset) - 1
        return self.positions[at] if at >= 0 else 0

    def floor_position(self, position: int) -> int:
        """Largest known start of a batch that is not above `position`; 0 if none is known."""
        at = bisect_right(self.positions, position) - 1
        return self.positions[at] if at >= 0 else 0

    def upper_offset(self, position: int) -> int | None:
        """The base offset of the first indexed batch at or after `position`: every batch before
        `position` ends below it. None if no such batch is indexed."""
        at = bisect_left(self.positions, position)
        if at == len(self.positions):
            return None
        return self.base_offset + self.relative_offsets[at]

    def last_position(self) -> int:
        """Start of the last indexed batch; 0 if none."""
        return self.positions[-1] if self.positions else 0

    def truncate_to_position(self, position: int) -> None:
        """Forget the batches that start at or after `position`."""
        keep = bisect_left(self.positions, position)
        del self.positions[keep:]
        del self.relative_offsets[keep:]

    def to_bytes(self, first: int = 0) -> bytes:
        """The content of the .index file, from entry `first` on."""
        positions = self.positions[first:]
        both = array("i", bytes(OFFSET_ENTRY_BYTES * len(positions)))
        both[0::2] = self.relative_offsets[first:]
        both[1::2] = positions
        _swap(both)
        return both.tobytes()

    def load(self, data: bytes, *, log_size_bytes: int) -> str | None:
        """Load the entries of an .index file. Returns why they are unusable, None if they are
        not."""
        if len(data) % OFFSET_ENTRY_BYTES:
            return f"{len(data)} bytes are no multiple of {OFFSET_ENTRY_BYTES}"
        both = array("i")
        both.frombytes(data)
        _swap(both)
        offsets, positions = both[0::2], both[1::2]
        if not _is_rising(offsets) or not _is_rising(positions):
            return "entries do not rise"
        if positions and (positions[0] <= 0 or positions[-1] >= log_size_bytes):
            return f"positions {positions[0]}..{positions[-1]} in a log of {log_size_bytes} bytes"
        self.relative_offsets, self.positions = offsets, positions
        return None


class TimeIndex:
    """Sparse map from the largest timestamp so far to the offset of the batch that has it."""

    __slots__ = ("base_offset", "relative_offsets", "timestamps_ms")

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.timestamps_ms = array("q")
        self.relative_offsets = array("i")

    def __len__(self) -> int:
        return len(self.timestamps_ms)

    def maybe_append(self, timestamp_ms: int, last_offset: int) -> None:
        """Add an entry if `timestamp_ms` is larger than all earlier ones."""
        if timestamp_ms < 0 or (self.timestamps_ms and timestamp_ms <= self.timestamps_ms[-1]):
            return
        self.timestamps_ms.append(timestamp_ms)
        self.relative_offsets.append(last_offset - self.base_offset)

    def lookup(self, timestamp_ms: int) -> int:
        """An offset; no record before the batch that holds it has a timestamp >= `timestamp_ms`."""
        at = bisect_right(self.timestamps_ms, timestamp_ms) - 1
        return self.base_offset + self.relative_offsets[at] if at >= 0 else self.base_offset

    def last_offset_below(self, offset: int) -> int | None:
        """Last offset of the batch with the largest timestamp indexed below `offset`, None without
        one."""
        at = bisect_left(self.relative_offsets, offset - self.base_offset) - 1
        return self.base_offset + self.relative_offsets[at] if at >= 0 else None

    def last(self) -> tuple[int, int]:
        """(largest timestamp, its batch's last offset); (-1, base offset) when empty."""
        if not self.timestamps_ms:
            return -1, self.base_offset
        return self.timestamps_ms[-1], self.base_offset + self.relative_offsets[-1]

    def truncate_to(self, offset: int) -> None:
        """Forget the entries at or above `offset`."""
        keep = bisect_left(self.relative_offsets, offset - self.base_offset)
        del self.timestamps_ms[keep:]
        del self.relative_offsets[keep:]

    def to_bytes(self, first: int = 0) -> bytes:
        """The content of the .timeindex file, from entry `first` on."""
        pairs = zip(self.timestamps_ms[first:], self.relative_offsets[first:], strict=True)
        return b"".join(_TIME_ENTRY.pack(*pair) for pair in pairs)

    def load(self, data: bytes) -> str | None:
        """Load the entries of a .timeindex file. Returns why they are unusable, None if they are
        not."""
        if len(data) % TIME_ENTRY_BYTES:
            return f"{len(data)} bytes are no multiple of {TIME_ENTRY_BYTES}"
        timestamps, offsets = array("q"), array("i")
        for timestamp_ms, relative_offset in _TIME_ENTRY.iter_unpack(data):
            timestamps.append(timestamp_ms)
            offsets.append(relative_offset)
        if not _is_rising(timestamps) or not _is_rising(offsets):
            return "entries do not rise"
        self.timestamps_ms, self.relative_offsets = timestamps, offsets
        return None


def _is_rising(values: array[int]) -> bool:
    return all(values[at] < values[at + 1] for at in range(len(values) - 1))


def _swap(values: array[int]) -> None:
    if sys.byteorder == "little":
        values.byteswap()
