"""Carries out the faults that only this world knows, besides those of the quorum."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Protocol

from kvorum.chaos.sim.controller.faults import (
    CrashBroker,
    FlapLink,
    StopBroker,
    StrikeOperation,
    WipeBroker,
)
from kvorum.chaos.sim.fault_draws import kind_of
from kvorum.chaos.sim.faults import AnyFault
from kvorum.chaos.sim.kernel.network import Link
from kvorum.chaos.sim.quorum.nemesis import Nemesis, StruckWorld

if TYPE_CHECKING:
    from kvorum.chaos.sim.controller.brokers import SimBroker
    from kvorum.chaos.sim.controller.strikes import Strikes
    from kvorum.chaos.sim.kernel.wire import Wire


class StruckCluster(StruckWorld, Protocol):
    """The part of a world with brokers that faults strike."""

    @property
    def controller_ids(self) -> tuple[int, ...]: ...

    @property
    def broker_ids(self) -> tuple[int, ...]: ...

    @property
    def brokers(self) -> Mapping[int, SimBroker]: ...

    @property
    def strikes(self) -> Strikes: ...

    @property
    def wire(self) -> Wire: ...

    @property
    def tally(self) -> Counter[str]: ...


class ControllerNemesis(Nemesis):
    """As its base; brokers are counted through from 0, modulo their number."""

    def __init__(self, world: StruckCluster, rng: random.Random) -> None:
        super().__init__(world)
        self._cluster = world
        self._rng = rng

    def strike(self, fault: AnyFault) -> None:
        match fault:
            case StrikeOperation():
                self._cluster.strikes.arm(fault)
                hit = True
            case FlapLink():
                hit = self._flap(fault)
            case StopBroker() | CrashBroker() | WipeBroker():
                hit = self._harm_broker(fault)
            case _:
                super().strike(fault)
                return
        self.struck[kind_of(fault)] += hit

    def heal(self) -> None:
        self._cluster.strikes.heal()
        self._cluster.wire.heal()
        super().heal()

    def _harm_broker(self, fault: StopBroker | CrashBroker | WipeBroker) -> bool:
        world = self._cluster
        if not world.broker_ids:
            return False
        node = world.nodes[world.broker_ids[fault.broker % len(world.broker_ids)]]
        self._note(f"broker={node.node_id} {fault}")
        match fault:
            case StopBroker():
                is_able = node.is_up and not node.is_paused
                return is_able and world.brokers[node.node_id].stop_cleanly(fault.down_ms)
            case CrashBroker():
                if not node.is_up:
                    return False
                node.stop(is_power_cut=fault.is_power_cut)
            case WipeBroker():
                if node.is_up:
                    node.stop(is_power_cut=True)
                node.lose_disk()
        world.start_later(node, fault.down_ms)
        return True

    def _flap(self, fault: FlapLink) -> bool:
        world = self._cluster
        ids = world.broker_ids
        if not ids:
            return False
        self._note(str(fault))
        end_ms = world.timeline.now_ms + fault.lasts_ms
        chosen = ids if fault.broker < 0 else (ids[fault.broker % len(ids)],)
        for broker_id in chosen:
            self._go_down(broker_id, fault, end_ms)
        return True

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
