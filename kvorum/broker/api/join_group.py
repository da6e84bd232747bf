"""JoinGroup (11). Served: v0-9, for members of the classic protocol.

The request is parked until the rebalance is over. v1 has a rebalance timeout (before: the session
timeout). From v4 on a new dynamic member gets MEMBER_ID_REQUIRED and an id to join with. v5 has
static members; v7 the protocol type, and a null protocol on errors; v8 a reason (ignored); v9
SkipAssignment.

Errors: the coordinator errors 14 to 16, INCONSISTENT_GROUP_PROTOCOL, INVALID_GROUP_ID,
UNKNOWN_MEMBER_ID, INVALID_SESSION_TIMEOUT, INVALID_REQUEST (a name too long for the log),
MEMBER_ID_REQUIRED, GROUP_MAX_SIZE_REACHED, FENCED_INSTANCE_ID. In a group of the consumer protocol
the request waits for no other member (groups/migration).
"""

from __future__ import annotations

from typing import Any

from kvorum.broker.api.context import RequestContext
from kvorum.broker.api.group_calls import ask_named
from kvorum.broker.groups.steps.requests import Joined, JoinGroup, ProtocolMetadata
from kvorum.metadata.image.acl import AclOperation, ResourceType
from kvorum.runtime.errors import ErrorCode
from kvorum.wire.kio_codec import milliseconds
from kvorum.wire.versions import Api

API = Api(key=11, name="join_group", min_version=0, max_version=9, first_flexible=6)
ACCESS = ((AclOperation.READ, ResourceType.GROUP),)

_FIRST_WITH_MEMBER_ID_REQUIRED = 4
_FIRST_WITH_NULL_PROTOCOL = 7
_FIRST_WITH_SKIP_ASSIGNMENT = 9


async def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    version = context.api_version
    session_timeout_ms = milliseconds(request.session_timeout)
    body = JoinGroup(
        group_id=request.group_id,
        member_id=request.member_id,
        group_instance_id=getattr(request, "group_instance_id", None),
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=(
            milliseconds(request.rebalance_timeout) if version >= 1 else session_timeout_ms
        ),
        protocol_type=request.protocol_type,
        protocols=tuple(ProtocolMetadata(row.name, row.metadata) for row in request.protocols),
        requires_known_member_id=version >= _FIRST_WITH_MEMBER_ID_REQUIRED,
        can_skip_assignment=version >= _FIRST_WITH_SKIP_ASSIGNMENT,
    )
    joined = await ask_named(context, request.group_id, body, needs=AclOperation.READ)
    if isinstance(joined, ErrorCode):
        joined = Joined(error=joined, member_id=request.member_id)
    protocol_name = joined.protocol_name
    if protocol_name is None and version < _FIRST_WITH_NULL_PROTOCOL:
        protocol_name = ""
    return {
        "error_code": joined.error,
        "generation_id": joined.generation_id,
        "protocol_type": joined.protocol_type,
        "protocol_name": protocol_name,
        "leader": joined.leader,
        "skip_assignment": joined.skip_assignment,
        "member_id": joined.member_id,
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.group_instance_id,
                "metadata": member.metadata,
            }
            for member in joined.members
        ],
    }
