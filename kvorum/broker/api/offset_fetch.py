"""OffsetFetch (9). Served: v1-9 (v10 with topic ids is not, as in Kafka 4.1).

v2 has null topics (all topics of the group) and a top-level error, v5 leader epochs, v7
RequireStable (KIP-447), v8 many groups, each with its own coordinator, v9 member epochs (checked in
groups of the consumer protocol, KIP-848). A missing offset is -1 without an error, also in a group
that does not exist. The answer has replicated offsets only.

Errors of a group (of each partition in v1): the coordinator errors 14 to 16, INVALID_GROUP_ID,
UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, INVALID_REQUEST if it is named twice. Of a partition:
UNSTABLE_OFFSET_COMMIT.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from kvorum.broker.api.context import RequestContext
from kvorum.broker.api.group_calls import ask
from kvorum.broker.groups.steps.requests import (
    FetchedOffset,
    FetchedTopicOffsets,
    FetchOffsets,
    TopicPartitions,
)
from kvorum.metadata.image.acl import AclOperation, ResourceType
from kvorum.runtime.errors import ErrorCode
from kvorum.wire.versions import Api

API = Api(key=9, name="offset_fetch", min_version=1, max_version=9, first_flexible=6)
ACCESS = ((AclOperation.DESCRIBE, ResourceType.GROUP), (AclOperation.DESCRIBE, ResourceType.TOPIC))

_FIRST_WITH_ERROR = 2
_FIRST_WITH_REQUIRE_STABLE = 7
_FIRST_WITH_GROUPS = 8


async def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    version = context.api_version
    require_stable = version >= _FIRST_WITH_REQUIRE_STABLE and request.require_stable
    if version < _FIRST_WITH_GROUPS:
        found = await _fetch(context, request.group_id, request.topics, require_stable)
        if isinstance(found, ErrorCode):
            topics = _all_failed(request.topics, found) if version < _FIRST_WITH_ERROR else ()
            return {"error_code": found, "topics": _rows(topics)}
        return {"error_code": ErrorCode.NONE, "topics": _rows(found)}
    # A repeated group is refused: it takes a few bytes of the request, and its answer has all its
    # offsets and metadata. No correct client names a group twice.
    counts = Counter(group.group_id for group in request.groups)
    asked = [group for group in request.groups if counts[group.group_id] == 1]
    answers = await asyncio.gather(
        *(
            _fetch(
                context,
                group.group_id,
                group.topics,
                require_stable,
                getattr(group, "member_id", None),
                getattr(group, "member_epoch", -1),
            )
            for group in asked
        )
    )
    by_id = {group.group_id: found for group, found in zip(asked, answers, strict=True)}
    groups = []
    for group in request.groups:
        found = by_id.get(group.group_id, ErrorCode.INVALID_REQUEST)
        error = found if isinstance(found, ErrorCode) else ErrorCode.NONE
        topics = () if isinstance(found, ErrorCode) else found
        groups.append({"group_id": group.group_id, "topics": _rows(topics), "error_code": error})
    return {"groups": groups}


async def _fetch(
    context: RequestContext,
    group_id: str,
    topics: Any,
    require_stable: bool,
    member_id: str | None = None,
    member_epoch: int = -1,
) -> tuple[FetchedTopicOffsets, ...] | ErrorCode:
    asked = None if topics is None else _each_once(topics)
    hidden: tuple[TopicPartitions, ...] = ()
    if asked is not None and context.has_access_control:
        hidden = tuple(
            row for row in asked if not context.allows_topic(AclOperation.DESCRIBE, row.topic)
        )
    body = FetchOffsets(
        group_id=group_id,
        topics=None if asked is None else tuple(row for row in asked if row not in hidden),
        require_stable=require_stable,
        member_id=member_id,
        member_epoch=member_epoch,
    )
    found = await ask(context, group_id, body, needs=AclOperation.DESCRIBE)
    if isinstance(found, ErrorCode):
        return found
    rows: tuple[FetchedTopicOffsets, ...] = found.topics
    if asked is None:
        return tuple(row for row in rows if context.shows(ResourceType.TOPIC, row.topic))
    refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return rows + tuple(
        FetchedTopicOffsets(
            row.topic, tuple(FetchedOffset(p, error=refused) for p in row.partitions)
        )
        for row in hidden
    )


def _each_once(topics: Any) -> tuple[TopicPartitions, ...]:
    """Each partition once: a repeated one would repeat the metadata of its offset."""
    found: dict[str, dict[int, None]] = {}
    for row in topics:
        found.setdefault(row.name, {}).update(dict.fromkeys(row.partition_indexes))
    return tuple(TopicPartitions(name, tuple(ids)) for name, ids in found.items())


def _all_failed(topics: Any, error: ErrorCode) -> tuple[FetchedTopicOffsets, ...]:
    return tuple(
        FetchedTopicOffsets(
            topic.name, tuple(FetchedOffset(p, error=error) for p in topic.partition_indexes)
        )
        for topic in topics
    )


def _rows(topics: tuple[FetchedTopicOffsets, ...]) -> list[dict[str, Any]]:
    return [
        {
            "name": topic.topic,
            "partitions": [
                {
                    "partition_index": row.partition,
                    "committed_offset": row.offset,
                    "committed_leader_epoch": row.leader_epoch,
                    "metadata": row.metadata,
                    "error_code": row.error,
                }
                for row in topic.partitions
            ],
        }
        for topic in topics
    ]
