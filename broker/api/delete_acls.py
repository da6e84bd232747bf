"""DeleteAcls (31). Served: v1-3; without an authorizer, each filter gets SECURITY_DISABLED."""

from __future__ import annotations

from typing import Any

from kvorum.broker.api.context import RequestContext
from kvorum.broker.api.describe_acls import NO_AUTHORIZER
from kvorum.runtime.errors import ErrorCode
from kvorum.wire.versions import Api

API = Api(key=31, name="delete_acls", min_version=1, max_version=3, first_flexible=2)


def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    error = ErrorCode.SECURITY_DISABLED
    refused = {"error_code": error, "error_message": NO_AUTHORIZER, "matching_acls": ()}
    return {"filter_results": [refused for _ in request.filters]}
