"""The quorum's messages on the simulated network: requests, answers, and the events of their
senders.

A node learns the same about its request as from the real transport: an answer; a failure, when the
connection is refused or breaks or a unary call's deadline passes; or, for a fetch, nothing.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from kvorum.chaos.sim.kernel.network import Host, Link, Network
from kvorum.chaos.sim.kernel.timeline import SimTimeline
from kvorum.chaos.sim.quorum.scenario import Scenario
from kvorum.raft.model.events import (
    CallerGone,
    Event,
    RequestFailed,
    RequestReceived,
    ResponseReceived,
)
from kvorum.raft.model.messages import (
    FetchRequest,
    FetchResponse,
    FetchSnapshotResponse,
    Request,
    Response,
)
from kvorum.raft.model.values import RaftConfig
from kvorum.raft.node.replica_log import fetched_spans
from kvorum.snapshots.format import FOOTER

_FOOTER = struct.pack(">BHB", FOOTER, 0, 0)
"""The first bytes of a snapshot's footer: its kind and three bytes of its length
(snapshots.format)."""

OnReply = Callable[[int, Request, Response], None]
"""Called with the answering node, the request and the answer."""


class TransportNode(Host, Protocol):
    """Sender or receiver of messages (`chaos.sim.quorum.node.SimNode`)."""

    @property
    def config(self) -> RaftConfig: ...

    def deliver(self, event: Event) -> None:
        """Handle an event now, or when the paused node is resumed."""


@dataclass(slots=True, kw_only=True, eq=False)
class _Call:
    """One request under way.

    is_over: its sender has got the outcome, or no longer waits.
    named_id: the sender's id for the receiver, a stand-in if it does not know the real one.
    """

    sender_id: int
    sender_incarnation: int
    receiver_id: int
    named_id: int
    receiver_incarnation: int
    correlation_id: int
    request: Request
    tokens: list[int]
    is_over: bool = False


class Transport:
    """All requests of a run, and their answers.

    nodes: by id.
    bootstrap_ids: the node that each stand-in for a bootstrap server names.
    on_reply: called for every answer that leaves a node, with its request.
    """

    def __init__(
        self, timeline: SimTimeline, network: Network, rng: random.Random, scenario: Scenario
    ) -> None:
        self.nodes: Mapping[int, TransportNode] = {}
        self.bootstrap_ids: Mapping[int, int] = {}
        self.on_reply: OnReply = lambda node_id, request, response: None
        self._timeline = timeline
        self._network = network
        self._rng = rng
        self._scenario = scenario
        self._calls: dict[int, _Call] = {}  # by token, until the receiver replies
        self._open: dict[int, list[_Call]] = {}  # by sender, those without an outcome
        self._fetches: dict[Link, _Call] = {}
        self._outside: dict[int, Callable[[Response], None]] = {}
        self._last_token = 0

    def send(
        self, sender: TransportNode, named_id: int, correlation_id: int, request: Request
    ) -> None:
        """Send a request."""
        receiver_id = self.bootstrap_ids.get(named_id, named_id)
        receiver = self.nodes[receiver_id]
        call = _Call(
            sender_id=sender.node_id,
            sender_incarnation=sender.incarnation,
            receiver_id=receiver_id,
            named_id=named_id,
            receiver_incarnation=receiver.incarnation,
            correlation_id=correlation_id,
            request=request,
            tokens=[],
        )
        self._open_calls(sender.node_id).append(call)
        if isinstance(request, FetchRequest):
            self._replace_fetch(call)
        else:
            deadline_ms = sender.config.request_timeout_ms
            self._timeline.after(deadline_ms, partial(self._fail, call))
        is_open = self._network.is_open(call.sender_id, receiver_id)
        if not receiver.is_up:
            if is_open and not receiver.is_dark:
                # No process listens there: the connection is refused, and the sender is told.
                self._timeline.after(self._network.delay_ms(), partial(self._fail, call))
            return
        for _ in range(self._network.copies(call.sender_id, receiver_id)):
            self._last_token += 1
            token = self._last_token
            self._calls[token] = call
            call.tokens.append(token)
            event = RequestReceived(request, token)
            self._deliver_later(receiver_id, call.receiver_incarnation, event)

    def reply(self, sender_id: int, token: int, response: Response) -> None:
        """Send an answer."""
        outside = self._outside.pop(token, None)
        if outside is not None:
            outside(response)
            return
        call = self._calls.pop(token, None)
        if call is None:
            return
        if isinstance(response, FetchResponse) and response.records:
            response = _with_spans(response)
        elif isinstance(response, FetchSnapshotResponse) and self._is_damaged():
            response = self._damaged(response)
        self.on_reply(sender_id, call.request, response)
        if call.is_over:
            return
        for _ in range(self._network.copies(sender_id, call.sender_id)):
            event = ResponseReceived(call.named_id, call.correlation_id, response)
            self._timeline.after(self._network.delay_ms(), partial(self._answer, call, event))

    def token_for(self, on_answer: Callable[[Response], None]) -> int:
        """A token for a request from outside the quorum; on_answer gets its answer."""
        self._last_token += 1
        self._outside[self._last_token] = on_answer
        return self._last_token

    def break_connections(self, node_id: int) -> None:
        """Break every connection of the node: callers get a failure, servers are told that the
        caller is gone, each unless the link to it is cut."""
        for calls in self._open.values():
            for call in [c for c in calls if node_id in (c.sender_id, c.receiver_id)]:
                self._hang_up(call)
                if self._network.is_open(call.receiver_id, call.sender_id):
                    self._timeline.after(self._network.delay_ms(), partial(self._fail, call))

    # Inside.

    def _open_calls(self, sender_id: int) -> list[_Call]:
        calls = self._open.setdefault(sender_id, [])
        calls[:] = [call for call in calls if not call.is_over]
        return calls

    def _replace_fetch(self, call: _Call) -> None:
        """Abandon the node's previous fetch to the same peer, because only one may be under way.
        The node may get no answer to an abandoned fetch, or a late one."""
        link = (call.sender_id, call.named_id)
        earlier = self._fetches.get(link)
        self._fetches[link] = call
        if earlier is None or earlier.is_over:
            return
        self._open[call.sender_id].remove(earlier)
        if self._rng.random() < 0.5:
            earlier.is_over = True
            self._hang_up(earlier)

    def _hang_up(self, call: _Call) -> None:
        if not self._network.is_open(call.sender_id, call.receiver_id):
            return
        for token in call.tokens:
            if self._calls.pop(token, None) is not None:
                self._deliver_later(call.receiver_id, call.receiver_incarnation, CallerGone(token))

    def _answer(self, call: _Call, event: ResponseReceived) -> None:
        # Deliver duplicates too, although no stream would: the core must tolerate them.
        sender = self.nodes[call.sender_id]
        call.is_over = True
        if sender.incarnation == call.sender_incarnation:
            sender.deliver(event)

    def _fail(self, call: _Call) -> None:
        if call.is_over:
            return
        call.is_over = True
        sender = self.nodes[call.sender_id]
        if sender.incarnation == call.sender_incarnation:
            sender.deliver(RequestFailed(call.named_id, call.correlation_id))

    def _is_damaged(self) -> bool:
        probability = self._scenario.chunk_damage
        return self._network.is_rough and probability > 0 and self._rng.random() < probability

    def _damaged(self, response: FetchSnapshotResponse) -> FetchSnapshotResponse:
        """The chunk with a flipped bit, or truncated and marked as the last."""
        data = bytearray(response.data)
        if not data:
            return response
        at = self._rng.randrange(len(data))
        if self._rng.random() < 0.5:
            footer = data.find(_FOOTER)
            if footer >= 0 and self._rng.random() < 0.5:
                at = footer  # like a file whose writer did not finish
            return replace(response, data=bytes(data[:at]), size=response.position + at)
        data[at] ^= 1 << self._rng.randrange(8)
        return replace(response, data=bytes(data))

    def _deliver_later(self, receiver_id: int, incarnation: int, event: Event) -> None:
        receiver = self.nodes[receiver_id]

        def arrive() -> None:
            # A connection ends with its process.
            if receiver.incarnation == incarnation:
                receiver.deliver(event)

        self._timeline.after(self._network.delay_ms(), arrive)


def _with_spans(response: FetchResponse) -> FetchResponse:
    """The answer as the receiver decodes it: the spans are parsed from the bytes."""
    return replace(response, spans=fetched_spans(response.records))
