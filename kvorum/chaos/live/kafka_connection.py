"""One blocking connection to one node that speaks the Kafka protocol.

librdkafka picks the broker that it asks, so a question to one chosen node needs a socket of its
own. kio's schemas encode and decode (`kvorum.wire.kio_codec`).
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kvorum.chaos.addresses import security_at
from kvorum.launch.client_login import LoginRefused, log_in
from kvorum.runtime.errors import WireError
from kvorum.wire.kio_codec import encode_request, read_response

_CLIENT_ID = b"kvorum-chaos"
_ANSWER_BYTES_MAX = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request in one version. name: kio's schema folder. The version must be a flexible one, so
    that the headers are request header v2 and response header v1 (KIP-482)."""

    key: int
    name: str
    version: int


METADATA = Call(key=3, name="metadata", version=12)


class KafkaConnection:
    """Asks one node, one request at a time. Not thread-safe.

    The socket is opened by the first request, and again by the next one after an error.
    """

    def __init__(self, address: str, *, timeout_ms: int) -> None:
        """address: host:port, of IPv6 too ([::1]:9092). timeout_ms: for each step of the socket."""
        host, _, port = address.rpartition(":")
        self._place = (host.strip("[]"), int(port))
        self._security = security_at(address)
        self._timeout_s = timeout_ms / 1000
        self._socket: socket.socket | None = None
        self._correlation_id = 0

    def ask(self, call: Call, values: Mapping[str, Any]) -> Any:
        """kio's entity of the answer.

        Raises OSError if the node cannot be reached or gives no answer in time, WireError for bytes
        that are no answer to this request.
        """
        is_reused = self._socket is not None
        try:
            return self._ask(call, values)
        except ConnectionError:
            self.close()
            # A broker may close an idle connection; only a new one shows whether it is there.
            if not is_reused:
                raise
        except (OSError, WireError):
            self.close()
            raise
        try:
            return self._ask(call, values)
        except (OSError, WireError):
            self.close()
            raise

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _ask(self, call: Call, values: Mapping[str, Any]) -> Any:
        if self._socket is None:
            plain = socket.create_connection(self._place, timeout=self._timeout_s)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket = self._security.wrap(plain, self._place[0])
            self._log_in(self._socket)
        self._correlation_id += 1
        head = struct.pack(">hhih", call.key, call.version, self._correlation_id, len(_CLIENT_ID))
        body = bytes(encode_request(call.name, call.version, values))
        message = head + _CLIENT_ID + b"\x00" + body
        self._socket.sendall(struct.pack(">i", len(message)) + message)
        (size,) = struct.unpack(">i", self._receive(self._socket, 4))
        if not 5 <= size <= _ANSWER_BYTES_MAX:
            raise WireError(f"{call.name} answered with {size} bytes")
        answer = self._receive(self._socket, size)
        (correlation_id,) = struct.unpack_from(">i", answer)
        if correlation_id != self._correlation_id:
            raise WireError(f"answer {correlation_id} to request {self._correlation_id}")
        if answer[4] != 0:
            raise WireError(f"{call.name} answered with tagged fields in its header")
        return read_response(call.name, call.version, memoryview(answer)[5:])

    def _log_in(self, peer: socket.socket) -> None:
        def ask(request: bytes) -> bytes:
            peer.sendall(struct.pack(">i", len(request)) + request)
            (size,) = struct.unpack(">i", self._receive(peer, 4))
            return self._receive(peer, size)

        try:
            log_in(self._security, ask)
        except LoginRefused as error:
            # An OSError, as for a node that gives no answer: the caller adds the node's name.
            raise OSError(f"user {self._security.user} is refused: {error}") from error

    def _receive(self, peer: socket.socket, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            part = peer.recv(size - len(received))
            if not part:
                raise ConnectionError("the node closed the connection")
            received += part
        return bytes(received)
