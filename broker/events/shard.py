"""The shard of `__kvorum_events`: which metadata offset its log has reached. Pure.

  loaded -> Ask(FindEvents) -> the driver reads the metadata -> FactLearned(FoundEvents)
         -> Append, Barrier -> replicated -> Ask(FindEvents) -> ...

The log itself says where to go on, so that an offset is written once: a record is in the new
leader's log, and the leader continues behind it, or it is not, and the new leader writes it. One
batch at a time waits for replication, so a partition with too few replicas in sync gathers nothing.
"""

from __future__ import annotations

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
from kvorum.metadata.events.model import Position, position_of
from kvorum.runtime.errors import CorruptData, InvariantViolated


@dataclass(frozen=True, slots=True, kw_only=True)
class FindEvents:
    """Asks for the events behind `position`, which is None for an empty topic.

    known: the keys that the topic holds; only in the first question of a shard.
    """

    position: Position | None
    known: frozenset[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundEvents:
    """The next events, at least one, in their order."""

    events: tuple[MetadataEvent, ...]


class EventsShard:
    """See the docstring of this module. One for each leader epoch."""

    def __init__(self, partition: str) -> None:
        """partition: name of the partition, for errors."""
        self._partition = partition
        self._known: set[str] = set()
        self._last: ReplayedRecord | None = None

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
        position = None
        if self._last is not None and self._last.value is not None:
            try:
                position = position_of(self._last.value)
            except ValueError as error:
                raise self._strange(self._last.offset, str(error)) from error
        known = frozenset(self._known)
        self._known.clear()  # as many keys as the cluster has partitions, and of no further use
        return [Ask(question=FindEvents(position=position, known=known))]

    def step(self, event: Event, now: Instant) -> list[Effect]:
        """Write the events found, and ask for the next ones once they are replicated."""
        match event:
            case FactLearned(fact=FoundEvents(events=events)):
                return [_append(events), Barrier(tag=events[-1].position)]
            case Durable(tag=Position() as position):
                return [Ask(question=FindEvents(position=position))]
            case FactLearned(fact=fact):
                raise InvariantViolated(f"{self._partition} learns {fact!r}")
        return []

    def _strange(self, offset: int, reason: str) -> CorruptData:
        way_out = "delete the topic, and the brokers make it again"
        return CorruptData(self._partition, offset, f"{reason}; {way_out}")


def _append(events: tuple[MetadataEvent, ...]) -> Append:
    """One batch: a reader, or the next leader, finds an event and its tombstones, or neither."""
    records: list[CoordinatorRecord] = []
    timestamps: list[int] = []
    for event in events:
        records.append(CoordinatorRecord(event.key.encode(), event.value()))
        records += [CoordinatorRecord(key.encode(), None) for key in event.removed]
        timestamps += [event.origin.timestamp_ms] * (1 + len(event.removed))
    return Append(records=tuple(records), timestamps_ms=tuple(timestamps))
