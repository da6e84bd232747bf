"""ConsumerGroupDescribe (69). Served: v0-1 (KIP-848): members with their assignments and targets.

v1 has the protocol of each member (0 classic, 1 consumer). Deleted topics are left out. Errors of a
group: the coordinator errors 14 to 16, INVALID_GROUP_ID, GROUP_ID_NOT_FOUND (also for a classic
group). The answer has replicated state only. If authorized operations are requested, each group has
those that the client may perform on it.
"""

from __future__ import annotations

from typing import Any

from kvorum.broker.api.context import RequestContext
from kvorum.broker.api.group_descriptions import assignment_of, described_groups
from kvorum.broker.groups.consumer.requests import DescribeConsumerGroup, DescribedMember
from kvorum.metadata.image.acl import AclOperation, ResourceType
from kvorum.metadata.image.image import ClusterImage
from kvorum.wire.versions import Api

API = Api(key=69, name="consumer_group_describe", min_version=0, max_version=1, first_flexible=0)
ACCESS = ((AclOperation.DESCRIBE, ResourceType.GROUP), (AclOperation.DESCRIBE, ResourceType.TOPIC))

_CLASSIC_MEMBER = 0
_CONSUMER_MEMBER = 1


async def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    def ask(group_id: str) -> DescribeConsumerGroup:
        return DescribeConsumerGroup(group_id=group_id)

    return await described_groups(context, request, ask, _member)


def _member(described: DescribedMember, image: ClusterImage) -> dict[str, Any]:
    member = described.member
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "rack_id": member.rack_id,
        "member_epoch": member.member_epoch,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": member.subscribed_topic_names,
        "subscribed_topic_regex": member.subscribed_topic_regex,
        "assignment": assignment_of(member.assigned, image),
        "target_assignment": assignment_of(described.target, image),
        "member_type": _CONSUMER_MEMBER if member.classic is None else _CLASSIC_MEMBER,
    }
