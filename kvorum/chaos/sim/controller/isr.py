"""The ISR proposals of partition leaders: in time, late, repeated, out of order.

A leader checks which followers are up and reachable, and proposes the ISR that its own image calls
for. Replication of data is not simulated: a follower that is up and reachable counts as caught up.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from kvorum.chaos.sim.kernel.network import Network
from kvorum.metadata.image.image import ClusterImage, PartitionImage, TopicIdPartition
from kvorum.metadata.requests.controller_requests import AlterPartition, IsrProposal

if TYPE_CHECKING:
    from kvorum.chaos.sim.quorum.node import SimNode
    from kvorum.metadata.controller.core.controller import Request

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


class SimIsrProposals:
    """The ISR proposals of one broker process.

    ask: sends a request to the controller that the broker takes for active; its second argument
        gets the reply, None if there is none.
    epoch_of_reachable: the broker epoch under which a follower fetches from this leader; -1 if it
        does not.
    old_epoch_of: the broker epoch of an earlier process of a follower; -1 if none is known.
    """

    def __init__(
        self,
        node: SimNode,
        network: Network,
        rng: random.Random,
        *,
        ask: Callable[[Request, Callable[[Any], None]], None],
        epoch_of_reachable: Callable[[int], int],
        old_epoch_of: Callable[[int], int],
    ) -> None:
        self._node = node
        self._network = network
        self._rng = rng
        self._ask = ask
        self._epoch_of_reachable = epoch_of_reachable
        self._old_epoch_of = old_epoch_of
        self._in_flight: set[TopicIdPartition] = set()
        self._sent: deque[AlterPartition] = deque(maxlen=REMEMBERED_MAX)

    def propose(self, image: ClusterImage, broker_epoch: int) -> None:
        """Propose the changes that are due in this image, under the process's own epoch."""
        rng, own_id = self._rng, self._node.node_id
        is_rough = self._network.is_rough
        if is_rough and self._sent and rng.random() < REPEATS:
            self._ask(rng.choice(self._sent), lambda reply: None)
        reachable: dict[int, int] = {}
        for broker_id in image.brokers:
            epoch = self._epoch_of_reachable(broker_id)
            if epoch < 0 or (is_rough and rng.random() < FALSE_ALARMS):
                continue
            if is_rough and rng.random() < OLD_FOLLOWERS:
                # Pretends that the last fetch that the leader saw came from the follower's previous
                # process: the proposal names a broker epoch that is over.
                epoch = self._old_epoch_of(broker_id)
            reachable[broker_id] = epoch
        active = {broker.broker_id for broker in image.brokers.values() if broker.is_active}
        proposals = []
        for topic_id, topic in sorted(image.topics.items()):
            for partition_id, partition in sorted(topic.partitions.items()):
                key = (topic_id, partition_id)
                if partition.leader != own_id or key in self._in_flight:
                    continue
                members = self._wanted(partition, own_id, reachable, active)
                if members is not None:
                    proposals.append(self._proposal(key, partition, members, reachable))
        if not proposals:
            return
        keys = {(p.topic_id, p.partition_id) for p in proposals}
        request = AlterPartition(
            broker_id=own_id, broker_epoch=broker_epoch, proposals=tuple(proposals)
        )
        self._in_flight |= keys
        self._sent.append(request)
        forget: Callable[[Any], None] = partial(self._forget, keys)
        self._ask(request, forget)

    def _forget(self, keys: set[TopicIdPartition], _: Any) -> None:
        self._in_flight -= keys

    def _wanted(
        self,
        partition: PartitionImage,
        own_id: int,
        reachable: dict[int, int],
        active: set[int],
    ) -> tuple[int, ...] | None:
        rng = self._rng
        stay = [r for r in partition.isr if r in reachable or r == own_id]
        if len(stay) < len(partition.isr):
            return tuple(stay) if rng.random() < SHRINKS else None
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
