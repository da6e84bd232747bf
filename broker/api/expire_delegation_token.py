"""ExpireDelegationToken (40). Served: v1-2.

Answers DELEGATION_TOKEN_AUTH_DISABLED, as no broker has a key.
"""

from __future__ import annotations

from typing import Any

from broker.context import RequestContext
from runtime.errors import ErrorCode
from wire.versions import Api

API = Api(key=40, name="expire_delegation_token", min_version=1, max_version=2, first_flexible=2)


def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    return {"error_code": ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, "expiry_timestamp": 0}
