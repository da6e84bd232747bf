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
"""Waited past the time that the cluster was given: its word that time is up (there is no quorum)
says more than our own silence would."""


#: ApiVersions v0; of its answer only that it comes is of interest.
_VERSIONS = struct.pack(">hhih", 18, 0, 0, len(CLIENT_ID)) + CLIENT_ID

ALIVE_WITHIN_S = 1.0
"""A broker that does not even tell its versions for so long hangs; the next one is asked."""


class KafkaConnection:
    """Opens to the first address where a broker answers; the last one need only be reachable.

    Raises CommandFailed (unreachable) if none is. A broker that hangs is passed over before it is
    asked for anything: a change that was sent to it might still come true.
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
        """Send one request, return kio's entity of its answer.

        is_header_flexible: False for ApiVersions, whose answer never has tagged fields in front.

        Raises CommandFailed (unreachable) on silence past the time-out or a closed connection.
        """
        from kio.serial import entity_reader

        from kvorum.wire.kio_codec import message_class

        # Behind the header's empty tagged section, if it has one.
        start = int(flexible and is_header_flexible)
        answer = self.ask(name, key, version, values, flexible=flexible)
        entity, _ = entity_reader(message_class(name, version, "response"))(answer, start)
        return entity

    def ask(
        self, name: str, key: int, version: int, values: Mapping[str, Any], *, flexible: bool
    ) -> bytes:
        """Send one request; its answer behind the correlation id. Raises CommandFailed."""
        from kvorum.wire.kio_codec import encode_request

        self._correlation_id += 1
        head = struct.pack(">hhih", key, version, self._correlation_id, len(CLIENT_ID)) + CLIENT_ID
        if flexible:
            head += b"\x00"  # no tagged fields in the header
        try:
            body = bytes(encode_request(name, version, values))
        except (struct.error, OverflowError) as error:
            # All that a user gives as a number, and no option bounds, ends here.
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
