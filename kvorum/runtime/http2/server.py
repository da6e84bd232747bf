"""The server: accepts connections, runs one task for each call, sends responses and statuses."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from kvorum.runtime import tracing
from kvorum.runtime.certificates import TlsListener
from kvorum.runtime.clock import monotonic_ms
from kvorum.runtime.errors import WireError
from kvorum.runtime.http2 import headers
from kvorum.runtime.http2.context import CallAborted, CallContext, end_call
from kvorum.runtime.http2.frames import ProtocolError
from kvorum.runtime.http2.keepalive import USUAL_PATIENCE, Patience
from kvorum.runtime.http2.server_connection import ServerConnection
from kvorum.runtime.http2.status import StreamEnded
from kvorum.runtime.http2.stream import Stream
from kvorum.runtime.http2.tls import Handshakes, TlsLayer
from kvorum.runtime.limited_lines import LimitedLines
from kvorum.runtime.peer_failures import PEER_FAILURES
from kvorum.runtime.protocol_error_log import ProtocolErrorLog

logger = logging.getLogger("kvorum.rpc")

BACKLOG = 4_096
"""Connections that may wait to be accepted: all brokers connect to a new leader at once."""

CUT_TIMEOUT_MS = 1_000
"""How long a stopping server waits for handlers that it has cancelled."""


Guard = Callable[[str, str, str], str | None]
"""Receives the path of a method, and the caller's user and host. Returns the reason of a refusal,
or None."""

MessageGuard = Callable[[str, Any, str, str], str | None]
"""The same for each message of a call; receives the message behind the path."""


class Server:
    """Dispatches calls by path to handlers, as generated code registers them.

    connections: those that are open.
    is_stopping: no new connection is accepted.
    """

    def __init__(
        self,
        patience: Patience = USUAL_PATIENCE,
        tls: TlsListener | None = None,
        guard: Guard | None = None,
        message_guard: MessageGuard | None = None,
    ) -> None:
        """tls: None for clear text. Its ALPN is `tls.ALPN`.
        guard: None lets everybody call.
        message_guard: None lets them send every message.
        """
        self._guard = guard
        self._message_guard = message_guard
        self._patience = patience
        self._tls = tls
        self._closed = LimitedLines(logger, monotonic_ms)
        self._refused = LimitedLines(
            logger, monotonic_ms, ProtocolErrorLog("call refused", "calls refused")
        )
        self._handshakes = Handshakes(patience.connect_ms, self._on_handshake_failed)
        self.connections: set[ServerConnection] = set()
        self.is_stopping = False
        self._handlers: dict[str, Any] = {}
        self._server: asyncio.Server | None = None
        self._calls: set[asyncio.Task[None]] = set()
        self._conversations: dict[asyncio.Task[None], tuple[str, ServerConnection, Stream]] = {}

    def add_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        """Serve these methods as `/service/name`."""
        for name, handler in handlers.items():
            if handler.stream_unary is not None:
                raise NotImplementedError(f"{service}/{name}: many requests with one answer")
            self._handlers[f"/{service}/{name}"] = handler

    async def listen(self, host: str, port: int) -> None:
        """Begin to serve, on every address of the host. Raises OSError."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            self._connection,
            host,
            port,
            backlog=BACKLOG,
            reuse_address=True,
            reuse_port=False,
        )

    async def stop(self, grace_s: float) -> None:
        """Accept no more calls, end the streams, give other calls grace_s, then cancel them."""
        self.is_stopping = True
        if self._server is not None:
            self._server.close()
        self._handshakes.close()
        self._closed.stop()
        self._refused.stop()
        for connection in list(self.connections):
            connection.wind_up()
        for call in self._conversations:
            call.cancel()
        if self._calls:
            await asyncio.wait(self._calls, timeout=grace_s)
        for call in self._calls:
            call.cancel()
        if self._calls:
            _, left = await asyncio.wait(self._calls, timeout=CUT_TIMEOUT_MS / 1000)
            if left:
                logger.warning("%d calls go on although they were cancelled", len(left))
        for connection in list(self.connections):
            connection.close("the server has stopped")

    def _connection(self) -> asyncio.Protocol:
        if self._tls is None:
            return ServerConnection(self, self._patience)
        connection = ServerConnection(self, self._patience, self._tls.rules)
        return TlsLayer(connection, self._tls.context, handshakes=self._handshakes)

    # Callbacks of connections.

    def on_unmapped_caller(self, peer: str, reason: str) -> None:
        """Count and log a caller whose certificate gives no user."""
        PEER_FAILURES.rpc_handshakes += 1
        self.on_bad_peer(peer, reason)

    def on_bad_peer(self, peer: str, reason: str) -> None:
        """Log a peer that breaks the protocol; a few a second, for it may come back at once."""
        self._closed.closed(peer, reason)

    def _on_handshake_failed(self, peer: str, reason: str) -> None:
        PEER_FAILURES.rpc_handshakes += 1
        self._closed.closed(peer, reason, address=peer.rpartition(":")[0])

    def on_call(
        self, connection: ServerConnection, stream: Stream, request: dict[str, str]
    ) -> bool:
        """Start the handler of a new call, or refuse the call and return False."""
        path = request.get(":path", "")
        handler = self._handlers.get(path)
        is_grpc = headers.is_grpc(request.get("content-type", ""))
        if handler is None or not is_grpc or request.get(":method") != "POST":
            what = f"Method {path} is not served here" if is_grpc else "this is no gRPC call"
            self.refuse_call(stream, grpc.StatusCode.UNIMPLEMENTED, what)
            return False
        if self._guard is not None and not self._is_let_in(path, connection, stream):
            return False
        timeout = request.get("grpc-timeout")
        try:
            timeout_ms = None if timeout is None else headers.parse_timeout(timeout)
        except ProtocolError as error:
            self.refuse_call(stream, grpc.StatusCode.INVALID_ARGUMENT, str(error))
            return False
        loop = asyncio.get_running_loop()
        check = None
        if self._message_guard is not None:
            check = partial(self._check, self._message_guard, path, connection)
        context = CallContext(stream, handler, connection.caller, check)
        span = None if tracing.tracer is None else _begin_span(path, context, request)
        if span is None:
            call = loop.create_task(self._run(path, handler, context, stream))
        else:
            with tracing.within(span):
                call = loop.create_task(self._run(path, handler, context, stream))
            call.add_done_callback(lambda _: span.end(failure=_failure_of(stream)))
        self._calls.add(call)
        if handler.stream_stream is not None:
            self._conversations[call] = (path, connection, stream)
        stream.on_failed = call.cancel
        connection.calls += 1
        timer: asyncio.TimerHandle | None = None
        if timeout_ms is not None:
            code = grpc.StatusCode.DEADLINE_EXCEEDED
            timer = loop.call_later(
                timeout_ms / 1000, self.refuse_call, stream, code, "Deadline Exceeded"
            )
        call.add_done_callback(partial(self._on_done, connection, stream, timer))
        return True

    def _is_let_in(self, path: str, connection: ServerConnection, stream: Stream) -> bool:
        """Ask the guard, and refuse the call if it says so."""
        if self._guard is None:
            return True
        refusal = self._guard(path, *connection.caller)
        if refusal is None:
            return True
        self._refused.closed(connection.peer, refusal, address=connection.caller.host)
        self.refuse_call(stream, grpc.StatusCode.PERMISSION_DENIED, refusal)
        return False

    def _check(
        self, guard: MessageGuard, path: str, connection: ServerConnection, message: Any
    ) -> None:
        """Ask the guard about a message. Raises Aborted if the caller may not send it."""
        refusal = guard(path, message, *connection.caller)
        if refusal is not None:
            self._refused.closed(connection.peer, refusal, address=connection.caller.host)
            raise CallAborted(grpc.StatusCode.PERMISSION_DENIED, refusal)

    def check_conversations(self) -> None:
        """Ask the guard again for every call under way that streams in both directions: such a call
        may last for days, and the guard's answers have changed."""
        for path, connection, stream in list(self._conversations.values()):
            self._is_let_in(path, connection, stream)

    def refuse_call(self, stream: Stream, code: grpc.StatusCode, details: str) -> None:
        """End a call with this status, and cancel its handler if there is one."""
        stop_handler = stream.on_failed
        end_call(stream, code, details)
        if stop_handler is not None:
            stop_handler()

    def _on_done(
        self,
        connection: ServerConnection,
        stream: Stream,
        timer: asyncio.TimerHandle | None,
        call: asyncio.Task[None],
    ) -> None:
        self._calls.discard(call)
        self._conversations.pop(call, None)
        connection.calls -= 1
        if timer is not None:
            timer.cancel()
        if call.cancelled():  # perhaps before its first step
            end_call(stream, grpc.StatusCode.UNAVAILABLE, "the server is stopping")

    async def _run(self, path: str, handler: Any, context: CallContext, stream: Stream) -> None:
        try:
            await _carry_out(handler, context, stream)
            end_call(stream, grpc.StatusCode.OK)
        except (CallAborted, StreamEnded) as error:
            # If StreamEnded means that the caller has gone, nobody receives this status.
            end_call(stream, error.code, error.details)
        except (DecodeError, WireError) as error:
            end_call(stream, grpc.StatusCode.INVALID_ARGUMENT, f"{path[1:]}: {error}")
        except asyncio.CancelledError:
            # The caller hung up, the deadline has passed, or the server is stopping.
            end_call(stream, grpc.StatusCode.UNAVAILABLE, "the server is stopping")
        except Exception as error:
            has_ended = stream.failure is not None or stream.is_local_done
            if not (has_ended and isinstance(error, grpc.aio.UsageError)):
                logger.exception("%s failed", path)
            end_call(stream, grpc.StatusCode.UNKNOWN, f"{path} failed")


def _begin_span(path: str, context: CallContext, request: dict[str, str]) -> tracing.Span | None:
    """The span of a call whose caller has one; heartbeats and the like have none."""
    parent = request.get(tracing.HEADER, "")
    if tracing.tracer is None or not parent:
        return None
    service, _, method = path[1:].rpartition("/")
    attributes = {
        "rpc.system": "grpc",
        "rpc.service": service,
        "rpc.method": method,
        "client.address": context.host,
        "enduser.id": context.user,
    }
    return tracing.tracer.begin(path[1:], attributes, parent=parent)


def _failure_of(stream: Stream) -> str:
    return "" if stream.failure is None else str(stream.failure)


async def _carry_out(handler: Any, context: CallContext, stream: Stream) -> None:
    if handler.stream_stream is not None:
        call: Callable[..., Any] = handler.stream_stream
        if inspect.isasyncgenfunction(call):
            await _send_all(call(context.requests(), context), context)
        else:
            await call(context.requests(), context)
        if stream.has_partial_message and stream.is_remote_done:
            raise CallAborted(
                grpc.StatusCode.INTERNAL, "the stream ended in the middle of a message"
            )
        return
    request = await context.read()
    if request is grpc.aio.EOF:
        raise CallAborted(grpc.StatusCode.INTERNAL, "a call without a whole request")
    if handler.unary_stream is not None:
        await _send_all(handler.unary_stream(request, context), context)
    else:
        await context.answer(await handler.unary_unary(request, context))


async def _send_all(replies: Any, context: CallContext) -> None:
    # Close the generator explicitly: a handler's `finally` must run when its call ends, and not
    # when its memory is freed.
    async with aclosing(replies):
        async for reply in replies:
            await context.write(reply)
