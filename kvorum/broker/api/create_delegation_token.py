"""CreateDelegationToken (38). Served: v1-3; any broker forwards it to the controller (KIP-48).

v3 has an owner other than the client (KIP-373). The controller makes the token, and this broker
computes its HMAC. Errors: DELEGATION_TOKEN_AUTH_DISABLED, DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
DELEGATION_TOKEN_AUTHORIZATION_FAILED, INVALID_PRINCIPAL_TYPE, UNSUPPORTED_VERSION,
POLICY_VIOLATION (too many renewers).
"""

from __future__ import annotations

from typing import Any

from kvorum.broker.api.context import RequestContext
from kvorum.broker.api.delegation_tokens import (
    NO_TIMESTAMP,
    CreationRequest,
    parse_creation,
    parted,
    principal_of,
    refusal,
)
from kvorum.metadata.image.acl import AclOperation, ResourceType
from kvorum.metadata.requests.token_requests import CreatedDelegationToken, CreateDelegationToken
from kvorum.metadata.rpc.calls import CREATE_DELEGATION_TOKEN
from kvorum.runtime.errors import ErrorCode, Rejected, required
from kvorum.wire.versions import Api

API = Api(
    key=38,
    name="create_delegation_token",
    min_version=1,
    max_version=3,
    first_flexible=2,
    needs_controller=True,
)
ACCESS = ((AclOperation.CREATE_TOKENS, ResourceType.USER),)
"""Only for a token of another user, whose principal is the name of the resource."""
parse = parse_creation

_NOT_AUTHORIZED = Rejected(
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED, "Delegation Token authorization failed."
)


async def handle(context: RequestContext, request: CreationRequest) -> dict[str, Any]:
    requester = principal_of(context)
    owner = request.owner or requester
    reply = await _reply(context, request, owner)
    owner_type, owner_name = parted(owner)
    requester_type, requester_name = parted(requester)
    values: dict[str, Any] = {
        "error_code": ErrorCode.NONE,
        "principal_type": owner_type,
        "principal_name": owner_name,
        "token_requester_principal_type": requester_type,
        "token_requester_principal_name": requester_name,
        "issue_timestamp": NO_TIMESTAMP,
        "expiry_timestamp": NO_TIMESTAMP,
        "max_timestamp": NO_TIMESTAMP,
        "token_id": "",
        "hmac": b"",
    }
    if isinstance(reply, Rejected):
        return values | {"error_code": reply.code}
    return values | {
        "issue_timestamp": reply.issue_timestamp_ms,
        "expiry_timestamp": reply.expiration_timestamp_ms,
        "max_timestamp": reply.max_timestamp_ms,
        "token_id": reply.token_id,
        "hmac": required(context.services.token_key, "checked").hmac(reply.token_id),
    }


async def _reply(
    context: RequestContext, request: CreationRequest, owner: str
) -> CreatedDelegationToken | Rejected:
    refused = refusal(context)
    if refused is not None:
        return refused
    requester = principal_of(context)
    if owner != requester and not context.allows(
        AclOperation.CREATE_TOKENS, ResourceType.USER, owner
    ):
        return _NOT_AUTHORIZED
    asked = CreateDelegationToken(
        requester=requester,
        owner=owner,
        renewers=request.renewers,
        max_lifetime_ms=request.max_lifetime_ms,
    )
    return await context.services.controller.request(CREATE_DELEGATION_TOKEN, asked)
