"""SyncGroup (14). Served: v0-5, for members of the classic protocol.

The leader's request has the assignment; other members' requests are parked until it is replicated.
v3 has static members, v5 protocol type and name, which must be the group's. Errors: the coordinator
errors 14 to 16, ILLEGAL_GENERATION, INCONSISTENT_GROUP_PROTOCOL, INVALID_GROUP_ID,
UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS, FENCED_INSTANCE_ID.
"""

from __future__ import annotations

from typing import Any

from kvorum.broker.api.context import RequestContext
from kvorum.broker.api.group_calls import ask_named
from kvorum.broker.groups.steps.requests import Assignment, Synced, SyncGroup
from kvorum.metadata.image.acl import AclOperation, ResourceType
from kvorum.runtime.errors import ErrorCode
from kvorum.wire.versions import Api

API = Api(key=14, name="sync_group", min_version=0, max_version=5, first_flexible=4)
ACCESS = ((AclOperation.READ, ResourceType.GROUP),)

_FIRST_WITH_PROTOCOL = 5


async def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    has_protocol = context.api_version >= _FIRST_WITH_PROTOCOL
    body = SyncGroup(
        group_id=request.group_id,
        generation_id=request.generation_id,
        member_id=request.member_id,
        group_instance_id=getattr(request, "group_instance_id", None),
        protocol_type=request.protocol_type if has_protocol else None,
        protocol_name=request.protocol_name if has_protocol else None,
        assignments=tuple(Assignment(row.member_id, row.assignment) for row in request.assignments),
    )
    # From v5 on, both fields are required (KIP-559).
    is_incomplete = has_protocol and None in (body.protocol_type, body.protocol_name)
    if is_incomplete:
        synced = Synced(error=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    else:
        synced = await ask_named(context, request.group_id, body, needs=AclOperation.READ)
    if isinstance(synced, ErrorCode):
        synced = Synced(error=synced)
    return {
        "error_code": synced.error,
        "protocol_type": synced.protocol_type,
        "protocol_name": synced.protocol_name,
        "assignment": synced.assignment,
    }
