"""LeaveGroup (13). Served: v0-5; administrators may remove members of either protocol with it.

v3+ takes many members and has an error for each; administrators may name static members by their
instance ids alone. Before v3, the one member's error is the top-level error. v5 has a reason
(ignored). Errors: the coordinator errors 14 to 16, INVALID_GROUP_ID; of a member UNKNOWN_MEMBER_ID,
FENCED_INSTANCE_ID.
"""

from __future__ import annotations

from typing import Any

from kvorum.broker.api.context import RequestContext
from kvorum.broker.api.group_calls import ask_named
from kvorum.broker.groups.steps.requests import LeaveGroup, LeavingMember
from kvorum.metadata.image.acl import AclOperation, ResourceType
from kvorum.runtime.errors import ErrorCode
from kvorum.wire.versions import Api

API = Api(key=13, name="leave_group", min_version=0, max_version=5, first_flexible=4)
ACCESS = ((AclOperation.READ, ResourceType.GROUP),)

_FIRST_WITH_MEMBERS = 3


async def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    has_members = context.api_version >= _FIRST_WITH_MEMBERS
    if has_members:
        members = tuple(LeavingMember(m.member_id, m.group_instance_id) for m in request.members)
    else:
        members = (LeavingMember(request.member_id, None),)
    body = LeaveGroup(group_id=request.group_id, members=members)
    left = await ask_named(context, request.group_id, body, needs=AclOperation.READ)
    if isinstance(left, ErrorCode):
        return {"error_code": left, "members": ()}
    return {
        "error_code": ErrorCode.NONE if has_members else left.members[0].error,
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.group_instance_id,
                "error_code": member.error,
            }
            for member in left.members
        ],
    }
