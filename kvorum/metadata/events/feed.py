"""Events in the order of the metadata log, from records or from an image. Pure.

Each item of a feed is an image and, unless its record has none, the event that led to it. The items
are made one at a time, since a single batch of the metadata log may hold 100,000 records.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from itertools import islice

from kvorum.metadata.events.changes import event_of
from kvorum.metadata.events.model import (
    GAP,
    GAP_KEY,
    REMOVED_KEY,
    SNAPSHOT,
    Event,
    Origin,
    Position,
)
from kvorum.metadata.events.quorum import NO_QUORUM, QUORUM_KEYS, QuorumState
from kvorum.metadata.events.things import keys_of, thing_count, things
from kvorum.metadata.image.delta import Delta
from kvorum.metadata.image.image import ClusterImage
from kvorum.metadata.inspect.history import LogEntry

KEPT_KEYS = frozenset({GAP_KEY, REMOVED_KEY, *QUORUM_KEYS})
"""Keys that never get a tombstone: those that name no thing of an image, and those of things that
never end."""

Feed = Iterator[tuple[ClusterImage, Event | None]]


def record_feed(image: ClusterImage, entries: Iterable[LogEntry]) -> Feed:
    """The records that follow `image`, one by one."""
    for entry in entries:
        if entry.record is None:
            after = dataclasses.replace(image, end_offset=entry.offset + 1, epoch=entry.epoch)
        else:
            delta = Delta(image)
            delta.replay(entry.record)
            after = delta.apply(end_offset=entry.offset + 1, epoch=entry.epoch)
        yield after, event_of(entry, image, after)
        image = after


def replayed(image: ClusterImage, entries: Iterable[LogEntry]) -> ClusterImage:
    """`image` with the records that follow it applied."""
    delta = Delta(image)
    end_offset, epoch = image.end_offset, image.epoch
    for entry in entries:
        if entry.record is not None:
            delta.replay(entry.record)
        end_offset, epoch = entry.offset + 1, entry.epoch
    return delta.apply(end_offset=end_offset, epoch=epoch)


def gap_feed(
    image: ClusterImage,
    *,
    first_offset: int,
    timestamp_ms: int,
    known: Iterable[str],
    quorum: QuorumState = NO_QUORUM,
) -> Feed:
    """A gap event, and an event for each thing of `image` and `quorum`, the state of a snapshot.

    The records of [first_offset, image.end_offset) are no longer in the log. known: the keys that
    the topic holds; those of things that the image lacks end with the gap event. The quorum's keys
    never end: one that the snapshot does not know keeps its last event.
    """
    origin = Origin(offset=image.end_offset - 1, epoch=image.epoch, timestamp_ms=timestamp_ms)
    held = {*KEPT_KEYS, *keys_of(image)}
    count = 1 + thing_count(image, quorum)
    gap = Event(
        key=GAP_KEY,
        origin=origin,
        kind=GAP,
        fields={"first_offset": first_offset, "index": 0, "count": count},
        removed=tuple(sorted(set(known) - held)),
    )
    yield image, gap
    yield from snapshot_feed(image, Position(origin=origin, index=0, count=count), quorum)


def snapshot_feed(image: ClusterImage, position: Position, quorum: QuorumState = NO_QUORUM) -> Feed:
    """The events of a snapshot behind `position`, which is inside them; `image` and `quorum` are
    its state."""
    for index, (key, state) in enumerate(
        islice(things(image, quorum), position.index, None), position.index + 1
    ):
        fields = {**state(), "index": index, "count": position.count}
        yield image, Event(key=key, origin=position.origin, kind=SNAPSHOT, fields=fields)
