"""Carries out the faults that only this world knows, besides those of the controller's."""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING, Protocol

from kvorum.chaos.sim.controller.nemesis import ControllerNemesis, StruckCluster
from kvorum.chaos.sim.fault_draws import kind_of
from kvorum.chaos.sim.faults import AnyFault
from kvorum.chaos.sim.partitions.faults import (
    CrashBrokers,
    CutPowerOfBroker,
    FailBrokerDisk,
    IsolateBroker,
    PauseBroker,
)

if TYPE_CHECKING:
    from kvorum.chaos.sim.quorum.node import SimNode


class StruckPartitions(StruckCluster, Protocol):
    """The part of a world with partitions that faults strike."""

    def on_healed(self) -> None:
        """Faults are over."""


class PartitionNemesis(ControllerNemesis):
    """As its base."""

    def __init__(self, world: StruckPartitions, rng: random.Random) -> None:
        super().__init__(world, rng)
        self._brokers = world

    def strike(self, fault: AnyFault) -> None:
        match fault:
            case CrashBrokers():
                hit = self._crash_brokers(fault)
            case IsolateBroker() | CutPowerOfBroker() | FailBrokerDisk() | PauseBroker():
                self._note(str(fault))
                hit = self._harm(fault)
            case _:
                super().strike(fault)
                return
        self.struck[kind_of(fault)] += hit

    def heal(self) -> None:
        super().heal()
        self._brokers.on_healed()

    def _target(self, number: int) -> SimNode:
        ids = self._brokers.broker_ids
        return self._brokers.nodes[ids[number % len(ids)]]

    def _crash_brokers(self, fault: CrashBrokers) -> bool:
        world = self._brokers
        nodes = {self._target(number).node_id: self._target(number) for number in fault.brokers}
        self._note(f"power cut for {sorted(nodes)}")
        down_ms = fault.down_ms
        hit = False
        for node in nodes.values():
            if node.is_up:
                hit = True
                node.stop(is_power_cut=True)
                world.start_later(node, down_ms)
                down_ms += fault.apart_ms
        return hit

    def _harm(self, fault: IsolateBroker | CutPowerOfBroker | FailBrokerDisk | PauseBroker) -> bool:
        world = self._brokers
        if not world.broker_ids:
            return False
        node = self._target(fault.broker)
        match fault:
            case IsolateBroker():
                others = [i for i in world.nodes if i != node.node_id]
                if fault.sees_controllers:
                    others = [i for i in others if i in world.broker_ids]
                links = [link for i in others for link in ((i, node.node_id), (node.node_id, i))]
                world.network.block(links)
                world.timeline.after(fault.lasts_ms, partial(world.network.unblock, links))
            case CutPowerOfBroker():
                node.disk.cut_power_after(fault.calls)
            case FailBrokerDisk():
                node.disk.fail(fault.operation, path_part=fault.path_part)
            case PauseBroker():
                if not node.is_up or node.is_paused:
                    return False
                node.pause()
                incarnation = node.incarnation

                def resume() -> None:
                    if node.is_paused and node.incarnation == incarnation:
                        node.resume()

                world.timeline.after(fault.lasts_ms, resume)
        return True
