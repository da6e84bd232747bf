"""`GET /metrics`: a node's state in Prometheus' format, on a port of its own (`metrics.listener`).

A few lines of HTTP/1.1 on asyncio, since a framework would cost every node its import. The
collectors (`broker.metrics.broker_metrics`, `metadata.metrics`) read the state at each scrape;
nothing is counted between two scrapes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from kvorum.runtime.errors import ConfigError
from kvorum.runtime.text import address_text

_log = logging.getLogger(__name__)

HEAD_BYTES_MAX = 8 * 1024
HEAD_TIMEOUT_S = 5.0
CONNECTIONS_MAX = 32
"""Simultaneous connections; further ones are closed at once."""


class MetricsServer:
    """render: the whole page; content_type: its type."""

    def __init__(self, render: Callable[[], bytes], content_type: str) -> None:
        self._render = render
        self._content_type = content_type
        self._server: asyncio.Server | None = None
        self._open = 0

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port. Raises ConfigError if the port is not available."""
        try:
            self._server = await asyncio.start_server(self._serve, host, port, limit=HEAD_BYTES_MAX)
        except OSError as error:
            raise ConfigError(
                f"metrics.listener: cannot listen on {address_text(host, port)}: {error.strerror}"
            ) from error
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            if self._open <= CONNECTIONS_MAX:
                async with asyncio.timeout(HEAD_TIMEOUT_S):
                    head = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._answer(head))
                await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            _log.debug("a scraper sent no whole request, or left")
        finally:
            self._open -= 1
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    def _answer(self, head: bytes) -> bytes:
        words = head.split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            return _response("400 Bad Request", b"this speaks HTTP/1.1\n")
        if words[0] not in (b"GET", b"HEAD"):
            return _response("405 Method Not Allowed", b"only GET\n")
        if words[1].split(b"?", 1)[0] != b"/metrics":
            return _response("404 Not Found", b"there is /metrics\n")
        body = self._render()
        answer = _response("200 OK", body, self._content_type)
        return answer if words[0] == b"GET" else answer[: -len(body)]


def _response(status: str, body: bytes, content_type: str = "text/plain; charset=utf-8") -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + body
