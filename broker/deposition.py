"""A leader that cannot hear that it was deposed is told by who follows another one now.

Bad sequence that this prevents: 1. a broker loses the controllers, yet not its clients nor the
other brokers, 2. its session ends, others lead what it led, and fetch from it no more, 3. it goes
on taking records: those with acks=all are never committed, and their producers wait for minutes,
until their own timeout; those with acks=1 are lost, for as long as the cut lasts; who reads from
it waits for what never comes.

No request of Kafka's says it. Here who followed it (`former_leaders`, `deposition_link`) lists the
partition in a Fetch without a session, in the new leader epoch, and asks for no byte of it
(PartitionMaxBytes 0), which no Fetch does that wants records; FetchOffset is the new leader's id.
Epochs are the controller's to give: who hears of a later one that is not its own leads no more, and
sends its clients on. Apache Kafka answers UNKNOWN_LEADER_EPOCH, as to any epoch that it has not
heard of.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from typing import TYPE_CHECKING

from broker.fetch_sessions import FINAL_EPOCH, Watched
from broker.former_leaders import News
from broker.replica import Replica
from metadata.image import EMPTY_IMAGE, ClusterImage
from runtime.errors import ErrorCode
from wire.fetch_codec import FetchPartition
from wire.replica_fetch_codec import pack_replica_fetch

if TYPE_CHECKING:
    from broker.replicas import ReplicaManager

_log = logging.getLogger(__name__)

NAMED_MAX = 5
"""Partitions that one line of the log names."""

Key = tuple[bytes, int]


class Successors:
    """Who leads instead of this broker, as others have told, until its image tells."""

    def __init__(self) -> None:
        self._told: dict[Key, tuple[int, int]] = {}
        self._base: ClusterImage | None = None
        self._over = EMPTY_IMAGE
        self._unsaid: list[str] = []

    def tell(self, replica: Replica, by: int) -> None:
        """The replica's core has heard of its successor from broker `by`."""
        core = replica.core
        self._told[core.topic_id, core.partition_id] = (core.leader, core.newest_epoch)
        self._base = None
        if not self._unsaid:
            asyncio.get_running_loop().call_soon(self._say, by)
        self._unsaid.append(
            f"{core.topic}-{core.partition_id} (broker {core.leader}, epoch {core.newest_epoch})"
        )

    def _say(self, by: int) -> None:
        """All that one request tells in one line: a broker may have led thousands."""
        unsaid, self._unsaid = self._unsaid, []
        more = f" and {len(unsaid) - NAMED_MAX} more" if len(unsaid) > NAMED_MAX else ""
        _log.warning(
            "the controllers do not reach this broker: as broker %d says, others lead %s%s",
            by, ", ".join(unsaid[:NAMED_MAX]), more,
        )  # fmt: skip

    def over(self, image: ClusterImage) -> ClusterImage:
        """The image that clients are told of: this one, with what it lacks; the same object until
        either changes. A client that has only this broker would be sent back to it for ever."""
        if not self._told:
            return image
        if image is self._base:
            return self._over
        topics = image.topics
        for (topic_id, partition_id), (leader, leader_epoch) in list(self._told.items()):
            topic = topics.get(topic_id)
            partition = None if topic is None else topic.partitions.get(partition_id)
            if topic is None or partition is None or partition.leader_epoch >= leader_epoch:
                del self._told[topic_id, partition_id]
                continue
            # Who was fenced is in sync no more.
            isr = tuple(r for r in partition.isr if r != partition.leader)
            partition = dataclasses.replace(
                partition,
                leader=leader,
                leader_epoch=leader_epoch,
                isr=isr if leader in isr else (*isr, leader),
            )
            partitions = topic.partitions.set(partition_id, partition)
            topics = topics.set(topic_id, dataclasses.replace(topic, partitions=partitions))
        if not self._told:
            self._base, self._over = None, EMPTY_IMAGE
            return image
        self._base, self._over = image, dataclasses.replace(image, topics=topics)
        return self._over


def ask_to_step_down(news: News, *, broker_id: int, broker_epoch: int) -> bytes:
    """The request that says so: a frame, for a session of its own. broker_epoch: of the sender."""
    by_topic: dict[bytes, list[FetchPartition]] = {}
    for (topic_id, partition_id), image in news:
        by_topic.setdefault(topic_id, []).append(
            FetchPartition(partition_id, image.leader_epoch, image.leader, -1, -1, 0)
        )
    return pack_replica_fetch(
        correlation_id=1,
        client_id=f"broker-{broker_id}-deposition".encode(),
        replica_id=broker_id,
        replica_epoch=broker_epoch,
        max_wait_ms=0,
        min_bytes=0,
        bytes_max=0,
        session_id=0,
        session_epoch=FINAL_EPOCH,
        topics=by_topic.items(),
    )


def hear(manager: ReplicaManager, replica: Replica, watched: Watched) -> None:
    """Step down, if it is this that is told (see `ask_to_step_down`). Who waits hears
    NOT_LEADER_OR_FOLLOWER, and who leads."""
    asked, state, core = watched.asked, watched.state, replica.core
    leader, leader_epoch = asked.fetch_offset, asked.current_leader_epoch
    if asked.bytes_max or not core.step_down(
        leader, leader_epoch, replica_id=state.replica_id, broker_epoch=state.replica_epoch
    ):
        return
    manager.successors.tell(replica, state.replica_id)
    replica.fail_pending(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    replica.notify_state_change()
    if replica.observer is not None:
        replica.observer.on_replica(replica)
