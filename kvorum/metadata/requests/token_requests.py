"""Requests to the active controller about delegation tokens (KIP-48, KIP-373), and its replies.

Principals are text, `User:NAME`; periods are milliseconds, times are wall-clock milliseconds. No
request or reply has an HMAC: see `metadata.access.tokens`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateDelegationToken:
    """A token to create. max_lifetime_ms: 0 or less for delegation.token.max.lifetime.ms."""

    requester: str
    owner: str
    renewers: tuple[str, ...] = ()
    max_lifetime_ms: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedDelegationToken:
    """The new token. For the fields see the record `DelegationToken`."""

    token_id: str
    issue_timestamp_ms: int
    expiration_timestamp_ms: int
    max_timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RenewDelegationToken:
    """The token of a fingerprint gets a new expiration. renew_period_ms: 0 or less for
    delegation.token.expiry.time.ms."""

    requester: str
    fingerprint: bytes
    renew_period_ms: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireDelegationToken:
    """The token of a fingerprint expires after this time; with less than 0 it is removed now."""

    requester: str
    fingerprint: bytes
    expiry_period_ms: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenExpiration:
    """The time at which a token that was renewed or expired now expires."""

    expiration_timestamp_ms: int
