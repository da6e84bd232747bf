"""The calling side of the quorum's gRPC: a stream to each peer for fetches, unary calls otherwise.

It carries requests and reports a response or a failure; it decides nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio

from kvorum.raft.model import messages as m
from kvorum.raft.model.events import Event, RequestFailed, ResponseReceived
from kvorum.raft.node import codec
from kvorum.rpc import raft_pb2_grpc as pb_grpc
from kvorum.runtime.clock import SYSTEM_CLOCK, Clock
from kvorum.runtime.errors import WireError
from kvorum.runtime.http2.rpc import USUAL_CHANNELS, Channels
from kvorum.runtime.refusals import Refusals
from kvorum.runtime.tasks import TaskGroup
from kvorum.runtime.text import address_text

Address = tuple[str, int]
PeerAddress = Callable[[int], Address | None]
"""Returns (host, port) of a node id, None if it is unknown."""

NoteAddress = Callable[[int, Address], None]
"""Receives the address of the leader with this id, as a message names it."""

_NO_ANSWER = (
    grpc.aio.AioRpcError,
    grpc.aio.UsageError,
    asyncio.InvalidStateError,
    WireError,
)
"""The errors that end a fetch without a response: a broken stream, or a peer that breaks the
protocol."""

_REFUSED_BACKOFF_MS = 25
"""Half of the pause after the first fetch that a peer refuses."""

_METHODS: dict[type, str] = {
    m.VoteRequest: "Vote",
    m.BeginQuorumEpochRequest: "BeginQuorumEpoch",
    m.EndQuorumEpochRequest: "EndQuorumEpoch",
    m.FetchSnapshotRequest: "FetchSnapshot",
    m.UpdateVoterRequest: "UpdateVoter",
}
"""The unary calls between nodes."""


class RaftTransport:
    """Sends requests to peers and delivers the outcomes as events."""

    def __init__(
        self,
        *,
        peer_address: PeerAddress,
        note_address: NoteAddress,
        own_address: Address | None,
        request_timeout_ms: int,
        clock: Clock = SYSTEM_CLOCK,
        channels: Channels = USUAL_CHANNELS,
        deliver: Callable[[Event], None],
        tasks: TaskGroup,
    ) -> None:
        self._peer_address = peer_address
        self._note_address = note_address
        self._own_address = own_address
        self._timeout_s = request_timeout_ms / 1000
        self._clock = clock
        self._channels = channels
        self._deliver = deliver
        self._tasks = tasks
        self._peers: dict[int, _Peer] = {}
        self._calls: set[asyncio.Task[Any]] = set()

    def send(self, receiver_id: int, correlation_id: int, request: m.Request) -> None:
        """Send a request. ResponseReceived or RequestFailed follows; a fetch may get neither."""
        peer = self._peer(receiver_id)
        if peer is None:
            failed = RequestFailed(receiver_id, correlation_id)
            asyncio.get_running_loop().call_soon(self._deliver, failed)
            return
        if isinstance(request, m.FetchRequest):
            if peer.fetches is not None and peer.fetches.is_busy:
                # The core gave up the earlier fetch. Its stream may hang, so a new one is opened.
                peer.close_stream()
            if peer.fetches is None:
                peer.fetches = _FetchStream(
                    peer, self._deliver, self._note_address, self._tasks, self._clock
                )
            peer.fetches.send(correlation_id, request)
        else:
            coroutine = self._call(peer, correlation_id, request)
            call = self._tasks.spawn(coroutine, f"raft-call-{receiver_id}")
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)

    def _peer(self, node_id: int) -> _Peer | None:
        """The channel to a node's current address; None if no address is known."""
        address = self._peer_address(node_id)
        peer = self._peers.get(node_id)
        if peer is not None and peer.address == address:
            return peer
        if peer is not None:
            # The node's address has changed. Calls under way on the old channel end as failed.
            del self._peers[node_id]
            peer.close_stream()
            self._tasks.spawn(peer.channel.close(), f"raft-close-{node_id}")
        if address is None:
            return None
        self._peers[node_id] = _Peer(node_id, address, self._channels)
        return self._peers[node_id]

    async def drain(self, timeout_ms: int) -> None:
        """Wait until the unary calls under way have ended, but no longer than timeout_ms."""
        if self._calls:
            await asyncio.wait(list(self._calls), timeout=timeout_ms / 1000)

    async def stop(self) -> None:
        for peer in self._peers.values():
            peer.close_stream()
            await peer.channel.close()

    async def _call(self, peer: _Peer, correlation_id: int, request: m.Request) -> None:
        message = codec.encode_request(request, leader_address=self._own_address)
        method = _METHODS[type(request)]
        event: Event
        try:
            reply = await getattr(peer.stub, method)(message, timeout=self._timeout_s)
            _learn(reply, self._note_address)
            event = ResponseReceived(peer.node_id, correlation_id, codec.decode(reply))
        except (grpc.aio.AioRpcError, grpc.aio.UsageError, WireError):
            # A peer that breaks the protocol is treated as unreachable.
            event = RequestFailed(peer.node_id, correlation_id)
        self._deliver(event)


def _learn(message: Any, note_address: NoteAddress) -> None:
    address = codec.decode_address(message)
    if address is not None and message.leader_id >= 0:
        note_address(message.leader_id, address)


class _FetchStream:
    """One stream to a peer, with at most one fetch under way on it.

    A response is delivered from within the socket's callback. The core usually decides on the next
    fetch during that delivery, so it leaves at once, with no task and no turn of the loop in
    between.
    """

    def __init__(
        self,
        peer: _Peer,
        deliver: Callable[[Event], None],
        note_address: NoteAddress,
        tasks: TaskGroup,
        clock: Clock,
    ) -> None:
        self._peer = peer
        self._clock = clock
        self._deliver = deliver
        self._note_address = note_address
        self._tasks = tasks
        self._stream = peer.stub.Fetch()
        self._correlation_id = -1
        self._listener: asyncio.Task[Any] | None = None
        self.is_busy = False

    def send(self, correlation_id: int, request: m.FetchRequest) -> None:
        """Send a fetch; only allowed while none is under way."""
        self.is_busy = True
        self._correlation_id = correlation_id
        message = codec.encode_request(request, correlation_id, sent_at_ms=self._clock.wall_ms())
        name = f"fetch-{self._peer.node_id}"
        if self._listener is None:
            self._listener = self._tasks.spawn(self._run(message), name)
            return
        try:
            if self._stream.try_write(message):
                return
        except _NO_ANSWER:
            return  # the stream has ended; its listener hears of that separately
        self._tasks.spawn(self._write(message), name)

    def close(self) -> None:
        """End the stream; a fetch under way gets no response."""
        self._stream.cancel()
        if self._listener is not None and self._listener is not asyncio.current_task():
            self._listener.cancel()

    async def _run(self, first: Any) -> None:
        try:
            await self._stream.write(first)
            await self._stream.listen(self._on_message)
        except _NO_ANSWER as error:
            # As if the stream had ended: a fetch under way gets no response.
            refusals = self._peer.refusals
            if self._peer.fetches is self and refusals.note(error):
                await asyncio.sleep(refusals.backoff_s)
        if self._peer.fetches is self:
            self._peer.close_stream()
            if self.is_busy:
                self._deliver(RequestFailed(self._peer.node_id, self._correlation_id))

    async def _write(self, message: Any) -> None:
        try:
            await self._stream.write(message)
        except _NO_ANSWER:
            return  # the listener hears of the same error

    def _on_message(self, message: Any) -> None:
        if self._peer.fetches is not self:
            return
        if message is None:
            raise WireError("what came in place of a fetch answer is no message")
        _learn(message, self._note_address)
        response = codec.decode(message)
        self._peer.refusals.clear()
        self.is_busy = False
        self._deliver(ResponseReceived(self._peer.node_id, message.correlation_id, response))


class _Peer:
    """The channel to one node, and the stream of fetches on it."""

    def __init__(self, node_id: int, address: Address, channels: Channels) -> None:
        self.node_id = node_id
        self.address = address
        self.channel = channels.open(address_text(*address))
        self.stub = pb_grpc.RaftStub(self.channel)
        self.fetches: _FetchStream | None = None
        self.refusals = Refusals(_REFUSED_BACKOFF_MS)

    def close_stream(self) -> None:
        if self.fetches is not None:
            self.fetches.close()
            self.fetches = None
