"""Stands in for `metadata.rpc.registrar`: a controller registers until its registration is in the
log."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from kvorum.chaos.sim.controller.cluster_world import ClusterWorld
from kvorum.chaos.sim.controller.process import ControllerMachine
from kvorum.chaos.sim.kernel.wire import Answer
from kvorum.metadata.image.features import SUPPORTED
from kvorum.metadata.image.records import Endpoint
from kvorum.metadata.requests.controller_requests import RegisterControllerRequest
from kvorum.runtime.ids import new_uuid

if TYPE_CHECKING:
    from kvorum.chaos.sim.quorum.node import SimNode

RETRY_PAUSE_MS = 100
CALL_TIMEOUT_MS = 1_000


class SimRegistrar:
    """The registrar of one controller process."""

    def __init__(
        self,
        world: ClusterWorld,
        node: SimNode,
        machine: ControllerMachine,
        rng: random.Random,
    ) -> None:
        self._world = world
        self._node = node
        self._machine = machine
        host, port = node.config.address or ("", 0)
        self._request = RegisterControllerRequest(
            controller_id=node.node_id,
            cluster_id=node.config.cluster_id,
            incarnation_id=new_uuid(rng),
            endpoints=(Endpoint("CONTROLLER", host, port),),
            features=SUPPORTED,
        )
        world.timeline.after(0, self._run)

    def _run(self) -> None:
        if self._machine.is_running:
            self._node.submit(self._try)

    def _try(self) -> None:
        machine, world = self._machine, self._world
        known = machine.image.controllers.get(self._node.node_id)
        if not machine.is_running or (
            known is not None and known.incarnation_id == self._request.incarnation_id
        ):
            return
        world.timeline.after(RETRY_PAUSE_MS, self._run)
        leader_id = machine.leader_id
        if leader_id == self._node.node_id:
            machine.submit(self._request, lambda reply: None, timeout_ms=CALL_TIMEOUT_MS)
            return
        leader = world.nodes.get(leader_id)
        if leader is None:
            return

        def serve(answer: Answer) -> None:
            other = leader.machine
            if isinstance(other, ControllerMachine):
                other.submit(self._request, answer, timeout_ms=CALL_TIMEOUT_MS)

        world.wire.call(self._node, leader, serve, lambda reply: None, timeout_ms=CALL_TIMEOUT_MS)
