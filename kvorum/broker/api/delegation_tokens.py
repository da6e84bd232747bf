"""The shared part of the APIs of delegation tokens: their requests, and which clients may send
them.

The requests are parsed here and not by kio: it reads a period into a timedelta, which cannot hold
the longest one that Java's clients send (2^63-1 ms).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kvorum.broker.api.context import RequestContext
from kvorum.metadata.image.acl import USER_PREFIX
from kvorum.metadata.requests.token_requests import TokenExpiration
from kvorum.metadata.rpc.calls import ControllerCall, Request
from kvorum.runtime.errors import ErrorCode, Rejected, WireError
from kvorum.wire.primitives import Reader

FIRST_FLEXIBLE = 2
OWNER_VERSION = 3
"""From this version on, CreateDelegationToken has an owner (KIP-373)."""
NO_TIMESTAMP = 0
"""Sent as a timestamp in a refusal. Kafka sends -1, which kio cannot read."""

TOKENS_OFF = Rejected(
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED,
    "delegation tokens are off: this broker has no delegation.token.secret.key",
)
NOT_ALLOWED = Rejected(
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
    "only a client that has logged in, and not with a token itself, may ask about tokens",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreationRequest:
    """CreateDelegationToken. owner: a principal; "" for the client itself."""

    owner: str
    renewers: tuple[str, ...]
    max_lifetime_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodRequest:
    """RenewDelegationToken and ExpireDelegationToken."""

    hmac: bytes = field(repr=False)
    period_ms: int


def parse_creation(version: int, body: memoryview, items_max: int) -> CreationRequest:
    """Parse the body of CreateDelegationToken. Raises WireError."""
    reader = Reader(body, 0, len(body), items_max=items_max)
    is_flexible = version >= FIRST_FLEXIBLE
    owner = ""
    if version >= OWNER_VERSION:
        kind = reader.nullable_string(is_flexible) or ""
        name = reader.nullable_string(is_flexible)
        owner = f"{kind}:{name}" if name else ""
    count = reader.array_count(is_flexible)
    if count < 0:
        raise WireError("the array of renewers is null")
    renewers = []
    for _ in range(count):
        kind, name = reader.string(is_flexible), reader.string(is_flexible)
        renewers.append(f"{kind}:{name}")
        if is_flexible:
            reader.skip_tags()
    max_lifetime_ms = reader.int64()
    if is_flexible:
        reader.skip_tags()
    return CreationRequest(owner=owner, renewers=tuple(renewers), max_lifetime_ms=max_lifetime_ms)


def parse_period(version: int, body: memoryview, items_max: int) -> PeriodRequest:
    """Parse the body of Renew- or ExpireDelegationToken. Raises WireError."""
    reader = Reader(body, 0, len(body), items_max=items_max)
    is_flexible = version >= FIRST_FLEXIBLE
    length = reader.byte_length(is_flexible)
    start = reader.skip(length)
    period_ms = reader.int64()
    if is_flexible:
        reader.skip_tags()
    return PeriodRequest(hmac=bytes(body[start : start + length]), period_ms=period_ms)


def refusal(context: RequestContext) -> Rejected | None:
    """The refusal of a client that may not send requests about tokens; None if it may."""
    if not context.may_ask_about_tokens:
        return NOT_ALLOWED
    return TOKENS_OFF if context.services.token_key is None else None


async def change_expiration(
    context: RequestContext, call: ControllerCall[Request, TokenExpiration], asked: Request
) -> dict[str, Any]:
    """Have the controller renew or expire a token; returns the answer's fields."""
    reply: TokenExpiration | Rejected | None = refusal(context)
    if reply is None:
        reply = await context.services.controller.request(call, asked)
    if isinstance(reply, Rejected):
        return {"error_code": reply.code, "expiry_timestamp": NO_TIMESTAMP}
    return {"error_code": ErrorCode.NONE, "expiry_timestamp": reply.expiration_timestamp_ms}


def parted(principal: str) -> tuple[str, str]:
    """Type and name of a principal."""
    kind, _, name = principal.partition(":")
    return kind, name


def principal_of(context: RequestContext) -> str:
    """The client's principal."""
    return USER_PREFIX + context.user
