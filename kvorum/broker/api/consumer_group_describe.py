"""ConsumerGroupDescribe (69). Served: v0-1 (KIP-848): members with their assignments and targets.

v1 has the protocol of each member (0 classic, 1 consumer). Deleted topics are left out. Errors of a
group: the coordinator errors 14 to 16, INVALID_GROUP_ID, GROUP_ID_NOT_FOUND (also for a classic
group). The answer has replicated state only. If authorized operations are requested, each group has
those that the client may perform on it.
"""

from __future__ import annotations

import asyncio
from typing import Any

from kvorum.broker.api.context import RequestContext
from kvorum.broker.api.group_calls import ask_named
from kvorum.broker.groups.consumer.member import Partitions
from kvorum.broker.groups.consumer.records import by_topic
from kvorum.broker.groups.consumer.requests import (
    ConsumerGroupDescription,
    DescribeConsumerGroup,
    DescribedMember,
)
from kvorum.broker.metadata_answers.authorized_operations import is_asked
from kvorum.metadata.image.acl import AclOperation, ResourceType
from kvorum.metadata.image.image import ClusterImage
from kvorum.runtime.errors import ErrorCode, Rejected
from kvorum.wire.versions import Api

API = Api(key=69, name="consumer_group_describe", min_version=0, max_version=1, first_flexible=0)
ACCESS = ((AclOperation.DESCRIBE, ResourceType.GROUP), (AclOperation.DESCRIBE, ResourceType.TOPIC))

_CLASSIC_MEMBER = 0
_CONSUMER_MEMBER = 1
_HIDDEN_TOPICS = Rejected(
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    "The group has described topic(s) that the client is not authorized to describe.",
)


async def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    group_ids = list(dict.fromkeys(request.group_ids))
    answers = await asyncio.gather(
        *(
            ask_named(
                context,
                group_id,
                DescribeConsumerGroup(group_id=group_id),
                needs=AclOperation.DESCRIBE,
            )
            for group_id in group_ids
        )
    )
    image = context.services.image()
    with_operations = is_asked(request, "include_authorized_operations")
    rows = []
    for group_id, found in zip(group_ids, answers, strict=True):
        if not isinstance(found, ConsumerGroupDescription):
            rows.append(_failed(group_id, found))
            continue
        row = _row(found, image)
        if not _shows_topics(context, row):
            # As in Kafka: a part of the assignments would look like the whole.
            row = _failed(group_id, _HIDDEN_TOPICS)
        if with_operations:
            row["authorized_operations"] = context.operations(ResourceType.GROUP, group_id)
        rows.append(row)
    return {"groups": rows}


def _shows_topics(context: RequestContext, row: dict[str, Any]) -> bool:
    """True if the client may know of every topic that the group's members have or want."""
    if not context.has_access_control:
        return True
    names = {
        topic["topic_name"]
        for member in row["members"]
        for part in ("assignment", "target_assignment")
        for topic in member[part]["topic_partitions"]
    }
    names.update(name for member in row["members"] for name in member["subscribed_topic_names"])
    return all(context.allows_topic(AclOperation.DESCRIBE, name) for name in sorted(names))


def _row(found: ConsumerGroupDescription, image: ClusterImage) -> dict[str, Any]:
    return {
        "error_code": ErrorCode.NONE,
        "group_id": found.group_id,
        "group_state": found.state,
        "group_epoch": found.group_epoch,
        "assignment_epoch": found.assignment_epoch,
        "assignor_name": found.assignor_name,
        "members": [_member(described, image) for described in found.members],
    }


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
        "assignment": _assignment(member.assigned, image),
        "target_assignment": _assignment(described.target, image),
        "member_type": _CONSUMER_MEMBER if member.classic is None else _CLASSIC_MEMBER,
    }


def _assignment(partitions: Partitions, image: ClusterImage) -> dict[str, Any]:
    rows = []
    for topic_id, numbers in by_topic(partitions):
        topic = image.topics.get(topic_id)
        if topic is not None:
            rows.append({"topic_id": topic_id, "topic_name": topic.name, "partitions": numbers})
    return {"topic_partitions": rows}


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
