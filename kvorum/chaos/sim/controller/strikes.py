"""Fail-over in the middle of an operation: the active controller is hit at one of the operation's
two moments."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from kvorum.chaos.faults import StrikeOperation
from kvorum.chaos.sim.controller.history import Attempt
from kvorum.chaos.sim.quorum.model.linearizability import Outcome
from kvorum.chaos.sim.quorum.nodes import NodesWorld
from kvorum.runtime.memory_disk import Killed, PowerCut

if TYPE_CHECKING:
    from kvorum.chaos.sim.quorum.node import SimNode
    from kvorum.metadata.controller.core.controller import Reply

ARMED_MAX = 32
"""Strikes that wait for their operation; above the limit the oldest is dropped."""


class Strikes:
    """The strikes that wait, and those that have hit. hits: counts by operation, moment (decided or
    committed) and means (how the node is hit)."""

    def __init__(self, world: NodesWorld) -> None:
        self.hits: Counter[tuple[str, str, str]] = Counter()
        self._world = world
        self._armed: list[StrikeOperation] = []

    def arm(self, fault: StrikeOperation) -> None:
        """Wait for the next operation of its kind."""
        self._armed = [*self._armed, fault][-ARMED_MAX:]

    def heal(self) -> None:
        """Drop all waiting strikes."""
        self._armed.clear()

    def on_decided(self, node: SimNode, attempt: Attempt) -> None:
        """Strike if a strike waits for this operation. The operation's records were just proposed;
        their append follows in this same turn."""
        fault = self._take_armed(attempt, "decided")
        if fault is not None:
            incarnation = node.incarnation

            def hit() -> None:
                if node.is_up and node.incarnation == incarnation:
                    self._hit(node, fault)

            self._world.timeline.after(0, hit)

    def on_committed(self, node: SimNode, attempt: Attempt, reply: Reply) -> bool:
        """Strike before the reply is sent, if a strike waits for this operation. Returns True if
        the reply is never sent. May end the process at once."""
        if attempt.told is not Outcome.OK:
            return False
        fault = self._take_armed(attempt, "committed")
        if fault is None:
            return False
        if fault.means == "kill":
            raise Killed(f"killed before the reply to {attempt.kind}")
        if fault.means == "power":
            raise PowerCut(f"power cut before the reply to {attempt.kind}")
        self._hit(node, fault)
        return True

    def _take_armed(self, attempt: Attempt, moment: str) -> StrikeOperation | None:
        for index, fault in enumerate(self._armed):
            if fault.operation == attempt.kind and fault.moment == moment:
                del self._armed[index]
                self.hits[(fault.operation, moment, fault.means)] += 1
                self._world.tally[f"operations hit when {moment}"] += 1
                self._world.note(attempt_node(self._world, attempt), f"hit: {fault.text()}")
                return fault
        return None

    def _hit(self, node: SimNode, fault: StrikeOperation) -> None:
        world = self._world
        match fault.means:
            case "kill" | "power":
                node.stop(is_power_cut=fault.means == "power")
                node.start_later(fault.duration_ms)
            case "pause":
                node.pause()
                incarnation = node.incarnation

                def resume() -> None:
                    if node.is_paused and node.incarnation == incarnation:
                        node.resume()

                world.timeline.after(fault.duration_ms, resume)
            case _:
                others = [i for i in world.nodes if i != node.node_id]
                links = [link for i in others for link in ((i, node.node_id), (node.node_id, i))]
                world.network.block(links)
                world.timeline.after(fault.duration_ms, partial(world.network.unblock, links))


def attempt_node(world: NodesWorld, attempt: Attempt) -> SimNode:
    """The node that decided the attempt."""
    return world.nodes[attempt.node_id]
