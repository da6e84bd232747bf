"""The ISR proposals of partition leaders: in time, late, repeated, out of order.

A leader checks which followers are up and reachable, and proposes the ISR that its own image calls
for. Replication of data is not simulated: a follower that is up and reachable counts as caught up.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from kvorum.metadata.image.image import ClusterImage, PartitionImage, TopicIdPartition
from kvorum.metadata.requests.controller_requests import AlterPartition, IsrProposal

if TYPE_CHECKING:
    from kvorum.chaos.sim.kernel.network import Network
    from kvorum.chaos.sim.quorum.node import SimNode
    from kvorum.metadata.controller.controller import Request

SHRINKS, EXPANDS = 0.6, 0.8
"""Share of checks in which a leader proposes a needed shrink, or a needed expansion, of the ISR."""

REPEATS = 0.06
"""Share of checks in which an old proposal is sent again."""

REMEMBERED_MAX = 12
FALSE_ALARMS = 0.01
"""Probability, for each follower in a check, that the leader wrongly takes it for unreachable."""

OLD_FOLLOWERS = 0.05
"""Probability, for each follower in a check, that the leader uses the broker epoch of an earlier
process of the follower."""


class Follower(Protocol):
    """The broker of a follower (`chaos.sim.controller.brokers.SimBroker`). epoch_before: the broker
    epoch of one of its earlier processes; -1 if none is known."""

    epoch_before: int


class IsrWorld(Protocol):
    """The part of a world that leaders use."""

    @property
    def network(self) -> Network: ...

    @property
    def brokers(self) -> Mapping[int, Follower]: ...

    def epoch_of_reachable(self, leader_id: int, broker_id: int) -> int:
        """The broker epoch under which a follower fetches from a leader; -1 if it does not."""


class LeadingProcess(Protocol):
    """A broker process that leads partitions (`chaos.sim.controller.brokers.SimBrokerProcess`)."""

    broker_epoch: int

    @property
    def world(self) -> IsrWorld: ...

    @property
    def node(self) -> SimNode: ...

    @property
    def image(self) -> ClusterImage: ...

    def ask(self, request: Request, on_reply: Callable[[Any], None]) -> None:
        """Send a request to the controller that the broker takes for active; on_reply gets None if
        no answer arrives."""


class IsrProposals:
    """The ISR proposals of one broker process."""

    def __init__(self, process: LeadingProcess, rng: random.Random) -> None:
        self._process = process
        self._rng = rng
        self._in_flight: set[TopicIdPartition] = set()
        self._sent: deque[AlterPartition] = deque(maxlen=REMEMBERED_MAX)

    def propose(self) -> None:
        """Propose the changes that are due."""
        process, rng = self._process, self._rng
        image, own_id = process.image, process.node.node_id
        is_rough = process.world.network.is_rough
        if is_rough and self._sent and rng.random() < REPEATS:
            process.ask(rng.choice(self._sent), lambda reply: None)
        reachable: dict[int, int] = {}
        for broker_id in image.brokers:
            epoch = process.world.epoch_of_reachable(own_id, broker_id)
            if epoch < 0 or (is_rough and rng.random() < FALSE_ALARMS):
                continue
            if is_rough and rng.random() < OLD_FOLLOWERS:
                # Pretends that the last fetch that the leader saw came from the follower's previous
                # process: the proposal names a broker epoch that is over.
                epoch = max(process.world.brokers[broker_id].epoch_before, -1)
            reachable[broker_id] = epoch
        proposals = []
        for topic_id, topic in sorted(image.topics.items()):
            for partition_id, partition in sorted(topic.partitions.items()):
                key = (topic_id, partition_id)
                if partition.leader != own_id or key in self._in_flight:
                    continue
                members = self._wanted(partition, own_id, reachable)
                if members is not None:
                    proposals.append(self._proposal(key, partition, members, reachable))
        if not proposals:
            return
        keys = {(p.topic_id, p.partition_id) for p in proposals}
        request = AlterPartition(
            broker_id=own_id, broker_epoch=process.broker_epoch, proposals=tuple(proposals)
        )
        self._in_flight |= keys
        self._sent.append(request)
        forget: Callable[[Any], None] = partial(self._forget, keys)
        process.ask(request, forget)

    def _forget(self, keys: set[TopicIdPartition], _: Any) -> None:
        self._in_flight -= keys

    def _wanted(
        self, partition: PartitionImage, own_id: int, reachable: dict[int, int]
    ) -> tuple[int, ...] | None:
        rng = self._rng
        stay = [r for r in partition.isr if r in reachable or r == own_id]
        if len(stay) < len(partition.isr):
            return tuple(stay) if rng.random() < SHRINKS else None
        active = {b.broker_id for b in self._process.image.brokers.values() if b.is_active}
        joining = [
            r
            for r in partition.replicas
            if r not in partition.isr and r in reachable and r in active
        ]
        if not joining or rng.random() >= EXPANDS:
            return None
        if rng.random() < 0.3:
            joining = joining[:1]
        return (*partition.isr, *joining)

    def _proposal(
        self,
        key: TopicIdPartition,
        partition: PartitionImage,
        members: tuple[int, ...],
        reachable: dict[int, int],
    ) -> IsrProposal:
        # A reachable member is named with the broker epoch under which it fetches (KIP-903).
        return IsrProposal(
            topic_id=key[0],
            partition_id=key[1],
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            new_isr=tuple((member, reachable.get(member, -1)) for member in members),
        )
