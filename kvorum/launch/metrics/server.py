"""The HTTP server of a node (`metrics.listener`): metrics, health and the quorum.

A few lines of HTTP/1.1 on asyncio, in place of a framework that every node would have to import.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import parse_qs

from kvorum.runtime.certificates import TlsListener
from kvorum.runtime.errors import ConfigError
from kvorum.runtime.text import address_text
from kvorum.runtime.tls import server_context

_log = logging.getLogger(__name__)

HEAD_BYTES_MAX = 8 * 1024
HEAD_TIMEOUT_S = 5.0
SEND_TIMEOUT_S = 60.0
"""Patience for a client that reads the answer slowly."""
CONNECTIONS_MAX = 32
"""Limit of concurrent connections; further ones are closed at once."""
TEXT = "text/plain; charset=utf-8"
JSON = "application/json"
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


class HttpRequest(NamedTuple):
    """query: the names in the query string.
    takes_json: the client asks for JSON.
    """

    query: frozenset[str]
    takes_json: bool


class Response(NamedTuple):
    status: str
    body: bytes
    content_type: str = TEXT


Send = Callable[[bytes], Awaitable[None]]
Answer = Callable[[HttpRequest], Response]
Stream = Callable[[Send], Awaitable[None]]
"""Writes a body of any length, part by part."""


class MetricsServer:
    """Answers GET and HEAD.

    pages: by path.
    streams: bodies in Prometheus' format, by path.
    """

    def __init__(self, pages: Mapping[str, Answer], streams: Mapping[str, Stream]) -> None:
        self._pages = pages
        self._streams = streams
        self._server: asyncio.Server | None = None
        self._open = 0

    async def start(self, host: str, port: int, tls: TlsListener | None = None) -> int:
        """Listen, and return the port. tls: None for clear text. Raises ConfigError if the address
        cannot be used."""
        secure: dict[str, Any] = {}
        if tls is not None:
            secure = {"ssl": _newest(tls), "ssl_handshake_timeout": HEAD_TIMEOUT_S}
        try:
            self._server = await asyncio.start_server(
                self._serve, host, port, limit=HEAD_BYTES_MAX, **secure
            )
        except OSError as error:
            raise ConfigError(
                f"metrics.listener: cannot listen on {address_text(host, port)}: "
                f"{os.strerror(error.errno or 0)}; give this node an address of its own"
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
                async with asyncio.timeout(SEND_TIMEOUT_S):
                    await self._answer(head, writer)
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            _log.debug("a client sent no whole request, or left")
        finally:
            self._open -= 1
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _answer(self, head: bytes, writer: asyncio.StreamWriter) -> None:
        words = head.split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            await _write(writer, Response("400 Bad Request", b"this speaks HTTP/1.1\n"))
            return
        method, target, version = words
        if method not in (b"GET", b"HEAD"):
            await _write(writer, Response("405 Method Not Allowed", b"only GET\n"))
            return
        path, _, query = target.decode("latin-1").partition("?")
        stream, page = self._streams.get(path), self._pages.get(path)
        is_head = method == b"HEAD"
        if stream is not None:
            await _write_stream(writer, stream, is_head=is_head, is_old=version == b"HTTP/1.0")
        elif page is not None:
            names = frozenset(parse_qs(query, keep_blank_values=True))
            takes_json = b"application/json" in _header(head, b"accept")
            await _write(writer, page(HttpRequest(names, takes_json)), is_head=is_head)
        else:
            known = ", ".join(sorted([*self._streams, *self._pages]))
            body = f"there is {known}\n".encode()
            await _write(writer, Response("404 Not Found", body), is_head=is_head)


def _newest(tls: TlsListener) -> ssl.SSLContext:
    """A context that hands each connection over to the listener's newest one: asyncio keeps the one
    that it began with, but certificates change."""

    def choose(connection: ssl.SSLObject, *_: object) -> None:
        connection.context = tls.context

    first = server_context(tls.settings)
    first.sni_callback = choose
    return first


async def _write(
    writer: asyncio.StreamWriter, response: Response, *, is_head: bool = False
) -> None:
    head = (
        f"HTTP/1.1 {response.status}\r\nContent-Type: {response.content_type}\r\n"
        f"Content-Length: {len(response.body)}\r\nCache-Control: no-store\r\n"
        "Connection: close\r\n\r\n"
    )
    writer.write(head.encode() + (b"" if is_head else response.body))
    await writer.drain()


async def _write_stream(
    writer: asyncio.StreamWriter, stream: Stream, *, is_head: bool, is_old: bool
) -> None:
    """Chunked, so that the page is never whole in memory; HTTP/1.0 reads until the connection
    ends."""
    encoding = "" if is_old else "Transfer-Encoding: chunked\r\n"
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {PROMETHEUS}\r\n{encoding}Connection: close\r\n\r\n"
    writer.write(head.encode())
    if is_head:
        await writer.drain()
        return

    async def send(part: bytes) -> None:
        writer.write(part if is_old else b"%x\r\n%b\r\n" % (len(part), part))
        await writer.drain()

    await stream(send)
    if not is_old:
        writer.write(b"0\r\n\r\n")
    await writer.drain()


def _header(head: bytes, name: bytes) -> bytes:
    for line in head.split(b"\r\n")[1:]:
        key, _, value = line.partition(b":")
        if key.strip().lower() == name:
            return value.strip().lower()
    return b""
