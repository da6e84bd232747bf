"""gRPC channels and servers set up the one way that suits a cluster.

Reconnects are quick, a silent connection is noticed by keep-alive, and two servers may never share
a port. Generated stubs and servicers do not know that it is `runtime.http2` they talk to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kvorum.runtime.errors import ConfigError
from kvorum.runtime.http2.client import Channel
from kvorum.runtime.http2.server import Server

__all__ = ["Channel", "RpcServer", "open_channel"]


def open_channel(address: str) -> Channel:
    """A channel to `host:port` in clear text; it connects when first used."""
    return Channel(address)


class RpcServer:
    """A gRPC server whose calls end in words.

    A request that is no message, or a message that its decoder refuses with WireError, is
    INVALID_ARGUMENT to the caller; what does not even speak HTTP/2 is closed with a line in the
    log.
    """

    def __init__(self) -> None:
        self._server = Server()

    def add_service(self, add_to_server: Callable[[Any, Any], None], servicer: Any) -> None:
        """Serve `servicer` by the generated `add_to_server`."""
        add_to_server(servicer, self)

    async def listen(self, address: str) -> None:
        """Serve on `host:port`. Raises ConfigError if that cannot be had."""
        host, _, port = address.rpartition(":")
        try:
            await self._server.listen(host.strip("[]"), int(port))
        except OSError as error:
            raise ConfigError(
                f"cannot listen on {address}: the address is in use or not ours ({error.strerror})"
            ) from error

    async def stop(self, grace_s: float) -> None:
        """End the streams, give other calls grace_s, then cut them."""
        await self._server.stop(grace_s)

    # The methods that generated code calls on a server.

    def add_generic_rpc_handlers(self, _: Any) -> None:
        """They come once more as registered ones, which generated code adds next."""

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        self._server.add_handlers(service, handlers)
