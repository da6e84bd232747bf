"""Simulated brokers: each has an observer of the metadata log, and a process that registers and
heartbeats.

The process does the work of a broker's `lifecycle`: it registers (again and again, while the
controller may still take an earlier process for alive), heartbeats over a stream, follows hints to
the active controller, and shuts down cleanly. The brokers' data is not simulated.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from kvorum.chaos.sim.controller.cluster_world import ClusterWorld
from kvorum.chaos.sim.controller.heartbeats import COMMIT_TIMEOUT_MS, RETRY_BACKOFF_MS, Heartbeats
from kvorum.chaos.sim.controller.isr import SimIsrProposals
from kvorum.chaos.sim.controller.machine import image_of
from kvorum.chaos.sim.controller.process import ControllerMachine
from kvorum.chaos.sim.kernel.wire import Answer
from kvorum.chaos.sim.quorum.node import SimNode
from kvorum.metadata.controller.core.controller import Request
from kvorum.metadata.image.delta import Delta
from kvorum.metadata.image.features import SUPPORTED
from kvorum.metadata.image.image import ClusterImage
from kvorum.metadata.image.records import Endpoint
from kvorum.metadata.requests.controller_requests import (
    AllocateProducerIds,
    Heartbeat,
    RegisterBrokerRequest,
    RegisteredBroker,
)
from kvorum.metadata.rpc.active_controller import ActiveController
from kvorum.runtime.errors import ErrorCode, Rejected
from kvorum.runtime.ids import new_uuid

if TYPE_CHECKING:
    from kvorum.chaos.sim.quorum.node import SimNode

CALL_TIMEOUT_MS = 2_000
REGISTRATION_BACKOFF_MS = 50
"""Pause before a refused registration is repeated, as in `broker.controller_channel.lifecycle`."""

CONTROLLED_SHUTDOWN_TIMEOUT_MS = 2_000
RESTART_MS = 300
LATE_REQUEST_MS_MAX = 1_500
PRODUCER_IDS_INTERVAL_MS = 900


class SimBroker:
    """One broker id; its processes start and stop with those of its node.

    clean_epoch: (directory id, broker epoch) of the clean-shutdown marker on the disk; None without
    a marker.
    brokers: all of the world, by node id.
    """

    def __init__(
        self,
        world: ClusterWorld,
        brokers: Mapping[int, SimBroker],
        node_id: int,
        rng: random.Random,
    ) -> None:
        self.world = world
        self.brokers = brokers
        self.node_id = node_id
        self.rng = rng
        self.clean_epoch: tuple[bytes, int] | None = None
        self.process: SimBrokerProcess | None = None
        #: The broker epoch of the last process that lived until its `_send_late_requests`; -1 if
        #: none did.
        self.epoch_before = -1
        #: How long the broker stays down after a clean shutdown.
        self.stop_down_ms = 0

    @property
    def node(self) -> SimNode:
        return self.world.nodes[self.node_id]

    @property
    def rack(self) -> str | None:
        racks = self.world.scenario.racks
        return f"rack{self.node_id % racks}" if racks else None

    def begin(self) -> None:
        """Create the broker's process, after the node's process has started."""
        epoch_before = -1
        if self.clean_epoch is not None and self.clean_epoch[0] == self.node.config.directory_id:
            epoch_before = self.clean_epoch[1]
        self.clean_epoch = None
        self.process = self.process_of(epoch_before)

    def process_of(self, epoch_before: int) -> SimBrokerProcess:
        """A new process of this broker. epoch_before: the broker epoch in the clean-shutdown
        marker, -1 without one."""
        return SimBrokerProcess(self, epoch_before)

    def stop_cleanly(self, down_ms: int) -> bool:
        """Ask the process for a controlled shutdown; False if no process can do it."""
        if self.process is None or not self.process.is_serving:
            return False
        self.stop_down_ms = down_ms
        self.process.shut_down()
        return True

    def on_election(self, leader_id: int, epoch: int) -> None:
        if self.process is not None:
            self.process.active.note_election(leader_id, epoch)

    def on_image(self, delta: Delta | None = None) -> None:
        if self.process is not None:
            self.process.on_image(delta)

    def on_stopped(self) -> None:
        self.process = None


class SimBrokerProcess:
    """One process (one incarnation). is_serving: its image shows its own registration."""

    EAGER: ClassVar[float] = 0.3
    """Share of processes that heartbeat before they have seen their own registration, as Kafka's
    do."""

    def __init__(self, broker: SimBroker, epoch_before: int) -> None:
        self._broker = broker
        self._world = broker.world
        self._node = broker.node
        self._node_incarnation = broker.node.incarnation
        self._rng = broker.rng
        self._incarnation_id = new_uuid(broker.rng)
        self._epoch_before = epoch_before
        self.broker_epoch = -1
        self.is_serving = False
        self.want_shutdown = False
        self.log_dirs: tuple[bytes, ...] = ()
        self.active = ActiveController(broker.world.controller_ids, broker.rng.randrange(8))
        self._heartbeats = Heartbeats(self)
        self._isr = SimIsrProposals(
            self._node,
            self._world.network,
            broker.rng,
            ask=self.ask,
            epoch_of_reachable=self._epoch_of_reachable,
            old_epoch_of=self._old_epoch_of,
        )
        self.later(0, self.register)

    @property
    def node(self) -> SimNode:
        return self._node

    @property
    def world(self) -> ClusterWorld:
        return self._world

    @property
    def image(self) -> ClusterImage:
        """The image that this broker has published."""
        return image_of(self._node)

    def failed_log_dirs(self) -> tuple[bytes, ...]:
        """Ids of data directories that have failed, for the heartbeat."""
        return ()

    def on_controller_answer(self, is_fenced: bool) -> None:
        """Handle the active controller's answer to a heartbeat."""

    def heartbeat_now(self) -> None:
        """Send the next heartbeat at once, since it has news."""
        self._heartbeats.send_now()

    # Requests.

    def ask(self, request: Request, on_reply: Callable[[Any], None]) -> None:
        """Send a request to the controller that the broker takes for active; on_reply gets None if
        no answer arrives."""
        target = self.active.next()
        server = self._world.nodes[target]

        def serve(answer: Answer) -> None:
            machine = server.machine
            if isinstance(machine, ControllerMachine):
                machine.submit(
                    request,
                    lambda reply: answer((reply, machine.leader_id)),
                    timeout_ms=COMMIT_TIMEOUT_MS,
                )

        def end(reply: Any) -> None:
            self._world.history.tally[f"broker requests {_outcome_text(reply)}"] += 1
            if reply is None:
                self.active.note_failure(target)
                on_reply(None)
                return
            answer, leader_id = reply
            if isinstance(answer, Rejected) and answer.code is ErrorCode.NOT_CONTROLLER:
                self.active.note_failure(target, leader_id)
            else:
                self.active.note_active(target)
            on_reply(answer)

        self._world.wire.call(self._node, server, serve, end, timeout_ms=CALL_TIMEOUT_MS)

    # Registration.

    def register(self) -> None:
        """Register, again and again until the controller accepts."""
        request = RegisterBrokerRequest(
            broker_id=self._node.node_id,
            cluster_id=self._node.config.cluster_id,
            incarnation_id=self._incarnation_id,
            endpoints=(Endpoint("PLAINTEXT", f"host{self._node.node_id}", 9092),),
            rack=self._broker.rack,
            broker_epoch_before=self._epoch_before,
            features=SUPPORTED,
            log_dirs=self.log_dirs,
            metadata_offset=self._node.core.log.end_offset,
            metadata_epoch=self._node.core.log.last_epoch,
        )
        self.ask(request, self._on_registered)

    def _on_registered(self, reply: Any) -> None:
        if isinstance(reply, RegisteredBroker):
            self.broker_epoch = reply.broker_epoch
            if self._heartbeats.has_begun:
                # The controller had lost the registration: the process goes on under the new epoch.
                self._heartbeats.send_now()
                return
            self.later(self._rng.randint(0, LATE_REQUEST_MS_MAX), self._send_late_requests)
            if self._rng.random() < self.EAGER:
                self._heartbeats.open()
            self.on_image()
            return
        code = reply.code if isinstance(reply, Rejected) else None
        if code is ErrorCode.DUPLICATE_BROKER_REGISTRATION:
            self._world.tally["registrations that had to wait"] += 1
            self.later(REGISTRATION_BACKOFF_MS, self.register)
        elif code in (None, ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT):
            self.later(RETRY_BACKOFF_MS, self.register)
        else:
            self.end(f"cannot join: {reply}")

    def on_image(self, delta: Delta | None = None) -> None:
        """Handle an advance of the published image. delta: the change, if it is known."""
        if self.is_serving or not 0 <= self.broker_epoch < self.image.end_offset:
            return
        self.is_serving = True
        if not self._heartbeats.has_begun:
            self._heartbeats.open()
        interval_ms = self._world.scenario.isr_interval_ms
        self.later(self._rng.randrange(interval_ms), self._look_at_followers)
        self.later(self._rng.randrange(PRODUCER_IDS_INTERVAL_MS), self._want_producer_ids)

    # End of the process.

    def shut_down(self) -> None:
        """Begin a controlled shutdown, which moves leadership away first."""
        if not self.want_shutdown:
            self.want_shutdown = True
            self.later(CONTROLLED_SHUTDOWN_TIMEOUT_MS, partial(self.leave, False))
            self._heartbeats.send_now()

    def leave(self, was_moved: bool) -> None:
        """Stop the process. was_moved: the controller has moved leadership away."""
        if not self._is_mine():
            return
        broker = self._broker
        if was_moved or self._rng.random() < 0.5:
            # A clean shutdown, even if the broker still leads.
            broker.clean_epoch = self._node.config.directory_id, self.broker_epoch
        self._world.tally["controlled shutdowns" if was_moved else "shutdowns in a hurry"] += 1
        self._node.stop(is_power_cut=False)
        self._node.start_later(broker.stop_down_ms)

    def end(self, reason: str) -> None:
        """Exit; a supervisor starts the process again."""
        self._world.note(self._node, f"broker ends: {reason}")
        self._node.stop(is_power_cut=False)
        self._node.start_later(RESTART_MS)

    # Partitions and producers.

    def _send_late_requests(self) -> None:
        """Send the messages of the broker's previous process that the network kept until now."""
        before = self._broker.epoch_before
        if before >= 0 and self._world.network.is_rough:
            node_id = self._node.node_id
            heartbeat = Heartbeat(broker_id=node_id, broker_epoch=before, metadata_offset=1 << 40)
            self.ask(heartbeat, lambda reply: None)
            ids = AllocateProducerIds(broker_id=node_id, broker_epoch=before)
            self.ask(ids, lambda reply: None)
        self._broker.epoch_before = self.broker_epoch

    def _epoch_of_reachable(self, broker_id: int) -> int:
        """The broker epoch under which a follower fetches from this leader; -1 if it does not."""
        follower = self._broker.brokers.get(broker_id)
        if follower is None or follower.process is None or not follower.process.is_serving:
            return -1
        network, own_id = self._world.network, self._node.node_id
        if follower.node.is_paused or not (
            network.is_open(own_id, broker_id) and network.is_open(broker_id, own_id)
        ):
            return -1
        return follower.process.broker_epoch

    def _old_epoch_of(self, broker_id: int) -> int:
        """The broker epoch of an earlier process of a follower; -1 if none is known."""
        return max(self._broker.brokers[broker_id].epoch_before, -1)

    def _look_at_followers(self) -> None:
        self._isr.propose(self.image, self.broker_epoch)
        self.later(self._world.scenario.isr_interval_ms, self._look_at_followers)

    def _want_producer_ids(self) -> None:
        if self._world.clients.is_busy:
            node_id = self._node.node_id
            request = AllocateProducerIds(broker_id=node_id, broker_epoch=self.broker_epoch)
            self.ask(request, lambda reply: None)
            self.later(PRODUCER_IDS_INTERVAL_MS, self._want_producer_ids)

    # Inside.

    def later(self, delay_ms: int, call: Callable[[], None]) -> None:
        """Schedule a call of this process; dropped if the process ends before."""

        def arrive() -> None:
            if self._is_mine():
                self._node.submit(call)

        self._world.timeline.after(delay_ms, arrive)

    def _is_mine(self) -> bool:
        return self._node.is_up and self._broker.process is self


def _outcome_text(reply: Any) -> str:
    if reply is None:
        return "unanswered"
    return "refused" if isinstance(reply[0], Rejected) else "answered"
