"""DeleteAcls (31). Served: v1-3; any broker forwards it to the controller.

The result of a filter lists the ACLs that it matched, also those that another filter of the request
matched too. Errors of a filter: INVALID_REQUEST, POLICY_VIOLATION (the filters have to look at too
many ACLs), UNSUPPORTED_VERSION; without an authorizer SECURITY_DISABLED.
"""

from __future__ import annotations

from typing import Any

from kvorum.broker.api.context import RequestContext
from kvorum.broker.api.describe_acls import change_acls, selection_of
from kvorum.metadata.image.acl import Acl, AclOperation, ResourceType
from kvorum.metadata.requests.acl_requests import DeleteAcls, DeletedAcls
from kvorum.metadata.rpc.calls import DELETE_ACLS
from kvorum.runtime.errors import ErrorCode, Rejected
from kvorum.wire.versions import Api

API = Api(
    key=31,
    name="delete_acls",
    min_version=1,
    max_version=3,
    first_flexible=2,
    needs_controller=True,
)
ACCESS = ((AclOperation.ALTER, ResourceType.CLUSTER),)


async def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    asked = DeleteAcls(filters=tuple(map(selection_of, request.filters)))
    reply = await change_acls(context, DELETE_ACLS, asked)
    if isinstance(reply, Rejected):
        reply = (DeletedAcls(error=reply.code, message=reply.message),) * len(request.filters)
    return {
        "filter_results": [
            {
                "error_code": each.error,
                "error_message": each.message or None,
                "matching_acls": [_row(acl) for acl in each.acls],
            }
            for each in reply
        ]
    }


def _row(acl: Acl) -> dict[str, Any]:
    return {
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "resource_type": acl.resource_type,
        "resource_name": acl.resource_name,
        "pattern_type": acl.pattern_type,
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation,
        "permission_type": acl.permission,
    }
