"""DescribeAcls (29). Served: v1-3, from the broker's own metadata.

Errors: INVALID_REQUEST for a filter without a meaning, SECURITY_DISABLED without an authorizer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from itertools import groupby
from typing import Any

from kvorum.broker.api.context import CLUSTER_REFUSED, RequestContext
from kvorum.metadata.access.selection import selected
from kvorum.metadata.image.acl import Acl, AclFilter, AclOperation, ResourceType
from kvorum.metadata.requests.acl_requests import AclSelection
from kvorum.metadata.rpc.calls import ControllerCall, Reply, Request
from kvorum.runtime.errors import ErrorCode, Rejected
from kvorum.wire.versions import Api

API = Api(key=29, name="describe_acls", min_version=1, max_version=3, first_flexible=2)
ACCESS = ((AclOperation.DESCRIBE, ResourceType.CLUSTER),)

NO_AUTHORIZER = Rejected(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
"""With Kafka's message, which its tools print."""


FEW = 1_000
"""Up to this number of ACLs, a thread would cost more time than it saves the event loop."""


async def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    wanted = _wanted(context, request)
    if isinstance(wanted, Rejected):
        return {"error_code": wanted.code, "error_message": wanted.message, "resources": ()}
    acls = context.services.image().acls
    if len(acls) <= FEW:
        resources = _resources(acls, wanted)
    else:
        # The listing of 100,000 ACLs takes most of a second, in which the loop serves others.
        resources = await asyncio.to_thread(_resources, acls, wanted)
    return {"error_code": ErrorCode.NONE, "error_message": "", "resources": resources}


def _wanted(context: RequestContext, request: Any) -> AclFilter | Rejected:
    """The filter of the request, or the request's refusal."""
    if context.services.authorizer is None:
        return NO_AUTHORIZER
    if not context.allows_on_cluster(AclOperation.DESCRIBE):
        return CLUSTER_REFUSED
    return selection_of(request).filter()


def _resources(acls: Mapping[bytes, Acl], wanted: AclFilter) -> list[dict[str, Any]]:
    found = selected(acls.values(), wanted)
    return [
        {
            "resource_type": resource_type,
            "resource_name": name,
            "pattern_type": pattern_type,
            "acls": [
                {
                    "principal": acl.principal,
                    "host": acl.host,
                    "operation": acl.operation,
                    "permission_type": acl.permission,
                }
                for acl in of_pattern
            ],
        }
        for (resource_type, name, pattern_type), of_pattern in groupby(found, _pattern)
    ]


async def change_acls(
    context: RequestContext, call: ControllerCall[Request, Reply], asked: Request
) -> Reply | Rejected:
    """The controller's reply to CreateAcls or DeleteAcls."""
    if context.services.authorizer is None:
        return NO_AUTHORIZER
    return await context.ask_controller(call, asked, needs=AclOperation.ALTER)


def selection_of(item: Any) -> AclSelection:
    """The filter of a DescribeAcls request, or one of those of a DeleteAcls request."""
    return AclSelection(
        resource_type=item.resource_type_filter,
        resource_name=item.resource_name_filter,
        pattern_type=item.pattern_type_filter,
        principal=item.principal_filter,
        host=item.host_filter,
        operation=item.operation,
        permission=item.permission_type,
    )


def _pattern(acl: Acl) -> tuple[int, str, int]:
    return (acl.resource_type, acl.resource_name, acl.pattern_type)
