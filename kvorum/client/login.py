"""The login of a client on a connection of Kafka's protocol: a new one, or once more on it."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

from kvorum.broker.sasl.core.client import client_exchange
from kvorum.broker.sasl.core.exchange import AuthenticationFailed
from kvorum.client.security import ClientSecurity
from kvorum.runtime.errors import ErrorCode, required
from kvorum.wire.kio_codec import encode_request, read_response

_CLIENT_ID = b"kvorum"
_HANDSHAKE, _AUTHENTICATE = 17, 36
_HANDSHAKE_VERSION, _AUTHENTICATE_VERSION = 1, 2


class LoginRefused(Exception):
    """The broker refuses the login, or fails to prove that it knows the user's password (SCRAM).
    code: SASL_AUTHENTICATION_FAILED if the user or the password is the reason."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(f"{code.name}: {message}")
        self.code = code


def log_in(security: ClientSecurity, ask: Callable[[bytes], bytes]) -> float:
    """Log in, if the client has a user. Returns the seconds after which the broker ends the
    connection unless the client logs in again on it (KIP-368); 0 for never.

    ask: sends a request and returns its answer, both without their lengths. Raises LoginRefused,
    and what ask raises.
    """
    lifetime_s = 0.0
    if not security.mechanism:
        return lifetime_s
    exchange = required(
        client_exchange(
            security.mechanism,
            security.user,
            security.password,
            security.nonce(),
            is_token=security.is_token,
        ),
        "a known mechanism",
    )
    named = {"mechanism": security.mechanism}
    head = _header(_HANDSHAKE, _HANDSHAKE_VERSION)
    request = encode_request("sasl_handshake", _HANDSHAKE_VERSION, named)
    hello = _read("sasl_handshake", _HANDSHAKE_VERSION, ask(head + bytes(request)), 4)
    offered = ", ".join(hello.mechanisms)
    way_out = f"it offers {offered}; set sasl.mechanism to one of them"
    if not offered:
        protocol = "PLAINTEXT" if security.context is None else "SSL"
        way_out = f"the listener asks for no login; set security.protocol={protocol}"
    _check(int(hello.error_code), way_out)
    # The headers of flexible versions end with their tagged fields, of which there are none.
    head = _header(_AUTHENTICATE, _AUTHENTICATE_VERSION) + b"\x00"
    try:
        token = exchange.step(b"")
        while token is not None:
            values: Mapping[str, Any] = {"auth_bytes": token}
            request = encode_request("sasl_authenticate", _AUTHENTICATE_VERSION, values)
            said = ask(head + bytes(request))
            answer = _read("sasl_authenticate", _AUTHENTICATE_VERSION, said, 5)
            _check(int(answer.error_code), answer.error_message)
            lifetime_s = answer.session_lifetime.total_seconds()
            token = exchange.step(bytes(answer.auth_bytes))
    except AuthenticationFailed as error:
        _check(int(ErrorCode.SASL_AUTHENTICATION_FAILED), str(error))
    return lifetime_s


def _header(key: int, version: int) -> bytes:
    return struct.pack(">hhih", key, version, 0, len(_CLIENT_ID)) + _CLIENT_ID


def _read(name: str, version: int, answer: bytes, start: int) -> Any:
    return read_response(name, version, memoryview(answer)[start:])


def _check(code: int, message: str | None) -> None:
    if code:
        raise LoginRefused(ErrorCode(code), str(message))
