"""The calling end: a channel to one address, with the shape that generated stubs expect.

As far as Kvorum uses them, calls behave as those of grpc.aio: failures are `grpc.aio.AioRpcError`,
a stream's end is `grpc.aio.EOF`, a channel connects when first used and again when it must.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import grpc
import grpc.aio

from runtime.http2 import frames, headers
from runtime.http2.connection import Connection
from runtime.http2.frames import ProtocolError
from runtime.http2.stream import Stream, StreamEnded

CONNECT_TIMEOUT_MS = 1_000
"""An attempt that hangs (a black hole) is given up after this."""
RECONNECT_BACKOFF_MIN_MS = 20
RECONNECT_BACKOFF_MAX_MS = 200
STREAM_ID_MAX = (1 << 31) - 1_001
"""A connection with so high a stream id takes no more calls; the channel opens another."""

_STATUS = {status.value[0]: status for status in grpc.StatusCode}
_STATUS_OF_HTTP = {
    "401": grpc.StatusCode.UNAUTHENTICATED,
    "403": grpc.StatusCode.PERMISSION_DENIED,
    "404": grpc.StatusCode.UNIMPLEMENTED,
    **dict.fromkeys(("429", "502", "503", "504"), grpc.StatusCode.UNAVAILABLE),
}

Serialize = Callable[[Any], bytes]
Parse = Callable[[bytes], Any]


def rpc_error(code: grpc.StatusCode, details: str) -> grpc.aio.AioRpcError:
    """The error that a failed call raises."""
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details)


class ClientConnection(Connection):
    """ready: done when the server's settings came, or the connection was lost before."""

    def __init__(self) -> None:
        super().__init__()
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._next_id = 1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).write(frames.PREFACE)
        super().connection_made(transport)

    def on_ready(self) -> None:
        if not self.ready.done():
            self.ready.set_result(None)

    def on_lost(self, reason: str) -> None:
        if not self.ready.done():
            self.ready.set_exception(ConnectionError(reason))

    def on_headers(self, stream_id: int, headers: dict[str, str], *, ends_stream: bool) -> None:
        stream = self.streams.get(stream_id)
        if stream is None:
            return  # given up meanwhile
        if not stream.headers:
            stream.headers = headers
        if ends_stream:
            stream.trailers = headers
            stream.on_remote_done()
            # The server has said how the call ended: nothing that might still be sent matters.
            stream.note_local_done()

    def on_bad_message(self, stream: Stream, code: grpc.StatusCode, details: str) -> None:
        stream.reset(code, details)

    def begin(self) -> Stream:
        """A stream for a call; its request headers must be sent before another begins."""
        stream = self.open_stream(self._next_id)
        self._next_id += 2
        if self._next_id > STREAM_ID_MAX:
            self.is_closing = True
        return stream


class Channel:
    """Calls to the server at `host:port`."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._host, self._port = host.strip("[]"), port
        self._authority = address
        self._connection: ClientConnection | None = None
        self._connecting: asyncio.Task[ClientConnection] | None = None
        self._backoff_ms = 0
        self._retry_at = 0.0
        self._failure = ""
        self._is_closed = False
        self._heads: dict[str, bytes] = {}

    # What generated stubs ask of a channel.

    def unary_unary(
        self,
        method: str,
        request_serializer: Serialize = bytes,
        response_deserializer: Parse = bytes,
        **_: Any,
    ) -> Callable[..., Any]:
        """A call of one request and one answer."""

        async def call(request: Any, timeout: float | None = None) -> Any:
            return await self._ask(
                method, request_serializer(request), response_deserializer, timeout
            )

        return call

    def unary_stream(
        self,
        method: str,
        request_serializer: Serialize = bytes,
        response_deserializer: Parse = bytes,
        **_: Any,
    ) -> Callable[..., Any]:
        """A call of one request and many answers, to iterate over."""

        async def call(request: Any, timeout: float | None = None) -> AsyncIterator[Any]:
            stream = StreamCall(self, method, request_serializer, response_deserializer, timeout)
            try:
                await stream.write(request)
                await stream.done_writing()
                while (message := await stream.read()) is not grpc.aio.EOF:
                    yield message
            finally:
                stream.cancel()

        return call

    def stream_stream(
        self,
        method: str,
        request_serializer: Serialize = bytes,
        response_deserializer: Parse = bytes,
        **_: Any,
    ) -> Callable[..., StreamCall]:
        """A conversation."""

        def call(timeout: float | None = None) -> StreamCall:
            return StreamCall(self, method, request_serializer, response_deserializer, timeout)

        return call

    def stream_unary(self, method: str, *_: Any, **__: Any) -> Callable[..., Any]:
        """Not served; loud when called, so that a stub which has one can still be made."""

        def call(*_: Any, **__: Any) -> Any:
            raise NotImplementedError(f"{method}: streams of requests with one answer")

        return call

    async def close(self) -> None:
        """End all calls; for good."""
        self._is_closed = True
        if self._connecting is not None:
            self._connecting.cancel()
        if self._connection is not None:
            self._connection.close()

    # Inside.

    async def begin(self, method: str, timeout_ms: float | None, first: bytes | None) -> Stream:
        """A stream whose request headers are sent; `first`: its one request, if it is unary.

        Raises AioRpcError.
        """
        connection = self._connection
        if connection is None or connection.is_closing:
            connection = await self._connected()
        stream = connection.begin()
        block = self._head(method)
        if timeout_ms is not None:
            block += headers.encode((("grpc-timeout", headers.encode_timeout(timeout_ms)),))
        head = frames.frame(frames.HEADERS, frames.END_HEADERS, stream.id, block)
        if first is None:
            connection.send(head)
        elif len(first) + frames.MESSAGE_HEAD_BYTES <= stream.room():
            size = len(first) + frames.MESSAGE_HEAD_BYTES
            stream.send_window -= size
            connection.send_window -= size
            stream.end(head + frames.message_frame(stream.id, first, ends_stream=True))
        else:
            connection.send(head)
            await stream.write(first)
            stream.end(frames.frame(frames.DATA, frames.END_STREAM, stream.id))
        return stream

    async def _ask(self, method: str, body: bytes, parse: Parse, timeout_s: float | None) -> Any:
        if timeout_s is None:
            return await self._exchange(method, body, parse, None)
        try:
            async with asyncio.timeout(timeout_s):
                return await self._exchange(method, body, parse, timeout_s * 1000)
        except TimeoutError:
            raise rpc_error(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded") from None

    async def _exchange(
        self, method: str, body: bytes, parse: Parse, timeout_ms: float | None
    ) -> Any:
        stream: Stream | None = None
        try:
            stream = await self.begin(method, timeout_ms, body)
            answer = await stream.read()
            if answer is not None:
                await stream.read()  # its end, with the status
            check_status(stream)
        except StreamEnded as error:
            raise rpc_error(error.code, error.details) from None
        finally:
            if stream is not None:
                stream.reset(grpc.StatusCode.CANCELLED, "given up by the caller")
        if answer is None:
            raise rpc_error(grpc.StatusCode.INTERNAL, f"{method}: an answer without a message")
        return parsed(parse, answer, method)

    def _head(self, method: str) -> bytes:
        block = self._heads.get(method)
        if block is None:
            block = self._heads[method] = headers.encode(
                (
                    (":method", "POST"),
                    (":scheme", "http"),
                    (":path", method),
                    (":authority", self._authority),
                    ("te", "trailers"),
                    ("content-type", "application/grpc"),
                    ("user-agent", "kvorum"),
                )
            )
        return block

    async def _connected(self) -> ClientConnection:
        if self._is_closed:
            raise grpc.aio.UsageError("Channel is closed.")
        if self._connecting is None:
            loop = asyncio.get_running_loop()
            if loop.time() < self._retry_at:
                raise rpc_error(grpc.StatusCode.UNAVAILABLE, self._failure)
            self._connecting = loop.create_task(self._connect(), name=f"to-{self._authority}")
            self._connecting.add_done_callback(self._on_connected)
        try:
            return await asyncio.shield(self._connecting)
        except (OSError, TimeoutError, ProtocolError):
            raise rpc_error(grpc.StatusCode.UNAVAILABLE, self._failure) from None

    async def _connect(self) -> ClientConnection:
        loop = asyncio.get_running_loop()
        connection: ClientConnection | None = None
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_MS / 1000):
                _, connection = await loop.create_connection(
                    ClientConnection, self._host, int(self._port)
                )
                await connection.ready
        except BaseException as error:
            if connection is not None:
                connection.abort()
            self._backoff_ms = min(
                max(self._backoff_ms * 2, RECONNECT_BACKOFF_MIN_MS), RECONNECT_BACKOFF_MAX_MS
            )
            self._retry_at = loop.time() + self._backoff_ms / 1000
            what = str(error) or f"nothing answered within {CONNECT_TIMEOUT_MS} ms"
            self._failure = f"failed to connect to {self._authority}: {what}"
            raise
        self._backoff_ms = 0
        self._connection = connection
        return connection

    def _on_connected(self, task: asyncio.Task[ClientConnection]) -> None:
        self._connecting = None
        if not task.cancelled():
            task.exception()  # those who wait have it; if all left, nobody need hear of it


class StreamCall:
    """A conversation: write and read until one side has had enough."""

    def __init__(
        self,
        channel: Channel,
        method: str,
        serialize: Serialize,
        parse: Parse,
        timeout_s: float | None,
    ) -> None:
        self._channel = channel
        self._method = method
        self._serialize = serialize
        self._parse = parse
        self._timeout_s = timeout_s
        self._stream: Stream | None = None
        self._is_cancelled = False
        self._deadline: asyncio.TimerHandle | None = None

    async def write(self, message: Any) -> None:
        """Send one message. Raises AioRpcError."""
        stream = self._stream or await self._begin()
        try:
            await stream.write(self._serialize(message))
        except StreamEnded as error:
            raise self._error(stream, error) from None

    async def read(self) -> Any:
        """The next message, `grpc.aio.EOF` behind the last. Raises AioRpcError."""
        stream = self._stream or await self._begin()
        try:
            message = await stream.read()
            if message is None:
                check_status(stream)
                return grpc.aio.EOF
        except StreamEnded as error:
            raise rpc_error(error.code, error.details) from None
        return parsed(self._parse, message, self._method)

    async def done_writing(self) -> None:
        """Nothing more will be written."""
        stream = self._stream or await self._begin()
        if not stream.is_local_done and stream.failure is None:
            stream.end(frames.frame(frames.DATA, frames.END_STREAM, stream.id))

    def cancel(self) -> None:
        """End the call at once; whoever waits in it hears CANCELLED."""
        self._is_cancelled = True
        if self._deadline is not None:
            self._deadline.cancel()
        if self._stream is not None:
            self._stream.reset(grpc.StatusCode.CANCELLED, "cancelled by the caller")

    async def _begin(self) -> Stream:
        timeout_s = self._timeout_s
        stream = await self._channel.begin(
            self._method, None if timeout_s is None else timeout_s * 1000, None
        )
        if self._is_cancelled:
            stream.reset(grpc.StatusCode.CANCELLED, "cancelled by the caller")
        elif timeout_s is not None:
            self._deadline = asyncio.get_running_loop().call_later(
                timeout_s, stream.reset, grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded"
            )
        self._stream = stream
        return stream

    def _error(self, stream: Stream, error: StreamEnded) -> grpc.aio.AioRpcError:
        """Of a write: the status that the server gave, if that is why nothing can be sent."""
        if stream.is_remote_done and stream.trailers:
            with contextlib.suppress(StreamEnded):
                check_status(stream)
                return rpc_error(error.code, error.details)
            code, details = status_of(stream.trailers)
            return rpc_error(code, details)
        return rpc_error(error.code, error.details)


def parsed(parse: Parse, message: bytes, method: str) -> Any:
    """The message, or AioRpcError if it is none."""
    try:
        return parse(message)
    except Exception as error:  # protobuf's DecodeError, which this room does not know
        raise rpc_error(
            grpc.StatusCode.INTERNAL, f"what came from {method} is no message: {error}"
        ) from error


def check_status(stream: Stream) -> None:
    """Raise StreamEnded unless the server ended the stream with OK."""
    code, details = status_of(stream.trailers)
    if code is not grpc.StatusCode.OK:
        raise StreamEnded(code, details)


def status_of(trailers: dict[str, str]) -> tuple[grpc.StatusCode, str]:
    """(code, details) that a server's last headers say."""
    text = trailers.get("grpc-status")
    if text is None:
        http = trailers.get(":status", "")
        code = _STATUS_OF_HTTP.get(http, grpc.StatusCode.UNKNOWN)
        return code, f"an answer without a gRPC status (HTTP status {http or 'none'})"
    code = _STATUS.get(int(text) if text.isdigit() else -1, grpc.StatusCode.UNKNOWN)
    return code, headers.parse_message(trailers.get("grpc-message", ""))
