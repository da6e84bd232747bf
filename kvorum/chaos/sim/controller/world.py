"""A cluster in virtual time: the quorum's world, with controllers, brokers and administrators on
top. All checks of the quorum stay active."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable
from functools import partial

from kvorum.chaos.sim.controller.admin import Administrators
from kvorum.chaos.sim.controller.broker_machine import BrokerMachine
from kvorum.chaos.sim.controller.brokers import SimBroker
from kvorum.chaos.sim.controller.cluster_world import ClusterWorld
from kvorum.chaos.sim.controller.machine import image_of, load_image_state
from kvorum.chaos.sim.controller.nemesis import ControllerNemesis
from kvorum.chaos.sim.controller.process import ControllerMachine
from kvorum.chaos.sim.controller.registrar import SimRegistrar
from kvorum.chaos.sim.controller.scenario import controller_scenario_of
from kvorum.chaos.sim.quorum.clients import Workload
from kvorum.chaos.sim.quorum.model.recovery import LoadState
from kvorum.chaos.sim.quorum.model.state import ListState
from kvorum.chaos.sim.quorum.nemesis import QuorumNemesis
from kvorum.chaos.sim.quorum.node import SimNode
from kvorum.chaos.sim.quorum.process import NodeMachine
from kvorum.chaos.sim.quorum.scenario import Scenario
from kvorum.chaos.sim.quorum.world import QuorumOutcome
from kvorum.metadata.image.image import ClusterImage
from kvorum.metadata.image.records import NO_LEADER


class ControllerWorld(ClusterWorld):
    """brokers: by node id."""

    scenario_of: Callable[[int], Scenario] = staticmethod(controller_scenario_of)

    def __init__(self, scenario: Scenario) -> None:
        self.brokers: dict[int, SimBroker] = {}
        super().__init__(scenario)

    def run(self) -> QuorumOutcome:
        try:
            return super().run()
        finally:
            # The real loader freezes images (gc.freeze), for a process that keeps them; here they
            # end with their world.
            gc.unfreeze()

    # The parts above the quorum.

    def machine_of(self, node: SimNode, state: ListState) -> NodeMachine:
        node_id = node.node_id
        if node_id in self.brokers:
            if node.is_up:
                self.timeline.after(0, partial(self._begin_broker, node, node.incarnation))
            return self.broker_machine_of(node, state)
        machine = ControllerMachine(node, state, self)
        if node.is_up:
            rng = self.generator(f"registrar-{node_id}-{node.incarnation}")
            SimRegistrar(self, node, machine, rng)
        return machine

    @property
    def load_state(self) -> LoadState:
        return partial(load_image_state, self)

    def _make_clients(self) -> Workload:
        self._make_shared()
        for node_id in self.broker_ids:
            self.brokers[node_id] = self.broker_of(node_id)
        self.administrators = self.administrators_of(self.generator("administrators"))
        return self.administrators

    def broker_of(self, node_id: int) -> SimBroker:
        """A new simulated broker for a node."""
        return SimBroker(self, self.brokers, node_id, self.generator(f"broker-{node_id}"))

    def broker_machine_of(self, node: SimNode, state: ListState) -> BrokerMachine:
        """The state machine of a broker's process."""
        return BrokerMachine(node, state, self, self.brokers[node.node_id])

    def administrators_of(self, rng: random.Random) -> Administrators:
        """The administrators of the run."""
        return Administrators(self, rng)

    def _make_nemesis(self) -> QuorumNemesis:
        return ControllerNemesis(self, self.operator, self.brokers, self.generator("nemesis"))

    # Inside.

    def _begin_broker(self, node: SimNode, incarnation: int) -> None:
        if node.is_up and node.incarnation == incarnation:
            node.submit(self.brokers[node.node_id].begin)

    def _tallies(self) -> dict[str, int]:
        checks = self.reference.checks
        return {
            **super()._tallies(),
            **self.history.tally,
            "changes of leadership": checks.leader_changes,
            "fencings": checks.fencings,
            "unclean elections": checks.unclean_elections,
        }

    def _served(self) -> int:
        # Without brokers no request can succeed.
        return self.administrators.served if self.broker_ids else self.timeline.now_ms

    def _is_converged(self) -> bool:
        """True if there is one leader and logs are equal; every node has applied its log; every
        broker is unfenced, and every partition that has an electable replica has a leader."""
        nodes = [node for node in self.nodes.values() if not node.is_removed]
        leaders = [node for node in nodes if node.is_leader]
        if self.clients.is_busy or len(leaders) != 1:
            return False
        end_offset = leaders[0].mirror.end_offset
        if any(node.mirror.end_offset != end_offset for node in nodes):
            return False
        newest = self.reference.newest
        return (
            newest.end_offset == end_offset
            and self._is_whole(newest)
            and all(_differs_in_offset_only(image_of(node), newest) for node in nodes)
        )

    def _is_whole(self, image: ClusterImage) -> bool:
        active = set(image.active_broker_ids())
        return active == set(self.broker_ids) and not any(
            partition.leader == NO_LEADER
            for topic in image.topics.values()
            for partition in topic.partitions.values()
            if any(r in active for r in (*partition.isr, *partition.elr))
        )

    def _summary(self) -> str:
        image = self.reference.newest
        fenced = [b.broker_id for b in image.brokers.values() if not b.is_active]
        return (
            f"{super()._summary()}; brokers {sorted(image.brokers)}, not active {fenced}, "
            f"offset {image.end_offset}, served {self.administrators.served}; "
            + "; ".join(f"{n.node_id} at {image_of(n).end_offset}" for n in self.nodes.values())
        )


def _differs_in_offset_only(image: ClusterImage, other: ClusterImage) -> bool:
    """True if the images differ in offset and epoch only. The quorum's own records change nothing
    else, and the active controller skips them."""
    return all(
        getattr(image, name) == getattr(other, name)
        for name in ClusterImage.__slots__
        if name not in ("end_offset", "epoch")
    )
