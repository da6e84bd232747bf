"""A blocking connection to one broker for the CLI's few calls. Not a client library.

Schemas come from kio; only the versions named at the call are used.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping
from typing import Any

from kvorum.cli.common import EXIT_UNREACHABLE, CommandFailed

CLIENT_ID = b"kvorum-cli"
ANSWER_SLACK_S = 1.0
"""Waited past the time that the cluster was given: its word that time is up (there is no quorum)
says more than our own silence would."""


class KafkaConnection:
    """Opens to the first reachable address. Raises CommandFailed (unreachable) if none is."""

    def __init__(self, addresses: list[tuple[str, int]], timeout_s: float) -> None:
        problems = []
        self._timeout_s = timeout_s
        self._correlation_id = 0
        for host, port in addresses:
            try:
                self._socket = socket.create_connection((host, port), timeout=timeout_s)
                self._socket.settimeout(timeout_s + ANSWER_SLACK_S)
                self._address = f"{host}:{port}"
                return
            except OSError as error:
                problems.append(f"{host}:{port} ({error.strerror or error})")
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

        from wire.kio_codec import encode_request, message_class

        self._correlation_id += 1
        head = struct.pack(">hhih", key, version, self._correlation_id, len(CLIENT_ID)) + CLIENT_ID
        if flexible:
            head += b"\x00"  # no tagged fields in the header
        body = bytes(encode_request(name, version, values))
        try:
            self._socket.sendall(struct.pack(">i", len(head) + len(body)) + head + body)
            (size,) = struct.unpack(">i", self._receive(4))
            answer = self._receive(size)
        except TimeoutError as error:
            waited_s = self._timeout_s + ANSWER_SLACK_S
            raise CommandFailed(
                f"broker {self._address} did not answer within {waited_s:g} s", EXIT_UNREACHABLE
            ) from error
        except OSError as error:
            raise CommandFailed(
                f"broker {self._address} went away: {error.strerror or error}", EXIT_UNREACHABLE
            ) from error
        start = (
            5 if flexible and is_header_flexible else 4
        )  # correlation id, and the header's empty tagged section
        entity, _ = entity_reader(message_class(name, version, "response"))(answer, start)
        return entity

    def close(self) -> None:
        self._socket.close()

    def _receive(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self._socket.recv(size - len(parts))
            if not part:
                raise ConnectionError("it closed the connection")
            parts += part
        return bytes(parts)
