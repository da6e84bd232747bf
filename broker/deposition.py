"""A leader that cannot hear that it was deposed is told by who follows another one now.

Bad sequence that this prevents: 1. a broker loses the controllers, yet not its clients nor the
other brokers, 2. its session ends, others lead what it led, and fetch from it no more, 3. it goes
on taking records: those with acks=all are never committed, and their producers wait for minutes,
until their own timeout; those with acks=1 are lost, for as long as the cut lasts.

No request of Kafka's says it. Here a follower lists the partition once more, in the new leader
epoch, and asks for no byte of it (PartitionMaxBytes 0), which no Fetch does that wants records;
FetchOffset is the new leader's id. Epochs are the controller's to give: who hears of a later one
that is not its own leads no more, and sends its clients on. Apache Kafka answers
UNKNOWN_LEADER_EPOCH, as to any epoch that it has not heard of.
"""

from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING

from broker.fetch_sessions import Watched
from broker.partition import BrokerFacts
from broker.replica import Replica
from metadata.image import EMPTY_IMAGE, ClusterImage, PartitionImage
from metadata.records import NO_LEADER
from runtime.errors import ErrorCode
from wire.fetch_codec import FetchPartition

if TYPE_CHECKING:
    from broker.replicas import ReplicaManager

_log = logging.getLogger(__name__)

Key = tuple[bytes, int]


class Successors:
    """Who leads instead of this broker, as followers have told, until its image tells."""

    def __init__(self) -> None:
        self._told: dict[Key, tuple[int, int]] = {}
        self._base: ClusterImage | None = None
        self._over = EMPTY_IMAGE

    def tell(self, key: Key, leader: int, leader_epoch: int) -> None:
        self._told[key] = (leader, leader_epoch)
        self._base = None

    def over(self, image: ClusterImage) -> ClusterImage:
        """The image that clients are told of: this one, with what it lacks; the same object until
        either changes. A client that has only this broker would be sent back to it for ever."""
        if not self._told or image is self._base:
            return self._over if self._told else image
        topics = image.topics
        for (topic_id, partition_id), (leader, leader_epoch) in list(self._told.items()):
            topic = topics.get(topic_id)
            partition = None if topic is None else topic.partitions.get(partition_id)
            if topic is None or partition is None or partition.leader_epoch >= leader_epoch:
                del self._told[topic_id, partition_id]
                continue
            partition = dataclasses.replace(partition, leader=leader, leader_epoch=leader_epoch)
            partitions = topic.partitions.set(partition_id, partition)
            topics = topics.set(topic_id, dataclasses.replace(topic, partitions=partitions))
        self._base = image
        self._over = dataclasses.replace(image, topics=topics) if self._told else image
        return self._over


def told(partition_id: int, image: PartitionImage) -> FetchPartition:
    """How a follower says what this image says of the leader."""
    return FetchPartition(partition_id, image.leader_epoch, image.leader, -1, -1, 0)


def may_be_unaware(leader: int, image: PartitionImage, facts: BrokerFacts) -> bool:
    """Whether `leader`, which led until this image of the partition, may be cut off from the
    controllers: it was taken out, and did not ask to go. One that is still in sync has a session;
    but the last of an ISR stays in it, and nobody leads."""
    broker = facts.brokers.get(leader)
    if broker is not None and broker.in_controlled_shutdown:
        return False
    return image.leader == NO_LEADER or leader not in image.isr


def hear(manager: ReplicaManager, replica: Replica, watched: Watched) -> None:
    """Step down, if it is this that the follower tells (see `told`). Who waits hears
    NOT_LEADER_OR_FOLLOWER, and who leads."""
    asked, state, core = watched.asked, watched.state, replica.core
    leader, leader_epoch = asked.fetch_offset, asked.current_leader_epoch
    if asked.bytes_max or not core.step_down(
        leader, leader_epoch, replica_id=state.replica_id, broker_epoch=state.replica_epoch
    ):
        return
    _log.warning(
        "%s-%d: broker %d says that %s leads in epoch %d; this one leads no more",
        core.topic, core.partition_id, state.replica_id,
        "nobody" if leader == NO_LEADER else f"broker {leader}", leader_epoch,
    )  # fmt: skip
    manager.successors.tell((core.topic_id, core.partition_id), leader, leader_epoch)
    replica.fail_pending(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    replica.notify_state_change()
    if replica.observer is not None:
        replica.observer.on_replica(replica)
