"""CreateAcls (30). Served: v1-3; without an authorizer, each creation gets SECURITY_DISABLED."""

from __future__ import annotations

from typing import Any

from kvorum.broker.api.context import RequestContext
from kvorum.broker.api.describe_acls import NO_AUTHORIZER
from kvorum.runtime.errors import ErrorCode
from kvorum.wire.versions import Api

API = Api(key=30, name="create_acls", min_version=1, max_version=3, first_flexible=2)


def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    refused = {"error_code": ErrorCode.SECURITY_DISABLED, "error_message": NO_AUTHORIZER}
    return {"results": [refused for _ in request.creations]}
