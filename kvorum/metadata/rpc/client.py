"""Calls to the active controller, whichever node that is.

The client follows leader hints and tries the known controllers in turn while there is none. At the
caller's deadline it gives up with a refusal that says what was tried. If a Kafka client is waiting,
it gives up earlier: as soon as the cause is an outage and not an election. It then reports what is
wrong with the quorum.
"""

from __future__ import annotations

import asyncio
from asyncio import FIRST_COMPLETED
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic

import grpc.aio

from kvorum.metadata.inspect import quorum_report
from kvorum.metadata.rpc.active_controller import ActiveController
from kvorum.metadata.rpc.calls import ControllerCall, Reply, Request
from kvorum.rpc import admin_pb2 as admin_pb
from kvorum.rpc import admin_pb2_grpc as admin_grpc
from kvorum.rpc import controller_pb2_grpc as pb_grpc
from kvorum.rpc import raft_pb2_grpc as raft_grpc
from kvorum.runtime.clock import monotonic_ms
from kvorum.runtime.errors import ErrorCode, Rejected
from kvorum.runtime.http2.client import Channel
from kvorum.runtime.http2.rpc import USUAL_CHANNELS, Channels
from kvorum.runtime.http2.status import Unsent
from kvorum.runtime.refusals import Refusals

RETRY_BACKOFF_MS = 20
ATTEMPT_TIMEOUT_MS = 1_000
"""A controller that does not answer within this time is passed over while there is time left."""

LOST_MAX = 2
"""Number of controllers that may be lost during one request. The first is a failover, which a
client need not notice. After the second, the request itself may be the cause, and could end them
all."""


@dataclass(frozen=True, slots=True)
class ControllerAnswer(Generic[Reply]):
    """A reply and the end (exclusive) of the metadata log that holds its outcome.

    end_offset: -1 if the call changes nothing that a caller would wait for.
    """

    reply: Reply
    end_offset: int


class _Superseded(Exception):
    """Another controller was elected during a call."""


class _Leaderless(Exception):
    """There is no leader. answers: what each controller reported of itself."""

    def __init__(self, answers: list[admin_pb.DescribeQuorumReply]) -> None:
        super().__init__("no leader")
        self.answers = answers


class ControllerClient:
    """The channels to the controllers, by id."""

    def __init__(
        self,
        addresses: Mapping[int, str],
        *,
        channels: Channels = USUAL_CHANNELS,
        attempt_timeout_ms: int = ATTEMPT_TIMEOUT_MS,
    ) -> None:
        """attempt_timeout_ms: a controller that does not answer within this time is passed over."""
        self._maker = channels
        self._attempt_timeout_ms = attempt_timeout_ms
        self._addresses = dict(addresses)
        self._channels: dict[int, Channel] = {}
        # Creating a stub wraps every method of its service, so each channel gets one stub only.
        self._stubs: dict[tuple[int, type], Any] = {}
        self._methods: dict[tuple[int, str], Callable[..., Any]] = {}
        # Old channels of moved controllers: calls may still run on them, so `close` closes them.
        self._moved: list[Channel] = []
        self._active = ActiveController(self._addresses)
        self._active_at_ms: int | None = None
        self._failures: dict[int, str] = {}
        """Why controllers did not describe themselves when they were asked last."""
        self.is_lost = False
        """True if no active controller has been reached since the last one was lost."""
        self.refusals = Refusals(RETRY_BACKOFF_MS)
        """Those of controllers that let this caller call nothing."""
        self._elections: list[tuple[int, asyncio.Future[None]]] = []

    @property
    def leader_id(self) -> int | None:
        """The controller that was last seen active; None if none is known."""
        return self._active.leader_id

    @property
    def addresses(self) -> Mapping[int, str]:
        """host:port by controller id."""
        return self._addresses

    @property
    def leader_age_ms(self) -> int | None:
        """Time since an active controller last answered; None if none ever has."""
        return None if self._active_at_ms is None else monotonic_ms() - self._active_at_ms

    def update_addresses(self, addresses: Mapping[int, str]) -> None:
        """Replace the controllers' addresses: a voter was added, removed or moved (KIP-853)."""
        moved = [i for i in self._channels if addresses.get(i) != self._addresses.get(i)]
        for node_id in moved:
            self._moved.append(self._channels.pop(node_id))
            self._stubs = {key: stub for key, stub in self._stubs.items() if key[0] != node_id}
            self._methods = {key: m for key, m in self._methods.items() if key[0] != node_id}
        self._addresses = dict(addresses)
        self._active.update(self._addresses)

    def add_address(self, node_id: int, address: str) -> None:
        """Add the address of another controller; a known address is kept.

        A node that was given one bootstrap server learns the other controllers only this way, when
        they become leader.
        """
        if node_id not in self._addresses:
            self._addresses[node_id] = address
            self._active.update(self._addresses)

    def note_active(self, controller_id: int) -> None:
        """Note that this controller has just answered as the active one.

        Calls under way to other controllers are given up and sent to this one. The old leader may
        hang, and nothing else would tell that before the calls time out.
        """
        self._active_at_ms = monotonic_ms()
        self.is_lost = False
        self._switch_to(controller_id)

    def _switch_to(self, controller_id: int) -> None:
        self._active.note_active(controller_id)
        if self._active.leader_id != controller_id:
            return
        for target, election in self._elections:
            if target != controller_id and not election.done():
                election.set_result(None)

    def note_election(self, leader_id: int, epoch: int) -> None:
        """Send calls to the leader of `epoch`, as an observer of the quorum's log reports it."""
        if self._active.note_election(leader_id, epoch):
            self._switch_to(leader_id)

    def next_target(self) -> int:
        """The next controller to call: the known leader, or else each controller in turn."""
        return self._active.next()

    def note_failure(self, controller_id: int, hint: int = -1) -> None:
        """Note that this controller did not answer, or is not active. hint: the leader that it
        named, perhaps an outdated one; below 0 for none."""
        self._active.note_failure(controller_id, hint)

    def _name(self, controller_id: int) -> str:
        """The controller's name in messages; the id behind a bootstrap server is not known yet."""
        if controller_id >= 0:
            return f"controller {controller_id}"
        return f"the controller at {self._addresses.get(controller_id, 'an unknown address')}"

    def controller_stub(self, controller_id: int) -> Any:
        return self._stub(pb_grpc.ControllerStub, controller_id)

    def admin_stub(self, controller_id: int) -> Any:
        return self._stub(admin_grpc.AdminStub, controller_id)

    def raft_stub(self, controller_id: int) -> Any:
        return raft_grpc.RaftStub(self._channel(controller_id))

    async def request(
        self, call: ControllerCall[Request, Reply], request: Request, timeout_ms: int
    ) -> ControllerAnswer[Reply] | Rejected:
        """Send a call of the table to the active controller, as `call` does.

        Returns its reply, or the refusal.
        """
        message = call.encode_request(request)
        answer = await self.call(
            lambda client, target, timeout: client._method(call, target)(message, timeout=timeout),
            timeout_ms,
            leader_wait_ms=quorum_report.LEADER_WAIT_MS if call.is_for_client else None,
        )
        reply = answer if isinstance(answer, Rejected) else call.decode_reply(answer)
        if isinstance(reply, Rejected):
            return reply
        return ControllerAnswer(reply, getattr(answer, "end_offset", -1))

    async def call(
        self,
        invoke: Callable[[ControllerClient, int, float], Any],
        timeout_ms: int,
        *,
        leader_wait_ms: int | None = None,
    ) -> Any:
        """Call `invoke(client, controller id, timeout s)` on the active controller.

        Returns the reply, which must have `status` and `leader_id`, or Rejected. A request that
        fails with NOT_CONTROLLER or a broken connection is sent again until timeout_ms has passed.
        So the request may take effect twice, and the caller must tolerate that.

        leader_wait_ms: a Kafka client waits. The call gives up after this long if no controller
            leads then, and is not sent again after LOST_MAX controllers were lost with it.
        """
        deadline_ms = monotonic_ms() + timeout_ms
        patience_ms = None if leader_wait_ms is None else monotonic_ms() + leader_wait_ms
        last, lost = "no controller was reachable", set[int]()
        while (left_ms := deadline_ms - monotonic_ms()) > 0:
            target = self.next_target()
            try:
                timeout_s = min(left_ms, max(self._attempt_timeout_ms, timeout_ms // 3)) / 1000
                reply = await self._attempt(invoke, target, timeout_s, patience_ms)
                self.refusals.clear()
                if reply.status.code != ErrorCode.NOT_CONTROLLER:
                    self.note_active(target)
                    return reply
                else:
                    last = reply.status.message
                    self.note_failure(target, reply.leader_id)
            except _Superseded:
                last = f"{self._name(target)} was superseded before it answered"
                continue
            except _Leaderless as error:
                return self._no_leader(error.answers)
            except grpc.aio.AioRpcError as error:
                last = f"{self._name(target)}: {error.code().name} {error.details()}"
                self.note_failure(target)
                self.refusals.note(error)
                if _may_be_taken_up(error):
                    lost.add(target)
                if patience_ms is not None and len(lost) >= LOST_MAX:
                    return Rejected(
                        ErrorCode.UNKNOWN_SERVER_ERROR,
                        f"lost with {len(lost)} controllers, one after the other, and not sent "
                        f"again as it may be the cause: {last}",
                    )
            if patience_ms is not None:
                answers = await self._await_leader(min(patience_ms, deadline_ms))
                if not self._follow(answers):
                    return self._no_leader(answers)
            await asyncio.sleep(self.refusals.backoff_s)
        return Rejected(
            ErrorCode.REQUEST_TIMED_OUT, f"no active controller within {timeout_ms} ms: {last}"
        )

    async def describe(self, leader_wait_ms: int) -> admin_pb.DescribeQuorumReply | Rejected:
        """The leader's description of the quorum, or the reason why there is none."""
        patience_ms = monotonic_ms() + leader_wait_ms
        while True:
            answers = await self._await_leader(patience_ms)
            leader: admin_pb.DescribeQuorumReply | None = quorum_report.leader_of(answers)
            if leader is not None:
                self.note_active(leader.node_id)
                return leader
            if monotonic_ms() >= patience_ms or quorum_report.is_outage(answers):
                return self._no_leader(answers)
            await asyncio.sleep(quorum_report.PROBE_PAUSE_MS / 1000)

    async def _await_leader(self, patience_ms: int) -> list[admin_pb.DescribeQuorumReply]:
        """Ask all controllers until one is named as leader or patience_ms has passed.

        They are asked at least once, and no more once the cause is an outage and not an election.
        Returns their last answers.
        """
        while True:
            answers = await self._probe_all()
            if (
                quorum_report.leader_id_of(answers) >= 0
                or quorum_report.is_outage(answers)
                or monotonic_ms() >= patience_ms
            ):
                return answers
            await asyncio.sleep(quorum_report.PROBE_PAUSE_MS / 1000)

    def _follow(self, answers: list[admin_pb.DescribeQuorumReply]) -> bool:
        """Switch to the leader that the answers name; False if they name none."""
        leader_id = quorum_report.leader_id_of(answers)
        if leader_id not in self._addresses:
            return False
        if leader_id != self.leader_id:
            self._switch_to(leader_id)
        return True

    def _no_leader(self, answers: list[admin_pb.DescribeQuorumReply]) -> Rejected:
        self.is_lost = True
        # Kafka's clients pass REQUEST_TIMED_OUT to their caller, with the message. NOT_CONTROLLER
        # they would swallow, and repeat the request until their own timeout. It is also true: a
        # leader that was lost may have committed the request.
        return Rejected(
            ErrorCode.REQUEST_TIMED_OUT,
            quorum_report.describe_outage(
                answers, self._addresses, self._active.epoch, self._failures
            ),
        )

    async def _probe_all(self) -> list[admin_pb.DescribeQuorumReply]:
        """The descriptions from all controllers that answer within PROBE_TIMEOUT_MS."""
        self._failures = {}

        async def probe(controller_id: int) -> admin_pb.DescribeQuorumReply | None:
            try:
                reply: admin_pb.DescribeQuorumReply = await self.admin_stub(
                    controller_id
                ).DescribeQuorum(
                    admin_pb.DescribeQuorumRequest(),
                    timeout=quorum_report.PROBE_TIMEOUT_MS / 1000,
                )
            except grpc.aio.AioRpcError as error:
                self._failures[controller_id] = error.details() or error.code().name
                return None
            return reply

        replies = await asyncio.gather(*map(probe, sorted(self._addresses)))
        return [reply for reply in replies if reply is not None]

    async def _attempt(
        self,
        invoke: Callable[[ControllerClient, int, float], Any],
        target: int,
        timeout_s: float,
        patience_ms: int | None,
    ) -> Any:
        """Make one call, unless another controller is elected first.

        After patience_ms the call goes on only if its target still leads. Raises _Superseded,
        _Leaderless, AioRpcError.
        """
        call = asyncio.ensure_future(invoke(self, target, timeout_s))
        election: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (target, election)
        self._elections.append(entry)
        try:
            wait_s = None if patience_ms is None else max(patience_ms - monotonic_ms(), 0) / 1000
            await asyncio.wait({call, election}, timeout=wait_s, return_when=FIRST_COMPLETED)
            if patience_ms is not None and not call.done() and not election.done():
                answers = await self._await_leader(patience_ms)
                if not self._follow(answers) and not call.done():
                    raise _Leaderless(answers)
                await asyncio.wait({call, election}, return_when=FIRST_COMPLETED)
            if not call.done():
                raise _Superseded
            return call.result()
        finally:
            call.cancel()
            election.cancel()
            self._elections.remove(entry)

    async def close(self) -> None:
        for channel in [*self._channels.values(), *self._moved]:
            await channel.close()
        self._channels.clear()
        self._stubs.clear()
        self._methods.clear()
        self._moved.clear()

    def _stub(self, kind: type, controller_id: int) -> Any:
        key = (controller_id, kind)
        stub = self._stubs.get(key)
        if stub is None:
            stub = self._stubs[key] = kind(self._channel(controller_id))
        return stub

    def _method(self, call: ControllerCall[Any, Any], controller_id: int) -> Callable[..., Any]:
        key = (controller_id, call.path)
        method = self._methods.get(key)
        if method is None:
            method = self._methods[key] = call.method(self._channel(controller_id))
        return method

    def _channel(self, controller_id: int) -> Channel:
        channel = self._channels.get(controller_id)
        if channel is None:
            channel = self._maker.open(self._addresses[controller_id])
            self._channels[controller_id] = channel
        return channel


def _may_be_taken_up(error: grpc.aio.AioRpcError) -> bool:
    """True if the controller may have died of the request; one that answers late has not."""
    is_late = error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    return not isinstance(error, Unsent) and not is_late
