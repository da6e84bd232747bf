"""DeleteGroups (42). Served: v0-3. Deletes a group without members, with all its offsets.

v3 has a message for each group, which is null here: the codes say it all.

Errors of a group: the coordinator errors 14 to 16, INVALID_GROUP_ID, NON_EMPTY_GROUP,
GROUP_ID_NOT_FOUND.
"""

from __future__ import annotations

import asyncio
from typing import Any

from kvorum.broker.api.context import RequestContext
from kvorum.broker.api.group_calls import ask
from kvorum.broker.groups.steps.requests import DeleteGroup
from kvorum.metadata.image.acl import AclOperation, ResourceType
from kvorum.wire.versions import Api

API = Api(key=42, name="delete_groups", min_version=0, max_version=3, first_flexible=2)
ACCESS = ((AclOperation.DELETE, ResourceType.GROUP),)


async def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    group_ids = list(dict.fromkeys(request.groups_names))
    errors = await asyncio.gather(
        *(
            ask(context, group_id, DeleteGroup(group_id=group_id), needs=AclOperation.DELETE)
            for group_id in group_ids
        )
    )
    return {
        "results": [
            {"group_id": group_id, "error_code": error}
            for group_id, error in zip(group_ids, errors, strict=True)
        ]
    }
