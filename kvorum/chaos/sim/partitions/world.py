"""A whole cluster in virtual time: the controller's world with real partitions at its brokers, real
logs on the faulty disks, and clients that write and read. All checks of the worlds below stay
active."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import cast

from kvorum.broker.partition.replica import Replica
from kvorum.chaos.sim.controller.admin import Administrators
from kvorum.chaos.sim.controller.machine import BrokerMachine
from kvorum.chaos.sim.controller.world import ControllerWorld
from kvorum.chaos.sim.kernel.sockets import Links
from kvorum.chaos.sim.partitions.brokers import (
    WALL_START_MS,
    PartitionBroker,
    PartitionMachine,
    PartitionProcess,
)
from kvorum.chaos.sim.partitions.clients import PartitionClients
from kvorum.chaos.sim.partitions.final_checks import open_ends
from kvorum.chaos.sim.partitions.recorder import Recorder
from kvorum.chaos.sim.partitions.scenario import PartitionScenario, partition_scenario_of
from kvorum.chaos.sim.partitions.watch import Watch
from kvorum.chaos.sim.quorum.node import SimNode
from kvorum.chaos.sim.quorum.scenario import Scenario
from kvorum.chaos.sim.quorum.state import ListState
from kvorum.chaos.sim.quorum.world import QuorumOutcome

OPERATOR_INTERVAL_MS = 700
"""Interval at which an operator looks for brokers with failed disks, and restarts them."""

OPERATOR_DOWN_MS = 100


class PartitionWorld(ControllerWorld):
    """watch: checks all replicas. recorder: the clients' history. links: connections of brokers and
    clients."""

    scenario: PartitionScenario
    scenario_of: Callable[[int], Scenario] = staticmethod(partition_scenario_of)

    def run(self) -> QuorumOutcome:
        self.traffic.begin(self._generator("traffic"))
        self.timeline.after(OPERATOR_INTERVAL_MS, self._look_after_disks)
        try:
            return super().run()
        finally:
            for broker_id in self.broker_ids:
                process = self.process(broker_id)
                if process is not None:
                    self.nodes[broker_id].is_up = False
                    process.loop.stop_all()

    # The parts above the controller.

    def _make_clients(self) -> Administrators:
        self.topic_names = tuple(f"t{number}" for number in range(self.scenario.topics))
        self.watch = Watch(self)
        self.recorder = Recorder(self)
        self._client_rng = self._generator("client-links")
        self.links = Links(self.timeline, self.network, self._client_delay_ms)
        self._last_producer_id = 0
        self._healed_served: int | None = None
        workload = super()._make_clients()
        self.network.on_break.append(self.links.break_connections)
        return cast(Administrators, workload)

    def administrators_of(self, rng: random.Random) -> Administrators:
        self.traffic = PartitionClients(self, rng)
        return self.traffic

    def broker_of(self, node_id: int) -> PartitionBroker:
        return PartitionBroker(self, node_id, self._generator(f"broker-{node_id}"))

    def broker_machine_of(self, node: SimNode, state: ListState) -> BrokerMachine:
        return PartitionMachine(node, state, self, self.brokers[node.node_id])

    # The methods that the parts call.

    def on_stopped(self, node: SimNode) -> None:
        super().on_stopped(node)
        if node.is_dark and node.node_id in self.broker_ids:
            self.watch.on_memory_lost(node)

    @property
    def wall_ms(self) -> int:
        """The wall-clock time of the clients."""
        return WALL_START_MS + self.timeline.now_ms

    def next_producer_id(self) -> int:
        """A producer id, as from `InitProducerId`. Requests for blocks of ids are part of the
        controller's world."""
        self._last_producer_id += 1
        return self._last_producer_id

    def is_compacted(self, topic: str) -> bool:
        """True if the topic of that name is created with cleanup.policy=compact."""
        return self.scenario.is_compacting and topic == self.topic_names[-1]

    def process(self, broker_id: int) -> PartitionProcess | None:
        """The broker's process, if it is up."""
        found = self.brokers[broker_id].process
        return found if isinstance(found, PartitionProcess) else None

    def replica(self, broker_id: int, topic_id: bytes, partition_id: int) -> Replica | None:
        """The replica, if the broker's process is up and has it."""
        process = self.process(broker_id)
        return None if process is None else process.manager.registry.find(topic_id, partition_id)

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
            process, node = self.process(broker_id), self.nodes[broker_id]
            if process is not None and process.is_ailing() and not node.is_paused:
                self.note(node, "started anew by an operator: a disk failed it")
                self.tally["starts after a failed disk"] += 1
                node.stop(is_power_cut=False)
                self.start_later(node, OPERATOR_DOWN_MS)

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
