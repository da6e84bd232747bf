"""The client's end of a connection."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import cast

import grpc

from kvorum.runtime.http2 import frames, headers
from kvorum.runtime.http2.connection import Http2Connection
from kvorum.runtime.http2.frames import ProtocolError
from kvorum.runtime.http2.keepalive import USUAL_PATIENCE, Patience
from kvorum.runtime.http2.status import StreamEnded, not_grpc
from kvorum.runtime.http2.stream import Stream

STREAM_ID_MAX = (1 << 31) - 1_001
"""Above this stream id a connection accepts no more calls, and the channel opens another."""
WAITING_CALLS_MAX = 10_000
"""Limit of calls that wait because the server accepts no more at once; others are refused."""


class ClientConnection(Http2Connection):
    """The connection of a channel.

    ready: done when the server's settings have arrived, or the connection is lost earlier.
    """

    def __init__(
        self, open_connections: set[ClientConnection], patience: Patience = USUAL_PATIENCE
    ) -> None:
        super().__init__(patience)
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._open_connections = open_connections
        self._next_id = 1
        self._waiting: deque[asyncio.Future[None]] = deque()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).write(frames.PREFACE)
        super().connection_made(transport)
        self._keepalive.start()
        self._open_connections.add(self)

    def on_ready(self) -> None:
        if not self.ready.done():
            self.ready.set_result(None)

    def on_lost(self) -> None:
        self._open_connections.discard(self)
        self.on_ready()
        while self._waiting:
            self._admit()

    def on_headers(self, stream_id: int, headers: dict[str, str], *, ends_stream: bool) -> None:
        stream = self.streams.get(stream_id)
        if stream is None:
            return  # the stream was given up meanwhile
        if not stream.headers:
            if headers.get(":status", "").startswith("1") and not ends_stream:
                return  # an interim response; the final one follows
            stream.headers = headers
            is_grpc = _is_grpc(headers)
            if not is_grpc and "grpc-status" not in headers:
                stream.reset(*not_grpc(headers))
                return
        elif not ends_stream:
            raise ProtocolError("headers in the middle of a stream")
        if ends_stream:
            self._on_answered(stream, headers)

    def _on_answered(self, stream: Stream, trailers: dict[str, str]) -> None:
        # The server has sent the status of the call, so nothing that is still unsent matters.
        stream.trailers = trailers
        if not stream.is_local_done:
            self.send(frames.rst_stream(stream.id, frames.NO_ERROR))
        stream.on_remote_done()
        stream.note_local_done()

    def on_bad_message(self, stream: Stream, code: grpc.StatusCode, details: str) -> None:
        stream.reset(code, details)

    def on_goaway(self, last_stream_id: int, code: int, reason: str) -> None:
        self.is_closing = True
        for stream in list(self.streams.values()):
            if stream.id > last_stream_id:
                what = f"the server goes away (HTTP/2 error {code} {reason})"
                stream.fail(grpc.StatusCode.UNAVAILABLE, what)
        self._close_if_over()

    def forget(self, stream: Stream) -> None:
        if self.streams.pop(stream.id, None) is None:
            return
        if self._waiting:
            self._admit()
        if self.is_closing:
            self._close_if_over()

    def begin(self) -> Stream:
        """A stream for a call; its request headers must be sent before another stream begins."""
        stream = self.open_stream(self._next_id)
        self._next_id += 2
        if self._next_id > STREAM_ID_MAX:
            self.is_closing = True
        return stream

    async def admission(self) -> None:
        """Wait until the server accepts one more call. Raises StreamEnded."""
        while len(self.streams) >= self.streams_max and not self.is_closing:
            if len(self._waiting) >= WAITING_CALLS_MAX:
                text = f"{len(self.streams)} calls are under way, {len(self._waiting)} wait"
                raise StreamEnded(grpc.StatusCode.RESOURCE_EXHAUSTED, text)
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._admit()  # pass the place on to another call
                raise
        if self.is_closing:
            text = self.reason or "the server goes away"
            raise StreamEnded(grpc.StatusCode.UNAVAILABLE, text)

    def _on_settings(self, values: dict[int, int]) -> None:
        super()._on_settings(values)
        for _ in range(len(self._waiting)):
            self._admit()

    def _admit(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    def _close_if_over(self) -> None:
        while self._waiting:
            self._admit()
        if not self.streams:
            self.close("its last call has ended")


def _is_grpc(answer: dict[str, str]) -> bool:
    return answer.get(":status") == "200" and headers.is_grpc(answer.get("content-type", ""))
