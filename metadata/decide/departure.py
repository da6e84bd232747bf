"""A broker whose session ended goes in chunks: out of all leaderships first, then out of every ISR.

A dead broker of a large cluster concerns tens of thousands of partitions. In one piece, deciding
that would hold the controller's loop for the better part of a second, and no partition would have a
new leader before all of them had. What a client waits for is a leader, so those come first; an
ISR that still holds the dead broker only makes acks=all wait.

The fencing itself stands last, in the chunk that leaves nothing behind: if the controller dies on
the way, the broker is still unfenced, its session ends at the next one too, and that one finds what
is left. The other way round nobody would look at the rest. Partitions that nobody else can lead are
in that same chunk, however many they are: 1. they lose their leader, 2. the controller dies, 3. the
broker was not dead and talks to the next one: unfenced all the time, it would not be elected.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from metadata.decide import Decision
from metadata.decide.electorate import Electorate, electorate
from metadata.decide.partition_change import Key, dropped
from metadata.image import ClusterImage
from metadata.records import NO_LEADER, BrokerRegistrationChange, PartitionChange, Record

CHUNK_PARTITIONS = 1_000
"""Decided in one go. To look for them, at the beginning and the end, is a walk over all."""


Piece = tuple[bytes, tuple[int, ...]]
"""Partitions of one topic, at most a chunk of them."""


@dataclass(frozen=True, slots=True)
class Departure:
    """A broker epoch on its way out.

    chunk: partitions decided in one go. pieces: those it is to leave. Those before `position` are
    decided, or left for the last chunk: `stuck`, which will have no leader.
    """

    broker_id: int
    broker_epoch: int
    chunk: int
    pieces: tuple[Piece, ...]
    position: int = 0
    stuck: frozenset[Key] = frozenset()


def begin_departure(
    image: ClusterImage, broker_id: int, *, chunk: int = CHUNK_PARTITIONS
) -> Departure | None:
    """None if there is no such broker, or it is fenced."""
    broker = image.brokers.get(broker_id)
    if broker is None or broker.is_fenced:
        return None
    pieces = _concerned(image, broker_id, chunk)
    return Departure(broker_id, broker.broker_epoch, chunk, pieces)


def depart(
    image: ClusterImage, at: Departure, *, is_unclean_default: bool = False
) -> Decision[Departure | None]:
    """The next chunk, and where to go on; None when the broker is fenced, or is no more what it
    was. The first chunk must be of the very image that it began with.
    """
    broker = image.brokers.get(at.broker_id)
    if broker is None or broker.is_fenced or broker.broker_epoch != at.broker_epoch:
        return Decision((), None)
    pieces, position = at.pieces, at.position
    if position and position == len(pieces):
        # Other decisions have come in between: new topics may have been placed on it.
        pieces, position = _concerned(image, at.broker_id, at.chunk, at.stuck), 0
    end = _end_of_chunk(pieces, position, at.chunk)
    is_last = position == 0 and end == len(pieces)
    voters = electorate(image, leaving=at.broker_id, is_unclean_default=is_unclean_default)
    records: list[Record] = []
    stuck: list[Key] = []
    for topic_id, partition_ids in pieces[position:end]:
        for record in _changes(image, topic_id, partition_ids, at.broker_id, voters):
            if record.leader == NO_LEADER and not is_last:
                stuck.append((topic_id, record.partition_id))
            else:
                records.append(record)
    if not is_last:
        return Decision(
            tuple(records), replace(at, pieces=pieces, position=end, stuck=at.stuck.union(stuck))
        )
    for topic_id, partition_id in sorted(at.stuck):
        records.extend(_changes(image, topic_id, (partition_id,), at.broker_id, voters))
    records.append(BrokerRegistrationChange(at.broker_id, at.broker_epoch, is_fenced=True))
    return Decision(tuple(records), None)


def _changes(
    image: ClusterImage,
    topic_id: bytes,
    partition_ids: tuple[int, ...],
    broker_id: int,
    voters: Electorate,
) -> Iterator[PartitionChange]:
    """Those that take the broker out of these partitions, if they still hold it."""
    topic = image.topics.get(topic_id)
    if topic is None:
        return
    terms = voters.terms(image, topic.name)
    for partition_id in partition_ids:
        partition = topic.partitions.get(partition_id)
        if partition is None or (broker_id != partition.leader and broker_id not in partition.isr):
            continue
        record = dropped((topic_id, partition_id), partition, broker_id, terms)
        if record is not None:
            yield record


def _concerned(
    image: ClusterImage, broker_id: int, chunk: int, apart: frozenset[Key] = frozenset()
) -> tuple[Piece, ...]:
    """Partitions that the broker leads, then those in whose ISR it stands, by topic id; not those
    `apart`, and none where it is the last member: that one stays in it (ADR 8)."""
    led: list[Piece] = []
    followed: list[Piece] = []
    for topic_id, topic in sorted(image.topics.items()):
        of_topic = topic.partitions.items()
        mine = [i for i, p in of_topic if p.leader == broker_id]
        others = [
            i
            for i, p in of_topic
            if broker_id in p.isr
            and p.leader != broker_id
            and (p.leader != NO_LEADER or len(p.isr) > 1)
        ]
        if apart:
            mine = [i for i in mine if (topic_id, i) not in apart]
            others = [i for i in others if (topic_id, i) not in apart]
        led.extend(_pieces(topic_id, mine, chunk))
        followed.extend(_pieces(topic_id, others, chunk))
    return (*led, *followed)


def _pieces(topic_id: bytes, partition_ids: list[int], chunk: int) -> Iterator[Piece]:
    for start in range(0, len(partition_ids), chunk):
        yield topic_id, tuple(partition_ids[start : start + chunk])


def _end_of_chunk(pieces: tuple[Piece, ...], position: int, chunk: int) -> int:
    """Behind the pieces from `position` on that make one chunk."""
    size = 0
    for end in range(position, len(pieces)):
        size += len(pieces[end][1])
        if size > chunk:
            return end
    return len(pieces)
