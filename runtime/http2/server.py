"""The serving end: connections in, one task a call, answers and statuses out."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from runtime.errors import WireError
from runtime.http2 import frames, headers
from runtime.http2.connection import STREAMS_MAX, Connection
from runtime.http2.frames import ProtocolError
from runtime.http2.stream import Stream, StreamEnded

logger = logging.getLogger("kvorum.rpc")

PREFACE_TIMEOUT_MS = 5_000
"""A connection that has not said by then that it speaks HTTP/2 is closed."""

BACKLOG = 4_096
"""Connections that may wait to be accepted: all brokers come at once to a new leader."""

_HEAD = headers.encode(((":status", "200"), ("content-type", "application/grpc")))
_OK = headers.encode((("grpc-status", "0"),))


class Aborted(Exception):
    """A handler ends its call with a status."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details)
        self.code = code
        self.details = details


class Context:
    """A call as its handler sees it."""

    def __init__(self, stream: Stream, connection: Connection, handler: Any) -> None:
        self._stream = stream
        self._connection = connection
        self._parse: Callable[[bytes], Any] = handler.request_deserializer or bytes
        self._serialize: Callable[[Any], bytes] = handler.response_serializer or bytes
        self._has_head = False

    async def read(self) -> Any:
        """The caller's next message, `grpc.aio.EOF` behind the last. Raises DecodeError."""
        message = await self._stream.read()
        return grpc.aio.EOF if message is None else self._parse(message)

    async def write(self, message: Any) -> None:
        """Send one message; one at a time. Raises UsageError if the call has ended."""
        try:
            self.send_head()
            await self._stream.write(self._serialize(message))
        except StreamEnded as error:
            raise grpc.aio.UsageError(f"the call has ended: {error}") from None

    async def abort(self, code: grpc.StatusCode, details: str = "") -> None:
        """End the call with a status; does not return."""
        raise Aborted(code, details)

    async def requests(self) -> AsyncIterator[Any]:
        """The caller's messages."""
        while (message := await self.read()) is not grpc.aio.EOF:
            yield message

    def send_head(self) -> None:
        """Send the headers of the answer if they have not been."""
        if not self._has_head:
            self._has_head = True
            self._connection.send(self._head())

    def finish(self, message: Any) -> bytes | None:
        """Send the only answer and its status in one; or return it if it takes more frames."""
        body: bytes = self._serialize(message)
        stream = self._stream
        size = len(body) + frames.MESSAGE_HEAD_BYTES
        if size > stream.room() or stream.failure is not None:
            return body
        stream.send_window -= size
        self._connection.send_window -= size
        self._has_head = True
        stream.end(
            self._head()
            + frames.message_frame(stream.id, body, ends_stream=False)
            + self._last(_OK)
        )
        return None

    def end(self, code: grpc.StatusCode, details: str = "") -> None:
        """Send the call's status, which is its end."""
        stream = self._stream
        if stream.is_local_done or stream.failure is not None:
            return
        if code is grpc.StatusCode.OK:
            self.send_head()
            block = _OK
        else:
            status = (("grpc-status", str(code.value[0])),)
            text = (("grpc-message", headers.encode_message(details)),)
            block = (b"" if self._has_head else _HEAD) + headers.encode(status + text)
        stream.end(self._last(block))
        if not stream.is_remote_done:
            # The caller may go on writing; nobody reads it any more.
            stream.reset(grpc.StatusCode.CANCELLED, "the call has ended", frames.NO_ERROR)

    def _head(self) -> bytes:
        return frames.frame(frames.HEADERS, frames.END_HEADERS, self._stream.id, _HEAD)

    def _last(self, block: bytes) -> bytes:
        flags = frames.END_HEADERS | frames.END_STREAM
        return frames.frame(frames.HEADERS, flags, self._stream.id, block)


class ServerConnection(Connection):
    """A caller."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        self._server = server
        self._preface: bytearray | None = bytearray()
        self._last_id = 0
        self._preface_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._server.connections.add(self)
        self._preface_timer = asyncio.get_running_loop().call_later(
            PREFACE_TIMEOUT_MS / 1000, self._on_no_preface
        )

    def data_received(self, data: bytes) -> None:
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
            super().data_received(rest)

    def _on_no_preface(self) -> None:
        if self._preface is not None and not self.is_closing:
            began = bytes(self._preface[:24])
            logger.warning("%s does not speak gRPC (began with %r): closed", self.peer, began)
            self.close()

    def refuse(self, error: ProtocolError) -> None:
        logger.warning("%s broke HTTP/2: %s: closed", self.peer, error)
        self.send(frames.goaway(self._last_id, error.code, str(error)))
        self.close()

    def on_lost(self, reason: str) -> None:
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
            return  # of a stream that has ended here
        self._last_id = stream_id
        if self.is_closing or len(self.streams) >= STREAMS_MAX:
            self.send(frames.rst_stream(stream_id, frames.REFUSED_STREAM))
            return
        stream = self.open_stream(stream_id)
        if ends_stream:
            stream.on_remote_done()
        self._server.on_call(self, stream, headers)

    def on_bad_message(self, stream: Stream, code: grpc.StatusCode, details: str) -> None:
        self._server.refuse_call(self, stream, code, details)


class Server:
    """Calls by path, to handlers as generated code registers them.

    connections: those that are open now.
    """

    def __init__(self) -> None:
        self.connections: set[ServerConnection] = set()
        self._handlers: dict[str, Any] = {}
        self._server: asyncio.Server | None = None
        self._calls: set[asyncio.Task[None]] = set()
        self._conversations: set[asyncio.Task[None]] = set()

    def add_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        """Serve methods under `/service/name`."""
        for name, handler in handlers.items():
            if handler.stream_unary is not None:
                raise NotImplementedError(f"{service}/{name}: many requests with one answer")
            self._handlers[f"/{service}/{name}"] = handler

    async def listen(self, host: str, port: int) -> None:
        """Begin to serve. Raises OSError."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: ServerConnection(self),
            host,
            port,
            backlog=BACKLOG,
            reuse_address=True,
            reuse_port=False,
        )

    async def stop(self, grace_s: float) -> None:
        """Take no more calls, end the conversations, give other calls grace_s, then cut them."""
        if self._server is not None:
            self._server.close()
        for connection in list(self.connections):
            connection.is_closing = True
            connection.send(frames.goaway(frames.WINDOW_MAX, frames.NO_ERROR))
        for call in self._conversations:
            call.cancel()
        if self._calls:
            await asyncio.wait(self._calls, timeout=grace_s)
        for call in self._calls:
            call.cancel()
        if self._calls:
            await asyncio.wait(self._calls)
        for connection in list(self.connections):
            connection.close()

    # What connections tell.

    def on_call(
        self, connection: ServerConnection, stream: Stream, request: dict[str, str]
    ) -> None:
        """A call has begun."""
        path = request.get(":path", "")
        handler = self._handlers.get(path)
        is_grpc = request.get("content-type", "").startswith("application/grpc")
        if handler is None or not is_grpc or request.get(":method") != "POST":
            what = f"Method {path} is not served here" if is_grpc else "this is no gRPC call"
            self.refuse_call(connection, stream, grpc.StatusCode.UNIMPLEMENTED, what)
            return
        context = Context(stream, connection, handler)
        call = asyncio.get_running_loop().create_task(self._run(path, handler, context, stream))
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        if handler.stream_stream is not None:
            self._conversations.add(call)
            call.add_done_callback(self._conversations.discard)
        stream.on_failed = call.cancel
        timeout = request.get("grpc-timeout")
        if timeout is not None:
            timer = asyncio.get_running_loop().call_later(
                headers.parse_timeout(timeout) / 1000, _on_deadline, context, stream
            )
            call.add_done_callback(lambda _: timer.cancel())

    def refuse_call(
        self, connection: Connection, stream: Stream, code: grpc.StatusCode, details: str
    ) -> None:
        """End a call that no handler will see to its end."""
        if stream.on_failed is not None:
            stream.on_failed()
        status = (("grpc-status", str(code.value[0])),)
        text = (("grpc-message", headers.encode_message(details)),)
        block = _HEAD + headers.encode(status + text)
        flags = frames.END_HEADERS | frames.END_STREAM
        if not stream.is_local_done:
            stream.end(frames.frame(frames.HEADERS, flags, stream.id, block))
            connection.forget(stream)

    async def _run(self, path: str, handler: Any, context: Context, stream: Stream) -> None:
        try:
            await _carry_out(handler, context, stream)
            context.end(grpc.StatusCode.OK)
        except Aborted as error:
            context.end(error.code, error.details)
        except (DecodeError, WireError) as error:
            context.end(grpc.StatusCode.INVALID_ARGUMENT, f"{path[1:]}: {error}")
        except asyncio.CancelledError:
            # The caller hung up, its time is over, or the server stops.
            context.end(grpc.StatusCode.UNAVAILABLE, "the server is stopping")
        except StreamEnded:
            return  # there is nobody to tell
        except Exception:
            logger.exception("%s failed", path)
            context.end(grpc.StatusCode.UNKNOWN, f"{path} failed")


async def _carry_out(handler: Any, context: Context, stream: Stream) -> None:
    if handler.stream_stream is not None:
        call: Callable[..., Any] = handler.stream_stream
        if inspect.isasyncgenfunction(call):
            async for reply in call(context.requests(), context):
                await context.write(reply)
        else:
            await call(context.requests(), context)
        return
    request = await context.read()
    if request is grpc.aio.EOF:
        raise Aborted(grpc.StatusCode.INTERNAL, "a call without a request")
    if handler.unary_stream is not None:
        async for reply in handler.unary_stream(request, context):
            await context.write(reply)
        return
    body = context.finish(await handler.unary_unary(request, context))
    if body is not None:
        context.send_head()
        await stream.write(body)


def _on_deadline(context: Context, stream: Stream) -> None:
    context.end(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")
    if stream.on_failed is not None:
        stream.on_failed()
