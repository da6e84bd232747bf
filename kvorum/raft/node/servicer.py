"""The serving side of the quorum's gRPC: passes requests to the node and its replies to the
callers.

It decides nothing. The calling side is `raft.node.transport`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import grpc.aio

from kvorum.raft.model import messages as m
from kvorum.raft.model.events import CallerGone, Event, RequestReceived
from kvorum.raft.node import codec
from kvorum.raft.node.follower_clocks import FollowerClocks
from kvorum.raft.node.transport import NoteAddress, PeerAddress
from kvorum.rpc import raft_pb2 as pb
from kvorum.rpc import raft_pb2_grpc as pb_grpc
from kvorum.runtime.clock import SYSTEM_CLOCK, Clock
from kvorum.runtime.errors import WireError

logger = logging.getLogger("kvorum.raft")

NO_TOKEN = 0
"""The token that belongs to no request."""


class RaftServicer(pb_grpc.RaftServicer):
    """Passes each request to the node and waits for its reply."""

    def __init__(
        self,
        deliver: Callable[[Event], None],
        *,
        peer_address: PeerAddress,
        note_address: NoteAddress,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._deliver = deliver
        self._clock = clock
        self.clocks = FollowerClocks()
        self._peer_address = peer_address
        self._note_address = note_address
        self._next_token = 0
        self._is_stopped = False
        self._waiting: dict[int, asyncio.Future[m.Response] | _Fetches] = {}

    def reply(self, token: int, response: m.Response) -> None:
        """Answer the caller that `token` names; do nothing if it has hung up."""
        caller = self._waiting.pop(token, None)
        if isinstance(caller, _Fetches):
            caller.answer(response)
        elif caller is not None and not caller.done():
            caller.set_result(response)

    def stop(self) -> None:
        """Refuse every waiting and every later request, because the node is stopping."""
        self._is_stopped = True
        for caller in self._waiting.values():
            if isinstance(caller, _Fetches):
                caller.context.interrupt(_Stopping())
            elif not caller.done():
                caller.set_exception(_Stopping())
        self._waiting.clear()

    async def Vote(self, request: pb.VoteRequest, context: Any) -> Any:
        return await self._answer(codec.decode(request), context)

    async def BeginQuorumEpoch(self, request: pb.BeginQuorumEpochRequest, context: Any) -> Any:
        address = codec.decode_address(request)
        if address is not None:
            self._note_address(request.leader_id, address)
        return await self._answer(codec.decode(request), context)

    async def EndQuorumEpoch(self, request: pb.EndQuorumEpochRequest, context: Any) -> Any:
        return await self._answer(codec.decode(request), context)

    async def FetchSnapshot(self, request: pb.FetchSnapshotRequest, context: Any) -> Any:
        return await self._answer(codec.decode(request), context)

    async def AddVoter(self, request: pb.AddVoterRequest, context: Any) -> Any:
        return await self._answer(codec.decode(request), context)

    async def RemoveVoter(self, request: pb.RemoveVoterRequest, context: Any) -> Any:
        return await self._answer(codec.decode(request), context)

    async def UpdateVoter(self, request: pb.UpdateVoterRequest, context: Any) -> Any:
        return await self._answer(codec.decode(request), context)

    async def Fetch(self, _: AsyncIterator[pb.FetchRequest], context: Any) -> None:
        fetches = _Fetches(self, context)
        try:
            await context.listen(fetches.on_message)
            # Requests under way are answered before the stream ends.
            await fetches.is_answered.wait()
        except _Stopping:
            await _abort(context)
        finally:
            fetches.close()

    async def _answer(self, request: m.Request, context: Any) -> Any:
        future: asyncio.Future[m.Response] = asyncio.get_running_loop().create_future()
        token = NO_TOKEN
        try:
            token = self.ask(request, future)
            return self.encode(await future)
        except _Stopping:
            await _abort(context)
        finally:
            self.forget(token)

    # Functions for the streams of fetches.

    def note_clock(self, replica_id: int, sent_at_ms: int) -> None:
        """Note the wall clock of a replica that fetches."""
        line = self.clocks.note(replica_id, sent_at_ms, self._clock.wall_ms())
        if line is not None:
            logger.warning("%s", line)

    def ask(self, request: m.Request, caller: asyncio.Future[m.Response] | _Fetches) -> int:
        """Pass a request to the node and return the token of its reply. Raises _Stopping."""
        if self._is_stopped:
            raise _Stopping
        self._next_token += 1
        token = self._next_token
        self._waiting[token] = caller
        self._deliver(RequestReceived(request, token))
        return token

    def forget(self, token: int) -> None:
        """Drop a waiting caller, and tell the node if it has not replied yet."""
        if self._waiting.pop(token, None) is not None:
            self._deliver(CallerGone(token))

    def encode(self, response: m.Response, correlation_id: int = 0) -> Any:
        """The protobuf message of a response, with the leader's address if it is known."""
        leader_address = None
        if response.leader_id >= 0:
            leader_address = self._peer_address(response.leader_id)
        return codec.encode_response(response, correlation_id, leader_address)


class _Fetches:
    """One peer's stream of fetches, one under way at a time.

    A fetch is delivered to the node from within the socket's callback. Its response is sent
    directly from the node's reply, without a task in between.
    """

    def __init__(self, servicer: RaftServicer, context: Any) -> None:
        self.context = context
        self.is_answered = asyncio.Event()
        self.is_answered.set()
        self._servicer = servicer
        self._token = NO_TOKEN
        self._correlation_id = 0
        self._large: asyncio.Task[None] | None = None

    def on_message(self, message: Any) -> None:
        """Take the next fetch. Raises WireError if the fetch before it has not been answered
        yet."""
        if not self.is_answered.is_set():
            raise WireError("a fetch while the one before it is under way")
        request = codec.decode(message)
        self._correlation_id = message.correlation_id
        self._servicer.note_clock(message.replica_id, message.sent_at_ms)
        self.is_answered.clear()
        self._token = self._servicer.ask(request, self)

    def answer(self, response: m.Response) -> None:
        """Send the response to the fetch under way; do nothing if the caller has hung up."""
        message = self._servicer.encode(response, self._correlation_id)
        try:
            if self.context.try_write(message):
                self.is_answered.set()
                return
        except grpc.aio.UsageError:
            return  # the handler is being cancelled
        self._large = asyncio.create_task(self._write(message), name="raft-large-answer")

    async def _write(self, message: Any) -> None:
        try:
            await self.context.write(message)
        except grpc.aio.UsageError as error:
            self.context.interrupt(error)
        finally:
            self.is_answered.set()

    def close(self) -> None:
        """End the stream and drop the fetch under way."""
        if self._large is not None:
            self._large.cancel()
        self._servicer.forget(self._token)


async def _abort(context: Any) -> None:
    await context.abort(grpc.StatusCode.UNAVAILABLE, "the node is stopping")


class _Stopping(Exception):
    """The node is stopping; the request gets no reply."""
