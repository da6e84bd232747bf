"""The offsets of one group: committed ones, and those of open transactions. Pure.

The offsets of a transaction are kept apart until its marker. An offset may be committed both in a
transaction and without one. Then the record written later wins, not the one whose marker came
later: after compaction only the records are left, and every coordinator must load the same result.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kvorum.broker.groups.steps.records import OffsetValue

PartitionKey = tuple[str, int]
"""(topic, partition)."""


class Stored(NamedTuple):
    """A committed offset. order: rises with the position of its record in the log."""

    value: OffsetValue
    order: int


class OffsetBook:
    """committed: by topic and partition.
    pending: by producer id, then (topic, partition).
    """

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
        """Add an offset that was committed in that producer's transaction."""
        self.pending.setdefault(producer_id, {})[topic, partition] = Stored(value, order)

    def remove(self, topic: str, partition: int) -> None:
        """Apply a tombstone: it removes the committed offset and the pending ones of open
        transactions."""
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
        """Apply the producer's marker: its pending offsets become committed, or are dropped."""
        rows = self.pending.pop(producer_id, None)
        if rows is None or not is_commit:
            return
        for (topic, partition), stored in rows.items():
            present = self.committed.get(topic, _NO_PARTITIONS).get(partition)
            if present is None or present.order < stored.order:
                self.committed.setdefault(topic, {})[partition] = stored

    def is_pending(self, topic: str, partition: int) -> bool:
        """True if an open transaction may still change this offset."""
        return any((topic, partition) in rows for rows in self.pending.values())

    def keys(self) -> Iterator[PartitionKey]:
        """The keys of all committed offsets."""
        for topic, partitions in self.committed.items():
            for partition in partitions:
                yield topic, partition

    def all_keys(self) -> dict[PartitionKey, None]:
        """As `keys`, with those of open transactions."""
        found: dict[PartitionKey, None] = dict.fromkeys(self.keys())
        for rows in self.pending.values():
            found.update(dict.fromkeys(rows))
        return found


_NO_PARTITIONS: dict[int, Stored] = {}
EMPTY_BOOK = OffsetBook()
"""The book of a group that has committed nothing; never written to."""
