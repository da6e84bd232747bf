"""A broker whose session ended goes in chunks: out of all leaderships first, then out of every ISR.

A dead broker of a large cluster concerns tens of thousands of partitions. In one piece, deciding
that would hold the controller's loop for the better part of a second, and no partition would have a
new leader before all of them had. What a client waits for is a leader, so those come first; an
ISR that still holds the dead broker only makes acks=all wait.

Looking for those partitions goes in pieces too, and topics in which another decision meanwhile
places the broker are looked at again: nothing is left when the last chunk is decided.

The fencing itself stands last, in the chunk that leaves nothing behind: if the controller dies on
the way, the broker is still unfenced, its session ends at the next one too, and that one finds what
is left. The other way round nobody would look at the rest. Partitions that nobody else can lead are
in that same chunk, however many they are: 1. they lose their leader, 2. the controller dies, 3. the
broker was not dead and talks to the next one: unfenced all the time, it would not be elected.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from kvorum.metadata.controller.decide import Decision
from kvorum.metadata.controller.decide.eligible_brokers import EligibleBrokers, eligible_brokers
from kvorum.metadata.controller.decide.partition_change import Key, dropped
from kvorum.metadata.image.image import ClusterImage
from kvorum.metadata.image.records import (
    NO_LEADER,
    BrokerRegistrationChange,
    Partition,
    PartitionChange,
    Record,
)

CHUNK_PARTITIONS = 1_000
"""Decided in one go."""

LOOKED_AT_PER_DECIDED = 20
"""To look at a partition costs so much less than to decide about it."""

Piece = tuple[bytes, tuple[int, ...]]
"""Partitions of one topic, at most a chunk of them."""


@dataclass(frozen=True, slots=True)
class BrokerFencing:
    """A broker epoch on its way out.

    chunk: partitions decided in one go. unseen: ids of the topics to look at. led, followed: found
    partitions that it is to leave, in this order. stuck: those found to have no leader then, which
    is for the last chunk.
    """

    broker_id: int
    broker_epoch: int
    chunk: int
    unseen: tuple[bytes, ...]
    led: tuple[Piece, ...] = ()
    followed: tuple[Piece, ...] = ()
    stuck: frozenset[Key] = frozenset()

    def note(self, records: Iterable[Record]) -> BrokerFencing:
        """Note other decisions: partitions that they place on the broker are looked at again."""
        placed = dict.fromkeys(
            record.topic_id
            for record in records
            if isinstance(record, Partition | PartitionChange)
            and (record.leader == self.broker_id or self.broker_id in (record.isr or ()))
        )
        news = tuple(topic_id for topic_id in placed if topic_id not in self.unseen)
        return replace(self, unseen=self.unseen + news) if news else self


def begin_fencing(
    image: ClusterImage, broker_id: int, *, chunk: int = CHUNK_PARTITIONS
) -> BrokerFencing | None:
    """None if there is no such broker, or it is fenced."""
    broker = image.brokers.get(broker_id)
    if broker is None or broker.is_fenced:
        return None
    return BrokerFencing(broker_id, broker.broker_epoch, chunk, tuple(sorted(image.topics)))


def fence_next_chunk(
    image: ClusterImage, at: BrokerFencing, *, is_unclean_default: bool = False
) -> Decision[BrokerFencing | None]:
    """The next chunk, which may be empty, and where to go on; None when the broker is fenced, or
    is no more what it was. Decisions since the last chunk must have been given to `note`.
    """
    broker = image.brokers.get(at.broker_id)
    if broker is None or broker.is_fenced or broker.broker_epoch != at.broker_epoch:
        return Decision((), None)
    at = _find_affected(image, at)
    # While there may be more that it leads, nobody waits for it to leave an ISR.
    pieces = at.led if at.unseen else (*at.led, *at.followed)
    end = _end_of_chunk(pieces, at.chunk)
    is_last = not at.unseen and end == len(pieces)
    eligible = eligible_brokers(image, leaving=at.broker_id, is_unclean_default=is_unclean_default)
    records: list[Record] = []
    stuck = set(at.stuck)
    for topic_id, partition_ids in pieces[:end]:
        for record in _changes(image, topic_id, partition_ids, at.broker_id, eligible):
            key = topic_id, record.partition_id
            if key in stuck or (record.leader == NO_LEADER and not is_last):
                stuck.add(key)
            else:
                records.append(record)
    if not is_last:
        left = replace(
            at,
            led=at.led[end:],
            followed=at.followed[max(end - len(at.led), 0) :],
            stuck=frozenset(stuck),
        )
        return Decision(tuple(records), left)
    for topic_id, partition_id in sorted(at.stuck):
        records.extend(_changes(image, topic_id, (partition_id,), at.broker_id, eligible))
    records.append(BrokerRegistrationChange(at.broker_id, at.broker_epoch, is_fenced=True))
    return Decision(tuple(records), None)


def _changes(
    image: ClusterImage,
    topic_id: bytes,
    partition_ids: tuple[int, ...],
    broker_id: int,
    eligible: EligibleBrokers,
) -> Iterator[PartitionChange]:
    """Those that take the broker out of these partitions, if they still hold it."""
    topic = image.topics.get(topic_id)
    if topic is None:
        return
    rules = eligible.rules(image, topic.name)
    for partition_id in partition_ids:
        partition = topic.partitions.get(partition_id)
        if partition is None or (broker_id != partition.leader and broker_id not in partition.isr):
            continue
        record = dropped((topic_id, partition_id), partition, broker_id, rules)
        if record is not None:
            yield record


def _find_affected(image: ClusterImage, at: BrokerFencing) -> BrokerFencing:
    """Look at some topics of `unseen`: what the broker leads there, and in whose ISR it stands; not
    where it is the last member: that one stays in it (ADR 8)."""
    if not at.unseen:
        return at
    led: list[Piece] = []
    followed: list[Piece] = []
    seen: set[bytes] = set()
    looked_at = 0
    for topic_id in at.unseen:
        seen.add(topic_id)
        topic = image.topics.get(topic_id)
        if topic is None:
            continue
        mine: list[int] = []
        others: list[int] = []
        for partition_id, partition in topic.partitions.items():
            if partition.leader == at.broker_id:
                mine.append(partition_id)
            elif at.broker_id in partition.isr and (
                partition.leader != NO_LEADER or len(partition.isr) > 1
            ):
                others.append(partition_id)
        led.extend(_pieces(topic_id, mine, at.chunk))
        followed.extend(_pieces(topic_id, others, at.chunk))
        looked_at += len(topic.partitions)
        if looked_at >= at.chunk * LOOKED_AT_PER_DECIDED:
            break
    return replace(
        at,
        unseen=at.unseen[len(seen) :],
        led=(*(piece for piece in at.led if piece[0] not in seen), *led),
        followed=(*(piece for piece in at.followed if piece[0] not in seen), *followed),
    )


def _pieces(topic_id: bytes, partition_ids: list[int], chunk: int) -> Iterator[Piece]:
    for start in range(0, len(partition_ids), chunk):
        yield topic_id, tuple(partition_ids[start : start + chunk])


def _end_of_chunk(pieces: tuple[Piece, ...], chunk: int) -> int:
    """How many of the pieces make one chunk."""
    size = 0
    for end, (_, partition_ids) in enumerate(pieces):
        size += len(partition_ids)
        if size > chunk:
            return end
    return len(pieces)
