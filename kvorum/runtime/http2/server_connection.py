"""The server's end of a connection."""

from __future__ import annotations

import asyncio
from typing import Protocol

import grpc

from kvorum.runtime.clock import monotonic_ms
from kvorum.runtime.errors import WireError
from kvorum.runtime.http2 import frames
from kvorum.runtime.http2.connection import STREAMS_MAX, Http2Connection
from kvorum.runtime.http2.floods import REFUSALS_PER_SECOND_MAX, Flood
from kvorum.runtime.http2.frames import ProtocolError
from kvorum.runtime.http2.keepalive import SERVER_FACTOR, USUAL_PATIENCE, Patience
from kvorum.runtime.http2.stream import Stream
from kvorum.runtime.http2.tls import UNKNOWN, caller_of
from kvorum.runtime.principals import PrincipalRules

PREFACE_TIMEOUT_MS = 5_000
"""A connection that has not sent the HTTP/2 preface within this time is closed."""


class CallServer(Protocol):
    """The parts of `server.Server` that a connection uses."""

    connections: set[ServerConnection]
    is_stopping: bool

    def on_call(
        self, connection: ServerConnection, stream: Stream, request: dict[str, str]
    ) -> bool: ...

    def refuse_call(self, stream: Stream, code: grpc.StatusCode, details: str) -> None: ...

    def on_bad_peer(self, peer: str, reason: str) -> None: ...

    def on_unmapped_caller(self, peer: str, reason: str) -> None: ...


class ServerConnection(Http2Connection):
    """The connection of one caller.

    calls: number of its handlers that have not ended, also of streams that the caller gave up.
    caller: who is at the other end.
    """

    def __init__(
        self,
        server: CallServer,
        patience: Patience = USUAL_PATIENCE,
        rules: PrincipalRules | None = None,
    ) -> None:
        """rules: from a caller's certificate to its user; None without TLS."""
        super().__init__(patience)
        self.caller = UNKNOWN
        self._rules = rules
        self._keepalive.factor = SERVER_FACTOR
        self.calls = 0
        self._refused = Flood(REFUSALS_PER_SECOND_MAX, "refused calls")
        self._server = server
        self._preface: bytearray | None = bytearray()
        self._last_id = 0
        self._preface_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self._server.is_stopping:
            self.abort("the server is stopping")
            return
        try:
            self.caller = caller_of(transport, self._rules)
        except WireError as error:
            self._server.on_unmapped_caller(self.peer, str(error))
            self.abort(str(error))
            return
        self._server.connections.add(self)
        self._preface_timer = asyncio.get_running_loop().call_later(
            PREFACE_TIMEOUT_MS / 1000, self._on_no_preface
        )

    def data_received(self, data: bytes) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return  # a caller that was refused may have sent calls behind its handshake
        if self._preface is None:
            super().data_received(data)
            return
        self._preface += data
        if not frames.PREFACE.startswith(self._preface[: len(frames.PREFACE)]):
            self._on_no_preface()
        elif len(self._preface) >= len(frames.PREFACE):
            rest = bytes(self._preface[len(frames.PREFACE) :])
            self._preface = None
            if self._preface_timer is not None:
                self._preface_timer.cancel()
            self._keepalive.start()
            super().data_received(rest)

    def _on_no_preface(self) -> None:
        if self._preface is not None and not self.is_closing:
            began = bytes(self._preface[:24])
            what = (
                "speaks TLS, which is off here" if frames.is_tls(began) else "does not speak gRPC"
            )
            self._server.on_bad_peer(self.peer, f"it {what} (began with {began!r})")
            self.close("it does not speak gRPC")

    def wind_up(self) -> None:
        """Accept no more calls."""
        self.is_closing = True
        self.send(frames.goaway(frames.WINDOW_MAX, frames.NO_ERROR))

    def refuse(self, error: ProtocolError) -> None:
        self._server.on_bad_peer(self.peer, f"it broke HTTP/2: {error}")
        self.send(frames.goaway(self._last_id, error.code, str(error)))
        self.close(f"the peer broke HTTP/2: {error}")

    def on_lost(self) -> None:
        if self._preface_timer is not None:
            self._preface_timer.cancel()
        self._server.connections.discard(self)

    def on_headers(self, stream_id: int, headers: dict[str, str], *, ends_stream: bool) -> None:
        stream = self.streams.get(stream_id)
        if stream is not None:
            if not ends_stream:
                raise ProtocolError("headers in the middle of a stream")
            stream.on_remote_done()
            return
        if stream_id <= self._last_id or stream_id % 2 == 0:
            if stream_id % 2 == 0:
                raise ProtocolError(f"stream {stream_id} is not a client's to open")
            return  # a late frame of a stream that has ended
        self._last_id = stream_id
        if self.is_closing or self.calls >= STREAMS_MAX:
            self.send(frames.rst_stream(stream_id, frames.REFUSED_STREAM))
            return
        stream = self.open_stream(stream_id)
        stream.headers = headers
        if ends_stream:
            stream.on_remote_done()
        if not self._server.on_call(self, stream, headers):
            self._refused.count(monotonic_ms())

    def on_bad_message(self, stream: Stream, code: grpc.StatusCode, details: str) -> None:
        self._server.refuse_call(stream, code, details)
