"""What one group has committed, and what open transactions want it to. Pure.

A transaction's offsets are kept apart until its marker. Of an offset committed by a transaction and
one committed without, the one written later wins, not the one whose marker came later: after
compaction only the records tell, and every coordinator must find the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kvorum.broker.groups.records import OffsetValue

PartitionKey = tuple[str, int]
"""(topic, partition)."""


class Stored(NamedTuple):
    """order: rises with the place in the log."""

    value: OffsetValue
    order: int


class OffsetBook:
    """committed: by topic and partition. pending: by producer id, then (topic, partition)."""

    __slots__ = ("committed", "pending")

    def __init__(self) -> None:
        self.committed: dict[str, dict[int, Stored]] = {}
        self.pending: dict[int, dict[PartitionKey, Stored]] = {}

    @property
    def is_blank(self) -> bool:
        return not self.committed and not self.pending

    def get(self, topic: str, partition: int) -> OffsetValue | None:
        stored = self.committed.get(topic, _NO_PARTITIONS).get(partition)
        return None if stored is None else stored.value

    def put(self, topic: str, partition: int, value: OffsetValue, order: int) -> None:
        self.committed.setdefault(topic, {})[partition] = Stored(value, order)

    def put_pending(
        self, producer_id: int, topic: str, partition: int, value: OffsetValue, order: int
    ) -> None:
        """Committed as part of that producer's transaction."""
        self.pending.setdefault(producer_id, {})[topic, partition] = Stored(value, order)

    def remove(self, topic: str, partition: int) -> None:
        """A tombstone: the committed offset goes, and what a transaction wanted to put there."""
        partitions = self.committed.get(topic)
        if partitions is not None:
            partitions.pop(partition, None)
            if not partitions:
                del self.committed[topic]
        for producer_id in [p for p, rows in self.pending.items() if (topic, partition) in rows]:
            del self.pending[producer_id][topic, partition]
            if not self.pending[producer_id]:
                del self.pending[producer_id]

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """The producer's marker: its offsets count now, or never."""
        rows = self.pending.pop(producer_id, None)
        if rows is None or not is_commit:
            return
        for (topic, partition), stored in rows.items():
            present = self.committed.get(topic, _NO_PARTITIONS).get(partition)
            if present is None or present.order < stored.order:
                self.committed.setdefault(topic, {})[partition] = stored

    def is_pending(self, topic: str, partition: int) -> bool:
        """Whether an open transaction may still change this offset."""
        return any((topic, partition) in rows for rows in self.pending.values())

    def keys(self) -> Iterator[PartitionKey]:
        """All that has been committed."""
        for topic, partitions in self.committed.items():
            for partition in partitions:
                yield topic, partition

    def all_keys(self) -> dict[PartitionKey, None]:
        """As `keys`, and what open transactions have put."""
        found: dict[PartitionKey, None] = dict.fromkeys(self.keys())
        for rows in self.pending.values():
            found.update(dict.fromkeys(rows))
        return found


_NO_PARTITIONS: dict[int, Stored] = {}
EMPTY_BOOK = OffsetBook()
"""For groups that have committed nothing; never written to."""
