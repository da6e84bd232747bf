"""Connections between brokers and controllers: calls with an answer, and heartbeat streams.

They use the same links as the quorum's messages (`chaos.sim.kernel.network`): delayed, lost, cut,
and broken with the processes and machines at their ends. When a connection breaks, each end is told
what gRPC would tell it. While a link is cut no end is told anything, and a machine without power
sends nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from kvorum.chaos.sim.kernel.network import Host, Link, Network
from kvorum.chaos.sim.kernel.timeline import SimTimeline

REPEAT_MS = 40
"""Interval at which the end of a connection is reported again over a cut link."""

Answer = Callable[[Any], None]
"""Sends the answer of a call; called at most once."""


@dataclass(slots=True, kw_only=True, eq=False)
class _Ends:
    """The two processes of a connection."""

    client: Host
    client_incarnation: int
    server: Host
    server_incarnation: int

    @property
    def has_client(self) -> bool:
        return self.client.is_up and self.client.incarnation == self.client_incarnation

    @property
    def has_server(self) -> bool:
        return self.server.is_up and self.server.incarnation == self.server_incarnation

    def touches(self, node_id: int) -> bool:
        return node_id in (self.client.node_id, self.server.node_id)


@dataclass(slots=True, kw_only=True, eq=False)
class _Call:
    ends: _Ends
    on_end: Callable[[Any], None]
    is_over: bool = False


class SimStream:
    """A stream of requests and answers, from the client's side. Answers go to `on_answer`; the end
    of the stream, unless the client closed it, to `on_end`."""

    def __init__(
        self,
        wire: Wire,
        ends: _Ends,
        *,
        serve: Callable[[Any, Answer], None],
        on_gone: Callable[[], None],
        on_answer: Callable[[Any], None],
        on_end: Callable[[], None],
    ) -> None:
        """serve: called at the server for each request.
        on_gone: called there at the stream's end.
        """
        self.ends = ends
        self.is_open = True
        self._is_served = True
        self._wire = wire
        self._serve = serve
        self._on_gone = on_gone
        self._on_answer = on_answer
        self._on_end = on_end

    def send(self, request: Any) -> None:
        """Send one request; the client waits for its answer before it sends another."""
        wire, ends = self._wire, self.ends
        if wire.refuses(ends.client.node_id, ends.server) or not wire.begins(ends):
            if ends.has_server or not ends.server.is_dark:
                wire.later(partial(self._lose, wire.refuses(ends.client.node_id, ends.server)))
            return

        def arrive() -> None:
            if ends.has_server and self._is_served:
                ends.server.submit(partial(self._serve_one, request))

        wire.later(arrive)

    def close(self) -> None:
        """End the stream as the client."""
        if self.is_open:
            self.is_open = False
            self._tell_server()

    def break_off(self) -> None:
        """Break the connection. The client is told if the link to it is open now, else never; the
        server is told as soon as the link to it is open."""
        was_open, self.is_open = self.is_open, False
        ends = self.ends
        if was_open and self._wire.is_way_open(ends.server, ends.client):
            self._wire.later(self._tell_client)
        self._tell_server()

    def _lose(self, is_refused: bool) -> None:
        # A refused connection is reported to the client; a lost message is not.
        if self.is_open and (is_refused or not self.ends.has_server):
            self.is_open = False
            self._tell_client()
            self._tell_server()

    def _tell_client(self) -> None:
        if self.ends.has_client:
            self.ends.client.submit(self._on_end)

    def _tell_server(self) -> None:
        ends = self.ends
        if not ends.has_server or not self._is_served:
            return
        if ends.client.is_dark or not self._wire.is_way_open(ends.client, ends.server):
            self._wire.timeline.after(REPEAT_MS, self._tell_server)
            return
        self._wire.later(self._end_at_server)

    def _end_at_server(self) -> None:
        if self.ends.has_server and self._is_served:
            self.ends.server.submit(self._go)

    def _go(self) -> None:
        if self._is_served:
            self._is_served = False
            self._on_gone()

    def _serve_one(self, request: Any) -> None:
        if self._is_served:
            self._serve(request, self._answer)

    def _answer(self, reply: Any) -> None:
        ends = self.ends
        if not (ends.has_server and self._is_served and self._wire.passes_back(ends)):
            return

        def arrive() -> None:
            if self.is_open and ends.has_client:
                ends.client.submit(partial(self._on_answer, reply))

        self._wire.later(arrive)


class Wire:
    """All connections of a run."""

    def __init__(self, timeline: SimTimeline, network: Network) -> None:
        self.timeline = timeline
        self._network = network
        self._refused: Counter[Link] = Counter()
        self._calls: list[_Call] = []
        self._streams: list[SimStream] = []
        network.on_break.append(self.break_connections)

    def call(
        self,
        client: Host,
        server: Host,
        serve: Callable[[Answer], None],
        on_end: Callable[[Any], None],
        *,
        timeout_ms: int,
    ) -> None:
        """Run `serve` at the server; on_end gets its answer, or None if none came."""
        ends = self._ends(client, server)
        call = _Call(ends=ends, on_end=on_end)
        self._calls = [other for other in self._calls if not other.is_over]
        self._calls.append(call)
        self.timeline.after(timeout_ms, partial(self._end, call, None))
        if self.refuses(client.node_id, server):
            self.later(partial(self._end, call, None))
            return
        if not self.begins(ends):
            return

        def answer(reply: Any) -> None:
            if ends.has_server and self.passes_back(ends):
                self.later(partial(self._end, call, reply))

        def arrive() -> None:
            if ends.has_server:
                ends.server.submit(partial(serve, answer))

        self.later(arrive)

    def stream(
        self,
        client: Host,
        server: Host,
        *,
        serve: Callable[[Any, Answer], None],
        on_gone: Callable[[], None],
        on_answer: Callable[[Any], None],
        on_end: Callable[[], None],
    ) -> SimStream:
        """A new stream from client to server, without a message yet."""
        stream = SimStream(
            self,
            self._ends(client, server),
            serve=serve,
            on_gone=on_gone,
            on_answer=on_answer,
            on_end=on_end,
        )
        self._streams = [other for other in self._streams if other.is_open]
        self._streams.append(stream)
        return stream

    def refuse(self, links: Iterable[Link]) -> None:
        """Refuse connections over these links, as a proxy that is down does."""
        self._refused.update(links)

    def accept(self, links: Iterable[Link]) -> None:
        """Undo one `refuse` of each of these links."""
        self._refused.subtract(links)
        self._refused = +self._refused

    def heal(self) -> None:
        """End all refusals."""
        self._refused.clear()

    def break_connections(self, node_id: int) -> None:
        """Break every connection of the node."""
        for stream in [s for s in self._streams if s.is_open and s.ends.touches(node_id)]:
            stream.break_off()
        for call in [c for c in self._calls if not c.is_over and c.ends.touches(node_id)]:
            if self.is_way_open(call.ends.server, call.ends.client):
                self.later(partial(self._end, call, None))

    # The methods that streams call.

    def later(self, call: Callable[[], None]) -> None:
        """Run a call after the delay of one message."""
        self.timeline.after(self._network.delay_ms(), call)

    def refuses(self, client_id: int, server: Host) -> bool:
        """True if the client's connection would be refused at once."""
        if (client_id, server.node_id) in self._refused:
            return True
        is_open = self._network.is_open(client_id, server.node_id)
        return is_open and not server.is_up and not server.is_dark

    def begins(self, ends: _Ends) -> bool:
        """True if a message from the client arrives."""
        return ends.has_server and self._network.passes(ends.client.node_id, ends.server.node_id)

    def passes_back(self, ends: _Ends) -> bool:
        """True if a message from the server arrives."""
        return self._network.passes(ends.server.node_id, ends.client.node_id)

    def is_way_open(self, sender: Host, receiver: Host) -> bool:
        return self._network.is_open(sender.node_id, receiver.node_id)

    # Inside.

    def _ends(self, client: Host, server: Host) -> _Ends:
        return _Ends(
            client=client,
            client_incarnation=client.incarnation,
            server=server,
            server_incarnation=server.incarnation,
        )

    def _end(self, call: _Call, reply: Any) -> None:
        if call.is_over:
            return
        call.is_over = True
        if call.ends.has_client:
            call.ends.client.submit(partial(call.on_end, reply))
