"""DescribeDelegationToken (41). Served: v1-3, from this broker's metadata (KIP-48, KIP-373).

A token is shown to its owner, its requester, its renewers, and to those with access; as in Kafka,
with its HMAC. Errors: DELEGATION_TOKEN_AUTH_DISABLED, DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

from kvorum.broker.api.context import RequestContext
from kvorum.broker.api.delegation_tokens import parted, principal_of, refusal
from kvorum.metadata.access.tokens import TokenKey
from kvorum.metadata.image.acl import AclOperation, ResourceType
from kvorum.metadata.image.records import DelegationToken
from kvorum.runtime.errors import ErrorCode, required
from kvorum.wire.versions import Api

API = Api(key=41, name="describe_delegation_token", min_version=1, max_version=3, first_flexible=2)
ACCESS = (
    (AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN),
    (AclOperation.DESCRIBE_TOKENS, ResourceType.USER),
)
"""One of them, for tokens that are not the client's: the names are the token's id and its owner."""

CHUNK = 200
"""Tokens checked in one turn of the event loop."""


async def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    refused = refusal(context)
    if refused is not None:
        return {"error_code": refused.code, "tokens": ()}
    key = required(context.services.token_key, "checked")
    owners = None
    if request.owners is not None:
        owners = {f"{each.principal_type}:{each.principal_name}" for each in request.owners}
    tokens = context.services.image().delegation_tokens
    rows: list[dict[str, Any]] = []
    for number, (_, token) in enumerate(sorted(tokens.items()) if owners != set() else ()):
        if number % CHUNK == CHUNK - 1:
            await asyncio.sleep(0)
        if _is_shown(context, token, owners):
            rows.append(_row(token, key))
    return {"error_code": ErrorCode.NONE, "tokens": rows}


def _is_shown(
    context: RequestContext, token: DelegationToken, owners: Collection[str] | None
) -> bool:
    if owners is not None and not any(map(token.is_of, owners)):
        return False
    return (
        token.is_of(principal_of(context))
        or context.shows(ResourceType.DELEGATION_TOKEN, token.token_id)
        or context.shows(ResourceType.USER, token.owner, AclOperation.DESCRIBE_TOKENS)
    )


def _row(token: DelegationToken, key: TokenKey) -> dict[str, Any]:
    owner_type, owner_name = parted(token.owner)
    requester_type, requester_name = parted(token.requester)
    renewers = [
        {"principal_type": kind, "principal_name": name}
        for kind, name in map(parted, token.renewers)
    ]
    return {
        "principal_type": owner_type,
        "principal_name": owner_name,
        "token_requester_principal_type": requester_type,
        "token_requester_principal_name": requester_name,
        "issue_timestamp": token.issue_timestamp_ms,
        "expiry_timestamp": token.expiration_timestamp_ms,
        "max_timestamp": token.max_timestamp_ms,
        "token_id": token.token_id,
        "hmac": key.hmac(token.token_id),
        "renewers": renewers,
    }
