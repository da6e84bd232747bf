"""OffsetDelete (47). Served: v0.

Errors of the whole: the coordinator errors 14 to 16, INVALID_GROUP_ID, NON_EMPTY_GROUP (members of
a protocol other than "consumer"), GROUP_ID_NOT_FOUND. Of a partition: UNKNOWN_TOPIC_OR_PARTITION,
or GROUP_SUBSCRIBED_TO_TOPIC if a member subscribes to its topic.
"""

from __future__ import annotations

from typing import Any

from kvorum.broker.api.context import RequestContext
from kvorum.broker.api.group_calls import ask_named, has_partition
from kvorum.broker.groups.steps.requests import DeleteOffsets, TopicPartitions
from kvorum.metadata.image.acl import AclOperation, ResourceType
from kvorum.runtime.errors import ErrorCode
from kvorum.wire.versions import Api

API = Api(key=47, name="offset_delete", min_version=0, max_version=0, first_flexible=1)
ACCESS = ((AclOperation.DELETE, ResourceType.GROUP), (AclOperation.READ, ResourceType.TOPIC))


async def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    hidden = {
        topic.name
        for topic in request.topics
        if not context.allows_topic(AclOperation.READ, topic.name)
    }
    known = [
        TopicPartitions(
            topic.name,
            tuple(
                row.partition_index
                for row in topic.partitions
                if has_partition(context, topic.name, row.partition_index)
                and topic.name not in hidden
            ),
        )
        for topic in request.topics
    ]
    body = DeleteOffsets(group_id=request.group_id, topics=tuple(known))
    deleted = await ask_named(context, request.group_id, body, needs=AclOperation.DELETE)
    if isinstance(deleted, ErrorCode):
        return {"error_code": deleted, "topics": ()}
    topics = []
    for topic, outcome in zip(request.topics, deleted.topics, strict=True):
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if topic.name in hidden:
            missing = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        there = set(outcome.partitions)
        rows = [
            {
                "partition_index": row.partition_index,
                "error_code": outcome.error if row.partition_index in there else missing,
            }
            for row in topic.partitions
        ]
        topics.append({"name": topic.name, "partitions": rows})
    return {"error_code": ErrorCode.NONE, "topics": topics}
