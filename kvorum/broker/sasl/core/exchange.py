"""The parts that the exchanges of all mechanisms share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class AuthenticationFailed(Exception):
    """The peer has not proved who it is. A broker's message is for the client, in Kafka's words,
    which are the same for an unknown user and a wrong password. reason: more, for the broker's
    log."""

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Step:
    """The answer to a token.

    user: the client's user once it is authenticated, else None.
    lifetime_ms: until the proof expires; None: never.
    is_token: the proof is a delegation token.
    reason: why the client is refused, for the broker's log; the refusal is final once the client
        has confirmed it (OAUTHBEARER).
    """

    answer: bytes
    user: str | None = None
    lifetime_ms: int | None = None
    reason: str = ""
    is_token: bool = False


class Exchange(Protocol):
    """One authentication by one mechanism. claimed: the user, or the token's id, that the client
    says to be; "" before that is read. Nothing is proved by it."""

    claimed: str

    def step(self, token: bytes) -> Step:
        """Handle the client's next token. Raises AuthenticationFailed, after which the exchange is
        over."""
