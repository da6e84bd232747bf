"""Creating, renewing and expiring delegation tokens (KIP-48, KIP-373). Error codes, and the order
of the checks, are Apache Kafka's."""

from __future__ import annotations

import dataclasses

from kvorum.metadata.controller.decide import Context, Decision
from kvorum.metadata.image.acl import USER_PREFIX
from kvorum.metadata.image.features import METADATA_VERSION, TOKEN_LEVEL, level_of
from kvorum.metadata.image.image import ClusterImage
from kvorum.metadata.image.records import DelegationToken, RemoveDelegationToken
from kvorum.metadata.requests.token_requests import (
    CreatedDelegationToken,
    CreateDelegationToken,
    ExpireDelegationToken,
    RenewDelegationToken,
    TokenExpiration,
)
from kvorum.runtime.errors import ErrorCode, Rejected
from kvorum.runtime.ids import new_uuid, uuid_text

TEXT_BYTES_MAX = 8_192
"""Bytes of all principals of a token: a thousand tokens must fit a frame of a snapshot."""
REMOVED_AT_ONCE_MAX = 10_000
"""Expired tokens that one check removes, as one batch of the log."""


def create_delegation_token(
    image: ClusterImage, request: CreateDelegationToken, context: Context
) -> Decision[CreatedDelegationToken | Rejected]:
    """Create a token for the owner. The broker has checked that the requester may ask for it; the
    controller does not."""
    refused = _unavailable(image, context) or _principal_problem(request)
    if refused is not None:
        return Decision((), refused)
    now_ms = context.wall_ms
    lifetime_ms = context.tokens.max_lifetime_ms
    if request.max_lifetime_ms > 0:
        lifetime_ms = min(lifetime_ms, request.max_lifetime_ms)
    token = DelegationToken(
        owner=request.owner,
        requester=request.requester,
        renewers=request.renewers,
        issue_timestamp_ms=now_ms,
        max_timestamp_ms=now_ms + lifetime_ms,
        expiration_timestamp_ms=now_ms + min(lifetime_ms, context.tokens.expiry_time_ms),
        token_id=uuid_text(new_uuid(context.rng)),
    )
    reply = CreatedDelegationToken(
        token_id=token.token_id,
        issue_timestamp_ms=token.issue_timestamp_ms,
        expiration_timestamp_ms=token.expiration_timestamp_ms,
        max_timestamp_ms=token.max_timestamp_ms,
    )
    return Decision((token,), reply)


def renew_delegation_token(
    image: ClusterImage, request: RenewDelegationToken, context: Context
) -> Decision[TokenExpiration | Rejected]:
    """Let a token expire later, or earlier; never after its max timestamp."""
    token = _found(image, request.fingerprint, context)
    if isinstance(token, Rejected):
        return Decision((), token)
    if token.is_expired(context.wall_ms):
        return Decision((), _expired(token))
    if not token.may_be_renewed_by(request.requester):
        return Decision((), _mismatch(token, request.requester))
    period_ms = context.tokens.expiry_time_ms
    if request.renew_period_ms > 0:
        period_ms = min(period_ms, request.renew_period_ms)
    renewed = _until(token, context.wall_ms + period_ms)
    reply = TokenExpiration(expiration_timestamp_ms=renewed.expiration_timestamp_ms)
    return Decision((renewed,), reply)


def expire_delegation_token(
    image: ClusterImage, request: ExpireDelegationToken, context: Context
) -> Decision[TokenExpiration | Rejected]:
    """Let a token expire after a period, or remove it now."""
    token = _found(image, request.fingerprint, context)
    if isinstance(token, Rejected):
        return Decision((), token)
    if not token.may_be_renewed_by(request.requester):
        return Decision((), _mismatch(token, request.requester))
    if request.expiry_period_ms < 0:
        reply = TokenExpiration(expiration_timestamp_ms=context.wall_ms)
        return Decision((RemoveDelegationToken(token.token_id),), reply)
    if token.is_expired(context.wall_ms):
        return Decision((), _expired(token))
    changed = _until(token, context.wall_ms + request.expiry_period_ms)
    reply = TokenExpiration(expiration_timestamp_ms=changed.expiration_timestamp_ms)
    return Decision((changed,), reply)


def remove_expired_tokens(image: ClusterImage, wall_ms: int) -> Decision[bool]:
    """Remove tokens that have expired. The reply is true if there may be more of them."""
    gone: list[RemoveDelegationToken] = []
    for token_id, token in sorted(image.delegation_tokens.items()):
        if token.is_expired(wall_ms):
            if len(gone) == REMOVED_AT_ONCE_MAX:
                return Decision(tuple(gone), True)
            gone.append(RemoveDelegationToken(token_id))
    return Decision(tuple(gone), False)


def _unavailable(image: ClusterImage, context: Context) -> Rejected | None:
    if context.tokens.key is None:
        return Rejected(
            ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED,
            "delegation tokens are off on the controllers; give every node the same "
            "delegation.token.secret.key",
        )
    level = level_of(image.features, METADATA_VERSION)
    if level < TOKEN_LEVEL:
        return Rejected(
            ErrorCode.UNSUPPORTED_VERSION,
            f"delegation tokens need {METADATA_VERSION} {TOKEN_LEVEL}, it is {level}; "
            "upgrade it with `kvorum features upgrade`",
        )
    return None


def _principal_problem(request: CreateDelegationToken) -> Rejected | None:
    principals = (request.owner, request.requester, *request.renewers)
    for principal in principals:
        # Kafka takes an owner of another type, and lets its token log in as the user of that name.
        if not principal.startswith(USER_PREFIX) or principal == USER_PREFIX:
            return Rejected(
                ErrorCode.INVALID_PRINCIPAL_TYPE,
                f"{principal!r} is no user; owner and renewers have the form User:NAME",
            )
    if sum(len(principal.encode()) for principal in principals) > TEXT_BYTES_MAX:
        return Rejected(
            ErrorCode.POLICY_VIOLATION,
            f"the principals of a token have more than {TEXT_BYTES_MAX} bytes; name fewer renewers",
        )
    return None


def _found(image: ClusterImage, fingerprint: bytes, context: Context) -> DelegationToken | Rejected:
    refused = _unavailable(image, context)
    key = context.tokens.key
    if refused is not None or key is None:
        return refused or Rejected(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    token = key.find(image.delegation_tokens, fingerprint)
    if token is None:
        return Rejected(
            ErrorCode.DELEGATION_TOKEN_NOT_FOUND,
            "no delegation token has this HMAC; it may have expired and been removed",
        )
    return token


def _until(token: DelegationToken, time_ms: int) -> DelegationToken:
    return dataclasses.replace(token, expiration_timestamp_ms=min(token.max_timestamp_ms, time_ms))


def _expired(token: DelegationToken) -> Rejected:
    return Rejected(
        ErrorCode.DELEGATION_TOKEN_EXPIRED,
        f"delegation token {token.token_id} has expired; create a new one",
    )


def _mismatch(token: DelegationToken, requester: str) -> Rejected:
    return Rejected(
        ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH,
        f"{requester} is neither the owner nor a renewer of delegation token {token.token_id}",
    )
