"""Carries librdkafka's connections to brokers that want the login of a delegation token.

librdkafka knows no delegation tokens (KIP-48). It connects to this relay on loopback, in clear
text, and the relay to the broker, with the login of every other command. The relay puts its own
addresses into the answers that name brokers. Its secret is the client id that librdkafka sends
first, so that no other user of the machine acts with the token; brokers see the usual client id.
"""

from __future__ import annotations

import contextlib
import secrets
import select
import socket
import ssl
import struct
import threading
from collections.abc import Callable

from kvorum.client.connection import CLIENT_ID, KafkaConnection
from kvorum.client.failures import CommandFailed
from kvorum.runtime.errors import ErrorCode, WireError
from kvorum.wire.primitives import Reader, string_bytes

Address = tuple[str, int]
Rewrite = Callable[[bytes, Callable[[Address], Address]], bytes]

_API_VERSIONS, _METADATA, _FIND_COORDINATOR = 18, 3, 10
_VERSIONS_MAX = {0: 9, 1: 15, _METADATA: 12, _FIND_COORDINATOR: 2}
"""Produce and Fetch name brokers in later versions; of the other two, these forms are read."""
_HOST = "127.0.0.1"


class TokenRelay:
    """Listens for librdkafka until the process ends."""

    def __init__(self, timeout_s: float) -> None:
        self.client_id = secrets.token_hex(16)
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._local: dict[Address, Address] = {}

    def address_for(self, broker: Address) -> Address:
        """The address of the relay that leads to this broker."""
        with self._lock:
            local = self._local.get(broker)
            if local is None:
                server = socket.create_server((_HOST, 0))
                local = self._local[broker] = (_HOST, server.getsockname()[1])
                _in_background(self._accept, server, broker)
            return local

    def _accept(self, server: socket.socket, broker: Address) -> None:
        while True:
            _in_background(self._carry, server.accept()[0], broker)

    def _carry(self, client: socket.socket, broker: Address) -> None:
        """One connection. Whatever is wrong closes it, and librdkafka tries again."""
        asked: dict[int, int] = {}
        with client, contextlib.suppress(OSError, CommandFailed, WireError):
            request = _frame(client)
            if not secrets.compare_digest(_split(request)[1], self.client_id.encode()):
                return
            with KafkaConnection([broker], self._timeout_s).detach() as server:
                self._forward(request, server, asked)
                # One thread for both ways: a connection with TLS is not for two.
                while True:
                    if _has_more(server) or server in select.select([server, client], [], [])[0]:
                        self._return(_frame(server), client, asked)
                    else:
                        self._forward(_frame(client), server, asked)

    def _forward(self, request: bytes, server: socket.socket, asked: dict[int, int]) -> None:
        head, _, rest = _split(request)
        key, _, correlation_id = struct.unpack(">hhi", head)
        if key in _REWRITES:
            asked[correlation_id] = key
        _send(server, head + struct.pack(">h", len(CLIENT_ID)) + CLIENT_ID + rest)

    def _return(self, answer: bytes, client: socket.socket, asked: dict[int, int]) -> None:
        (correlation_id,) = struct.unpack_from(">i", answer)
        rewrite = _REWRITES.get(asked.pop(correlation_id, -1))
        if rewrite is not None:
            answer = answer[:4] + rewrite(answer[4:], self.address_for)
        _send(client, answer)


# --- answers ---------------------------------------------------------------------------------


def _versions(body: bytes, local: Callable[[Address], Address]) -> bytes:
    """ApiVersions v3: no version of an API that names brokers in a form that is not read here."""
    reader = Reader(body, 0, len(body))
    if reader.int16() != ErrorCode.NONE:
        return body
    rows = bytearray()
    count = reader.array_count(True)
    head = body[: reader.position]
    for _ in range(count):
        key, low, high = reader.int16(), reader.int16(), reader.int16()
        reader.skip_tags()
        rows += struct.pack(">hhhb", key, low, min(high, _VERSIONS_MAX.get(key, high)), 0)
    return head + bytes(rows) + body[reader.position :]


def _brokers(body: bytes, local: Callable[[Address], Address]) -> bytes:
    """Metadata v9 to v12: the brokers stand in front."""
    reader = Reader(body, 0, len(body))
    reader.skip_tags()
    reader.int32()
    count = reader.array_count(True)
    out = bytearray(body[: reader.position])
    for _ in range(count):
        node_id = reader.int32()
        host, port = local((reader.string(True), reader.int32()))
        start = reader.position
        reader.nullable_string(True)
        reader.skip_tags()
        out += struct.pack(">i", node_id) + string_bytes(host, True)
        out += struct.pack(">i", port) + body[start : reader.position]
    return bytes(out) + body[reader.position :]


def _coordinator(body: bytes, local: Callable[[Address], Address]) -> bytes:
    """FindCoordinator v1 and v2: the coordinator stands at the end."""
    reader = Reader(body, 0, len(body))
    reader.int32()
    reader.int16()
    reader.nullable_string(False)
    node_id = reader.int32()
    head = body[: reader.position]
    if node_id < 0:
        return body
    host, port = local((reader.string(False), reader.int32()))
    return head + string_bytes(host, False) + struct.pack(">i", port)


_REWRITES: dict[int, Rewrite] = {
    _API_VERSIONS: _versions,
    _METADATA: _brokers,
    _FIND_COORDINATOR: _coordinator,
}


# --- sockets ---------------------------------------------------------------------------------


def _in_background(function: Callable[..., None], *arguments: object) -> None:
    threading.Thread(target=function, args=arguments, daemon=True).start()


def _has_more(peer: socket.socket) -> bool:
    """True if TLS holds bytes that `select` does not see."""
    return isinstance(peer, ssl.SSLSocket) and peer.pending() > 0


def _split(request: bytes) -> tuple[bytes, bytes, bytes]:
    """(key, version and correlation id; client id; what follows)."""
    (size,) = struct.unpack_from(">h", request, 8)
    return request[:8], request[10 : 10 + size], request[10 + size :]


def _send(peer: socket.socket, frame: bytes) -> None:
    peer.sendall(struct.pack(">i", len(frame)) + frame)


def _frame(peer: socket.socket) -> bytes:
    """The next frame. Raises ConnectionError at the end."""
    (size,) = struct.unpack(">i", _receive(peer, 4))
    return _receive(peer, size)


def _receive(peer: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        part = peer.recv(min(size - len(received), 1 << 20))
        if not part:
            raise ConnectionError("the connection was closed")
        received += part
    return bytes(received)
