"""A blocking connection to one broker, for one request at a time.

Schemas come from kio; only the versions named at the call are used.
"""

from __future__ import annotations

import socket
import ssl
import struct
import time
from collections.abc import Mapping
from typing import Any

from kvorum.client.connection_hints import connection_hint
from kvorum.client.current import current_security, profile_clause
from kvorum.client.failures import EXIT_NOT_AUTHORIZED, EXIT_UNREACHABLE, CommandFailed
from kvorum.client.security import ClientSecurity
from kvorum.runtime.errors import ErrorCode, WireError, required
from kvorum.runtime.text import address_text
from kvorum.runtime.tls import failure_text

CLIENT_ID = b"kvorum-cli"
ANSWER_SLACK_S = 1.0
"""Added to the timeout that the cluster was given: the broker's own timeout error (there is no
quorum) says more than no answer."""


ANSWER_BYTES_MAX = 1 << 30
CHUNK_BYTES_MAX = 1 << 20

#: An ApiVersions v0 request; it only shows that the broker answers.
_VERSIONS = struct.pack(">hhih", 18, 0, 0, len(CLIENT_ID)) + CLIENT_ID

ALIVE_WITHIN_S = 1.0
"""A broker that does not answer ApiVersions within this time hangs, and the next one is asked."""


SESSION_SHARE = 0.85
"""Share of a login's lifetime after which a connection logs in again, as Kafka's clients do."""


class UserRefused(CommandFailed):
    """A broker knows no such user, or another password. user: the one who was refused."""

    def __init__(self, reason: str, user: str, *, hint: str = "") -> None:
        super().__init__(reason, EXIT_NOT_AUTHORIZED, hint=hint)
        self.user = user


class BrokerGone(CommandFailed):
    """A broker that cannot be reached, went away or does not answer; another one may do."""

    def __init__(self, reason: str, *, hint: str = "") -> None:
        super().__init__(reason, EXIT_UNREACHABLE, hint=hint)


class KafkaConnection:
    """Connects to the first address at which a broker answers; the last address need only accept
    the connection.

    Raises BrokerGone if none does. A broker that hangs is skipped before a request
    is sent to it, since it might still carry out a change later.

    A connection whose answer did not come is closed: the late answer would be taken for the one to
    the next request. The next request opens another connection.
    """

    def __init__(
        self,
        addresses: list[tuple[str, int]],
        timeout_s: float,
        *,
        security: ClientSecurity | None = None,
        client_id: bytes = CLIENT_ID,
        answer_slack_s: float | None = None,
    ) -> None:
        """security: None for that of the command that runs. answer_slack_s: None for the usual."""
        self._addresses = addresses
        self._timeout_s = timeout_s
        self._answer_s = timeout_s + (ANSWER_SLACK_S if answer_slack_s is None else answer_slack_s)
        self._client_id = client_id
        self._socket: socket.socket | None = None
        self._correlation_id = 0
        self._address = ""
        self._has_answered = False
        self._login_due_s: float | None = None
        self._security = current_security() if security is None else security
        self._of_profile = profile_clause() if security is None else ""
        self._connect()

    def _connect(self) -> None:
        self._login_due_s = None
        problems = []
        hints: dict[str, None] = {}
        timeout_s, addresses = self._timeout_s, self._addresses
        for at, (host, port) in enumerate(addresses):
            try:
                self._address = address_text(host, port)
                plain = socket.create_connection((host, port), timeout=timeout_s)
                plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._socket = self._security.wrap(plain, host)
                if self._security.mechanism:
                    self._log_in()
                if at + 1 < len(addresses):
                    self._socket.settimeout(min(ALIVE_WITHIN_S, timeout_s))
                    self._send(_VERSIONS)
                self._socket.settimeout(self._answer_s)
                return
            except (OSError, WireError) as error:
                in_handshake = self._socket is None and self._security.context is not None
                self.close()
                reason = _reason(error)
                problems.append(f"{address_text(host, port)} ({reason})")
                hint = connection_hint(self._security, reason, in_handshake=in_handshake)
                hints[hint] = None
        hint = "".join(hints)
        raise BrokerGone(
            f"no broker reachable at {', '.join(problems)}",
            hint=hint and hint + self._of_profile,
        )

    def _log_in(self) -> None:
        """Authenticate as the command's user. Raises CommandFailed, OSError."""
        from kvorum.client.login import LoginRefused, log_in

        try:
            lifetime_s = log_in(self._security, self._send)
        except LoginRefused as error:
            self.close()
            user = self._security.user
            reason = f"broker {self._address} refused user {user}: {error}"
            if error.code == ErrorCode.SASL_AUTHENTICATION_FAILED:
                raise UserRefused(reason, user, hint=self._of_profile) from error
            raise CommandFailed(reason, EXIT_NOT_AUTHORIZED, hint=self._of_profile) from error
        due_s = time.monotonic() + lifetime_s * SESSION_SHARE
        self._login_due_s = due_s if lifetime_s else None

    def _keep_login(self) -> None:
        """Log in again if the broker would soon end the connection (connections.max.reauth.ms).
        Raises CommandFailed, OSError."""
        if self._login_due_s is not None and time.monotonic() >= self._login_due_s:
            self._log_in()

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
        from kvorum.wire.kio_codec import read_response

        answer = self.ask(name, key, version, values, flexible=flexible)
        # Skip the header's empty tagged fields, if it has any.
        body = memoryview(answer)[int(flexible and is_header_flexible) :]
        try:
            return read_response(name, version, body)
        except WireError as error:
            raise CommandFailed(f"the answer to {name} cannot be read: {error}") from error

    def ask(
        self, name: str, key: int, version: int, values: Mapping[str, Any], *, flexible: bool
    ) -> bytes:
        """Send one request; returns the bytes of the answer after the correlation id. Raises
        CommandFailed."""
        from kvorum.wire.kio_codec import encode_request

        self._correlation_id += 1
        client_id = self._client_id
        head = struct.pack(">hhih", key, version, self._correlation_id, len(client_id)) + client_id
        if flexible:
            head += b"\x00"  # no tagged fields in the header
        try:
            body = bytes(encode_request(name, version, values))
        except (struct.error, OverflowError) as error:
            # Options do not limit every number: one that does not fit its field is refused here.
            raise CommandFailed(f"a number is too large for Kafka's protocol: {error}") from error
        if self._socket is None:
            self._connect()
        try:
            self._keep_login()
            answer = self._send(head + body)
            (answered,) = struct.unpack_from(">i", answer)
            if answered != self._correlation_id:
                raise WireError(f"answer {answered} to request {self._correlation_id}")
        except (OSError, WireError) as error:
            raise self._gone(error) from error
        self._has_answered = True
        return answer[4:]

    def _gone(self, error: OSError | WireError) -> BrokerGone:
        self.close()
        if not isinstance(error, TimeoutError):
            # With TLS 1.3 a refused certificate ends a connection whose handshake is over here.
            is_end = isinstance(error, ssl.SSLEOFError)
            reason = "it closed the connection" if is_end else _reason(error)
            hint = "" if self._has_answered else connection_hint(self._security, reason)
            hint = hint and hint + self._of_profile
            return BrokerGone(f"broker {self._address} went away: {reason}", hint=hint)
        return BrokerGone(
            f"broker {self._address} did not answer within {self._answer_s:g} s; its log says "
            "whether it waits for a quorum; kvorum quorum status --bootstrap-controller "
            "HOST:PORT asks the controllers"
        )

    def detach(self) -> socket.socket:
        """The socket, logged in, for a caller that speaks the protocol itself."""
        connection, self._socket = required(self._socket, "the connection is closed"), None
        connection.settimeout(None)
        return connection

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, request: bytes) -> bytes:
        """The answer to a request. Raises OSError."""
        connection = required(self._socket, "the connection is closed")
        connection.sendall(struct.pack(">i", len(request)) + request)
        (size,) = struct.unpack(">i", self._receive(connection, 4))
        if not 4 <= size <= ANSWER_BYTES_MAX:
            raise WireError(f"it announced an answer of {size} bytes")
        return self._receive(connection, size)

    def _receive(self, connection: socket.socket, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = connection.recv(min(size - len(parts), CHUNK_BYTES_MAX))
            if not part:
                raise ConnectionError("it closed the connection")
            parts += part
        return bytes(parts)


def _reason(error: OSError | WireError) -> str:
    """Why a connection failed, in words for an operator."""
    if isinstance(error, WireError):
        return str(error)
    is_tls = isinstance(error, ssl.SSLError)
    return failure_text(error) if is_tls else str(error.strerror or error)
