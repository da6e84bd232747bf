"""Simulated brokers: an observer of the metadata log each, and a process that wants its place.

Does what `broker.controller_link` does: registers (again and again, as long as an earlier process
is given the benefit of the doubt), heartbeats over a stream, follows hints to the active
controller, leaves in good order. What brokers do with data is not simulated.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from chaos.sim.controller.isr import IsrProposals
from chaos.sim.controller.process import ControllerMachine
from chaos.sim.controller.wire import Answer, Stream
from metadata.controller import Request
from metadata.features import SUPPORTED
from metadata.image import ClusterImage
from metadata.records import Endpoint
from metadata.requests import (
    AllocateProducerIds,
    Heartbeat,
    HeartbeatReply,
    RegisterBrokerRequest,
    RegisteredBroker,
)
from runtime.errors import ErrorCode, Rejected
from runtime.ids import new_uuid

if TYPE_CHECKING:
    from chaos.sim.controller.world import ControllerWorld
    from chaos.sim.node import SimNode

CALL_TIMEOUT_MS = 2_000
COMMIT_TIMEOUT_MS = 10_000
"""`metadata.service.COMMIT_TIMEOUT_MS`."""

REGISTRATION_BACKOFF_MS = 50
HEARTBEAT_TIMEOUT_MS = 1_000
RETRY_BACKOFF_MS = 20
"""As in `broker.controller_link`."""

CONTROLLED_SHUTDOWN_TIMEOUT_MS = 2_000
RESTART_MS = 300
GHOST_MS_MAX = 1_500
EAGER = 0.3
"""Share of processes that heartbeat before they have seen their own registration, as Kafka's do."""

PRODUCER_IDS_INTERVAL_MS = 900


class SimBroker:
    """One broker id; its processes come and go with those of its node.

    clean_epoch: left on the disk by a process that stopped in good order.
    """

    def __init__(self, world: ControllerWorld, node_id: int, rng: random.Random) -> None:
        self.world = world
        self.node_id = node_id
        self.rng = rng
        self.clean_epoch: tuple[bytes, int] | None = None
        self.process: BrokerProcess | None = None
        #: Of the last process that had one for a while.
        self.epoch_before = -1
        #: Down in good order, for so long.
        self.stop_down_ms = 0

    @property
    def node(self) -> SimNode:
        return self.world.nodes[self.node_id]

    @property
    def rack(self) -> str | None:
        racks = self.world.scenario.racks
        return f"rack{self.node_id % racks}" if racks else None

    def begin(self) -> None:
        """The node's process has begun."""
        epoch_before = -1
        if self.clean_epoch is not None and self.clean_epoch[0] == self.node.config.directory_id:
            epoch_before = self.clean_epoch[1]
        self.clean_epoch = None
        self.process = BrokerProcess(self, epoch_before)

    def stop_cleanly(self, down_ms: int) -> bool:
        """Ask the process to leave in good order; False if there is none that could."""
        if self.process is None or not self.process.is_serving:
            return False
        self.stop_down_ms = down_ms
        self.process.shut_down()
        return True

    def on_election(self, leader_id: int, epoch: int) -> None:
        if self.process is not None:
            self.process.on_election(leader_id, epoch)

    def on_image(self) -> None:
        if self.process is not None:
            self.process.on_image()

    def on_stopped(self) -> None:
        self.process = None


class BrokerProcess:
    """One process (one incarnation). is_serving: its image shows its own registration."""

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
        self.is_fenced = True
        self._want_shutdown = False
        self._leader_id = -1
        self._leader_epoch = -1
        self._turn = broker.rng.randrange(8)
        self._stream: Stream | None = None
        self._target = -1
        self._heartbeat_number = 0
        self._is_awaiting = False
        self._isr = IsrProposals(self, broker.rng)
        self._later(0, self._register)

    @property
    def node(self) -> SimNode:
        return self._node

    @property
    def world(self) -> ControllerWorld:
        return self._world

    @property
    def image(self) -> ClusterImage:
        """As this broker has published it."""
        return self._world.image_of(self._node)

    # Calls.

    def ask(self, request: Request, on_reply: Callable[[Any], None]) -> None:
        """Send a request to whoever seems to be active; on_reply hears None if nobody answered."""
        target = self._next_target()
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
            self._world.history.tally[f"broker requests {_told(reply)}"] += 1
            if reply is None:
                self._note_failure(target)
                on_reply(None)
                return
            answer, leader_id = reply
            if isinstance(answer, Rejected) and answer.code is ErrorCode.NOT_CONTROLLER:
                self._note_failure(target)
                if leader_id != target:
                    self._note_hint(leader_id)
            else:
                self._leader_id = target
            on_reply(answer)

        self._world.wire.call(self._node, server, serve, end, timeout_ms=CALL_TIMEOUT_MS)

    def on_election(self, leader_id: int, epoch: int) -> None:
        """The node follows another leader of the metadata log."""
        if leader_id >= 0 and epoch > self._leader_epoch:
            self._leader_epoch, self._leader_id = epoch, leader_id

    # Registration.

    def _register(self) -> None:
        request = RegisterBrokerRequest(
            broker_id=self._node.node_id,
            cluster_id=self._node.config.cluster_id,
            incarnation_id=self._incarnation_id,
            endpoints=(Endpoint("PLAINTEXT", f"host{self._node.node_id}", 9092),),
            rack=self._broker.rack,
            broker_epoch_before=self._epoch_before,
            features=SUPPORTED,
        )
        self.ask(request, self._on_registered)

    def _on_registered(self, reply: Any) -> None:
        if isinstance(reply, RegisteredBroker):
            self.broker_epoch = reply.broker_epoch
            if self._stream is not None:
                self._beat()  # it was forgotten, and goes on
                return
            self._later(self._rng.randint(0, GHOST_MS_MAX), self._send_ghosts)
            if self._rng.random() < EAGER:
                self._open()
            self.on_image()
            return
        code = reply.code if isinstance(reply, Rejected) else None
        if code is ErrorCode.DUPLICATE_BROKER_REGISTRATION:
            self._world.tally["registrations that had to wait"] += 1
            self._later(REGISTRATION_BACKOFF_MS, self._register)
        elif code in (None, ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT):
            self._later(RETRY_BACKOFF_MS, self._register)
        else:
            self._end(f"cannot join: {reply}")

    def on_image(self) -> None:
        """The published image moved on."""
        if self.is_serving or not 0 <= self.broker_epoch < self.image.end_offset:
            return
        self.is_serving = True
        if self._stream is None:
            self._open()
        interval_ms = self._world.scenario.isr_interval_ms
        self._later(self._rng.randrange(interval_ms), self._look_at_followers)
        self._later(self._rng.randrange(PRODUCER_IDS_INTERVAL_MS), self._want_producer_ids)

    # Heartbeats.

    def shut_down(self) -> None:
        """Leave in good order: leadership first."""
        if not self._want_shutdown:
            self._want_shutdown = True
            self._later(CONTROLLED_SHUTDOWN_TIMEOUT_MS, partial(self._leave, False))
            if not self._is_awaiting and self._stream is not None:
                self._beat()

    def _open(self) -> None:
        self._target = self._next_target()
        server = self._world.nodes[self._target]
        # At the server, as in `metadata.service`.
        sender: tuple[int, int] | None = None
        serial = 0

        def serve(request: Any, answer: Answer) -> None:
            nonlocal sender, serial
            machine = server.machine
            if isinstance(machine, ControllerMachine):
                if sender != (request.broker_id, request.broker_epoch):
                    sender = (request.broker_id, request.broker_epoch)
                    serial = machine.core.stream_began(*sender)
                machine.submit(
                    request,
                    lambda reply: answer((reply, machine.leader_id)),
                    timeout_ms=COMMIT_TIMEOUT_MS,
                )

        def gone() -> None:
            machine = server.machine
            if isinstance(machine, ControllerMachine) and sender is not None:
                machine.stream_broke(*sender, serial)

        self._stream = self._world.wire.stream(
            self._node,
            server,
            serve=serve,
            on_gone=gone,
            on_answer=self._on_heartbeat_reply,
            on_end=self._on_stream_failed,
        )
        self._beat()

    def _beat(self) -> None:
        if self._stream is None:
            return
        self._heartbeat_number += 1
        self._is_awaiting = True
        self._stream.send(
            Heartbeat(
                broker_id=self._node.node_id,
                broker_epoch=self.broker_epoch,
                metadata_offset=self.image.end_offset,
                want_shutdown=self._want_shutdown,
            )
        )
        self._later(HEARTBEAT_TIMEOUT_MS, partial(self._give_up, self._heartbeat_number))

    def _give_up(self, number: int) -> None:
        if self._is_awaiting and number == self._heartbeat_number:
            self._on_stream_failed()

    def _on_stream_failed(self) -> None:
        if self._stream is None:
            return
        self._note_failure(self._target)
        self._reopen()

    def _reopen(self) -> None:
        if self._stream is not None:
            self._stream.close()
        self._stream, self._is_awaiting = None, False
        self._later(RETRY_BACKOFF_MS, self._open)

    def _on_heartbeat_reply(self, reply: tuple[Any, int]) -> None:
        if self._stream is None:
            return
        answer, leader_id = reply
        self._is_awaiting = False
        if isinstance(answer, HeartbeatReply):
            self._leader_id = self._target
            self.is_fenced = answer.is_fenced
            if answer.should_shut_down and self._want_shutdown:
                self._leave(True)
                return
            number = self._heartbeat_number
            self._later(self._world.scenario.heartbeat_interval_ms, partial(self._next, number))
            return
        code = answer.code if isinstance(answer, Rejected) else None
        if code is ErrorCode.BROKER_ID_NOT_REGISTERED:
            self._register()
        elif code is ErrorCode.STALE_BROKER_EPOCH:
            self._end(f"place lost: {answer}")
        else:
            self._note_failure(self._target)
            if leader_id != self._target:
                self._note_hint(leader_id)
            self._reopen()

    def _next(self, number: int) -> None:
        if not self._is_awaiting and number == self._heartbeat_number:
            self._beat()

    def _leave(self, was_moved: bool) -> None:
        if not self._is_mine():
            return
        broker = self._broker
        if was_moved or self._rng.random() < 0.5:
            # Its logs are closed in good order, whoever leads now.
            broker.clean_epoch = self._node.config.directory_id, self.broker_epoch
        self._world.tally["controlled shutdowns" if was_moved else "shutdowns in a hurry"] += 1
        self._node.stop(is_power_cut=False)
        self._world.start_later(self._node, broker.stop_down_ms)

    def _end(self, reason: str) -> None:
        self._world.note(self._node, f"broker ends: {reason}")
        self._node.stop(is_power_cut=False)
        self._world.start_later(self._node, RESTART_MS)

    # Partitions and producers.

    def _send_ghosts(self) -> None:
        """What the process before this one had sent, and the network kept until now."""
        before = self._broker.epoch_before
        if before >= 0 and self._world.network.is_rough:
            node_id = self._node.node_id
            heartbeat = Heartbeat(broker_id=node_id, broker_epoch=before, metadata_offset=1 << 40)
            self.ask(heartbeat, lambda reply: None)
            ids = AllocateProducerIds(broker_id=node_id, broker_epoch=before)
            self.ask(ids, lambda reply: None)
        self._broker.epoch_before = self.broker_epoch

    def _look_at_followers(self) -> None:
        self._isr.look()
        self._later(self._world.scenario.isr_interval_ms, self._look_at_followers)

    def _want_producer_ids(self) -> None:
        if self._world.clients.is_busy:
            node_id = self._node.node_id
            request = AllocateProducerIds(broker_id=node_id, broker_epoch=self.broker_epoch)
            self.ask(request, lambda reply: None)
            self._later(PRODUCER_IDS_INTERVAL_MS, self._want_producer_ids)

    # Targets.

    def _next_target(self) -> int:
        ids = self._world.controller_ids
        if self._leader_id in ids:
            return self._leader_id
        self._turn += 1
        return ids[self._turn % len(ids)]

    def _note_failure(self, target: int) -> None:
        if self._leader_id == target:
            self._leader_id = -1

    def _note_hint(self, leader_id: int) -> None:
        if leader_id >= 0:
            self._leader_id = leader_id

    # Inside.

    def _later(self, delay_ms: int, call: Callable[[], None]) -> None:
        def arrive() -> None:
            if self._is_mine():
                self._node.submit(call)

        self._world.timeline.after(delay_ms, arrive)

    def _is_mine(self) -> bool:
        return self._node.is_up and self._broker.process is self


def _told(reply: Any) -> str:
    if reply is None:
        return "unanswered"
    return "refused" if isinstance(reply[0], Rejected) else "answered"
