"""A broker's registration, heartbeats and controlled shutdown, over gRPC.

The heartbeat stream also shows that the broker is alive: when the process dies the stream breaks,
and the controller fences the broker after a short grace.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable
from typing import Any, NamedTuple

import grpc.aio

from kvorum.broker.controller_channel.quorum_wait import QuorumWait
from kvorum.metadata.image.publisher import MetadataPublisher
from kvorum.metadata.requests.controller_requests import (
    Heartbeat,
    RegisterBrokerRequest,
    RegisteredBroker,
)
from kvorum.metadata.rpc.calls import HEARTBEAT_REQUEST, REGISTER_BROKER
from kvorum.metadata.rpc.client import ControllerAnswer, ControllerClient
from kvorum.rpc import controller_pb2 as pb
from kvorum.runtime.clock import monotonic_ms
from kvorum.runtime.errors import ErrorCode, NodeRefused, Rejected, error_code_of

logger = logging.getLogger("kvorum.broker")

REGISTRATION_TIMEOUT_MS = 60_000
"""Kafka's initial.broker.registration.timeout.ms."""

REGISTRATION_BACKOFF_MS = 50
HEARTBEAT_TIMEOUT_MS = 1_000
"""A heartbeat unanswered for this long is given up, and sent to the next controller."""


#: The exceptions of a write or read on a stream that is gone, or whose peer is.
_STREAM_FAILURES = (
    grpc.aio.AioRpcError,
    grpc.aio.UsageError,
    asyncio.InvalidStateError,
    TimeoutError,
)


class RegistrationFailed(NodeRefused):
    """The controller refuses this broker, or none answered; the process exits with the reason."""


class MetadataPosition(NamedTuple):
    """How far a broker's metadata log reaches.

    last_epoch: of its last record.
    refused_leader: why the broker does not follow the quorum's leader, "" if it does.
    """

    end_offset: int = 0
    last_epoch: int = 0
    refused_leader: str = ""


class BrokerLifecycleManager:
    """The life cycle of one broker process (one incarnation)."""

    def __init__(
        self,
        client: ControllerClient,
        *,
        registration: RegisterBrokerRequest,
        publisher: MetadataPublisher,
        heartbeat_interval_ms: int,
        heartbeat_timeout_ms: int = HEARTBEAT_TIMEOUT_MS,
        registration_timeout_ms: int = REGISTRATION_TIMEOUT_MS,
        on_unfenced: Callable[[], None],
        on_answer: Callable[[bool], None] = lambda is_fenced: None,
        offline_directories: Callable[[], tuple[bytes, ...]] = tuple,
        metadata: Callable[[], MetadataPosition] = MetadataPosition,
    ) -> None:
        """on_answer: called with is_fenced when the active controller has answered a heartbeat.
        offline_directories: returns the ids of the failed data directories.
        metadata: returns how far this broker's metadata log reaches.
        """
        self._metadata = metadata
        self.refusal = ""
        """Why this broker does not join: the quorum has less metadata than it. "" if it does."""
        self._client = client
        self._publisher = publisher
        self._registration = registration
        self.broker_epoch = -1
        """Broker epoch of this broker's registration, -1 before it."""
        self._interval_s = heartbeat_interval_ms / 1000
        self._heartbeat_timeout_s = heartbeat_timeout_ms / 1000
        self._registration_timeout_ms = registration_timeout_ms
        self._on_unfenced = on_unfenced
        self._on_answer = on_answer
        self._offline_directories = offline_directories
        self.acknowledged_offline: frozenset[bytes] = frozenset()
        """Failed directories that an active controller has acknowledged."""
        self._heartbeat_due = asyncio.Event()
        self._want_shutdown = False
        self._shut_down = asyncio.Event()
        self._is_refused = False
        self._gone: set[int] = set()
        """Controllers whose connection broke or was refused since a controller last answered."""
        self._quorum_wait = QuorumWait(self._client, registration.broker_id)
        self.is_fenced = True

    def note_directories(self, log_dirs: tuple[bytes, ...], broker_epoch_before: int) -> None:
        """Set what the registration reports: the data directories online at the start, and the
        broker epoch under which the previous process closed all logs cleanly (-1 if it did not)."""
        self._registration = dataclasses.replace(
            self._registration, log_dirs=log_dirs, broker_epoch_before=broker_epoch_before
        )

    # Life.

    async def register(self) -> None:
        """Register this broker; wait while an earlier process of this id still has a session.

        Raises RegistrationFailed if the controller refuses for good, or none answers in time.
        """
        self._quorum_wait.begin()
        try:
            await self._register()
            self._quorum_wait.end()
        finally:
            self._quorum_wait.stop()

    async def _register(self) -> None:
        deadline_ms = monotonic_ms() + self._registration_timeout_ms
        self.refusal = ""
        answer: ControllerAnswer[RegisteredBroker] | Rejected | None = None
        duplicate: Rejected | None = None
        while (left_ms := deadline_ms - monotonic_ms()) > 0:
            answer = await self._ask_to_register(left_ms)
            if isinstance(answer, Rejected) and answer.code is ErrorCode.UNKNOWN_LEADER_EPOCH:
                # Another start would not help. A quorum that has the records may come back.
                deadline_ms = monotonic_ms() + self._registration_timeout_ms
                if answer.message != self.refusal:
                    self.refusal = answer.message
                    broker_id = self._registration.broker_id
                    logger.error("broker=%d does not join the cluster: %s", broker_id, self.refusal)
                await asyncio.sleep(REGISTRATION_BACKOFF_MS / 1000)
                continue
            if not isinstance(answer, Rejected):
                self.broker_epoch, self.refusal = answer.reply.broker_epoch, ""
                logger.info(
                    "broker=%d registered broker_epoch=%d",
                    self._registration.broker_id,
                    self.broker_epoch,
                )
                return
            if answer.code is not ErrorCode.DUPLICATE_BROKER_REGISTRATION:
                if duplicate is not None and left_ms < 1000 * self._heartbeat_timeout_s:
                    # This question had too little time; the answers before it say why.
                    answer = duplicate
                break
            if duplicate is None:
                logger.warning(
                    "broker=%d waits for the end of an earlier process, %d s at most: %s",
                    self._registration.broker_id,
                    left_ms // 1000,
                    answer.message,
                )
            duplicate = answer
            await asyncio.sleep(REGISTRATION_BACKOFF_MS / 1000)
        if isinstance(answer, Rejected) and answer.code is not ErrorCode.REQUEST_TIMED_OUT:
            raise RegistrationFailed(f"cannot join the cluster: {answer.message}")
        reason = answer.message if isinstance(answer, Rejected) else "there was no time to ask"
        raise RegistrationFailed(
            f"cannot join the cluster: {reason}; see that a majority of the controllers runs, "
            "then start this broker again; it waits for "
            f"initial.broker.registration.timeout.ms={self._registration_timeout_ms}",
            may_succeed_later=True,
        )

    async def _ask_to_register(
        self, timeout_ms: int
    ) -> ControllerAnswer[RegisteredBroker] | Rejected:
        position = self._metadata()
        if position.refused_leader:
            return Rejected(ErrorCode.UNKNOWN_LEADER_EPOCH, position.refused_leader)
        registration = dataclasses.replace(
            self._registration,
            metadata_offset=position.end_offset,
            metadata_epoch=position.last_epoch,
        )
        return await self._client.request(REGISTER_BROKER, registration, timeout_ms)

    def heartbeat_now(self) -> None:
        """Send a heartbeat now: the broker has caught up, wants to shut down, or lost a
        directory."""
        self._heartbeat_due.set()

    async def run_heartbeats(self) -> None:
        """Send heartbeats until cancelled. Raises RegistrationFailed if another process has
        registered this broker id."""
        while True:
            target = self._client.next_target()
            stream = self._client.controller_stub(target).Heartbeat()
            try:
                await self._send_heartbeats(stream, target)
            except _STREAM_FAILURES as error:
                if not self._quorum_wait.is_on:
                    logger.info("heartbeat to controller=%d failed: %s", target, _brief(error))
                self._client.note_failure(target)
                self._client.is_lost = True
                self._client.refusals.note(error)
                self._note_failure(target, error)
            finally:
                stream.cancel()
            await asyncio.sleep(self._client.refusals.backoff_s)

    async def shut_down(self, timeout_ms: int) -> str | None:
        """Controlled shutdown. None if the controller has moved all leaders away, else the reason
        why not.

        If every controller's connection has failed, the broker does not wait: no controller is left
        to move leaders.
        """
        self._want_shutdown = True
        self._heartbeat_due.set()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._shut_down.wait()
        except TimeoutError:
            return f"within {timeout_ms} ms"
        return "as all controllers are gone" if self._is_refused else None

    def stop(self) -> None:
        """Stop the wait for a quorum."""
        self._quorum_wait.stop()

    def _note_failure(self, target: int, error: BaseException) -> None:
        self._quorum_wait.begin()
        # A controller that hangs may come back in time to move leaders: its process exists.
        if not isinstance(error, TimeoutError):
            self._gone.add(target)
        if self._want_shutdown and self._gone >= self._client.addresses.keys():
            self._is_refused = True
            self._shut_down.set()

    async def _send_heartbeats(self, stream: Any, target: int) -> None:
        """Send heartbeats on one stream until it fails, or until the controller turns out not to be
        active."""
        loop = asyncio.get_running_loop()
        while True:
            self._heartbeat_due.clear()
            heartbeat = Heartbeat(
                broker_id=self._registration.broker_id,
                broker_epoch=self.broker_epoch,
                metadata_offset=self._publisher.image.end_offset,
                want_shutdown=self._want_shutdown,
                offline_log_dirs=self._offline_directories(),
            )
            async with asyncio.timeout(self._heartbeat_timeout_s):
                await stream.write(HEARTBEAT_REQUEST.encode(heartbeat))
                reply = await stream.read()
            if reply is grpc.aio.EOF:
                raise grpc.aio.UsageError("the controller closed the stream")
            self._gone.clear()
            self._client.refusals.clear()
            if not await self._handle_reply(reply, target):
                return
            if reply.status.code == ErrorCode.NONE:
                self.acknowledged_offline = frozenset(heartbeat.offline_log_dirs)
            # A timer sets the event. asyncio.timeout would cancel the task, and cost twice as much.
            interval_over = loop.call_later(self._interval_s, self._heartbeat_due.set)
            try:
                await self._heartbeat_due.wait()
            finally:
                interval_over.cancel()

    async def _handle_reply(self, reply: pb.HeartbeatReply, target: int) -> bool:
        """Act on a reply; False if this stream is of no more use."""
        code = error_code_of(reply.status.code)
        match code:
            case ErrorCode.NONE:
                self._client.note_active(target)
                self._quorum_wait.end()
                if reply.should_shut_down:
                    self._shut_down.set()
                self._on_answer(reply.is_fenced)
                was_fenced, self.is_fenced = self.is_fenced, reply.is_fenced
                if was_fenced and not reply.is_fenced:
                    self._on_unfenced()
                return True
            case ErrorCode.BROKER_ID_NOT_REGISTERED:
                await self.register()
                return True
            case ErrorCode.STALE_BROKER_EPOCH:
                raise RegistrationFailed(
                    f"{reply.status.message}: another process has taken this broker's place",
                    may_succeed_later=True,
                )
            case _:
                self._client.note_failure(target, reply.leader_id)
                self._quorum_wait.begin()
                return False


def _brief(error: BaseException) -> str:
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name} {error.details()}"
    return str(error) or type(error).__name__
