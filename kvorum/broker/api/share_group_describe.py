"""ShareGroupDescribe (77). Served: v1 (KIP-932): members with their assignments.

Deleted topics are left out. Errors of a group: the coordinator errors 14 to 16, INVALID_GROUP_ID,
GROUP_ID_NOT_FOUND (also for another type of group), TOPIC_AUTHORIZATION_FAILED if a topic of the
group is hidden from the client. The answer has replicated state only.
"""

from __future__ import annotations

import asyncio
from typing import Any

from kvorum.broker.api import share_partitions
from kvorum.broker.api.context import RequestContext
from kvorum.broker.api.group_calls import ask_named
from kvorum.broker.groups.consumer.records import by_topic
from kvorum.broker.groups.share.records import ShareMember
from kvorum.broker.groups.share.requests import DescribeShareGroup, ShareGroupDescription
from kvorum.broker.metadata_answers.authorized_operations import is_asked
from kvorum.metadata.image.acl import AclOperation, ResourceType
from kvorum.metadata.image.image import ClusterImage
from kvorum.runtime.errors import ErrorCode, Rejected
from kvorum.wire.versions import Api

API = Api(key=77, name="share_group_describe", min_version=1, max_version=1, first_flexible=0)
ACCESS = ((AclOperation.DESCRIBE, ResourceType.GROUP), (AclOperation.DESCRIBE, ResourceType.TOPIC))

_HIDDEN_TOPICS = Rejected(
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    "The group has described topic(s) that the client is not authorized to describe.",
)


async def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    group_ids = list(dict.fromkeys(request.group_ids))
    off = share_partitions.feature_refusal(context)
    if off is not None:
        return {"groups": [_failed(group_id, off) for group_id in group_ids]}
    needs = AclOperation.DESCRIBE
    answers = await asyncio.gather(
        *(
            ask_named(context, group_id, DescribeShareGroup(group_id=group_id), needs=needs)
            for group_id in group_ids
        )
    )
    image = context.services.image()
    with_operations = is_asked(request, "include_authorized_operations")
    rows = []
    for group_id, found in zip(group_ids, answers, strict=True):
        if not isinstance(found, ShareGroupDescription):
            rows.append(_failed(group_id, found))
            continue
        row = _row(found, image)
        if not all(context.allows_topic(needs, name) for name in sorted(_topics_of(row))):
            # As in Kafka: a part of the assignments would look like the whole.
            row = _failed(group_id, _HIDDEN_TOPICS)
        if with_operations:
            row["authorized_operations"] = context.operations(ResourceType.GROUP, group_id)
        rows.append(row)
    return {"groups": rows}


def _topics_of(row: dict[str, Any]) -> set[str]:
    """Names of the topics that the group's members have or want."""
    names = {name for member in row["members"] for name in member["subscribed_topic_names"]}
    for member in row["members"]:
        names.update(topic["topic_name"] for topic in member["assignment"]["topic_partitions"])
    return names


def _row(found: ShareGroupDescription, image: ClusterImage) -> dict[str, Any]:
    return {
        "error_code": ErrorCode.NONE,
        "group_id": found.group_id,
        "group_state": found.state,
        "group_epoch": found.group_epoch,
        "assignment_epoch": found.assignment_epoch,
        "assignor_name": found.assignor_name,
        "members": [_member(member, image) for member in found.members],
    }


def _member(member: ShareMember, image: ClusterImage) -> dict[str, Any]:
    rows = []
    for topic_id, numbers in by_topic(member.assigned):
        topic = image.topics.get(topic_id)
        if topic is not None:
            rows.append({"topic_id": topic_id, "topic_name": topic.name, "partitions": numbers})
    return {
        "member_id": member.member_id,
        "rack_id": member.rack_id,
        "member_epoch": member.member_epoch,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": member.subscribed_topic_names,
        "assignment": {"topic_partitions": rows},
    }


def _failed(group_id: str, refused: Rejected | ErrorCode) -> dict[str, Any]:
    return {
        "error_code": refused.code if isinstance(refused, Rejected) else refused,
        "error_message": refused.message if isinstance(refused, Rejected) else None,
        "group_id": group_id,
        "group_state": "",
        "group_epoch": 0,
        "assignment_epoch": 0,
        "assignor_name": "",
        "members": (),
    }
