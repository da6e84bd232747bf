"""Fencing of brokers whose sessions ended, in chunks: first their leaderships, then their ISR
memberships.

A dead broker of a large cluster has tens of thousands of partitions. Decided at once, they would
block the controller's loop for most of a second, and no partition would have a new leader before
all of them had. Clients wait for leaders, so partitions that the broker led come first. An ISR that
still has the dead broker only makes acks=all wait.

Brokers whose sessions have ended, as those of a rack, are fenced together: all partitions are
searched once for all of them, and none is moved from one dead broker to another. A broker whose
session ends meanwhile joins them.

Finding those partitions is done in pieces too. If another decision meanwhile puts one of the
brokers into a topic's partitions, that topic is searched again: nothing is left when the last chunk
is decided.

The records that fence the brokers are the last ones, in the last chunk. If the controller dies
before it, the brokers are still unfenced; their sessions end at the next controller too, which
finds the rest. If the fencing came first, no controller would look for the rest.

Partitions that no other replica can lead are in the last chunk too, however many they are. Bad
sequence otherwise: 1. They lose their leader. 2. The controller dies. 3. The broker was not dead,
and sends heartbeats to the next controller. The broker was never fenced, so no unfencing elects it
again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from kvorum.metadata.controller.decide import Decision
from kvorum.metadata.controller.decide.eligible_brokers import EligibleBrokers, eligible_brokers
from kvorum.metadata.controller.decide.partition_change import dropped
from kvorum.metadata.image.image import ClusterImage, TopicIdPartition
from kvorum.metadata.image.records import (
    NO_LEADER,
    BrokerRegistrationChange,
    Partition,
    PartitionChange,
    Record,
)

CHUNK_PARTITIONS = 1_000
"""Partitions decided at a time."""

LOOKED_AT_PER_DECIDED = 20
"""Partitions searched for each one decided: searching is much cheaper."""

Piece = tuple[bytes, tuple[int, ...]]
"""Partitions of one topic, at most a chunk of them."""


@dataclass(frozen=True, slots=True)
class BrokerFencing:
    """The progress of fencing some brokers.

    epochs: by broker id.
    chunk: partitions decided at a time.
    unseen: ids of the topics to search.
    led, followed: partitions found that the brokers are to be removed from, in this order.
    stuck: partitions for which no other leader was found, left for the last chunk.
    """

    epochs: Mapping[int, int]
    chunk: int
    unseen: tuple[bytes, ...]
    led: tuple[Piece, ...] = ()
    followed: tuple[Piece, ...] = ()
    stuck: frozenset[TopicIdPartition] = frozenset()

    def note(self, records: Iterable[Record]) -> BrokerFencing:
        """Note the records of other decisions: topics in which they put one of the brokers are
        searched again."""
        placed = dict.fromkeys(
            record.topic_id
            for record in records
            if isinstance(record, Partition | PartitionChange)
            and not self.epochs.keys().isdisjoint((record.leader, *(record.isr or ())))
        )
        news = tuple(topic_id for topic_id in placed if topic_id not in self.unseen)
        return replace(self, unseen=self.unseen + news) if news else self

    def joined_by(self, other: BrokerFencing) -> BrokerFencing:
        """The fencing of both groups of brokers; all topics are searched again."""
        return replace(self, epochs={**self.epochs, **other.epochs}, unseen=other.unseen)


def begin_fencing(
    image: ClusterImage, broker_ids: Iterable[int], *, chunk: int = CHUNK_PARTITIONS
) -> BrokerFencing | None:
    """Start to fence these brokers, except those that are fenced or not registered. None if no
    broker is left."""
    epochs = {
        broker_id: broker.broker_epoch
        for broker_id in broker_ids
        if (broker := image.brokers.get(broker_id)) is not None and not broker.is_fenced
    }
    return BrokerFencing(epochs, chunk, tuple(sorted(image.topics))) if epochs else None


def fence_next_chunk(
    image: ClusterImage, at: BrokerFencing, *, is_unclean_default: bool = False
) -> Decision[BrokerFencing | None]:
    """The records of the next chunk, maybe none, and the progress; None when the brokers are fenced
    or have new registrations. Records of other decisions since the last chunk must have been given
    to `note`."""
    epochs = {
        broker_id: epoch
        for broker_id, epoch in at.epochs.items()
        if (broker := image.brokers.get(broker_id)) is not None
        and not broker.is_fenced
        and broker.broker_epoch == epoch
    }
    if not epochs:
        return Decision((), None)
    at = _find_affected(image, replace(at, epochs=epochs))
    # While more partitions that they lead may be found, leaving ISRs can wait.
    pieces = at.led if at.unseen else (*at.led, *at.followed)
    end = _end_of_chunk(pieces, at.chunk)
    is_last = not at.unseen and end == len(pieces)
    gone = frozenset(epochs)
    eligible = eligible_brokers(image, leaving=gone, is_unclean_default=is_unclean_default)
    records: list[Record] = []
    stuck = set(at.stuck)
    for topic_id, partition_ids in pieces[:end]:
        for record in _changes(image, topic_id, partition_ids, gone, eligible):
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
        records.extend(_changes(image, topic_id, (partition_id,), gone, eligible))
    records += [
        BrokerRegistrationChange(broker_id, epoch, is_fenced=True)
        for broker_id, epoch in epochs.items()
    ]
    return Decision(tuple(records), None)


def _changes(
    image: ClusterImage,
    topic_id: bytes,
    partition_ids: tuple[int, ...],
    gone: frozenset[int],
    eligible: EligibleBrokers,
) -> Iterator[PartitionChange]:
    """The records that remove the brokers from these partitions, where one of them is still leader
    or in the ISR."""
    topic = image.topics.get(topic_id)
    if topic is None:
        return
    rules = eligible.rules(image, topic.name)
    for partition_id in partition_ids:
        partition = topic.partitions.get(partition_id)
        if partition is None:
            continue
        if partition.leader not in gone and gone.isdisjoint(partition.isr):
            continue
        record = dropped((topic_id, partition_id), partition, gone, rules)
        if record is not None:
            yield record


def _find_affected(image: ClusterImage, at: BrokerFencing) -> BrokerFencing:
    """Search some topics of `unseen` for partitions that one of the brokers leads, or in whose ISR
    it is. A partition without a leader whose ISR is one broker alone is left out: the last member
    stays in the ISR (ADR 8)."""
    if not at.unseen:
        return at
    gone = frozenset(at.epochs)
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
            if partition.leader in gone:
                mine.append(partition_id)
            elif not gone.isdisjoint(partition.isr) and (
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
    """The number of pieces that make up one chunk."""
    size = 0
    for end, (_, partition_ids) in enumerate(pieces):
        size += len(partition_ids)
        if size > chunk:
            return end
    return len(pieces)
