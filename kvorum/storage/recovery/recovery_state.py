"""The recovery state of the active segment: its indexes and producers, saved with each flush.

A flush appends an entry to `N.recovery` (N: the segment's base offset). An unclean start continues
after the last entry at or below the recovery point, and checks no batch before it. Kafka walks the
whole segment instead; the more batches it has, the longer the broker is unavailable.

Entry: CRC-32C and length of the rest (u32 each, big-endian), then a msgpack array with the fields
of `_Entry`. Index bytes have the format of the index files, and only those that earlier entries
lack are written. Producers and all other fields are complete, with all batches needed to detect
duplicates.

An entry is written after its records were fsynced, and covers no others. The entry itself is not
fsynced: if it is missing or torn, the start only takes longer. The name of the file is fsynced
before a recovery point relies on it, so that no older file comes back.

Invariant: the file is removed before a batch that it covers changes (`Log.truncate_to` writes it
again afterwards), and the file of a sealed segment is never read.
"""

from __future__ import annotations

import logging
import struct
from dataclasses import dataclass
from typing import NamedTuple

import msgpack
from crc32c import crc32c

from kvorum.runtime.disk import Disk
from kvorum.runtime.errors import CorruptData, invariant
from kvorum.storage.files.file_names import RECOVERY_SUFFIX
from kvorum.storage.files.index import OffsetIndex, TimeIndex
from kvorum.storage.files.model import RELATIVE_OFFSET_MAX
from kvorum.storage.files.producer_state import ProducerBatch, ProducerEntry, ProducerStateTable
from kvorum.storage.files.segment import Segment
from kvorum.storage.files.transaction_index import pack_aborted, parse_aborted
from kvorum.storage.format.batch import BatchHeader

_PREFIX = struct.Struct(">II")
_VERSION = 0
_WASTE_BYTES_MAX = 1 << 16
"""The file is rewritten when it is twice as large as needed, plus this many bytes."""
logger = logging.getLogger("kvorum.storage")


class _Entry(NamedTuple):
    """One entry of the file.

    is_whole: earlier entries do not count.
    size_bytes: of the .log, up to end_offset.
    last_crc: the CRC of the last batch below end_offset.
    """

    version: int
    is_whole: bool
    end_offset: int
    size_bytes: int
    last_crc: int
    max_timestamp: tuple[int, int]
    offset_index: bytes
    time_index: bytes
    aborted: bytes
    producers: list[tuple[int, int, int, int, int, list[tuple[int, ...]]]]
    unreplicated: list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class PendingEntry:
    """An entry to be written at `position` of the file; at 0 it replaces the whole file."""

    path: str
    position: int
    data: bytes

    @property
    def is_new_file(self) -> bool:
        """True if a file is created, so that the folder must be fsynced."""
        return self.position == 0

    def write(self, disk: Disk) -> None:
        """Write the entry, after its records were fsynced. Raises OSError."""
        path = f"{self.path}.tmp" if self.is_new_file else self.path
        file = disk.open(path)
        try:
            if self.is_new_file:
                file.truncate(0)
            file.pwrite(self.data, self.position)
        finally:
            file.close()
        if self.is_new_file:
            disk.rename(path, self.path)


class RecoveryStateWriter:
    """Builds the entries of the active segment, and remembers the facts that its file already
    has."""

    __slots__ = (
        "_aborted_count",
        "_end_offset",
        "_indexes",
        "_offset_count",
        "_position",
        "_segment",
        "_time_count",
        "_whole_bytes",
    )

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Forget the content of the file, because it is unknown or invalid; the next entry replaces
        it."""
        self._segment: Segment | None = None
        self._indexes: tuple[OffsetIndex, TimeIndex] | None = None
        self._end_offset = -1
        self._position = self._whole_bytes = 0
        self._offset_count = self._time_count = self._aborted_count = 0

    def entry_of(self, segment: Segment, producers: ProducerStateTable) -> PendingEntry | None:
        """The entry for the present state of `segment`; None if nothing is new.

        producers: state at the segment's end. A caller that does not write the entry must call
            `forget`.
        """
        is_known = segment is self._segment and segment.indexes is self._indexes
        if segment.size_bytes == 0 or (is_known and segment.end_offset == self._end_offset):
            return None
        if not is_known:
            self.forget()
        data = self._packed(segment, producers)
        if is_known and self._position + len(data) > 2 * self._whole_bytes + _WASTE_BYTES_MAX:
            self.forget()
            data = self._packed(segment, producers)
        if self._position == 0:
            self._whole_bytes = len(data)
        pending = PendingEntry(segment.path(RECOVERY_SUFFIX), self._position, data)
        offset_index, time_index = segment.indexes
        self._segment, self._indexes = segment, segment.indexes
        self._end_offset = segment.end_offset
        self._position += len(data)
        self._offset_count, self._time_count = len(offset_index), len(time_index)
        self._aborted_count = len(segment.aborted)
        return pending

    def _packed(self, segment: Segment, producers: ProducerStateTable) -> bytes:
        offset_index, time_index = segment.indexes
        entry = _Entry(
            version=_VERSION,
            is_whole=self._position == 0,
            end_offset=segment.end_offset,
            size_bytes=segment.size_bytes,
            last_crc=_last_header(segment).crc,
            max_timestamp=segment.max_timestamp,
            offset_index=offset_index.to_bytes(self._offset_count),
            time_index=time_index.to_bytes(self._time_count),
            aborted=pack_aborted(segment.aborted[self._aborted_count :]),
            producers=[
                (
                    known.producer_id,
                    known.epoch,
                    known.last_timestamp_ms,
                    known.coordinator_epoch,
                    known.current_transaction_first_offset,
                    list(known.batches),
                )
                for known in producers.entries.values()
            ],
            unreplicated=list(producers.unreplicated.items()),
        )
        body = bytes(msgpack.packb(entry))
        return _PREFIX.pack(crc32c(body), len(body)) + body


def write_recovery_state(disk: Disk, segment: Segment, producers: ProducerStateTable) -> None:
    """Replace the recovery-state file of an fsynced segment; the caller fsyncs the folder."""
    pending = RecoveryStateWriter().entry_of(segment, producers)
    if pending is not None:
        pending.write(disk)


class Resumed(NamedTuple):
    """The recovery state that a segment continues from.

    producers: state at end_offset.
    is_newest: the file has no later entry.
    last_epoch: leader epoch of the batch that ends at end_offset.
    """

    end_offset: int
    producers: ProducerStateTable
    is_newest: bool
    last_epoch: int


def resume_segment(disk: Disk, segment: Segment, recovery_point: int) -> Resumed | None:
    """Load into `segment` the newest entry at or below `recovery_point`.

    None if no entry fits; then nothing is known of the segment.
    """
    path = segment.path(RECOVERY_SUFFIX)
    if not disk.exists(path):
        return None
    entries = _entries(disk.read_bytes(path))
    fit = [entry for entry in entries if entry.end_offset <= recovery_point]
    if not fit or fit[-1].size_bytes > segment.file.size():
        # The .log is shorter than its flushed part; the walk will find its end.
        return None
    try:
        last = _take_over(segment, path, fit)
    except CorruptData as damage:
        logger.warning("%s does not fit the log, which is checked whole: %s", path, damage)
        return None
    is_newest = len(fit) == len(entries)
    return Resumed(fit[-1].end_offset, _table(fit[-1]), is_newest, last.leader_epoch)


def verify_recovery_state(disk: Disk, directory: str, base_offset: int) -> list[str]:
    """A sentence if the recovery state of the segment does not fit its .log; empty otherwise."""
    segment = Segment(
        disk, directory, base_offset, created_ms=0, index_interval_bytes=RELATIVE_OFFSET_MAX
    )
    path = segment.path(RECOVERY_SUFFIX)
    entries = _entries(disk.read_bytes(path))
    try:
        if entries and entries[-1].size_bytes > segment.file.size():
            end = entries[-1].size_bytes
            return [f"{path}: it says that the log was flushed up to byte {end}"]
        if entries:
            _take_over(segment, path, entries)
    except CorruptData as damage:
        return [f"{path} does not fit the log: {damage}"]
    finally:
        file = segment.take_file()
        if file is not None:
            file.close()
    return []


def _entries(data: bytes) -> list[_Entry]:
    """The entries from the last whole one on, up to a torn one, which a crash may leave."""
    entries: list[_Entry] = []
    position = 0
    while position + _PREFIX.size <= len(data):
        crc, length = _PREFIX.unpack_from(data, position)
        position += _PREFIX.size
        body = data[position : position + length]
        if len(body) < length or not length or crc32c(body) != crc:
            break
        fields = msgpack.unpackb(body, use_list=False)
        if fields[0] != _VERSION:
            break
        entry = _Entry(*fields)
        if entry.is_whole:
            entries.clear()
        entries.append(entry)
        position += length
    return entries


def _take_over(segment: Segment, path: str, entries: list[_Entry]) -> BatchHeader:
    """Load `entries` into `segment` and return the header of the last batch that they cover.

    Raises CorruptData if they do not fit the batches.
    """
    last = entries[-1]
    offset_index, time_index = OffsetIndex(segment.base_offset), TimeIndex(segment.base_offset)
    reason = offset_index.load(
        b"".join(entry.offset_index for entry in entries), log_size_bytes=last.size_bytes
    ) or time_index.load(b"".join(entry.time_index for entry in entries))
    if reason is not None:
        raise CorruptData(path, 0, reason)
    segment.resume(
        indexes=(offset_index, time_index),
        aborted=parse_aborted(b"".join(entry.aborted for entry in entries), path),
        max_timestamp=last.max_timestamp,
        size_bytes=last.size_bytes,
    )
    if segment.end_offset == last.end_offset:
        header = _last_header(segment)
        if header.crc == last.last_crc:
            return header
    raise CorruptData(
        segment.file.path,
        last.size_bytes,
        f"the last batch up to here is not that which ends at {last.end_offset}",
    )


def _last_header(segment: Segment) -> BatchHeader:
    """The header of the last batch; its CRC ties an entry to this batch and no other."""
    position = segment.position_of(segment.end_offset - 1)
    invariant(position is not None, f"{segment.file.path}: no batch ends at {segment.end_offset}")
    _, header = next(segment.headers(position or 0))
    return header


def _table(entry: _Entry) -> ProducerStateTable:
    table = ProducerStateTable()
    for producer_id, epoch, last_timestamp_ms, coordinator_epoch, first, batches in entry.producers:
        known = ProducerEntry(producer_id, epoch)
        known.last_timestamp_ms = last_timestamp_ms
        known.coordinator_epoch = coordinator_epoch
        known.current_transaction_first_offset = first
        known.batches = [ProducerBatch(*batch) for batch in batches]
        table.entries[producer_id] = known
    table.find_ongoing()
    table.unreplicated = dict(entry.unreplicated)
    return table
