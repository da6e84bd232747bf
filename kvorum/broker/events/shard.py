"""The shard of `__kvorum_events`: which metadata offset its log has reached. Pure.

  loaded -> Ask(FindEvents) -> the driver reads the metadata -> FactLearned(FoundEvents)
         -> Append, Barrier -> replicated -> Ask(FindEvents) -> ...

The log itself says where to go on, so each event is written once: a new leader continues after the
last event in its log. One batch of events at a time waits for replication, so nothing piles up
while too few replicas are in sync.

The tombstones of an event are in its batch, or in the following ones if they are many. If a leader
stops between two of these batches, some tombstones are missing; the next leader writes them first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kvorum.broker.coordinator.model import (
    Append,
    Ask,
    Barrier,
    CoordinatorRecord,
    Durable,
    Effect,
    Event,
    FactLearned,
    Instant,
    ReplayedRecord,
    TransactionEnd,
)
from kvorum.metadata.events.model import Event as MetadataEvent
from kvorum.metadata.events.model import Origin, Position, position_of
from kvorum.runtime.errors import CorruptData, InvariantViolated, required

TOMBSTONES_BYTES = 256 << 10
"""Bytes of the keys in one batch of tombstones. The smallest segment holds such a batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FindEvents:
    """Asks for the events behind `position`, which is None for an empty topic.

    known: the keys that the topic holds; only in the first question of a shard.
    """

    position: Position | None
    known: frozenset[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundEvent:
    """An event and its value as bytes, which the reader has counted."""

    event: MetadataEvent
    value: bytes

    @classmethod
    def of(cls, event: MetadataEvent) -> FoundEvent:
        return cls(event=event, value=event.value())


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundEvents:
    """The next events, in their order. ended: keys whose tombstones an earlier leader did not write
    with the log's last event; they are written before the events. One of the two is not empty."""

    events: tuple[FoundEvent, ...]
    ended: tuple[str, ...] = ()


_Row = tuple[CoordinatorRecord, int]
"""A record and its timestamp (ms)."""


class EventsShard:
    """See the docstring of this module. One for each leader epoch."""

    def __init__(self, partition: str) -> None:
        """partition: name of the partition, for errors."""
        self._partition = partition
        self._known: set[str] = set()
        self._last: ReplayedRecord | None = None
        self._position: Position | None = None

    def replay(self, record: ReplayedRecord) -> None:
        """Apply a record of the log. Raises CorruptData."""
        try:
            key = record.key.decode()
        except UnicodeDecodeError as error:
            raise self._strange(record.offset, f"the key {record.key!r} is not UTF-8") from error
        if record.value is None:
            self._known.discard(key)
            return
        self._known.add(key)
        self._last = record

    def replay_end(self, end: TransactionEnd) -> None:
        """A marker changes nothing: no transaction may write to this topic."""

    def on_loaded(self, now: Instant) -> list[Effect]:
        """Ask for the events behind the last one. Raises CorruptData."""
        if self._last is not None and self._last.value is not None:
            try:
                self._position = position_of(self._last.value)
            except ValueError as error:
                raise self._strange(self._last.offset, str(error)) from error
        known = frozenset(self._known)
        self._known.clear()  # as many keys as the cluster has partitions, and of no further use
        return [Ask(question=FindEvents(position=self._position, known=known))]

    def step(self, event: Event, now: Instant) -> list[Effect]:
        """Write the events found, and ask for the next ones once they are replicated."""
        match event:
            case FactLearned(fact=FoundEvents() as found):
                rows = _rows(found, self._position)
                if found.events:
                    self._position = found.events[-1].event.position
                return [*_appends(rows), Barrier(tag=self._position)]
            case Durable(tag=Position() as position):
                return [Ask(question=FindEvents(position=position))]
            case FactLearned(fact=fact):
                raise InvariantViolated(f"{self._partition} learns {fact!r}")
        return []

    def _strange(self, offset: int, reason: str) -> CorruptData:
        way_out = "delete the topic, and the brokers make it again"
        return CorruptData(self._partition, offset, f"{reason}; {way_out}")


def _rows(found: FoundEvents, position: Position | None) -> Iterator[_Row]:
    """The records of an answer; position: of the last event before it."""
    if found.ended:
        last = required(position, "a log without an event has no key to end")
        yield from _tombstones(found.ended, last.origin)
    for one in found.events:
        event = one.event
        yield CoordinatorRecord(event.key.encode(), one.value), event.origin.timestamp_ms
        yield from _tombstones(event.removed, event.origin)


def _tombstones(keys: tuple[str, ...], origin: Origin) -> Iterator[_Row]:
    for key in keys:
        yield CoordinatorRecord(key.encode(), None), origin.timestamp_ms


def _appends(rows: Iterator[_Row]) -> Iterator[Append]:
    """One batch, or several if there are many tombstones."""
    records: list[CoordinatorRecord] = []
    timestamps: list[int] = []
    size = 0
    for record, timestamp_ms in rows:
        if size >= TOMBSTONES_BYTES and record.value is None:
            yield Append(records=tuple(records), timestamps_ms=tuple(timestamps))
            records, timestamps, size = [], [], 0
        records.append(record)
        timestamps.append(timestamp_ms)
        size += len(record.key)
    yield Append(records=tuple(records), timestamps_ms=tuple(timestamps))
