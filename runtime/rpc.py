"""gRPC channels and servers set up the one way that suits a cluster.

Reconnects are quick (gRPC's default grows to two minutes), a silent connection is noticed by
keep-alive, and two servers may never share a port.
"""

from __future__ import annotations

import grpc.aio

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
