"""DescribeAcls (29). Served: v1-3; without an authorizer, the answer is SECURITY_DISABLED."""

from __future__ import annotations

from typing import Any

from kvorum.broker.api.context import RequestContext
from kvorum.runtime.errors import ErrorCode
from kvorum.wire.versions import Api

API = Api(key=29, name="describe_acls", min_version=1, max_version=3, first_flexible=2)

NO_AUTHORIZER = "No Authorizer is configured."
"""Kafka's message, which its tools print."""


def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    error = ErrorCode.SECURITY_DISABLED
    return {"error_code": error, "error_message": NO_AUTHORIZER, "resources": ()}
