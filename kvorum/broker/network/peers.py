"""Requests between brokers in the Kafka protocol, other than Fetch: one connection to each broker,
opened on demand.

Requests are pipelined, and answers come in their order. A peer that does not answer in time loses
the connection with all requests on it. Every caller then gets None and decides itself if it sends
its request again; nothing is sent twice here.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections import deque
from collections.abc import Mapping
from typing import Any

from kvorum.broker.network.frame_buffer import FrameBuffer
from kvorum.broker.network.peer_connection import Connect, PeerAddress, PeerLink, PeerSocket
from kvorum.runtime import peer_failures
from kvorum.runtime.errors import WireError
from kvorum.runtime.text import address_text
from kvorum.wire.kio_codec import encode_request, read_response
from kvorum.wire.primitives import string_bytes
from kvorum.wire.versions import Api

_log = logging.getLogger(__name__)

ANSWER_TIMEOUT_MS = 6_000
"""Longer than the receiver waits for replication before it answers with a time-out: five seconds
for a coordinator's record, four for a marker."""
IN_FLIGHT_MAX = 1_000
"""Limit of unanswered requests to one peer; above it, a caller gets None at once."""
ANSWER_BYTES_MAX = 16 * 1024 * 1024

_REQUEST_HEAD = struct.Struct(">hhi")
_CORRELATION_ID = struct.Struct(">i")


class Peers:
    """Connections to the other brokers, by broker id."""

    def __init__(
        self, *, broker_id: int, purpose: str, peer_address: PeerAddress, connect: Connect
    ) -> None:
        """purpose: ends the client id that the other brokers see."""
        self._client_id = f"broker-{broker_id}-{purpose}"
        self._peer_address = peer_address
        self._connect = connect
        self._connections: dict[int, _Connection] = {}
        self._opening: dict[int, asyncio.Task[_Connection | None]] = {}

    async def call(
        self, broker_id: int, api: Api, version: int, values: Mapping[str, Any]
    ) -> Any | None:
        """Send a request; returns the broker's answer as kio reads it, or None if there is none for
        any reason."""
        connection = await self._connection_to(broker_id)
        if connection is None:
            return None
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_MS / 1000):
                return await connection.ask(api, version, values)
        except TimeoutError:
            connection.close(f"no answer to {api.name} in {ANSWER_TIMEOUT_MS} ms")
            return None

    def lose(self, broker_id: int) -> None:
        """Close the connection to a fenced broker: its callers get None now, not at the
        time-out."""
        held = self._connections.get(broker_id)
        if held is not None:
            held.close("the broker is fenced")

    def close(self) -> None:
        """Close all connections; waiting callers get None."""
        for task in self._opening.values():
            task.cancel()
        for connection in list(self._connections.values()):
            connection.close("the broker stops")

    async def _connection_to(self, broker_id: int) -> _Connection | None:
        address = self._peer_address(broker_id)
        held = self._connections.get(broker_id)
        if held is not None and not held.is_closed:
            if held.address == address and not held.is_ending:
                return held
            if held.address == address:
                held.retire()
            else:
                held.close("the peer's address changed")
        if address is None:
            return None
        opening = self._opening.get(broker_id)
        if opening is None:
            opening = asyncio.get_running_loop().create_task(
                self._open(broker_id, address), name=f"connect to broker {broker_id}"
            )
            self._opening[broker_id] = opening
        try:
            # Shielded: a caller that is cancelled must not take the connection from the others.
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            if opening.cancelled():
                return None
            raise

    async def _open(self, broker_id: int, address: tuple[str, int]) -> _Connection | None:
        loop = asyncio.get_running_loop()
        try:
            sock = await self._connect(loop, address)
        except (OSError, TimeoutError) as failure:
            _log.debug("no connection to broker %d at %s: %r", broker_id, address, failure)
            return None
        finally:
            del self._opening[broker_id]
        connection = _Connection(loop, sock, address, self._client_id)
        self._connections[broker_id] = connection
        return connection


class _Connection:
    """One socket. Answers are matched in order, and their correlation ids must agree."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: PeerLink,
        address: tuple[str, int],
        client_id: str,
    ) -> None:
        self.address = address
        self.is_closed = False
        self._loop = loop
        self._sock = sock
        self._client_id = string_bytes(client_id, is_flexible=False)
        self._buffer = FrameBuffer(ANSWER_BYTES_MAX)
        self._output = bytearray()
        self._correlation_id = 0
        self._in_flight: deque[tuple[int, Api, int, asyncio.Future[Any | None]]] = deque()
        self._login_due_s: float | None = None
        self._is_retired = False
        if isinstance(sock, PeerSocket):
            self._login_due_s = sock.login_due_s
            loop.add_reader(sock.fileno(), self._on_secure_readable, sock)
        else:
            loop.add_reader(sock.fileno(), self._on_readable)

    @property
    def is_ending(self) -> bool:
        """True if the session of the login ends soon: new requests need another connection."""
        return self._login_due_s is not None and self._loop.time() >= self._login_due_s

    def retire(self) -> None:
        """Close the connection once all of its requests are answered."""
        self._is_retired = True
        if not self._in_flight:
            self.close("its session ends")

    def ask(self, api: Api, version: int, values: Mapping[str, Any]) -> asyncio.Future[Any | None]:
        future: asyncio.Future[Any | None] = self._loop.create_future()
        if self.is_closed or len(self._in_flight) >= IN_FLIGHT_MAX:
            future.set_result(None)
            return future
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        head = _REQUEST_HEAD.pack(api.key, version, self._correlation_id) + self._client_id
        if version >= api.first_flexible:
            head += b"\x00"
        body = encode_request(api.name, version, values)
        self._output += struct.pack(">i", len(head) + len(body)) + head + body
        self._in_flight.append((self._correlation_id, api, version, future))
        self._flush()
        return future

    def close(self, reason: str) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        self._loop.remove_reader(self._sock.fileno())
        self._loop.remove_writer(self._sock.fileno())
        self._sock.close()
        _log.debug("connection to %s ended: %s", self.address, reason)
        while self._in_flight:
            future = self._in_flight.popleft()[3]
            if not future.done():
                future.set_result(None)

    def _on_secure_readable(self, sock: PeerSocket) -> None:
        self._on_readable()
        # No event of the socket announces bytes that are decrypted already.
        while not self.is_closed and sock.pending():
            self._on_readable()

    def _on_readable(self) -> None:
        try:
            if self._buffer.receive(self._sock) == 0:
                self.close("closed by the peer")
                return
            while not self.is_closed and (frame := self._buffer.next_frame()) is not None:
                self._handle_answer(*frame)
        except BlockingIOError:
            return
        except (OSError, WireError) as failure:
            self.close(repr(failure))
        except Exception as error:  # noqa: BLE001 - reported
            self.close(repr(error))
            peer_failures.report(error, address_text(*self.address), "an answer of a broker")

    def _handle_answer(self, position: int, end: int) -> None:
        view = self._buffer.view
        if end - position < _CORRELATION_ID.size:
            raise WireError(f"an answer of {end - position} bytes")
        (correlation_id,) = _CORRELATION_ID.unpack_from(view, position)
        if not self._in_flight or self._in_flight[0][0] != correlation_id:
            raise WireError(f"answer {correlation_id} to nothing that was asked")
        _, api, version, future = self._in_flight[0]
        # In flexible versions the header ends with an empty section of tagged fields.
        body = position + _CORRELATION_ID.size + (1 if version >= api.first_flexible else 0)
        answer = read_response(api.name, version, view[body:end])
        self._in_flight.popleft()
        if not future.done():
            future.set_result(answer)
        if self._is_retired and not self._in_flight:
            self.close("its session ends")

    def _flush(self) -> None:
        try:
            sent = self._sock.send(self._output)
            del self._output[:sent]
        except BlockingIOError:
            pass
        except OSError as failure:
            self.close(repr(failure))
            return
        if self._output:
            self._loop.add_writer(self._sock.fileno(), self._flush)
        else:
            self._loop.remove_writer(self._sock.fileno())
