"""DescribeGroups (15). Served: v0-6, for classic groups; other groups are not found.

v4 has instance ids. A group that is not found gets GROUP_ID_NOT_FOUND from v6 on, before that state
"Dead" and no error. Members' metadata and the protocol are present in state Stable only. Other
errors: the coordinator errors 14 to 16, INVALID_GROUP_ID. If authorized operations (v3) are
requested, each group has those that the client may perform on it; a group with an error has none.
"""

from __future__ import annotations

import asyncio
from typing import Any

from kvorum.broker.api.context import RequestContext
from kvorum.broker.api.group_calls import ask
from kvorum.broker.groups.steps.requests import DescribeGroup, GroupDescription
from kvorum.broker.metadata_answers.authorized_operations import is_asked
from kvorum.metadata.image.acl import AclOperation, ResourceType
from kvorum.runtime.errors import ErrorCode
from kvorum.wire.versions import Api

API = Api(key=15, name="describe_groups", min_version=0, max_version=6, first_flexible=5)
ACCESS = ((AclOperation.DESCRIBE, ResourceType.GROUP),)

_FIRST_WITH_NOT_FOUND = 6
_DEAD = "Dead"


async def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    group_ids = list(dict.fromkeys(request.groups))
    answers = await asyncio.gather(
        *(
            ask(context, group_id, DescribeGroup(group_id=group_id), needs=AclOperation.DESCRIBE)
            for group_id in group_ids
        )
    )
    with_operations = is_asked(request, "include_authorized_operations")
    rows = []
    for group_id, found in zip(group_ids, answers, strict=True):
        if isinstance(found, GroupDescription):
            row = _row(found)
        else:
            row = _failed(context, group_id, found)
        if row["error_code"] == ErrorCode.NONE and with_operations:
            row["authorized_operations"] = context.operations(ResourceType.GROUP, group_id)
        rows.append(row)
    return {"groups": rows}


def _row(found: GroupDescription) -> dict[str, Any]:
    return {
        "error_code": ErrorCode.NONE,
        "group_id": found.group_id,
        "group_state": found.state,
        "protocol_type": found.protocol_type,
        "protocol_data": found.protocol_name,
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.group_instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "member_metadata": member.metadata,
                "member_assignment": member.assignment,
            }
            for member in found.members
        ],
    }


def _failed(context: RequestContext, group_id: str, error: ErrorCode) -> dict[str, Any]:
    state, message = "", None
    if error == ErrorCode.GROUP_ID_NOT_FOUND:
        state = _DEAD
        # The group does not exist, or is of another type.
        message = f"There is no classic group {group_id}."
        if context.api_version < _FIRST_WITH_NOT_FOUND:
            error = ErrorCode.NONE
    return {
        "error_code": error,
        "error_message": message,
        "group_id": group_id,
        "group_state": state,
        "protocol_type": "",
        "protocol_data": "",
        "members": (),
    }
