"""DescribeDelegationToken (41). Served: v1-3.

The answer is DELEGATION_TOKEN_AUTH_DISABLED, since no broker has a token key.
"""

from __future__ import annotations

from typing import Any

from kvorum.broker.api.context import RequestContext
from kvorum.runtime.errors import ErrorCode
from kvorum.wire.versions import Api

API = Api(key=41, name="describe_delegation_token", min_version=1, max_version=3, first_flexible=2)
ACCESS = ()
"""Always refused."""


def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    return {"error_code": ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, "tokens": ()}
