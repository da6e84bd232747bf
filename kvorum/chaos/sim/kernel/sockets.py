"""Connections between brokers, and between clients and brokers, as ordered bytes.

They behave like TCP: while a connection lasts no bytes are lost or duplicated; bytes that a link
drops arrive later. A cut link is silent. Bytes for a process that has ended are answered by a
reset, bytes for a machine without power get no answer.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from kvorum.chaos.sim.kernel.network import Host, Network
from kvorum.chaos.sim.kernel.timeline import SimTimeline

REPEAT_MS = 40
"""Interval of retransmissions over a cut link."""

LOST_MS = 200
"""Extra delay of bytes that had to be retransmitted."""

Data = bytes | bytearray | memoryview
OnBytes = Callable[[bytes, int], None]
"""Called with the received bytes, and the event (`SimTimeline.events`) at which they were sent."""


class SocketLoop(Protocol):
    """The loop of a process (`chaos.sim.kernel.event_loop.SimLoop`). sockets: by descriptor."""

    sockets: dict[int, SimSocket]

    @property
    def is_alive(self) -> bool: ...

    def run_inside(self, call: Callable[[], object]) -> None:
        """Run a call now, as the loop would."""

    def on_readable(self, descriptor: int) -> None:
        """Wake the reader of a socket at which bytes, or the end of the connection, arrived."""


class SimSocket:
    """One end of a connection.

    loop: of the process that holds it; None for a simulated client, which gets on_bytes and on_end
    calls instead.
    """

    family = 0

    def __init__(
        self,
        links: SimConnections,
        node: Host | None,
        loop: SocketLoop | None,
        descriptor: int,
        on_bytes: OnBytes | None = None,
        on_end: Callable[[], None] | None = None,
    ) -> None:
        self.node = node
        self.loop = loop
        self.is_open = True
        self.peer: SimSocket = self
        self._links = links
        self._descriptor = descriptor
        self._on_bytes = on_bytes
        self._on_end = on_end
        self._inbox: deque[bytes] = deque()
        self._is_ended = False
        self._is_broken = False
        #: Bytes under way from this end, in order, each with the event at which they were sent.
        self.outbox: deque[tuple[bytes, int]] = deque()
        self.due_ms = 0
        if loop is not None:
            loop.sockets[descriptor] = self

    # --- as a socket -------------------------------------------------------------------------

    def fileno(self) -> int:
        return self._descriptor

    def setblocking(self, flag: bool) -> None:
        """No effect: a simulated socket never blocks."""

    def send(self, data: Data, flags: int = 0) -> int:
        if self._is_broken or not self.is_open:
            raise ConnectionResetError(errno.ECONNRESET, "the connection is broken")
        self._links.carry(self, bytes(data))
        return len(data)

    def recv_into(self, buffer: memoryview) -> int:
        if self._is_broken:
            raise ConnectionResetError(errno.ECONNRESET, "the connection is broken")
        if not self._inbox:
            if self._is_ended:
                return 0
            raise BlockingIOError(errno.EAGAIN, "nothing yet")
        data = self._inbox.popleft()
        count = min(len(data), len(buffer))
        buffer[:count] = data[:count]
        if count < len(data):
            self._inbox.appendleft(data[count:])
        return count

    def close(self) -> None:
        if self.is_open and self.is_alive:
            self.is_open = False
            if self.loop is not None:
                self.loop.sockets.pop(self._descriptor, None)
            if not self._is_broken:
                self._links.carry(self, b"")

    # --- as the network sees it --------------------------------------------------------------

    @property
    def is_alive(self) -> bool:
        """True if the process that holds this end is alive."""
        return self.loop is None or self.loop.is_alive

    @property
    def is_readable(self) -> bool:
        return self._is_broken or self._is_ended or bool(self._inbox)

    def receive(self, data: bytes, sent_at: int) -> None:
        """Take the bytes that arrived; empty bytes mean that the other end was closed."""
        if self.loop is None:
            if data and self._on_bytes is not None:
                self._on_bytes(data, sent_at)
            elif not data:
                self.break_off()
            return
        if data:
            self._inbox.append(data)
        else:
            self._is_ended = True
        self.loop.on_readable(self._descriptor)

    def break_off(self) -> None:
        """Handle a reset that arrived."""
        if self._is_broken or not self.is_open:
            return
        self._is_broken = True
        if self.loop is not None:
            self.loop.on_readable(self._descriptor)
        elif self._on_end is not None:
            self._on_end()


@dataclass(slots=True, kw_only=True, eq=False)
class _Listener:
    """accept: is called with the server's end of each new connection."""

    loop: SocketLoop
    accept: Callable[[SimSocket], None]


class SimConnections:
    """All connections of a run."""

    def __init__(
        self, timeline: SimTimeline, network: Network, client_delay_ms: Callable[[], int]
    ) -> None:
        self._timeline = timeline
        self._network = network
        self._client_delay_ms = client_delay_ms
        self._listeners: dict[int, _Listener] = {}
        self._ends: list[SimSocket] = []
        self._descriptors = 0

    def listen(self, node: Host, loop: SocketLoop, accept: Callable[[SimSocket], None]) -> None:
        """Send connections to the node to this process from now on, as long as the process is
        alive."""
        self._listeners[node.node_id] = _Listener(loop=loop, accept=accept)

    def connect(
        self,
        client: Host | None,
        loop: SocketLoop | None,
        server: Host,
        *,
        on_open: Callable[[SimSocket], None],
        on_refused: Callable[[], None],
        on_bytes: OnBytes | None = None,
        on_end: Callable[[], None] | None = None,
    ) -> None:
        """Request a connection. The client is told that it is open or refused, or gets no
        answer."""
        if not self._is_open(client, server):
            return

        def refuse() -> None:
            if self._is_open(server, client):
                self._later(client, server, on_refused)

        def arrive() -> None:
            if server.is_dark:
                return
            listener = self._listeners.get(server.node_id)
            if listener is None or not listener.loop.is_alive:
                refuse()
                return
            if not self._is_open(server, client):
                return
            mine = SimSocket(self, client, loop, self._descriptor(), on_bytes, on_end)
            theirs = SimSocket(self, server, listener.loop, self._descriptor())
            mine.peer, theirs.peer = theirs, mine
            self._ends = [end for end in self._ends if end.is_open and end.is_alive]
            self._ends += (mine, theirs)
            server.submit(
                lambda: (
                    listener.loop.run_inside(lambda: listener.accept(theirs))
                    if theirs.is_alive
                    else None
                )
            )
            self._later(client, server, lambda: on_open(mine))

        self._later(client, server, arrive)

    def carry(self, end: SimSocket, data: bytes) -> None:
        """Send bytes from an end; empty bytes close it."""
        timeline = self._timeline
        due_ms = timeline.now_ms + self._delay_ms(end.node, end.peer.node)
        end.due_ms = max(end.due_ms, due_ms)
        end.outbox.append((data, timeline.events))
        timeline.after(end.due_ms - timeline.now_ms, partial(self._arrive, end))

    def break_connections(self, node_id: int) -> None:
        """Break every connection of the node; each end is told unless the link to it is cut."""
        for end in list(self._ends):
            other = end.peer
            ids = [e.node.node_id for e in (end, other) if e.node is not None]
            if node_id in ids and end.is_alive and self._is_open(other.node, end.node):
                self._later(other.node, end.node, end.break_off)

    # Inside.

    def _arrive(self, end: SimSocket) -> None:
        """Deliver the oldest bytes under way from this end, or let them wait for the link."""
        if not end.outbox:
            return
        if end.node is not None and end.node.is_dark:
            end.outbox.clear()
            return
        if not self._is_open(end.node, end.peer.node):
            end.due_ms = max(end.due_ms, self._timeline.now_ms + REPEAT_MS)
            self._timeline.after(REPEAT_MS, partial(self._arrive, end))
            return
        data, sent_at = end.outbox.popleft()
        peer = end.peer
        if peer.is_open and peer.is_alive:
            peer.receive(data, sent_at)
            return
        is_answered = peer.node is None or not peer.node.is_dark
        if data and is_answered and end.is_alive and self._is_open(peer.node, end.node):
            self._later(peer.node, end.node, end.break_off)

    def _delay_ms(self, sender: Host | None, receiver: Host | None) -> int:
        if sender is None or receiver is None:
            return self._client_delay_ms()
        delay_ms = self._network.delay_ms()
        if not self._network.passes(sender.node_id, receiver.node_id):
            delay_ms += LOST_MS
        return delay_ms

    def _later(self, one: Host | None, other: Host | None, call: Callable[[], None]) -> None:
        delay_ms = self._client_delay_ms()
        if one is not None and other is not None:
            delay_ms = self._network.delay_ms()
        self._timeline.after(delay_ms, call)

    def _is_open(self, sender: Host | None, receiver: Host | None) -> bool:
        if sender is None or receiver is None:
            return True
        return self._network.is_open(sender.node_id, receiver.node_id)

    def _descriptor(self) -> int:
        self._descriptors += 1
        return self._descriptors
