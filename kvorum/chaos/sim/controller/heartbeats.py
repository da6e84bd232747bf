"""A broker's heartbeats: one stream to the active controller, one request at a time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from kvorum.chaos.sim.controller.cluster_world import ClusterWorld
from kvorum.chaos.sim.controller.process import ControllerMachine
from kvorum.chaos.sim.kernel.wire import Answer, SimStream
from kvorum.metadata.requests.controller_requests import Heartbeat, HeartbeatReply
from kvorum.metadata.rpc.active_controller import ActiveController
from kvorum.runtime.errors import ErrorCode, Rejected

if TYPE_CHECKING:
    from kvorum.chaos.sim.quorum.node import SimNode
    from kvorum.metadata.image.image import ClusterImage

HEARTBEAT_TIMEOUT_MS = 1_000
RETRY_BACKOFF_MS = 20
"""Pause after a lost stream or request, as in `metadata.rpc.client`."""

COMMIT_TIMEOUT_MS = 10_000
"""The controller's time limit for the commit, as in `metadata.rpc.service`."""


class LivingProcess(Protocol):
    """A broker process that sends heartbeats (`chaos.sim.controller.brokers.SimBrokerProcess`)."""

    broker_epoch: int
    want_shutdown: bool
    active: ActiveController

    @property
    def world(self) -> ClusterWorld: ...

    @property
    def node(self) -> SimNode: ...

    @property
    def image(self) -> ClusterImage: ...

    def failed_log_dirs(self) -> tuple[bytes, ...]:
        """Ids of data directories that have failed."""

    def on_controller_answer(self, is_fenced: bool) -> None:
        """Handle the active controller's answer to a heartbeat."""

    def register(self) -> None:
        """Register, again and again until the controller accepts."""

    def leave(self, was_moved: bool) -> None:
        """Stop the process. was_moved: the controller has moved leadership away."""

    def end(self, reason: str) -> None:
        """End the process at once, for this reason."""

    def later(self, delay_ms: int, call: Callable[[], None]) -> None:
        """Schedule a call of this process; dropped if the process ends before."""


class Heartbeats:
    """The heartbeats of one broker process, from `open` to its end."""

    def __init__(self, process: LivingProcess) -> None:
        self._process = process
        self._stream: SimStream | None = None
        self._has_begun = False
        self._target = -1
        self._number = 0
        self._is_awaiting = False

    @property
    def has_begun(self) -> bool:
        return self._has_begun

    def open(self) -> None:
        """Open a stream to the controller that seems to be active."""
        process = self._process
        self._has_begun = True
        self._target = process.active.next()
        server = process.world.nodes[self._target]
        # Runs at the server, as in `metadata.rpc.service`.
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

        self._stream = process.world.wire.stream(
            process.node,
            server,
            serve=serve,
            on_gone=gone,
            on_answer=self._on_reply,
            on_end=self._on_failed,
        )
        self.send_heartbeat()

    def send_now(self) -> None:
        """Send the next heartbeat at once, since it has news."""
        if not self._is_awaiting:
            self.send_heartbeat()

    def send_heartbeat(self) -> None:
        """Send one heartbeat."""
        process = self._process
        if self._stream is None:
            return
        self._number += 1
        self._is_awaiting = True
        self._stream.send(
            Heartbeat(
                broker_id=process.node.node_id,
                broker_epoch=process.broker_epoch,
                metadata_offset=process.image.end_offset,
                want_shutdown=process.want_shutdown,
                offline_log_dirs=process.failed_log_dirs(),
            )
        )
        process.later(HEARTBEAT_TIMEOUT_MS, partial(self._give_up, self._number))

    def _give_up(self, number: int) -> None:
        if self._is_awaiting and number == self._number:
            self._on_failed()

    def _on_failed(self) -> None:
        if self._stream is not None:
            self._process.active.note_failure(self._target)
            self._reopen()

    def _reopen(self) -> None:
        if self._stream is not None:
            self._stream.close()
        self._stream, self._is_awaiting = None, False
        self._process.later(RETRY_BACKOFF_MS, self.open)

    def _on_reply(self, reply: tuple[Any, int]) -> None:
        if self._stream is None:
            return
        process = self._process
        answer, leader_id = reply
        self._is_awaiting = False
        if isinstance(answer, HeartbeatReply):
            process.active.note_active(self._target)
            process.on_controller_answer(answer.is_fenced)
            if answer.should_shut_down and process.want_shutdown:
                process.leave(True)
                return
            interval_ms = process.world.scenario.heartbeat_interval_ms
            process.later(interval_ms, partial(self._next, self._number))
            return
        code = answer.code if isinstance(answer, Rejected) else None
        if code is ErrorCode.BROKER_ID_NOT_REGISTERED:
            process.register()
        elif code is ErrorCode.STALE_BROKER_EPOCH:
            process.end(f"place lost: {answer}")
        else:
            process.active.note_failure(self._target, leader_id)
            self._reopen()

    def _next(self, number: int) -> None:
        if not self._is_awaiting and number == self._number:
            self.send_heartbeat()
