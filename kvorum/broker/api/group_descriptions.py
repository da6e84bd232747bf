"""The shared part of ConsumerGroupDescribe and ShareGroupDescribe: groups with their members'
assignments."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from kvorum.broker.api.context import RequestContext, refusal_fields
from kvorum.broker.api.group_calls import ask_named
from kvorum.broker.groups.consumer.member import Partitions
from kvorum.broker.groups.consumer.records import by_topic
from kvorum.broker.metadata_answers.authorized_operations import is_asked
from kvorum.metadata.image.acl import AclOperation, ResourceType
from kvorum.metadata.image.image import ClusterImage
from kvorum.runtime.errors import ErrorCode, Rejected

HIDDEN_TOPICS = Rejected(
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    "The group has described topic(s) that the client is not authorized to describe.",
)
_ASSIGNMENTS = ("assignment", "target_assignment")


async def described_groups(
    context: RequestContext,
    request: Any,
    ask: Callable[[str], Any],
    member_of: Callable[[Any, ClusterImage], dict[str, Any]],
) -> dict[str, Any]:
    """The answer's fields.

    ask: the question to the coordinator of a group, by its id; its answer is a description or a
    refusal. member_of: the fields of one member of a description.
    """
    group_ids = list(dict.fromkeys(request.group_ids))
    needs = AclOperation.DESCRIBE
    answers = await asyncio.gather(
        *(ask_named(context, group_id, ask(group_id), needs=needs) for group_id in group_ids)
    )
    image = context.services.image()
    with_operations = is_asked(request, "include_authorized_operations")
    rows = []
    for group_id, found in zip(group_ids, answers, strict=True):
        if isinstance(found, (Rejected, ErrorCode)):
            rows.append(_failed(group_id, found))
            continue
        row = {
            "error_code": ErrorCode.NONE,
            "group_id": found.group_id,
            "group_state": found.state,
            "group_epoch": found.group_epoch,
            "assignment_epoch": found.assignment_epoch,
            "assignor_name": found.assignor_name,
            "members": [member_of(member, image) for member in found.members],
        }
        if not _shows_topics(context, row["members"]):
            # As in Kafka: a part of the assignments would look like the whole.
            row = _failed(group_id, HIDDEN_TOPICS)
        if with_operations:
            row["authorized_operations"] = context.operations(ResourceType.GROUP, group_id)
        rows.append(row)
    return {"groups": rows}


def assignment_of(partitions: Partitions, image: ClusterImage) -> dict[str, Any]:
    """The fields of an assignment; deleted topics are left out."""
    rows = []
    for topic_id, numbers in by_topic(partitions):
        topic = image.topics.get(topic_id)
        if topic is not None:
            rows.append({"topic_id": topic_id, "topic_name": topic.name, "partitions": numbers})
    return {"topic_partitions": rows}


def refused_groups(request: Any, refused: Rejected) -> dict[str, Any]:
    """The answer's fields if every group is refused."""
    group_ids = dict.fromkeys(request.group_ids)
    return {"groups": [_failed(group_id, refused) for group_id in group_ids]}


def _shows_topics(context: RequestContext, members: Iterable[dict[str, Any]]) -> bool:
    """True if the client may know of every topic that the members have or want."""
    if not context.has_access_control:
        return True
    names: set[str] = set()
    for member in members:
        names.update(member["subscribed_topic_names"])
        for part in _ASSIGNMENTS:
            if part in member:
                names.update(topic["topic_name"] for topic in member[part]["topic_partitions"])
    return all(context.allows_topic(AclOperation.DESCRIBE, name) for name in sorted(names))


def _failed(group_id: str, refused: Rejected | ErrorCode) -> dict[str, Any]:
    return {
        **refusal_fields(refused),
        "group_id": group_id,
        "group_state": "",
        "group_epoch": 0,
        "assignment_epoch": 0,
        "assignor_name": "",
        "members": (),
    }
