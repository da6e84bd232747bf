"""A metadata log in memory, as the source of events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kvorum.metadata.events.feed import record_feed
from kvorum.metadata.events.source import Base
from kvorum.metadata.image.delta import Delta
from kvorum.metadata.image.image import EMPTY_IMAGE, ClusterImage
from kvorum.metadata.image.records import Record
from kvorum.metadata.inspect.history import LogEntry

BATCH = 3
"""Records that one read returns at most."""


def entries_of(records: Sequence[Record], first: int = 0) -> list[LogEntry]:
    """Each record at its place in a log; its timestamp tells its offset."""
    return [
        LogEntry(
            offset=offset,
            epoch=1,
            timestamp_ms=1_000_000 + offset,
            type=type(record).__name__,
            version=0,
            fields={},
            record=record,
        )
        for offset, record in enumerate(records, first)
    ]


def image_of(records: Sequence[Record]) -> ClusterImage:
    delta = Delta(EMPTY_IMAGE)
    delta.replay_all(records)
    return delta.apply(end_offset=len(records), epoch=1)


class MemorySource:
    """The log of `records`, of which the first `published` are published.

    trim: the log begins at a snapshot of that offset from then on.
    """

    def __init__(self, records: Sequence[Record]) -> None:
        self.records = list(records)
        self.entries = entries_of(records)
        self.start_offset = 0
        self.published = 0

    @property
    def image(self) -> ClusterImage:
        return image_of(self.records[: self.published])

    def publish(self, count: int) -> None:
        self.published = min(max(count, self.published), len(self.records))

    def append(self, *records: Record) -> None:
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
        image = image_of(self.records[:start])
        return Base(image=image, timestamp_ms=999_999 + start if start else 0)


def told_by(records: Sequence[Record]) -> dict[int, tuple[str, bytes]]:
    """Key and value of the event of each offset that has one."""
    feed = record_feed(EMPTY_IMAGE, entries_of(records))
    events = [event for _, event in feed if event is not None]
    return {event.origin.offset: (event.key, event.value()) for event in events}
