"""gRPC channels and servers set up the one way that suits a cluster.

Reconnects are quick (gRPC's default grows to two minutes), a silent connection is noticed by
keep-alive, and two servers may never share a port.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import grpc.aio
from google.protobuf.message import DecodeError

from runtime.errors import ConfigError, WireError, required

MESSAGE_BYTES_MAX = 64 << 20
"""Above any batch the quorum moves (8 MiB a fetch) with room for metadata reads."""

KEEPALIVE_TIME_MS = 1_000
KEEPALIVE_TIMEOUT_MS = 1_000
RECONNECT_BACKOFF_MIN_MS = 20
RECONNECT_BACKOFF_MAX_MS = 200
#: A connection attempt that hangs (a black hole) is given up after this; gRPC calls it the
#: minimal reconnect backoff.
CONNECT_TIMEOUT_MS = 1_000

_MESSAGE_OPTIONS = [
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
]

_CHANNEL_OPTIONS = [
    *_MESSAGE_OPTIONS,
    ("grpc.initial_reconnect_backoff_ms", RECONNECT_BACKOFF_MIN_MS),
    ("grpc.max_reconnect_backoff_ms", RECONNECT_BACKOFF_MAX_MS),
    ("grpc.min_reconnect_backoff_ms", CONNECT_TIMEOUT_MS),
    ("grpc.keepalive_time_ms", KEEPALIVE_TIME_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.keepalive_permit_without_calls", 1),
    # One connection per peer of each node: a shared one would share its fate between nodes that
    # run in one process.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
]

_SERVER_OPTIONS = [
    *_MESSAGE_OPTIONS,
    ("grpc.so_reuseport", 0),
    ("grpc.keepalive_time_ms", KEEPALIVE_TIME_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    # Peers ping each second; the default server would send them away for it.
    ("grpc.http2.min_ping_interval_without_data_ms", KEEPALIVE_TIME_MS // 2),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", KEEPALIVE_TIME_MS // 2),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.keepalive_permit_without_calls", 1),
]


def open_channel(address: str) -> grpc.aio.Channel:
    """A channel to `host:port` in clear text; it connects when first used."""
    return grpc.aio.insecure_channel(address, options=_CHANNEL_OPTIONS)


def make_server() -> grpc.aio.Server:
    """A server with no services yet. Make it inside the process that serves, never before fork."""
    return grpc.aio.server(options=_SERVER_OPTIONS)


class RpcServer:
    """A gRPC server whose calls end in words: garbage, and the end of the node.

    A request that is no message, or a message that its decoder refuses with WireError, would
    otherwise be UNKNOWN to the caller and a traceback of gRPC's in the log, as of a bug of ours.
    So would every stream that is open when the node stops.
    """

    def __init__(self) -> None:
        self.server: Any = make_server()
        self._streams: set[asyncio.Task[Any]] = set()
        self._is_stopping = False

    def add_service(self, add_to_server: Callable[[Any, Any], None], servicer: Any) -> None:
        """Serve `servicer` by the generated `add_to_server`."""
        add_to_server(servicer, self)

    async def listen(self, address: str) -> None:
        """Serve on `host:port`. Raises ConfigError if that cannot be had."""
        try:
            bound = self.server.add_insecure_port(address)
        except RuntimeError:
            bound = 0
        if bound == 0:
            raise ConfigError(f"cannot listen on {address}: the address is in use or not ours")
        await self.server.start()

    async def stop(self, grace_s: float) -> None:
        """End the streams, give other calls grace_s, then cut them."""
        self._is_stopping = True
        for stream in self._streams:
            stream.cancel()
        await self.server.stop(grace_s)

    # What generated code asks of a server.

    def add_generic_rpc_handlers(self, _: Any) -> None:
        """They are made anew from the registered ones, which generated code adds next."""

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        wrapped = {name: self._wrapped(f"{service}/{name}", h) for name, h in handlers.items()}
        generic = grpc.method_handlers_generic_handler(service, wrapped)
        self.server.add_generic_rpc_handlers((generic,))
        self.server.add_registered_method_handlers(service, wrapped)

    def _wrapped(self, method: str, handler: Any) -> Any:
        if handler.unary_unary:
            call, parse = handler.unary_unary, handler.request_deserializer

            async def answer(request: bytes, context: Any) -> Any:
                # Parsed here, where an error can still become an answer.
                try:
                    return await call(parse(request), context)
                except (DecodeError, WireError) as error:
                    await _refuse(context, method, error)

            return handler._replace(unary_unary=answer, request_deserializer=None)
        if handler.unary_stream:
            call, parse = handler.unary_stream, handler.request_deserializer

            async def replies(request: bytes, context: Any) -> Any:
                try:
                    async for reply in call(parse(request), context):
                        yield reply
                except (DecodeError, WireError) as error:
                    await _refuse(context, method, error)

            return handler._replace(unary_stream=replies, request_deserializer=None)
        return handler._replace(stream_stream=self._conversation(method, handler.stream_stream))

    def _conversation(self, method: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """A stream both ways: a coroutine that reads and writes itself, or a generator."""

        async def run(requests: Any, context: Any) -> None:
            task = required(asyncio.current_task(), "a call runs in a task")
            self._streams.add(task)
            try:
                if inspect.isasyncgenfunction(call):
                    async for reply in call(requests, context):
                        await context.write(reply)
                else:
                    await call(requests, context)
            except asyncio.CancelledError:
                if not self._is_stopping:
                    raise
                task.uncancel()
            except (DecodeError, WireError) as error:
                await _refuse(context, method, error)
            finally:
                self._streams.discard(task)

        return run


async def _refuse(context: Any, method: str, error: Exception) -> None:
    await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"{method}: {error}")
