"""Fencing a broker that holds much, a chunk at a time.

To fence a broker that is in the ISR of 100,000 partitions at once would hold the controller's loop
for half a second: no heartbeat is read meanwhile, and no request answered. So the partitions are
given away chunk by chunk, with other decisions in between, and the fencing itself comes last. What
was decided meanwhile as if the broker were there (a topic placed on it, a leadership given back to
it) the last chunk takes away again. A broker that holds little is fenced in one chunk.

If the controller dies half-way, the broker is still unfenced in the log, its session at the next
controller ends as well, and the rest goes then; or the broker was alive after all, and has lost
leaderships that others have. What nobody else can lead stays with it until the last chunk: if the
broker came back to another controller, nothing would make it lead again.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from metadata.decide import Decision
from metadata.decide.brokers import fence
from metadata.decide.elections import Sweep, begin_sweep
from metadata.decide.electorate import Electorate, Terms, electorate
from metadata.decide.partition_change import dropped
from metadata.image import ClusterImage, TopicImage
from metadata.records import NO_LEADER, PartitionChange, Record

CHUNK_CHANGES = 2_000
"""Partitions given away in one chunk: about ten milliseconds of the loop's time,"""
CHUNK_PARTITIONS = 20_000
"""and so many looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fencing:
    """A fencing under way. walk: where it stands, None once all has been walked over."""

    broker_id: int
    broker_epoch: int
    cause: str
    walk: Sweep | None


def begin_fencing(image: ClusterImage, broker_id: int, cause: str) -> Fencing | None:
    """A fencing of the broker as it is registered now; None if there is none to fence."""
    broker = image.brokers.get(broker_id)
    if broker is None or broker.is_fenced:
        return None
    return Fencing(
        broker_id=broker_id,
        broker_epoch=broker.broker_epoch,
        cause=cause,
        walk=begin_sweep(image),
    )


def fence_chunk(
    image: ClusterImage,
    at: Fencing,
    *,
    is_unclean_default: bool,
    chunk_changes: int = CHUNK_CHANGES,
) -> Decision[Fencing | None]:
    """One chunk's records, and where to go on; None when the broker is fenced.

    It is over as well, without a record, if the broker was fenced meanwhile, is gone, or has
    registered anew.
    """
    broker = image.brokers.get(at.broker_id)
    if broker is None or broker.is_fenced or broker.broker_epoch != at.broker_epoch:
        return Decision((), None)
    if at.walk is not None:
        voters = electorate(image, leaving=at.broker_id, is_unclean_default=is_unclean_default)
        changes, walk = _walk(image, at.broker_id, at.walk, voters, chunk_changes)
        is_first = at.walk.topic_index == at.walk.partition_id == 0
        if walk is not None or not is_first:
            return Decision(tuple(changes), dataclasses.replace(at, walk=walk))
        # The broker holds so little that one chunk is enough.
    return Decision(fence(image, at.broker_id, is_unclean_default=is_unclean_default), None)


def _walk(
    image: ClusterImage, broker_id: int, at: Sweep, voters: Electorate, chunk_changes: int
) -> tuple[list[Record], Sweep | None]:
    """Changes from `at` on, and where the walk stopped; None behind the last partition."""
    changes: list[Record] = []
    looked_at = 0
    partition_id = at.partition_id
    for topic_index in range(at.topic_index, len(at.topic_ids)):
        topic = image.topics.get(at.topic_ids[topic_index])
        terms: Terms | None = None
        while topic is not None and partition_id in topic.partitions:
            if len(changes) >= chunk_changes or looked_at >= CHUNK_PARTITIONS:
                return changes, Sweep(at.topic_ids, topic_index, partition_id)
            looked_at += 1
            change, terms = _change(image, topic, partition_id, broker_id, voters, terms)
            if change is not None:
                changes.append(change)
            partition_id += 1
        partition_id = 0
    return changes, None


def _change(
    image: ClusterImage,
    topic: TopicImage,
    partition_id: int,
    broker_id: int,
    voters: Electorate,
    terms: Terms | None,
) -> tuple[PartitionChange | None, Terms | None]:
    """What takes the broker out of one partition, if another leads it then; and the topic's terms
    once they were needed."""
    partition = topic.partitions[partition_id]
    if broker_id not in partition.isr and broker_id != partition.leader:
        return None, terms
    terms = terms or voters.terms(image, topic.name)
    change = dropped((topic.topic_id, partition_id), partition, broker_id, terms)
    is_led = change is not None and change.leader != NO_LEADER
    return change if is_led else None, terms
