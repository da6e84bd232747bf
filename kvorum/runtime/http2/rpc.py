"""gRPC channels and servers with the settings that suit a cluster.

Reconnects are quick, keep-alive detects a silent connection, and two servers can never share a
port. Generated stubs and servicers work on `runtime.http2` without knowing it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import grpc

from kvorum.runtime.certificates import TlsCaller, TlsListener
from kvorum.runtime.errors import ConfigError
from kvorum.runtime.http2.blocking_channel import BlockingChannel
from kvorum.runtime.http2.client import Channel
from kvorum.runtime.http2.keepalive import USUAL_PATIENCE, Patience
from kvorum.runtime.http2.server import Guard, MessageGuard, Server
from kvorum.runtime.http2.tls import ALPN
from kvorum.runtime.principals import PrincipalRules
from kvorum.runtime.tls import TlsSettings

__all__ = [
    "USUAL_CHANNELS",
    "USUAL_PATIENCE",
    "Channel",
    "Channels",
    "Patience",
    "RpcServer",
    "open_channel",
    "rpc_caller",
    "rpc_listener",
]


def open_channel(
    address: str, patience: Patience = USUAL_PATIENCE, tls: TlsCaller | None = None
) -> Channel:
    """A channel to `host:port`; it connects when first used. tls: None for clear text."""
    return Channel(address, patience, tls)


@dataclass(frozen=True, slots=True, kw_only=True)
class Channels:
    """The settings of a node's channels to controllers. tls: None for clear text."""

    patience: Patience = USUAL_PATIENCE
    tls: TlsCaller | None = None

    def open(self, address: str) -> Channel:
        """A channel to `host:port`; it connects when first used."""
        return open_channel(address, self.patience, self.tls)

    def open_blocking(self, address: str, options: Sequence[tuple[str, Any]] = ()) -> Any:
        """The same for callers without an event loop: as grpc.Channel. options: of grpcio's
        channels, in clear text."""
        if self.tls is not None:
            return BlockingChannel(lambda: self.open(address))
        # An HTTP proxy from the environment must not be used for these connections.
        return grpc.insecure_channel(address, options=(("grpc.enable_http_proxy", 0), *options))


USUAL_CHANNELS = Channels()


def rpc_caller(settings: TlsSettings) -> TlsCaller:
    """TLS of gRPC's channels. Raises ConfigError for files that cannot be used."""
    return TlsCaller(settings, (ALPN,))


def rpc_listener(settings: TlsSettings, rules: PrincipalRules) -> TlsListener:
    """TLS of a gRPC server. Raises ConfigError for files that cannot be used."""
    return TlsListener(settings, rules, (ALPN,))


class RpcServer:
    """A gRPC server that answers a bad request with a status and a sentence.

    The caller gets INVALID_ARGUMENT for bytes that are not a message, and for a message that its
    decoder refuses with WireError. A connection that does not speak HTTP/2 is closed with a line in
    the log.
    tls: None for clear text.
    guard: see `http2.server.Guard`; a refused call ends with PERMISSION_DENIED, before its message
        is read.
    message_guard: the same for each message, after it was read and before it is carried out.
    """

    def __init__(
        self,
        patience: Patience = USUAL_PATIENCE,
        tls: TlsListener | None = None,
        guard: Guard | None = None,
        message_guard: MessageGuard | None = None,
    ) -> None:
        self._server = Server(patience, tls, guard, message_guard)

    def add_service(self, add_to_server: Callable[[Any, Any], None], servicer: Any) -> None:
        """Serve `servicer`, registered by the generated `add_to_server`."""
        add_to_server(servicer, self)

    async def listen(self, address: str) -> None:
        """Serve on `host:port`. Raises ConfigError if the address cannot be used."""
        host, _, port = address.rpartition(":")
        try:
            await self._server.listen(host.strip("[]"), int(port))
        except OSError as error:
            raise ConfigError(
                f"cannot listen on {address}: {os.strerror(error.errno or 0)}; give this node a "
                "free port and an address of this machine"
            ) from error

    def check_conversations(self) -> None:
        """End the calls with streams in both directions that the guard would refuse by now."""
        self._server.check_conversations()

    async def stop(self, grace_s: float) -> None:
        """End the streams, give other calls grace_s, then cancel them."""
        await self._server.stop(grace_s)

    # The methods that generated code calls on a server.

    def add_generic_rpc_handlers(self, _: Any) -> None:
        """Ignored: generated code registers the same handlers again as registered methods."""

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        self._server.add_handlers(service, handlers)
