"""A blocking connection to one broker for the CLI's few calls. Not a client library.

Schemas come from kio; only the versions named at the call are used.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping
from typing import Any

from kvorum.cli.common import EXIT_UNREACHABLE, CommandFailed
from kvorum.runtime.errors import required
from kvorum.runtime.text import address_text

CLIENT_ID = b"kvorum-cli"
ANSWER_SLACK_S = 1.0
"""Added to the timeout that the cluster was given: the broker's own timeout error (there is no
quorum) says more than no answer."""


#: An ApiVersions v0 request; it only shows that the broker answers.
_VERSIONS = struct.pack(">hhih", 18, 0, 0, len(CLIENT_ID)) + CLIENT_ID

ALIVE_WITHIN_S = 1.0
"""A broker that does not answer ApiVersions within this time hangs, and the next one is asked."""


class KafkaConnection:
    """Connects to the first address at which a broker answers; the last address need only accept
    the connection.

    Raises CommandFailed (unreachable) if none does. A broker that hangs is skipped before a request
    is sent to it, since it might still carry out a change later.
    """

    def __init__(self, addresses: list[tuple[str, int]], timeout_s: float) -> None:
        problems = []
        self._timeout_s = timeout_s
        self._socket: socket.socket | None = None
        self._correlation_id = 0
        for at, (host, port) in enumerate(addresses):
            try:
                self._socket = socket.create_connection((host, port), timeout=timeout_s)
                self._address = address_text(host, port)
                if at + 1 < len(addresses):
                    self._socket.settimeout(min(ALIVE_WITHIN_S, timeout_s))
                    self._send(_VERSIONS)
                self._socket.settimeout(timeout_s + ANSWER_SLACK_S)
                return
            except OSError as error:
                self.close()
                problems.append(f"{address_text(host, port)} ({error.strerror or error})")
        raise CommandFailed(f"no broker reachable at {', '.join(problems)}", EXIT_UNREACHABLE)

    def call(
        self,
        name: str,
        key: int,
        version: int,
        values: Mapping[str, Any],
        *,
        flexible: bool,
        is_header_flexible: bool = True,
    ) -> Any:
        """Send one request; returns the answer as kio's entity.

        is_header_flexible: False for ApiVersions, whose response header never has tagged fields.

        Raises CommandFailed (unreachable) if no answer comes within the timeout or the connection
        is closed.
        """
        from kio.serial import entity_reader

        from kvorum.wire.kio_codec import message_class

        # Skip the header's empty tagged fields, if it has any.
        start = int(flexible and is_header_flexible)
        answer = self.ask(name, key, version, values, flexible=flexible)
        entity, _ = entity_reader(message_class(name, version, "response"))(answer, start)
        return entity

    def ask(
        self, name: str, key: int, version: int, values: Mapping[str, Any], *, flexible: bool
    ) -> bytes:
        """Send one request; returns the bytes of the answer after the correlation id. Raises
        CommandFailed."""
        from kvorum.wire.kio_codec import encode_request

        self._correlation_id += 1
        head = struct.pack(">hhih", key, version, self._correlation_id, len(CLIENT_ID)) + CLIENT_ID
        if flexible:
            head += b"\x00"  # no tagged fields in the header
        try:
            body = bytes(encode_request(name, version, values))
        except (struct.error, OverflowError) as error:
            # Every number of a user that no option limits ends here if it does not fit its field.
            raise CommandFailed(f"a number is too large for Kafka's protocol: {error}") from error
        try:
            return self._send(head + body)[4:]
        except TimeoutError as error:
            waited_s = self._timeout_s + ANSWER_SLACK_S
            raise CommandFailed(
                f"broker {self._address} did not answer within {waited_s:g} s; its log says "
                "whether it waits for a quorum; kvorum quorum status --bootstrap-controller "
                "HOST:PORT asks the controllers",
                EXIT_UNREACHABLE,
            ) from error
        except OSError as error:
            raise CommandFailed(
                f"broker {self._address} went away: {error.strerror or error}", EXIT_UNREACHABLE
            ) from error

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, request: bytes) -> bytes:
        """The answer to a request. Raises OSError."""
        connection = required(self._socket, "the connection is closed")
        connection.sendall(struct.pack(">i", len(request)) + request)
        (size,) = struct.unpack(">i", self._receive(connection, 4))
        return self._receive(connection, size)

    def _receive(self, connection: socket.socket, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = connection.recv(size - len(parts))
            if not part:
                raise ConnectionError("it closed the connection")
            parts += part
        return bytes(parts)
