"""Fencing of a broker whose session ended, in chunks: first its leaderships, then its ISR
memberships.

A dead broker of a large cluster has tens of thousands of partitions. Decided at once, they would
block the controller's loop for most of a second, and no partition would have a new leader before
all of them had. Clients wait for leaders, so partitions that the broker led come first. An ISR that
still has the dead broker only makes acks=all wait.

Finding those partitions is done in pieces too. If another decision meanwhile puts the broker into a
topic's partitions, that topic is searched again: nothing is left when the last chunk is decided.

The record that fences the broker is the last one, in the last chunk. If the controller dies before
it, the broker is still unfenced; its session ends at the next controller too, which finds the rest.
If the fencing came first, no controller would look for the rest.

Partitions that no other replica can lead are in the last chunk too, however many they are. Bad
sequence otherwise: 1. They lose their leader. 2. The controller dies. 3. The broker was not dead,
and sends heartbeats to the next controller. The broker was never fenced, so no unfencing elects it
again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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
    """The progress of fencing one broker epoch.

    chunk: partitions decided at a time.
    unseen: ids of the topics to search.
    led, followed: partitions found that the broker is to be removed from, in this order.
    stuck: partitions for which no other leader was found, left for the last chunk.
    """

    broker_id: int
    broker_epoch: int
    chunk: int
    unseen: tuple[bytes, ...]
    led: tuple[Piece, ...] = ()
    followed: tuple[Piece, ...] = ()
    stuck: frozenset[TopicIdPartition] = frozenset()

    def note(self, records: Iterable[Record]) -> BrokerFencing:
        """Note the records of other decisions: topics in which they put the broker are searched
        again."""
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
    """Start to fence a broker. None if there is no such broker, or it is fenced."""
    broker = image.brokers.get(broker_id)
    if broker is None or broker.is_fenced:
        return None
    return BrokerFencing(broker_id, broker.broker_epoch, chunk, tuple(sorted(image.topics)))


def fence_next_chunk(
    image: ClusterImage, at: BrokerFencing, *, is_unclean_default: bool = False
) -> Decision[BrokerFencing | None]:
    """The records of the next chunk, maybe none, and the progress; None when the broker is fenced,
    or has a new registration. Records of other decisions since the last chunk must have been given
    to `note`."""
    broker = image.brokers.get(at.broker_id)
    if broker is None or broker.is_fenced or broker.broker_epoch != at.broker_epoch:
        return Decision((), None)
    at = _find_affected(image, at)
    # While more partitions that it leads may be found, leaving ISRs can wait.
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
    """The records that remove the broker from these partitions, where it is still leader or in the
    ISR."""
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
    """Search some topics of `unseen` for partitions that the broker leads, or in whose ISR it is.
    A partition without a leader whose ISR is the broker alone is left out: the last member stays
    in the ISR (ADR 8)."""
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
    """The number of pieces that make up one chunk."""
    size = 0
    for end, (_, partition_ids) in enumerate(pieces):
        size += len(partition_ids)
        if size > chunk:
            return end
    return len(pieces)
