"""OffsetDelete (47). Served: v0.

Errors: 14, 15, 16, 24, 68 (members of another protocol than "consumer"), 69 of the whole; 3 of a
partition that is not there, 86 of the partitions of a topic that a member subscribes to.
"""

from __future__ import annotations

from typing import Any

from kvorum.broker.api.context import RequestContext
from kvorum.broker.api.group_calls import ask_named, has_partition
from kvorum.broker.groups.requests import DeleteOffsets, TopicPartitions
from kvorum.runtime.errors import ErrorCode
from kvorum.wire.versions import Api

API = Api(key=47, name="offset_delete", min_version=0, max_version=0, first_flexible=1)


async def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    known = [
        TopicPartitions(
            topic.name,
            tuple(
                row.partition_index
                for row in topic.partitions
                if has_partition(context, topic.name, row.partition_index)
            ),
        )
        for topic in request.topics
    ]
    body = DeleteOffsets(group_id=request.group_id, topics=tuple(known))
    deleted = await ask_named(context, request.group_id, body)
    if isinstance(deleted, ErrorCode):
        return {"error_code": deleted, "topics": ()}
    topics = []
    for topic, outcome in zip(request.topics, deleted.topics, strict=True):
        there = set(outcome.partitions)
        rows = [
            {
                "partition_index": row.partition_index,
                "error_code": (
                    outcome.error
                    if row.partition_index in there
                    else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                ),
            }
            for row in topic.partitions
        ]
        topics.append({"name": topic.name, "partitions": rows})
    return {"error_code": ErrorCode.NONE, "topics": topics}
