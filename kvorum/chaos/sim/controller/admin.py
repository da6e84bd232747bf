"""Administrators: they send requests to the active controller and remember the answers. They reach
every node, even while links between nodes are cut."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from kvorum.chaos.sim.controller.cluster_world import ClusterWorld
from kvorum.chaos.sim.controller.operations import Draws
from kvorum.chaos.sim.controller.outcome_checks import check_outcomes
from kvorum.chaos.sim.controller.process import ControllerMachine
from kvorum.chaos.sim.quorum.checks.checked_node import CheckedNode
from kvorum.chaos.sim.quorum.model.linearizability import Outcome
from kvorum.metadata.controller.core.controller import Request
from kvorum.metadata.image.image import ClusterImage
from kvorum.runtime.errors import ErrorCode, Rejected

if TYPE_CHECKING:
    from kvorum.chaos.sim.quorum.node import SimNode

CLIENT_TIMEOUT_MS = 3_000
"""After this time without an answer an administrator takes the outcome as unknown."""

SHORT_TIMEOUT_MS, COMMIT_TIMEOUT_MS = 250, 10_000
"""The controller's time limit for the commit; some requests get the short one."""

ANY_NODE = 0.06
"""Share of requests that go to a random controller although one is active."""

FIRST_MS = 400
"""Time for the brokers to register before the first request."""


class Administrators:
    """A `chaos.sim.quorum.clients.Workload`. served: the number of requests that were carried out
    and wrote records."""

    def __init__(self, world: ClusterWorld, rng: random.Random) -> None:
        self.is_busy = True
        self.interval_ms = world.scenario.propose_interval_ms
        self.served = 0
        self._world = world
        self._rng = rng
        #: Draws the next request of an administrator with this image.
        self.draws = Draws(rng, world.broker_ids)
        self.request_of: Callable[[ClusterImage], Request] = self._draw
        self._asked = 0
        self._told: dict[int, Outcome] = {}

    def ask(self) -> None:
        if not self.is_busy:
            return
        world = self._world
        world.timeline.after(self.interval_ms, self.ask)
        image = world.reference.newest
        if world.timeline.now_ms < FIRST_MS or not image.brokers:
            return
        request = self.request_of(image)
        self._asked += 1
        node = self._target()
        number = self._asked
        world.timeline.after(self._delay_ms(), partial(self._arrive, number, node, request))
        world.timeline.after(CLIENT_TIMEOUT_MS, partial(self._settle, number, Outcome.UNKNOWN))

    def on_committed(self, node: CheckedNode, high_watermark: int) -> None:
        """No effect: the controller tracks commits itself."""

    def on_leader_changed(self, node: CheckedNode) -> None:
        """No effect: the controller tracks its leadership itself."""

    def check_history(self) -> None:
        world = self._world
        check_outcomes(world.history, world.checks.committed, world.reference)

    def stale_count(self) -> int:
        return 0

    def outcome_counts(self) -> dict[str, int]:
        counts = {outcome.value: 0 for outcome in Outcome}
        for outcome in self._told.values():
            counts[outcome.value] += 1
        return counts

    # The path of a request.

    def _draw(self, image: ClusterImage) -> Request:
        if self._world.network.is_rough:
            return self.draws.request(image)
        # Requests that certainly succeed soon.
        if self._rng.random() < 0.5:
            return self.draws.create(image)
        return self.draws.delete(image)

    def _target(self) -> SimNode:
        world = self._world
        nodes = [world.nodes[i] for i in world.controller_ids]
        active = [node for node in nodes if node.is_leader]
        if not active or self._rng.random() < ANY_NODE:
            return self._rng.choice(nodes)
        if self._rng.random() < 0.3:
            return self._rng.choice(active)  # may be a deposed controller that does not know it
        return max(active, key=lambda node: node.core.epoch)

    def _arrive(self, number: int, node: SimNode, request: Request) -> None:
        if node.is_up:
            node.submit(partial(self._hand_over, number, node, request))
        elif not node.is_dark:
            self._settle(number, Outcome.FAILED)

    def _hand_over(self, number: int, node: SimNode, request: Request) -> None:
        machine = node.machine
        if not isinstance(machine, ControllerMachine):
            return
        timeout_ms = SHORT_TIMEOUT_MS if self._rng.random() < 0.1 else COMMIT_TIMEOUT_MS
        before = machine.next_offset

        def on_reply(reply: Any) -> None:
            outcome = Outcome.OK
            if isinstance(reply, Rejected):
                outcome = Outcome.FAILED
                if reply.code in (ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT):
                    outcome = Outcome.UNKNOWN
            elif was_written:
                self._world.timeline.after(self._delay_ms(), self._note_served)
            self._world.timeline.after(self._delay_ms(), partial(self._settle, number, outcome))

        was_written = False
        machine.submit(request, on_reply, timeout_ms=timeout_ms)
        was_written = machine.is_running and machine.next_offset > before

    def _note_served(self) -> None:
        self.served += 1

    def _settle(self, number: int, outcome: Outcome) -> None:
        self._told.setdefault(number, outcome)

    def _delay_ms(self) -> int:
        return self._rng.randint(0, self._world.scenario.delay_ms_max)
