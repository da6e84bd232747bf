"""ShareGroupDescribe (77). Served: v1 (KIP-932): members with their assignments.

Deleted topics are left out. Errors of a group: the coordinator errors 14 to 16, INVALID_GROUP_ID,
GROUP_ID_NOT_FOUND (also for another type of group), TOPIC_AUTHORIZATION_FAILED if a topic of the
group is hidden from the client. The answer has replicated state only.
"""

from __future__ import annotations

from typing import Any

from kvorum.broker.api import share_partitions
from kvorum.broker.api.context import RequestContext
from kvorum.broker.api.group_descriptions import (
    assignment_of,
    described_groups,
    refused_groups,
)
from kvorum.broker.groups.share.records import ShareMember
from kvorum.broker.groups.share.requests import DescribeShareGroup
from kvorum.metadata.image.acl import AclOperation, ResourceType
from kvorum.metadata.image.image import ClusterImage
from kvorum.wire.versions import Api

API = Api(key=77, name="share_group_describe", min_version=1, max_version=1, first_flexible=0)
ACCESS = ((AclOperation.DESCRIBE, ResourceType.GROUP), (AclOperation.DESCRIBE, ResourceType.TOPIC))


async def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    off = share_partitions.feature_refusal(context)
    if off is not None:
        return refused_groups(request, off)

    def ask(group_id: str) -> DescribeShareGroup:
        return DescribeShareGroup(group_id=group_id)

    return await described_groups(context, request, ask, _member)


def _member(member: ShareMember, image: ClusterImage) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "rack_id": member.rack_id,
        "member_epoch": member.member_epoch,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": member.subscribed_topic_names,
        "assignment": assignment_of(member.assigned, image),
    }
