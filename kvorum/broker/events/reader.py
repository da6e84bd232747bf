"""Finds the events after a position: makes the metadata image at that offset, then reads the log
record by record."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import islice

from kvorum.broker.events.shard import FoundEvent, FoundEvents
from kvorum.metadata.events.feed import (
    KEPT_KEYS,
    Feed,
    gap_feed,
    record_feed,
    replayed,
    snapshot_feed,
)
from kvorum.metadata.events.model import Position
from kvorum.metadata.events.quorum import QuorumState
from kvorum.metadata.events.source import Base, MetadataSource
from kvorum.metadata.events.things import keys_of
from kvorum.metadata.image.image import ClusterImage

BATCH_BYTES = 64 << 10
"""Bytes of events from which on a batch is written; it may be larger by one event."""

STEPS_MAX = 500
"""Records looked at in one turn of the event loop: some ten milliseconds."""

KEYS_MAX = 10_000
"""Keys looked at in one turn of the event loop."""


class EventReader:
    """The events of one leader epoch, in their order. Keeps an image and one batch of records."""

    def __init__(
        self, source: MetadataSource, position: Position | None, known: Iterable[str]
    ) -> None:
        """position: of the last event written.
        known: the keys that the topic holds.
        """
        self._source = source
        self._position = position
        self._known: Iterable[str] = known
        self._image: ClusterImage | None = None
        self._feed: Feed = iter(())
        self._ended: tuple[str, ...] = ()

    async def read(self) -> FoundEvents | None:
        """The next events, about BATCH_BYTES of them; None if there are none at present.

        Raises CorruptData, UnreadableRecord, OSError if this node's metadata cannot be read.
        """
        events: list[FoundEvent] = []
        size = 0
        while size < BATCH_BYTES:
            is_at_end = True
            for image, event in islice(self._feed, STEPS_MAX):
                is_at_end, self._image = False, image
                if event is not None:
                    events.append(FoundEvent.of(event))
                    size += len(events[-1].value)
                    if size >= BATCH_BYTES:
                        break
            if is_at_end and not await self._go_on():
                break
            await asyncio.sleep(0)
        ended, self._ended = self._ended, ()
        return FoundEvents(events=tuple(events), ended=ended) if events or ended else None

    async def _go_on(self) -> bool:
        """Begin the next part of the feed. False if the published image has nothing more."""
        if self._image is None:
            return await self._open()
        image, published = self._image, self._source.image
        if image.end_offset < self._source.start_offset:
            # The log was trimmed while the topic could not be written.
            base = await self._source.base(image.end_offset)
            self._skip_to(base, image.end_offset, keys_of(image))
            return True
        if image.end_offset >= published.end_offset:
            if image.end_offset == published.end_offset:
                self._image = published  # equal, and shared with the broker
            return False
        entries = self._source.read(image.end_offset, published.end_offset)
        self._feed = record_feed(image, entries)
        return True

    async def _open(self) -> bool:
        """Make the image at the position, and begin after it. False if this broker's metadata ends
        below the position."""
        position = self._position
        offset = 0 if position is None else position.next_offset
        if self._source.image.end_offset < offset:
            return False
        base = await self._source.base(offset)
        image, quorum = base.image, base.quorum
        while image.end_offset < offset:
            if image.end_offset < self._source.start_offset:
                return True  # trimmed meanwhile: begin again
            entries = list(self._source.read(image.end_offset, offset))
            image, quorum = replayed(image, entries), quorum.after(entries)
            await asyncio.sleep(0)
        if image.end_offset > offset:
            self._skip_to(base, offset, self._known)
            return True
        self._ended = await _ended(self._known, image, quorum)
        self._image, self._known = image, ()
        if position is not None and not position.is_whole:
            self._feed = snapshot_feed(image, position, quorum)
        return True

    def _skip_to(self, base: Base, offset: int, known: Iterable[str]) -> None:
        """Begin with the state of a snapshot: the log no longer has the record at `offset`."""
        self._feed = gap_feed(
            base.image,
            first_offset=offset,
            timestamp_ms=base.timestamp_ms,
            known=known,
            quorum=base.quorum,
        )
        self._image, self._known = base.image, ()


async def _ended(known: Iterable[str], image: ClusterImage, quorum: QuorumState) -> tuple[str, ...]:
    """The keys in the topic that belong to nothing in the image: their tombstones are missing."""
    ended = set(known) - KEPT_KEYS
    for number, key in enumerate(keys_of(image, quorum)):
        ended.discard(key)
        if number % KEYS_MAX == KEYS_MAX - 1:
            await asyncio.sleep(0)
    return tuple(sorted(ended))
