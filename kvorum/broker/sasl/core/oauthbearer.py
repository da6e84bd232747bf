"""OAUTHBEARER (RFC 7628, KIP-255): the client sends a token, which `jwt_validation` checks. Pure.

A client whose token is refused first gets a JSON error. The client answers it with one octet, and
then gets SASL_AUTHENTICATION_FAILED.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

from kvorum.broker.sasl.core.exchange import AuthenticationFailed, Step

NAME = "OAUTHBEARER"
MESSAGE_BYTES_MAX = 98_304
"""Largest message of a client: a token of 64 KiB and its extensions."""
_SEPARATOR = "\x01"
_AFTER_ERROR = b"\x01"
#: No channel binding; the key-value pairs behind `auth` are extensions, which nothing here reads.
_FIRST = re.compile(
    r"n,(?:a=(?P<authorization_id>(?:[\x02-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+))?,"
    "\x01(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01",
    re.DOTALL,
)
_BEARER = re.compile(r"(?P<scheme>\w+) +(?P<token>[-_.a-zA-Z0-9]+)", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The claims that a token must have, from Kafka's sasl.oauthbearer.* properties.

    audience: the token must name one of these; if empty, a token that names an audience is refused.
    issuer: "" for any.
    clock_skew_ms: allowed between the issuer's clock and the broker's.
    """

    audience: tuple[str, ...] = ()
    issuer: str = ""
    clock_skew_ms: int = 30_000
    scope_claim: str = "scope"
    sub_claim: str = "sub"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySetPlace:
    """Address of the issuer's keys.

    what: the listener, for messages.
    url: file:, http: or https:.

    refresh_ms: between two fetches.
    backoff_ms, backoff_max_ms: after a failed one, doubled each time.
    """

    what: str
    url: str
    refresh_ms: int = 3_600_000
    backoff_ms: int = 100
    backoff_max_ms: int = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthBearerSettings:
    """OAUTHBEARER of one listener."""

    expected: Expected
    key_set: KeySetPlace


class TokenRefused(Exception):
    """The token is not accepted. The message is for the broker's log and has no part of the token;
    the client gets only `invalid_token`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedToken:
    """A valid token.

    user: its user.
    lifetime_ms: until it expires.
    """

    user: str
    lifetime_ms: int


Validate = Callable[[str], VerifiedToken]
"""Validates a token. Raises TokenRefused."""


class OAuthBearerExchange:
    """One exchange of one or two tokens."""

    def __init__(self, validate: Validate) -> None:
        self._validate = validate
        self._is_over = False
        self._error = ""
        self.claimed = ""

    def step(self, token: bytes) -> Step:
        """See `Exchange`."""
        if self._error:
            error, self._error = self._error, ""
            if token == _AFTER_ERROR:
                raise AuthenticationFailed(error)
        if self._is_over:
            raise _malformed("a second message")
        self._is_over = True
        bearer, authorization_id = _parsed(token)
        self.claimed = authorization_id
        try:
            verified = self._validate(bearer)
        except TokenRefused as refusal:
            self._error = json.dumps({"status": "invalid_token"}, separators=(",", ":"))
            # Report the reason now: not every client sends the octet that confirms the refusal.
            return Step(self._error.encode(), reason=str(refusal))
        if authorization_id and authorization_id != verified.user:
            raise AuthenticationFailed(
                "Authentication failed: Client requested an authorization id "
                f"({authorization_id}) that is different from the token's principal name "
                f"({verified.user})"
            )
        return Step(b"", verified.user, verified.lifetime_ms)


def _parsed(token: bytes) -> tuple[str, str]:
    """The bearer token and the authorization id, which may be empty."""
    if len(token) > MESSAGE_BYTES_MAX:
        raise _malformed(f"{len(token)} bytes")
    try:
        text = token.decode()
    except UnicodeDecodeError as error:
        raise _malformed("no UTF-8") from error
    found = _FIRST.fullmatch(text)
    if found is None:
        raise _malformed("not the form of RFC 7628")
    pairs = [pair.partition("=")[::2] for pair in found["pairs"].split(_SEPARATOR) if pair]
    values = dict(pairs)
    if len(values) != len(pairs) or "auth" not in values:
        raise _malformed("a key twice, or no auth")
    bearer = _BEARER.fullmatch(values["auth"])
    if bearer is None or bearer["scheme"].lower() != "bearer":
        raise _malformed("auth is no bearer token")
    authorization_id = found["authorization_id"] or ""
    return bearer["token"], authorization_id.replace("=2C", ",").replace("=3D", "=")


def _malformed(reason: str) -> AuthenticationFailed:
    return AuthenticationFailed(
        "Authentication failed during authentication due to invalid credentials with SASL "
        f"mechanism {NAME}",
        reason,
    )
