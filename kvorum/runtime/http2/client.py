"""The client: a channel to one address, with the interface that generated stubs expect.

As far as Kvorum uses them, calls behave like those of grpc.aio. Failures are
`grpc.aio.AioRpcError`, the end of a stream is `grpc.aio.EOF`, and a channel connects when first
used and again when needed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import grpc.aio

from kvorum.runtime import tracing
from kvorum.runtime.certificates import TlsCaller
from kvorum.runtime.http2 import frames, headers
from kvorum.runtime.http2.calls import StreamCall
from kvorum.runtime.http2.client_connection import ClientConnection
from kvorum.runtime.http2.keepalive import USUAL_PATIENCE, Patience
from kvorum.runtime.http2.status import StreamEnded, parsed, rpc_error, unsent
from kvorum.runtime.http2.stream import Stream
from kvorum.runtime.http2.tls import TlsLayer
from kvorum.runtime.sockets import connect_tcp
from kvorum.runtime.tls import failure_text

RECONNECT_BACKOFF_MIN_MS = 20
RECONNECT_BACKOFF_MAX_MS = 200

Serialize = Callable[[Any], bytes]
Parse = Callable[[bytes], Any]


class Channel:
    """Calls to the server at `host:port`. connections: all open ones, closing ones included.

    tls: None for clear text. Its context is taken anew for each connection.
    """

    def __init__(
        self, address: str, patience: Patience = USUAL_PATIENCE, tls: TlsCaller | None = None
    ) -> None:
        self._patience = patience
        self._tls = tls
        host, _, port = address.rpartition(":")
        self.connections: set[ClientConnection] = set()
        self._host, self._port = host.strip("[]"), port
        self._authority = address
        self._connection: ClientConnection | None = None
        self._connecting: asyncio.Task[ClientConnection] | None = None
        self._backoff_ms = 0
        self._retry_at = 0.0
        self._failure = ""
        self._is_closed = False
        self._heads: dict[str, bytes] = {}

    # Methods that generated stubs call.

    def unary_unary(
        self,
        method: str,
        request_serializer: Serialize = bytes,
        response_deserializer: Parse = bytes,
        **_: Any,
    ) -> Callable[..., Any]:
        """A call with one request and one response."""

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
        """A call with one request and many responses, to iterate over."""

        async def call(request: Any, timeout: float | None = None) -> AsyncIterator[Any]:
            stream = StreamCall(
                self.begin, method, request_serializer, response_deserializer, timeout
            )
            try:
                try:
                    await stream.write(request)
                    await stream.done_writing()
                except grpc.aio.AioRpcError:
                    if not stream.is_answered:
                        raise
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
        """A call with many requests and many responses."""

        def call(timeout: float | None = None) -> StreamCall:
            return StreamCall(
                self.begin, method, request_serializer, response_deserializer, timeout
            )

        return call

    def stream_unary(self, method: str, *_: Any, **__: Any) -> Callable[..., Any]:
        """Not supported. Only the call raises, so that a stub with such a method can be created."""

        def call(*_: Any, **__: Any) -> Any:
            raise NotImplementedError(f"{method}: streams of requests with one answer")

        return call

    async def close(self) -> None:
        """End all calls; the channel cannot be used again."""
        self._is_closed = True
        if self._connecting is not None:
            self._connecting.cancel()
        for connection in list(self.connections):
            connection.close("the channel was closed")
            connection.fail_streams()

    # Helpers.

    async def begin(self, method: str, timeout_ms: float | None) -> tuple[Stream, bytes]:
        """A new stream, and its request headers, which must be sent before any other stream begins.

        Raises Unsent.
        """
        connection = self._connection
        if connection is None or connection.is_closing:
            connection = await self._connected()
        if len(connection.streams) >= connection.streams_max or connection.is_closing:
            try:
                await connection.admission()
            except StreamEnded as error:
                raise unsent(error.code, error.details) from None
        stream = connection.begin()
        block = self._head(method)
        if timeout_ms is not None:
            block += headers.encode((("grpc-timeout", headers.encode_timeout(timeout_ms)),))
        traceparent = tracing.present()
        if traceparent:
            block += headers.encode(((tracing.HEADER, traceparent),))
        return stream, frames.frame(frames.HEADERS, frames.END_HEADERS, stream.id, block)

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
        stream, head = await self.begin(method, timeout_ms)
        try:
            if not stream.try_finish(head, body):
                await _send_large(stream, head, body)
            answer = await stream.read()
            if answer is not None and await stream.read() is not None:
                raise StreamEnded(grpc.StatusCode.INTERNAL, f"{method}: more than one answer")
            stream.check_status()
        except StreamEnded as error:
            raise rpc_error(error.code, error.details) from None
        finally:
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
                    (":scheme", "http" if self._tls is None else "https"),
                    (":path", method),
                    (":authority", self._authority),
                    ("te", "trailers"),
                    ("content-type", headers.GRPC),
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
                raise unsent(grpc.StatusCode.UNAVAILABLE, self._failure)
            self._connecting = loop.create_task(self._connect(), name=f"to-{self._authority}")
            self._connecting.add_done_callback(self._on_connected)
        connecting = self._connecting
        # Not `shield`: closing the channel cancels the task but must not cancel its waiters.
        await asyncio.wait((connecting,))
        if connecting.cancelled():
            raise unsent(grpc.StatusCode.UNAVAILABLE, "the channel was closed")
        if connecting.exception() is not None:
            raise unsent(grpc.StatusCode.UNAVAILABLE, self._failure)
        return connecting.result()

    async def _connect(self) -> ClientConnection:
        loop = asyncio.get_running_loop()
        connection = ClientConnection(self.connections, self._patience)
        try:
            async with asyncio.timeout(self._patience.connect_ms / 1000):
                await self._open(loop, connection)
                await connection.ready
            if connection.is_closing:
                raise ConnectionError(connection.reason or "the server goes away")
        except BaseException as error:
            connection.abort("it was given up while it was made")
            self._backoff_ms = min(
                max(self._backoff_ms * 2, RECONNECT_BACKOFF_MIN_MS), RECONNECT_BACKOFF_MAX_MS
            )
            self._retry_at = loop.time() + self._backoff_ms / 1000
            what = f"nothing answered within {self._patience.connect_ms} ms"
            if str(error):
                what = failure_text(error)
            self._failure = f"failed to connect to {self._authority}: {what}"
            raise
        self._backoff_ms = 0
        self._connection = connection
        return connection

    async def _open(self, loop: asyncio.AbstractEventLoop, connection: ClientConnection) -> None:
        address = (self._host, int(self._port))
        sock = await connect_tcp(loop, address, self._patience.connect_ms)
        protocol: asyncio.Protocol = connection
        if self._tls is not None:
            protocol = TlsLayer(connection, self._tls.context, server_name=self._host)
        try:
            await loop.create_connection(lambda: protocol, sock=sock)
        except BaseException:
            sock.close()
            raise

    def _on_connected(self, task: asyncio.Task[ClientConnection]) -> None:
        self._connecting = None
        if not task.cancelled():
            task.exception()  # mark the error as seen: the waiters have it, if there are any


async def _send_large(stream: Stream, head: bytes, body: bytes) -> None:
    """Send a request that does not fit into one frame now. Raises StreamEnded."""
    stream.send(head)
    try:
        await stream.write(body)
        stream.end(frames.frame(frames.DATA, frames.END_STREAM, stream.id))
    except StreamEnded:
        if not stream.is_remote_done:
            raise  # else the server has answered early, which ends the call
