"""CreateAcls (30). Served: v1-3; any broker forwards it to the controller.

An ACL that exists already is created without an error. Errors of a creation: INVALID_REQUEST,
UNSUPPORTED_VERSION, POLICY_VIOLATION (too many in one request); without an authorizer
SECURITY_DISABLED.
"""

from __future__ import annotations

from typing import Any

from kvorum.broker.api.context import RequestContext
from kvorum.broker.api.describe_acls import change_acls
from kvorum.metadata.image.acl import AclOperation, ResourceType
from kvorum.metadata.requests.acl_requests import AclCreation, CreateAcls, CreatedAcl
from kvorum.metadata.rpc.calls import CREATE_ACLS
from kvorum.runtime.errors import Rejected
from kvorum.wire.versions import Api

API = Api(
    key=30,
    name="create_acls",
    min_version=1,
    max_version=3,
    first_flexible=2,
    needs_controller=True,
)
ACCESS = ((AclOperation.ALTER, ResourceType.CLUSTER),)


async def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    asked = CreateAcls(
        creations=tuple(
            AclCreation(
                resource_type=item.resource_type,
                resource_name=item.resource_name,
                pattern_type=item.resource_pattern_type,
                principal=item.principal,
                host=item.host,
                operation=item.operation,
                permission=item.permission_type,
            )
            for item in request.creations
        )
    )
    reply = await change_acls(context, CREATE_ACLS, asked)
    if isinstance(reply, Rejected):
        reply = (CreatedAcl(error=reply.code, message=reply.message),) * len(request.creations)
    return {
        "results": [{"error_code": each.error, "error_message": each.message} for each in reply]
    }
