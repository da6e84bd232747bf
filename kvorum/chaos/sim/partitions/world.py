"""A whole cluster in virtual time: the controller's world with real partitions at its brokers, real
logs on the faulty disks, and clients that write and read. All checks of the worlds below stay
active."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import cast

from kvorum.chaos.sim.controller.admin import Administrators
from kvorum.chaos.sim.controller.broker_machine import BrokerMachine
from kvorum.chaos.sim.kernel.sockets import SimConnections
from kvorum.chaos.sim.partitions.brokers import (
    PartitionBroker,
    PartitionMachine,
    running,
)
from kvorum.chaos.sim.partitions.clients import PartitionClients
from kvorum.chaos.sim.partitions.data_world import DataWorld
from kvorum.chaos.sim.partitions.final_checks import open_ends
from kvorum.chaos.sim.partitions.recorder import Recorder
from kvorum.chaos.sim.partitions.scenario import partition_scenario_of
from kvorum.chaos.sim.partitions.watch import ReplicaWatch
from kvorum.chaos.sim.quorum.model.state import ListState
from kvorum.chaos.sim.quorum.node import SimNode
from kvorum.chaos.sim.quorum.scenario import Scenario
from kvorum.chaos.sim.quorum.world import QuorumOutcome

OPERATOR_INTERVAL_MS = 700
"""Interval at which an operator looks for brokers with failed disks, and restarts them."""

OPERATOR_DOWN_MS = 100


class PartitionWorld(DataWorld):
    """recorder: the clients' history."""

    scenario_of: Callable[[int], Scenario] = staticmethod(partition_scenario_of)

    def run(self) -> QuorumOutcome:
        self.traffic.begin(self.generator("traffic"))
        self.timeline.after(OPERATOR_INTERVAL_MS, self._look_after_disks)
        try:
            return super().run()
        finally:
            for broker_id in self.broker_ids:
                process = running(self.brokers[broker_id])
                if process is not None:
                    self.nodes[broker_id].is_up = False
                    process.loop.stop_all()

    # The parts above the controller.

    def _make_clients(self) -> Administrators:
        self.topic_names = tuple(f"t{number}" for number in range(self.scenario.topics))
        self.watch = ReplicaWatch(self)
        self.recorder = Recorder(self)
        self._client_rng = self.generator("client-links")
        self.links = SimConnections(self.timeline, self.network, self._client_delay_ms)
        self._healed_served: int | None = None
        workload = super()._make_clients()
        self.network.on_break.append(self.links.break_connections)
        return cast(Administrators, workload)

    def administrators_of(self, rng: random.Random) -> Administrators:
        self.traffic = PartitionClients(self, self.recorder, rng)
        return self.traffic

    def broker_of(self, node_id: int) -> PartitionBroker:
        return PartitionBroker(self, self.brokers, node_id, self.generator(f"broker-{node_id}"))

    def broker_machine_of(self, node: SimNode, state: ListState) -> BrokerMachine:
        return PartitionMachine(node, state, self, self.brokers[node.node_id])

    # The methods that the parts call.

    def on_stopped(self, node: SimNode) -> None:
        super().on_stopped(node)
        if node.is_dark and node.node_id in self.broker_ids:
            self.watch.on_memory_lost(node)

    def on_healed(self) -> None:
        self._healed_served = self.administrators.served
        self.traffic.on_healed()

    # Inside.

    def _client_delay_ms(self) -> int:
        return self._client_rng.randint(0, self.scenario.delay_ms_max)

    def _look_after_disks(self) -> None:
        """Restart the brokers with a failed disk, again and again: their replicas stay offline
        until then."""
        self.timeline.after(OPERATOR_INTERVAL_MS, self._look_after_disks)
        for broker_id in self.broker_ids:
            process, node = running(self.brokers[broker_id]), self.nodes[broker_id]
            if process is not None and process.is_ailing() and not node.is_paused:
                self.note(node, "started anew by an operator: a disk failed it")
                self.tally["starts after a failed disk"] += 1
                node.stop(is_power_cut=False)
                node.start_later(OPERATOR_DOWN_MS)

    def _tallies(self) -> dict[str, int]:
        losses = sum(history.losses for history in self.watch.histories.values())
        return {**super()._tallies(), **self.watch.tally, "losses that may be": losses}

    def _served(self) -> int:
        served = super()._served()
        if self._healed_served is None or self.traffic.has_served_all:
            return served
        return min(served, self._healed_served)

    def _is_converged(self) -> bool:
        return super()._is_converged() and self.traffic.is_quiet and open_ends(self) is None

    def _summary(self) -> str:
        return f"{super()._summary()}; {open_ends(self)}; quiet {self.traffic.is_quiet}"
