"""Sockets to and from host names that may have several addresses, all of which are used.

A name may have an IPv6 address before its IPv4 one, and only one of them may be served.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Sequence
from typing import Any

CONNECT_TIMEOUT_MS = 2_000

Found = tuple[int, int, int, str, Any]


async def connect_tcp(
    loop: asyncio.AbstractEventLoop,
    address: tuple[str, int],
    timeout_ms: int = CONNECT_TIMEOUT_MS,
) -> socket.socket:
    """A non-blocking socket, connected to the first address of the host that answers.

    Each address gets an equal part of the time that is left. Raises OSError, the last address's;
    TimeoutError.
    """
    deadline_s = loop.time() + timeout_ms / 1000
    async with asyncio.timeout_at(deadline_s):
        found = await _addresses(loop, *address)
    for at, one in enumerate(found, 1):
        is_last = at == len(found)
        part_s = (deadline_s - loop.time()) / (len(found) - at + 1)
        try:
            async with asyncio.timeout(max(part_s, 0)):
                return await _connect(loop, one)
        except OSError:  # TimeoutError is one
            if is_last:
                raise
    raise OSError(errno.EADDRNOTAVAIL, f"{address[0]!r} has no address")


async def _addresses(loop: asyncio.AbstractEventLoop, host: str, port: int) -> Sequence[Found]:
    try:
        return await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (ValueError, OverflowError) as error:
        # A broker may register any address: `broker..svc` and names with a NUL are refused so.
        raise OSError(errno.EINVAL, f"{host!r}:{port} is no address: {error}") from error


async def _connect(loop: asyncio.AbstractEventLoop, found: Found) -> socket.socket:
    family, kind, protocol, _, target = found
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await loop.sock_connect(sock, target)
    except BaseException:
        sock.close()
        raise
    return sock


async def listening_sockets(
    loop: asyncio.AbstractEventLoop,
    host: str,
    port: int,
    *,
    backlog: int,
    options: Sequence[tuple[int, int]] = (),
) -> list[socket.socket]:
    """Non-blocking sockets that listen on every address of the host, all on one port.

    port: 0 for any free one.
    options: of SOL_SOCKET, which accepted connections inherit.
    Raises OSError if one address cannot be used; addresses of a family that the machine lacks are
    left out if there are others.
    """
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    made: list[socket.socket] = []
    missing: OSError | None = None
    try:
        for family, kind, protocol, _, target in dict.fromkeys(found):
            at = (target[0], made[0].getsockname()[1] if made else port, *target[2:])
            try:
                made.append(_listen((family, kind, protocol), at, backlog, options))
            except OSError as error:
                if error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
                    raise
                missing = error
        if not made:
            raise missing or OSError(errno.EADDRNOTAVAIL, f"{host!r} has no address")
    except BaseException:
        for sock in made:
            sock.close()
        raise
    return made


def _listen(
    kind: tuple[int, int, int], address: Any, backlog: int, options: Sequence[tuple[int, int]]
) -> socket.socket:
    sock = socket.socket(*kind)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if sock.family == socket.AF_INET6:
            # The IPv4 addresses of the host have sockets of their own.
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.setblocking(False)
        for option, value in options:
            sock.setsockopt(socket.SOL_SOCKET, option, value)
        sock.bind(address)
        sock.listen(backlog)
    except BaseException:
        sock.close()
        raise
    return sock
