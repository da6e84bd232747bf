"""Checks of a compacted partition, record by record, because batches differ from replica to
replica.

Every record that a replica still has is the committed one at its offset. Every removed record was
followed by another of its key, so the last value of each key stays.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kvorum.chaos.sim.kernel.checks import check
from kvorum.chaos.sim.partitions.history import HeldBatch, PartitionHistory, ReplicaView, Told


class CompactedRecord(NamedTuple):
    offset: int
    epoch: int
    key: bytes
    value: bytes | None


ReadRecords = Callable[[int, int], Sequence[CompactedRecord]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactedView(ReplicaView):
    """read_records: like `read`, but the records at these offsets."""

    read_records: ReadRecords


@dataclass(slots=True, kw_only=True)
class CompactedHistory(PartitionHistory):
    """The history of a compacted partition.

    records: the committed ones by offset; `offsets` has their offsets in order.
    last: the offset of each key's last record.
    overtaken: offsets of records that compaction may have removed for a later record of the key,
        which an allowed loss then took away.
    """

    records: dict[int, CompactedRecord] = field(default_factory=dict)
    offsets: list[int] = field(default_factory=list)
    last: dict[bytes, int] = field(default_factory=dict)
    overtaken: set[int] = field(default_factory=set)

    def _extend(self, view: ReplicaView) -> None:
        before = self.end_offset
        PartitionHistory._extend(self, view)
        if isinstance(view, CompactedView) and self.end_offset > before:
            for record in view.read_records(before, self.end_offset):
                self.records[record.offset] = record
                self.offsets.append(record.offset)
                self.last[record.key] = record.offset

    def _check_bounds(self, view: ReplicaView) -> None:
        PartitionHistory._check_bounds(self, view)
        # Neither retention nor DeleteRecords applies to this topic.
        check(
            view.start_offset == 0,
            "CompactionMovesNoStart",
            f"{self.name} on {view.broker_id}: the log begins at {view.start_offset}",
        )

    def _may_have_gaps(self) -> bool:
        # A second unclean election can make a compacted log, with its gaps, the committed one again
        # (seed 5).
        return bool(self.cuts)

    def _shared_to(self, view: ReplicaView, parts_at: int) -> int:
        # The replica may still have records that the committed log lacks, because compaction
        # removed them for later values. Those later values are now lost (seed 370494).
        if not isinstance(view, CompactedView):
            return parts_at
        found = view.read_records(view.start_offset, parts_at)
        bare = (
            record.offset
            for record in found
            if record.offset not in self.records
            and not record.offset < self.last.get(record.key, -1) < parts_at
        )
        return min(bare, default=parts_at)

    def _cut(self, offset: int, epoch: int, event: int) -> None:
        PartitionHistory._cut(self, offset, epoch, event)
        keep = bisect_left(self.offsets, self.end_offset)
        keys = {self.records.pop(gone).key for gone in self.offsets[keep:]}
        del self.offsets[keep:]
        self.last = {self.records[at].key: at for at in self.offsets}
        self.overtaken |= {at for key, at in self.last.items() if key in keys}

    def _first_difference(
        self, view: ReplicaView, begin: int, end: int | None = None
    ) -> int | None:
        end = self.end_offset if end is None else end
        if begin >= end or not isinstance(view, CompactedView):
            return None
        found = {record.offset: record for record in view.read_records(begin, end)}
        for offset in self.offsets[bisect_left(self.offsets, begin) :]:
            if offset >= end:
                break
            committed, present = self.records[offset], found.pop(offset, None)
            if present is not None and present != committed:
                return offset
            if present is None and (
                offset >= view.end_offset
                or (self.last[committed.key] == offset and offset not in self.overtaken)
            ):
                return offset
        # The compacted log of an unclean leader may have become the committed one. Another replica
        # may still hold records that a later value in that log replaces (seed 160610).
        extra = (
            record.offset
            for record in found.values()
            if not (self._may_have_gaps() and self.last.get(record.key, -1) > record.offset)
        )
        return min(extra, default=None)

    def check_read(self, who: str, batch: HeldBatch, told: Told) -> None:
        """Check a batch that a consumer got; compaction may have removed some of its records."""
        if self.was_cut(batch.base_offset, told):
            return
        committed = self.find(batch.last_offset)
        check(
            committed is not None and committed.epoch == batch.epoch,
            "NothingReadAboveHighWatermark",
            f"{self.name}: {who} read {batch}; committed is {committed}",
        )
