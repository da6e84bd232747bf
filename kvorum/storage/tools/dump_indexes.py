"""The output of kafka-dump-log for the files beside a .log: indexes, producer snapshots, epochs.

Lines are yielded. Inconsistencies are collected as complaints in Kafka's words; its tool prints
them to stderr at the end. Files are never changed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from kvorum.runtime.disk import Disk, DiskFile
from kvorum.storage.files.index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES
from kvorum.storage.files.leader_epochs import read_epochs
from kvorum.storage.files.producer_state import read_snapshot
from kvorum.storage.files.transaction_index import parse_aborted
from kvorum.storage.format.batch import (
    BATCH_LENGTH_MIN,
    HEADER_BYTES,
    BatchError,
    BatchHeader,
    iter_records,
    read_header,
)

_INDEX_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")


@dataclass(slots=True)
class Complaints:
    """The complaints by file, in the order and the words of kafka-dump-log."""

    offset_mismatches: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    timestamp_mismatches: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    timestamps_out_of_order: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    offsets_not_found: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    not_consecutive: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    damage: list[str] = field(default_factory=list)
    """Damage of .log files, with its position, and of indexes that a start would reject."""

    @property
    def are_faults(self) -> bool:
        """True if there is any complaint besides gaps in the offsets, which compaction leaves."""
        return bool(
            self.damage
            or self.offset_mismatches
            or self.timestamp_mismatches
            or self.timestamps_out_of_order
            or self.offsets_not_found
        )

    def lines(self) -> Iterator[str]:
        for found, heading, line in (
            (self.offset_mismatches, "Mismatches in :", "Index offset: {}, log offset: {}"),
            (
                self.timestamp_mismatches,
                "Found timestamp mismatch in :",
                "Index timestamp: {}, log timestamp: {}",
            ),
            (
                self.timestamps_out_of_order,
                "Found out of order timestamp in :",
                "Index timestamp: {}, Previously indexed timestamp: {}",
            ),
            (
                self.offsets_not_found,
                "The following indexed offsets are not found in the log: ",
                "Indexed offset: {}, found log offset: {}",
            ),
            (self.not_consecutive, "Non-consecutive offsets in ", "{} is followed by {}"),
        ):
            for path, pairs in found.items():
                yield f"{heading}{path}"
                for pair in reversed(pairs):
                    yield f"  {line.format(*pair)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexOptions:
    """sanity_only: only report if a start would accept the file.
    verify_only: compare the entries with the log and print none.
    """

    sanity_only: bool = False
    verify_only: bool = False


def index_entries(data: bytes, base_offset: int) -> Iterator[tuple[int, int]]:
    """(offset, position) entries of an .index file. While Apache Kafka has the file open, the file
    ends in zeros."""
    whole = len(data) - len(data) % OFFSET_ENTRY_BYTES
    for at, (relative, position) in enumerate(_INDEX_ENTRY.iter_unpack(data[:whole])):
        if relative == 0 and at:
            return
        yield base_offset + relative, position


def time_index_entries(data: bytes, base_offset: int) -> Iterator[tuple[int, int]]:
    """(timestamp, offset) entries of a .timeindex file; zeros as in `index_entries`."""
    whole = len(data) - len(data) % TIME_ENTRY_BYTES
    for at, (timestamp_ms, relative) in enumerate(_TIME_ENTRY.iter_unpack(data[:whole])):
        if relative == 0 and at:
            return
        yield timestamp_ms, base_offset + relative


def dump_index(
    disk: Disk, path: str, base_offset: int, options: IndexOptions, complaints: Complaints
) -> Iterator[str]:
    """Lines for an .index file, compared with its .log."""
    data = disk.read_bytes(path)
    if len(data) < OFFSET_ENTRY_BYTES:
        yield f"{path} is empty."
        return
    if options.sanity_only:
        yield from _sanity(path, _index_fault(data, base_offset), complaints)
        return
    with _Log(disk, path) as log:
        for offset, position in index_entries(data, base_offset):
            header = log.header_at(position)
            if header is None or header.last_offset != offset:
                found = -1 if header is None else header.last_offset
                complaints.offset_mismatches.setdefault(path, []).append((offset, found))
            if not options.verify_only:
                yield f"offset: {offset} position: {position}"


def dump_time_index(
    disk: Disk, path: str, base_offset: int, options: IndexOptions, complaints: Complaints
) -> Iterator[str]:
    """Lines for a .timeindex file, compared with its .log."""
    data = disk.read_bytes(path)
    if options.sanity_only:
        yield from _sanity(path, _time_index_fault(data, base_offset), complaints)
        return
    before_ms = -1
    with _Log(disk, path) as log:
        index_path = path.removesuffix(".timeindex") + ".index"
        index = disk.read_bytes(index_path) if disk.exists(index_path) else b""
        places = list(index_entries(index, base_offset))
        for timestamp_ms, offset in time_index_entries(data, base_offset):
            start = max((at for indexed, at in places if indexed <= offset), default=0)
            last_offset, largest_ms = log.largest_timestamp(start, offset)
            if last_offset != offset:
                complaints.offsets_not_found.setdefault(path, []).append((offset, last_offset))
            else:
                if largest_ms != timestamp_ms:
                    pair = (timestamp_ms, largest_ms)
                    complaints.timestamp_mismatches.setdefault(path, []).append(pair)
                if before_ms >= timestamp_ms:
                    pair = (timestamp_ms, before_ms)
                    complaints.timestamps_out_of_order.setdefault(path, []).append(pair)
            if not options.verify_only:
                yield f"timestamp: {timestamp_ms} offset: {offset}"
            before_ms = timestamp_ms


def dump_transaction_index(disk: Disk, path: str) -> Iterator[str]:
    """Lines for a .txnindex file. Raises CorruptData."""
    for entry in parse_aborted(disk.read_bytes(path), path):
        yield (
            f"version: 0 producerId: {entry.producer_id} firstOffset: {entry.first_offset}"
            f" lastOffset: {entry.last_offset} lastStableOffset: {entry.last_stable_offset}"
        )


def dump_snapshot(disk: Disk, path: str) -> Iterator[str]:
    """Lines for a producer .snapshot. Raises CorruptData."""
    for entry in read_snapshot(disk, path).entries.values():
        first = entry.current_transaction_first_offset
        line = (
            f"producerId: {entry.producer_id} producerEpoch: {entry.epoch}"
            f" coordinatorEpoch: {entry.coordinator_epoch} currentTxnFirstOffset:"
            f" {'OptionalLong.empty' if first < 0 else f'OptionalLong[{first}]'}"
            f" lastTimestamp: {entry.last_timestamp_ms} "
        )
        if entry.batches:
            batch = entry.batches[0]
            line += (
                f"firstSequence: {batch.first_sequence} lastSequence: {batch.last_sequence}"
                f" lastOffset: {batch.last_offset} offsetDelta: {batch.offset_delta}"
                f" timestamp: {batch.timestamp_ms}"
            )
        yield line


def dump_epochs(disk: Disk, path: str) -> Iterator[str]:
    """Lines for a leader-epoch-checkpoint; Kafka's tool has none. Raises CorruptData."""
    for epoch, start_offset in read_epochs(disk, path).entries:
        yield f"epoch: {epoch} startOffset: {start_offset}"


def _sanity(path: str, fault: str | None, complaints: Complaints) -> Iterator[str]:
    if fault is None:
        yield f"{path} passed sanity check."
    else:
        complaints.damage.append(f"{path} failed sanity check: {fault}")


def _index_fault(data: bytes, base_offset: int) -> str | None:
    """The error of Kafka's OffsetIndex.sanityCheck, None for a valid index."""
    whole = len(data) - len(data) % OFFSET_ENTRY_BYTES
    if whole:
        relative, _ = _INDEX_ENTRY.unpack_from(data, whole - OFFSET_ENTRY_BYTES)
        if relative < 0:
            return _below_base(base_offset + relative, base_offset)
    return _uneven(data, OFFSET_ENTRY_BYTES)


def _time_index_fault(data: bytes, base_offset: int) -> str | None:
    """The error of Kafka's TimeIndex.sanityCheck, None for a valid index."""
    whole = len(data) - len(data) % TIME_ENTRY_BYTES
    if whole:
        first_ms, _ = _TIME_ENTRY.unpack_from(data, 0)
        last_ms, relative = _TIME_ENTRY.unpack_from(data, whole - TIME_ENTRY_BYTES)
        if last_ms < first_ms:
            return f"the last timestamp is {last_ms}, which is less than the first one, {first_ms}"
        if relative < 0:
            return _below_base(base_offset + relative, base_offset)
    return _uneven(data, TIME_ENTRY_BYTES)


def _below_base(last_offset: int, base_offset: int) -> str:
    return f"the last offset is {last_offset}, which is less than the base offset {base_offset}"


def _uneven(data: bytes, entry_bytes: int) -> str | None:
    if len(data) % entry_bytes:
        return f"{len(data)} bytes are no multiple of {entry_bytes}"
    return None


class _Log:
    """The .log beside an index, read at positions that the index names."""

    def __init__(self, disk: Disk, index_path: str) -> None:
        path = index_path[: index_path.rindex(".")] + ".log"
        self._file: DiskFile | None = disk.open(path) if disk.exists(path) else None

    def __enter__(self) -> _Log:
        return self

    def __exit__(self, *error: object) -> None:
        if self._file is not None:
            self._file.close()

    def header_at(self, position: int) -> BatchHeader | None:
        """The header at `position`, None if there cannot be one."""
        if self._file is None or position < 0:
            return None
        data = self._file.pread(HEADER_BYTES, position)
        if len(data) < HEADER_BYTES:
            return None
        header = read_header(data, 0)
        return header if header.batch_length >= BATCH_LENGTH_MIN else None

    def largest_timestamp(self, position: int, offset: int) -> tuple[int, int]:
        """(last offset, largest record timestamp) of the first batch that reaches `offset`.

        (-1, -1) if there is none.
        """
        while (header := self.header_at(position)) is not None:
            if header.last_offset >= offset and self._file is not None:
                data = self._file.pread(header.size_bytes, position)
                try:
                    stamps = [record.timestamp_ms for record in iter_records(data, 0, header)]
                except BatchError:
                    stamps = []
                return header.last_offset, max(stamps, default=-1)
            position += header.size_bytes
        return -1, -1
