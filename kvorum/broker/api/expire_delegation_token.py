"""ExpireDelegationToken (40). Served: v1-2; any broker forwards it to the controller (KIP-48).

For the owner and the renewers; a negative period removes the token now. Errors:
DELEGATION_TOKEN_AUTH_DISABLED, DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, DELEGATION_TOKEN_NOT_FOUND,
DELEGATION_TOKEN_OWNER_MISMATCH, DELEGATION_TOKEN_EXPIRED, UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from typing import Any

from kvorum.broker.api.context import RequestContext
from kvorum.broker.api.delegation_tokens import (
    PeriodRequest,
    change_expiration,
    parse_period,
    principal_of,
)
from kvorum.metadata.access.tokens import fingerprint
from kvorum.metadata.requests.token_requests import ExpireDelegationToken
from kvorum.metadata.rpc.calls import EXPIRE_DELEGATION_TOKEN
from kvorum.wire.versions import Api

API = Api(
    key=40,
    name="expire_delegation_token",
    min_version=1,
    max_version=2,
    first_flexible=2,
    needs_controller=True,
)
ACCESS = ()
"""The controller looks at the token's owner and renewers."""
parse = parse_period


async def handle(context: RequestContext, request: PeriodRequest) -> dict[str, Any]:
    asked = ExpireDelegationToken(
        requester=principal_of(context),
        fingerprint=fingerprint(request.hmac),
        expiry_period_ms=request.period_ms,
    )
    return await change_expiration(context, EXPIRE_DELEGATION_TOKEN, asked)
