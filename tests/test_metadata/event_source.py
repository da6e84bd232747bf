"""A metadata log in memory, as the source of events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kvorum.metadata.events.feed import record_feed
from kvorum.metadata.events.quorum import NO_QUORUM, QuorumState
from kvorum.metadata.events.source import Base
from kvorum.metadata.image.delta import Delta
from kvorum.metadata.image.image import EMPTY_IMAGE, ClusterImage
from kvorum.metadata.image.records import Record
from kvorum.metadata.inspect.history import LogEntry

BATCH = 3
"""Records that one read returns at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """A control record of the quorum, with Kafka's names."""

    type: str
    fields: dict[str, Any]


def leader_change(leader_id: int) -> Control:
    voters = [{"voterId": 1}, {"voterId": 2}]
    fields = {"leaderId": leader_id, "voters": voters, "grantingVoters": voters}
    return Control(type="LeaderChange", fields=fields)


def voters_change(*ids: int) -> Control:
    listed = [
        {
            "voterId": voter_id,
            "voterDirectoryId": f"directory-{voter_id}",
            "endpoints": [{"name": "CONTROLLER", "host": "host", "port": 9_000 + voter_id}],
        }
        for voter_id in ids
    ]
    return Control(type="KRaftVoters", fields={"voters": listed})


KRAFT_VERSION_1 = Control(type="KRaftVersion", fields={"kRaftVersion": 1})


def entries_of(records: Sequence[Record | Control], first: int = 0) -> list[LogEntry]:
    """The records as entries of a log that begins at `first`. The timestamp of an entry is
    1,000,000 ms plus its offset."""
    return [
        LogEntry(
            offset=offset,
            epoch=1,
            timestamp_ms=1_000_000 + offset,
            type=record.type if isinstance(record, Control) else type(record).__name__,
            version=0,
            fields=record.fields if isinstance(record, Control) else {},
            record=None if isinstance(record, Control) else record,
        )
        for offset, record in enumerate(records, first)
    ]


def image_of(records: Sequence[Record | Control]) -> ClusterImage:
    delta = Delta(EMPTY_IMAGE)
    delta.replay_all([record for record in records if not isinstance(record, Control)])
    return delta.apply(end_offset=len(records), epoch=1)


def quorum_of(records: Sequence[Record | Control]) -> QuorumState:
    return NO_QUORUM.after(entries_of(records))


class MemorySource:
    """The log of `records`, of which the first `published` are published.

    trim: the log begins at a snapshot of that offset from then on.
    """

    def __init__(self, records: Sequence[Record | Control]) -> None:
        self.records = list(records)
        self.entries = entries_of(records)
        self.start_offset = 0
        self.published = 0

    @property
    def image(self) -> ClusterImage:
        return image_of(self.records[: self.published])

    def publish(self, count: int) -> None:
        self.published = min(max(count, self.published), len(self.records))

    def append(self, *records: Record | Control) -> None:
        self.entries += entries_of(records, len(self.records))
        self.records += records
        self.published = len(self.records)

    def trim(self, offset: int) -> None:
        self.start_offset = max(self.start_offset, min(offset, self.published))

    def read(self, offset: int, end_offset: int) -> Iterator[LogEntry]:
        assert self.start_offset <= offset < end_offset <= self.published
        return iter(self.entries[offset : min(end_offset, offset + BATCH)])

    async def base(self, offset: int) -> Base:
        start = self.start_offset
        below = self.records[:start]
        return Base(
            image=image_of(below),
            timestamp_ms=999_999 + start if start else 0,
            quorum=quorum_of(below),
        )


def told_by(records: Sequence[Record | Control]) -> dict[int, tuple[str, bytes]]:
    """By offset: (key, value) of its event, for each offset that has one."""
    feed = record_feed(EMPTY_IMAGE, entries_of(records))
    events = [event for _, event in feed if event is not None]
    return {event.origin.offset: (event.key, event.value()) for event in events}
