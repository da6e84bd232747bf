"""A blocking connection to one broker for the CLI's few calls. Not a client library.

Schemas come from kio; only the versions named at the call are used.
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Mapping
from typing import Any

from kvorum.cli.client_security import current_security
from kvorum.cli.common import EXIT_NOT_AUTHORIZED, EXIT_UNREACHABLE, CommandFailed
from kvorum.cli.connection_hints import connection_hint
from kvorum.runtime.errors import invariant, required
from kvorum.runtime.text import address_text
from kvorum.runtime.tls import failure_text

CLIENT_ID = b"kvorum-cli"
ANSWER_SLACK_S = 1.0
"""Added to the timeout that the cluster was given: the broker's own timeout error (there is no
quorum) says more than no answer."""


#: An ApiVersions v0 request; it only shows that the broker answers.
_VERSIONS = struct.pack(">hhih", 18, 0, 0, len(CLIENT_ID)) + CLIENT_ID

ALIVE_WITHIN_S = 1.0
"""A broker that does not answer ApiVersions within this time hangs, and the next one is asked."""


class BrokerGone(CommandFailed):
    """A broker that cannot be reached, went away or does not answer; another one may do."""

    def __init__(self, reason: str, *, hint: str = "") -> None:
        super().__init__(reason, EXIT_UNREACHABLE, hint=hint)


class KafkaConnection:
    """Connects to the first address at which a broker answers; the last address need only accept
    the connection.

    Raises BrokerGone if none does. A broker that hangs is skipped before a request
    is sent to it, since it might still carry out a change later.
    """

    def __init__(self, addresses: list[tuple[str, int]], timeout_s: float) -> None:
        problems = []
        hints: dict[str, None] = {}
        self._timeout_s = timeout_s
        self._socket: socket.socket | None = None
        self._correlation_id = 0
        self._address = ""
        self._owed = 0
        self._has_answered = False
        self._security = current_security()
        for at, (host, port) in enumerate(addresses):
            try:
                self._address = address_text(host, port)
                self._socket = self._security.wrap(
                    socket.create_connection((host, port), timeout=timeout_s), host
                )
                if self._security.mechanism:
                    self._log_in()
                if at + 1 < len(addresses):
                    self._socket.settimeout(min(ALIVE_WITHIN_S, timeout_s))
                    self._send(_VERSIONS)
                self._socket.settimeout(timeout_s + ANSWER_SLACK_S)
                return
            except OSError as error:
                in_handshake = self._socket is None and self._security.context is not None
                self.close()
                reason = _reason(error)
                problems.append(f"{address_text(host, port)} ({reason})")
                hint = connection_hint(self._security, reason, in_handshake=in_handshake)
                hints[hint] = None
        raise BrokerGone(f"no broker reachable at {', '.join(problems)}", hint="".join(hints))

    def _log_in(self) -> None:
        """Authenticate as the command's user. Raises CommandFailed, OSError."""
        from kvorum.launch.client_login import LoginRefused, log_in

        try:
            log_in(self._security, self._send)
        except LoginRefused as error:
            self.close()
            raise CommandFailed(
                f"broker {self._address} refused user {self._security.user}: {error}",
                EXIT_NOT_AUTHORIZED,
            ) from error

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

        Raises BrokerGone if no answer comes within the timeout or the connection is closed.
        """
        answer = self.ask(name, key, version, values, flexible=flexible)
        # Skip the header's empty tagged fields, if it has any.
        return _entity(name, version, answer, int(flexible and is_header_flexible))

    def ask(
        self, name: str, key: int, version: int, values: Mapping[str, Any], *, flexible: bool
    ) -> bytes:
        """Send one request; returns the bytes of the answer after the correlation id. Raises
        CommandFailed."""
        invariant(self._owed == 0, "an answer to an earlier request has not been collected")
        self.post(name, key, version, values, flexible=flexible)
        return self._answer()

    def post(
        self, name: str, key: int, version: int, values: Mapping[str, Any], *, flexible: bool
    ) -> None:
        """Send one request, whose answer `collect` returns. Raises CommandFailed."""
        from kvorum.wire.kio_codec import encode_request

        self._correlation_id += 1
        head = struct.pack(">hhih", key, version, self._correlation_id, len(CLIENT_ID)) + CLIENT_ID
        if flexible:
            head += b"\x00"  # no tagged fields in the header
        try:
            body = bytes(encode_request(name, version, values))
        except (struct.error, OverflowError) as error:
            # Options do not limit every number: one that does not fit its field is refused here.
            raise CommandFailed(f"a number is too large for Kafka's protocol: {error}") from error
        try:
            self._write(head + body)
        except OSError as error:
            raise self._gone(error) from error
        self._owed += 1

    def collect(self, name: str, version: int) -> Any:
        """The answer to the oldest posted request of a flexible version, as kio's entity. Raises
        BrokerGone."""
        return _entity(name, version, self._answer(), 1)

    def fileno(self) -> int:
        """The socket's number, for select."""
        return required(self._socket, "the connection is closed").fileno()

    def _answer(self) -> bytes:
        try:
            answer = self._read()
        except OSError as error:
            raise self._gone(error) from error
        self._owed -= 1
        self._has_answered = True
        return answer[4:]

    def _gone(self, error: OSError) -> BrokerGone:
        if not isinstance(error, TimeoutError):
            # With TLS 1.3 a refused certificate ends a connection whose handshake is over here.
            is_end = isinstance(error, ssl.SSLEOFError)
            reason = "it closed the connection" if is_end else _reason(error)
            hint = "" if self._has_answered else connection_hint(self._security, reason)
            return BrokerGone(f"broker {self._address} went away: {reason}", hint=hint)
        waited_s = self._timeout_s + ANSWER_SLACK_S
        return BrokerGone(
            f"broker {self._address} did not answer within {waited_s:g} s; its log says "
            "whether it waits for a quorum; kvorum quorum status --bootstrap-controller "
            "HOST:PORT asks the controllers"
        )

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, request: bytes) -> bytes:
        """The answer to a request. Raises OSError."""
        self._write(request)
        return self._read()

    def _write(self, request: bytes) -> None:
        connection = required(self._socket, "the connection is closed")
        connection.sendall(struct.pack(">i", len(request)) + request)

    def _read(self) -> bytes:
        connection = required(self._socket, "the connection is closed")
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


def _reason(error: OSError) -> str:
    """Why a connection failed, in words for an operator."""
    is_tls = isinstance(error, ssl.SSLError)
    return failure_text(error) if is_tls else str(error.strerror or error)


def _entity(name: str, version: int, answer: bytes, start: int) -> Any:
    from kio.serial import entity_reader
    from kio.serial.errors import SerialError

    from kvorum.wire.kio_codec import message_class, read_response

    try:
        entity, _ = entity_reader(message_class(name, version, "response"))(answer, start)
    except KeyError:
        # kio fails at a tagged field newer than its schemas, and at a null structure before tags.
        return read_response(name, version, memoryview(answer)[start:])
    except SerialError as error:
        raise CommandFailed(f"the answer to {name} cannot be read: {error}") from error
    return entity
