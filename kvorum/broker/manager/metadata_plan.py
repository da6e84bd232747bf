"""A broker's actions on its replicas when the metadata changes. Pure.

The actions are the difference between two images, for one broker. Topics are identified by id,
never by name: a topic that was deleted and created again is another topic. Its old replica is
deleted and a new, empty one is made.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kvorum.metadata.image.delta import Delta
from kvorum.metadata.image.image import ClusterImage, PartitionImage


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """This broker no longer holds the replica: the topic is gone or was moved away."""

    topic: str
    topic_id: bytes
    partition_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lead:
    topic: str
    topic_id: bytes
    partition_id: int
    image: PartitionImage


@dataclass(frozen=True, slots=True, kw_only=True)
class Follow:
    """This broker follows image.leader, which may be NO_LEADER."""

    topic: str
    topic_id: bytes
    partition_id: int
    image: PartitionImage


Action = Delete | Lead | Follow


def plan(
    before: ClusterImage, after: ClusterImage, broker_id: int, delta: Delta | None = None
) -> list[Action]:
    """Actions in the order to take them: deletions first, so that the folder of a re-created topic
    is free.

    delta: the changes from `before` to `after`; it only saves comparing topics that did not change.
    Without it, both images are compared whole.
    """
    deletions: list[Action] = []
    changes: list[Action] = []
    for topic_id, partition_ids in touched(before, after, delta):
        # Look topics up once each, not once a partition: the death of a broker changes tens of
        # thousands of partitions.
        old_topic, new_topic = before.topics.get(topic_id), after.topics.get(topic_id)
        was = {} if old_topic is None else old_topic.partitions
        now = {} if new_topic is None else new_topic.partitions
        for partition_id in partition_ids:
            old, new = was.get(partition_id), now.get(partition_id)
            if new_topic is not None and new is not None and broker_id in new.replicas:
                if new != old:
                    kind = Lead if new.leader == broker_id else Follow
                    changes.append(
                        kind(
                            topic=new_topic.name,
                            topic_id=topic_id,
                            partition_id=partition_id,
                            image=new,
                        )
                    )
            elif old_topic is not None and old is not None and broker_id in old.replicas:
                deletions.append(
                    Delete(topic=old_topic.name, topic_id=topic_id, partition_id=partition_id)
                )
    return deletions + changes


def _topic_id(entry: tuple[bytes, object]) -> bytes:
    return entry[0]


def touched(
    before: ClusterImage, after: ClusterImage, delta: Delta | None
) -> Iterator[tuple[bytes, list[int]]]:
    """(topic id, ids of its partitions that may have changed, ascending)."""
    # Sort by topic id: the order of an image's maps differs between processes, and a simulation
    # must be reproducible.
    if delta is not None:
        for topic_id, topic in sorted(delta.deleted_topics.items(), key=_topic_id):
            yield topic_id, sorted(topic.partitions)
        for topic_id, partition_ids in sorted(delta.changed_partitions.items(), key=_topic_id):
            yield topic_id, sorted(partition_ids)
        return
    if before.topics is after.topics:
        return
    for topic_id, topic in sorted(before.topics.items(), key=_topic_id):
        kept = after.topics.get(topic_id)
        if kept is topic:
            continue
        gone = (p for p in topic.partitions if kept is None or p not in kept.partitions)
        yield topic_id, sorted(gone)
    for topic_id, topic in sorted(after.topics.items(), key=_topic_id):
        if before.topics.get(topic_id) is not topic:
            yield topic_id, sorted(topic.partitions)
