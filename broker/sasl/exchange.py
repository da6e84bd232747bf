"""The parts that the exchanges of all mechanisms share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class AuthenticationFailed(Exception):
    """The client has not proved who it is. The message is for the client, in Kafka's words, which
    are the same for an unknown user and a wrong password. reason: more, for the broker's log."""

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Step:
    """The answer to a token. user: of a client that has now proved who it is, else None.
    lifetime_ms: until the proof expires; None: never. is_token: the proof is a delegation token.
    reason: of a refusal that the client has yet
    to confirm, for the broker's log."""

    answer: bytes
    user: str | None = None
    lifetime_ms: int | None = None
    reason: str = ""
    is_token: bool = False


class Exchange(Protocol):
    """One authentication by one mechanism."""

    def step(self, token: bytes) -> Step:
        """The next token of the client. Raises AuthenticationFailed, after which the exchange is
        over."""
