"""gRPC channels and servers set up the one way that suits a cluster.

Reconnects are quick (gRPC's default grows to two minutes), a silent connection is noticed by
keep-alive, and two servers may never share a port.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import grpc.aio
from google.protobuf.message import DecodeError

from runtime.errors import WireError

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


def add_service(
    add_to_server: Callable[[Any, Any], None], servicer: Any, server: grpc.aio.Server
) -> None:
    """Serve `servicer` by the generated `add_to_server`; garbage is answered INVALID_ARGUMENT.

    A request that is no message, or a message that its decoder refuses with WireError, would
    otherwise be UNKNOWN to the caller and a traceback of gRPC's in the log, as of a bug of ours.
    """
    add_to_server(servicer, _Wrapping(server))


class _Wrapping:
    """What generated code needs of a server; hands every handler on in wrapping."""

    def __init__(self, server: grpc.aio.Server) -> None:
        self._server = server

    def add_generic_rpc_handlers(self, _: Any) -> None:
        """They are made anew from the registered ones, which generated code adds next."""

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        wrapped = {name: _wrapped(f"{service}/{name}", h) for name, h in handlers.items()}
        generic = grpc.method_handlers_generic_handler(service, wrapped)
        self._server.add_generic_rpc_handlers((generic,))
        self._server.add_registered_method_handlers(service, wrapped)


def _wrapped(method: str, handler: Any) -> Any:
    """A handler with its requests parsed inside, where an error can still become an answer."""
    parse = handler.request_deserializer
    call = handler.unary_unary or handler.unary_stream or handler.stream_stream
    if not handler.request_streaming:
        handler = handler._replace(request_deserializer=None)

    def inner(request: Any, context: Any) -> Any:
        return call(request if handler.request_streaming else parse(request), context)

    async def answer(request: Any, context: Any) -> Any:
        try:
            return await inner(request, context)
        except (DecodeError, WireError) as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"{method}: {error}")

    async def stream(request: Any, context: Any) -> Any:
        try:
            async for reply in inner(request, context):
                yield reply
        except (DecodeError, WireError) as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"{method}: {error}")

    behaviour = stream if inspect.isasyncgenfunction(call) else answer
    if handler.unary_unary:
        return handler._replace(unary_unary=behaviour)
    if handler.unary_stream:
        return handler._replace(unary_stream=behaviour)
    return handler._replace(stream_stream=behaviour)
