"""Events: changes of the metadata in the form in which `__kvorum_events` holds them.

An event is a record whose value is a JSON object. Its key names the thing that it is about (a
broker, a partition, the configs of a topic, ...), so that compaction keeps the latest state of each
thing that exists. docs/formats.md lists the fields.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

EVENT_VERSION = 1
"""Rises if a field changes its meaning or is removed, but not for a new field or kind."""

REMOVED_KEY = "removed"
"""Key of the events of removals. Only the last one survives compaction: a key for each removed
thing would remain for ever."""

GAP_KEY = "gap"
"""Key of the event before a new start from a snapshot."""

GAP = "gap"
SNAPSHOT = "snapshot"


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The metadata record that an event comes from.

    offset, epoch, timestamp_ms: as in the metadata log; timestamp_ms is the controller's wall
    clock, in ms since 1970.
    """

    offset: int
    epoch: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The end of a log of events: the origin of its last event.

    index, count: the event's place among those of one snapshot, which share an offset; 0 and 1 for
    the event of a single record.
    """

    origin: Origin
    index: int = 0
    count: int = 1

    @property
    def next_offset(self) -> int:
        """The first metadata offset behind the last event's."""
        return self.origin.offset + 1

    @property
    def is_whole(self) -> bool:
        """False inside the events of a snapshot."""
        return self.index + 1 >= self.count


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event.

    fields: those of its kind.
    removed: the keys of the things that ended with it, which get tombstones behind the event.
    """

    key: str
    origin: Origin
    kind: str
    fields: dict[str, Any]
    removed: tuple[str, ...] = ()

    @property
    def position(self) -> Position:
        return Position(
            origin=self.origin,
            index=self.fields.get("index", 0),
            count=self.fields.get("count", 1),
        )

    def value(self) -> bytes:
        """The record's value: a JSON object."""
        head = {
            "version": EVENT_VERSION,
            "offset": self.origin.offset,
            "epoch": self.origin.epoch,
            "timestamp_ms": self.origin.timestamp_ms,
            "kind": self.kind,
        }
        return json.dumps(head | self.fields, separators=(",", ":"), ensure_ascii=False).encode()


def position_of(value: bytes) -> Position:
    """The position of an event by its value. Raises ValueError if it is not an event's."""
    try:
        fields = json.loads(value)
        return Position(
            origin=Origin(
                offset=int(fields["offset"]),
                epoch=int(fields["epoch"]),
                timestamp_ms=int(fields["timestamp_ms"]),
            ),
            index=int(fields.get("index", 0)),
            count=int(fields.get("count", 1)),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"{value[:80]!r} is not an event of the metadata: {error!r}") from error
