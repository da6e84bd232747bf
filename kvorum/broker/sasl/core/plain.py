"""PLAIN (RFC 4616): user and password in clear, so for encrypted connections or test clusters."""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from kvorum.broker.sasl.core.exchange import AuthenticationFailed, Step

NAME = "PLAIN"


class PlainExchange:
    """One exchange. users: passwords by user name."""

    def __init__(self, users: Mapping[str, str]) -> None:
        self._users = users
        self.claimed = ""

    def step(self, token: bytes) -> Step:
        """The one token: `[authorization id] NUL user NUL password`, in UTF-8."""
        parts = token.split(b"\x00")
        if len(parts) != 3:
            raise AuthenticationFailed(
                f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}"
            )
        try:
            authorization_id, user, password = (part.decode() for part in parts)
        except UnicodeDecodeError as error:
            raise AuthenticationFailed("Invalid SASL/PLAIN response: no UTF-8") from error
        self.claimed = user
        if not user:
            raise AuthenticationFailed("Authentication failed: username not specified")
        if not password:
            raise AuthenticationFailed("Authentication failed: password not specified")
        # Compare for an unknown user too, so that the time does not tell if the user exists.
        expected = self._users.get(user)
        is_right = hmac.compare_digest((expected or "").encode(), password.encode())
        if expected is None or not is_right:
            raise AuthenticationFailed("Authentication failed: Invalid username or password")
        if authorization_id and authorization_id != user:
            raise AuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different "
                "from username"
            )
        return Step(b"", user)
