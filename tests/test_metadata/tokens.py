"""Delegation tokens and requests about them, for tests."""

from __future__ import annotations

from typing import Any

from kvorum.metadata.access.tokens import TokenKey, fingerprint
from kvorum.metadata.controller.core.controller import ControllerConfig
from kvorum.metadata.image.records import DelegationToken
from kvorum.metadata.requests.token_requests import (
    CreateDelegationToken,
    ExpireDelegationToken,
    RenewDelegationToken,
)
from tests.test_metadata.worlds import World

SECRET = "the key of the nodes"
KEY = TokenKey(SECRET)
DAY_MS = 86_400_000
NOW_MS = 1_800_000_000_000


def token(token_id: str = "id-1", **changed: Any) -> DelegationToken:
    """Alice's own token, valid for a day from NOW_MS on, unless changed."""
    fields = {
        "owner": "User:alice",
        "requester": "User:alice",
        "renewers": (),
        "issue_timestamp_ms": NOW_MS,
        "max_timestamp_ms": NOW_MS + 7 * DAY_MS,
        "expiration_timestamp_ms": NOW_MS + DAY_MS,
    }
    return DelegationToken(**(fields | changed), token_id=token_id)


class TokenWorld(World):
    """A controller with a key, at NOW_MS."""

    def __init__(self, *, secret: str = SECRET, **more: Any) -> None:
        config = ControllerConfig(delegation_token_secret_key=secret)
        super().__init__(brokers=(), config=config, **more)
        self.wall_ms = NOW_MS

    def create(self, owner: str = "User:alice", **changed: Any) -> Any:
        fields = {"requester": "User:alice", "owner": owner} | changed
        return self.ask(CreateDelegationToken(**fields))

    def renew(self, token_id: str, by: str = "User:alice", period_ms: int = -1) -> Any:
        return self.ask(
            RenewDelegationToken(
                requester=by, fingerprint=print_of(token_id), renew_period_ms=period_ms
            )
        )

    def expire(self, token_id: str, by: str = "User:alice", period_ms: int = -1) -> Any:
        return self.ask(
            ExpireDelegationToken(
                requester=by, fingerprint=print_of(token_id), expiry_period_ms=period_ms
            )
        )


def print_of(token_id: str) -> bytes:
    return fingerprint(KEY.hmac(token_id))
