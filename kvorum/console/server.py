"""Serves the console until SIGINT or SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import signal
import socket
import ssl
from collections.abc import Callable, Iterator

import uvicorn

from kvorum.client.failures import EXIT_USAGE, CommandFailed
from kvorum.console.app import Console
from kvorum.runtime.text import address_text

GRACE_S = 2
"""Time for answers under way when the server stops."""


class _Server(uvicorn.Server):
    """Ends the event streams first, since uvicorn waits for open connections; and ends well after
    a signal, where uvicorn would raise it once more."""

    console: Console

    def stop(self) -> None:
        self.console.closing.set()
        self.should_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.stop)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)


def listen(host: str, port: int) -> socket.socket:
    """The socket of the server. Raises CommandFailed if the address cannot be had."""
    where = address_text(host, port)
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise CommandFailed(f"cannot listen on {where}: {error.strerror}") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(128)
    except OSError as error:
        listener.close()
        way_out = "choose another with --port, or --port 0"
        if error.errno == errno.EADDRNOTAVAIL:
            way_out = f"{host} is no address of this machine: choose one that is with --host"
        elif error.errno == errno.EACCES:
            way_out = "choose a port above 1023 with --port"
        raise CommandFailed(f"cannot listen on {where}: {error.strerror}; {way_out}") from error
    return listener


def page_tls(path: str) -> ssl.SSLContext:
    """TLS of the page, from a PEM file with its key and certificate. Raises CommandFailed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(path, password=lambda: "")
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise CommandFailed(
            f"--keystore {path} has no certificate with an unencrypted key: {reason}", EXIT_USAGE
        ) from error
    return context


def serve(
    make: Callable[[], Console], listener: socket.socket, tls: ssl.SSLContext | None = None
) -> None:
    """Serve until a signal.

    make: builds the console, on the event loop.
    tls: of the page.
    Raises what ended a reading, if that was an error of the console itself.
    """

    async def run() -> None:
        console = make()
        config = uvicorn.Config(
            console.app,
            log_level="warning",
            access_log=False,
            ws="none",
            server_header=False,
            timeout_graceful_shutdown=GRACE_S,
            timeout_keep_alive=30,
            ssl_context_factory=None if tls is None else lambda *_: tls,
        )
        server = _Server(config)
        server.console = console
        console.stop = server.stop
        await server.serve(sockets=[listener])
        if console.failure is not None:
            raise console.failure

    asyncio.run(run())
