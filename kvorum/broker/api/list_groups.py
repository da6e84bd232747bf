"""ListGroups (16). Served: v0-5: the groups that this broker coordinates.

v4 has a filter by state, v5 by type ("classic", "consumer"). While a coordinator here is loading,
the error is COORDINATOR_LOAD_IN_PROGRESS: a list without its groups would look complete.
"""

from __future__ import annotations

from typing import Any

from kvorum.broker.api.context import RequestContext
from kvorum.broker.groups.steps.requests import ListGroups
from kvorum.metadata.image.acl import CLUSTER_NAME, AclOperation, ResourceType
from kvorum.runtime.errors import ErrorCode
from kvorum.wire.versions import Api

API = Api(key=16, name="list_groups", min_version=0, max_version=5, first_flexible=3)
ACCESS = (
    (AclOperation.DESCRIBE, ResourceType.CLUSTER),
    (AclOperation.DESCRIBE, ResourceType.GROUP),
)
"""On the cluster for all groups, else the answer has those that the client may describe."""


async def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    body = ListGroups(
        states=frozenset(getattr(request, "states_filter", ())),
        types=frozenset(getattr(request, "types_filter", ())),
    )
    shows_all = context.shows(ResourceType.CLUSTER, CLUSTER_NAME)
    groups: list[dict[str, Any]] = []
    for answer in await context.services.groups.request_all(body):
        if answer == ErrorCode.NOT_COORDINATOR:
            continue  # it has moved meanwhile, and its new broker lists the groups
        if isinstance(answer, ErrorCode):
            return {"error_code": answer, "groups": ()}
        groups += [
            {
                "group_id": row.group_id,
                "protocol_type": row.protocol_type,
                "group_state": row.state,
                "group_type": row.group_type,
            }
            for row in answer
            if shows_all or context.shows(ResourceType.GROUP, row.group_id)
        ]
    return {"error_code": ErrorCode.NONE, "groups": groups}
