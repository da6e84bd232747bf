"""Carries out the faults that only this world supports, besides those of the quorum."""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from kvorum.chaos.faults import Fault, FlapLink, StopNode, StrikeOperation
from kvorum.chaos.sim.controller.brokers import SimBroker
from kvorum.chaos.sim.controller.cluster_world import ClusterWorld
from kvorum.chaos.sim.kernel.network import Link
from kvorum.chaos.sim.quorum.changes import Operator
from kvorum.chaos.sim.quorum.nemesis import QuorumNemesis
from kvorum.chaos.sim.quorum.node import SimNode

if TYPE_CHECKING:
    from kvorum.chaos.sim.controller.brokers import SimBroker
    from kvorum.chaos.sim.quorum.node import SimNode


class ControllerNemesis(QuorumNemesis):
    """The quorum's nemesis, with the faults that need a controller or brokers."""

    def __init__(
        self,
        world: ClusterWorld,
        operator: Operator,
        brokers: Mapping[int, SimBroker],
        rng: random.Random,
    ) -> None:
        super().__init__(world, operator)
        self._cluster = world
        self._brokers = brokers
        self._rng = rng

    def _strike(self, fault: Fault) -> bool:
        match fault:
            case StrikeOperation():
                self._cluster.strikes.arm(fault)
                return True
            case FlapLink():
                return self._flap(fault)
            case StopNode():
                return self._each(fault.target, partial(self._stop_broker, fault))
            case _:
                return super()._strike(fault)

    def heal(self) -> None:
        self._cluster.strikes.heal()
        self._cluster.wire.heal()
        super().heal()

    def _stop_broker(self, fault: StopNode, node: SimNode) -> bool:
        self._note(f"node={node.node_id} {fault.text()}")
        if node.node_id not in self._brokers or not node.is_up or node.is_paused:
            return False
        return self._brokers[node.node_id].stop_cleanly(fault.duration_ms)

    def _flap(self, fault: FlapLink) -> bool:
        self._note(fault.text())
        end_ms = self._cluster.timeline.now_ms + fault.duration_ms
        chosen = self._ids(fault.target)
        for broker_id in chosen:
            self._go_down(broker_id, fault, end_ms)
        return bool(chosen)

    def _go_down(self, broker_id: int, fault: FlapLink, end_ms: int) -> None:
        world = self._cluster
        if world.timeline.now_ms >= end_ms or not world.network.is_rough:
            return
        links: list[Link] = []
        for controller_id in world.controller_ids:
            links += [(broker_id, controller_id), (controller_id, broker_id)]
        world.tally["flaps of a link"] += 1
        world.network.break_connections(broker_id)
        world.wire.refuse(links)
        world.network.block(links)
        down_ms = self._rng.randint(*fault.down_ms)

        def come_back() -> None:
            world.wire.accept(links)
            world.network.unblock(links)
            up_ms = self._rng.randint(*fault.up_ms)
            world.timeline.after(up_ms, partial(self._go_down, broker_id, fault, end_ms))

        world.timeline.after(down_ms, come_back)
