"""OffsetFetch (9). Served: v1-10.

v2 has null topics (all topics of the group) and a top-level error, v5 leader epochs, v7
RequireStable (KIP-447), v8 many groups, each with its own coordinator, v9 member epochs (checked in
groups of the consumer protocol, KIP-848), v10 topic ids in place of names. A missing offset is -1
without an error, also in a group that does not exist. The answer has replicated offsets only.

Errors of a group (of each partition in v1): the coordinator errors 14 to 16, INVALID_GROUP_ID,
UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, INVALID_REQUEST if it is named twice. Of a partition:
UNSTABLE_OFFSET_COMMIT, UNKNOWN_TOPIC_ID.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from typing import Any

from kvorum.broker.api.context import RequestContext
from kvorum.broker.api.group_calls import ask, asked_topic
from kvorum.broker.groups.steps.requests import (
    FetchedOffset,
    FetchedTopicOffsets,
    FetchOffsets,
    TopicPartitions,
)
from kvorum.metadata.image.acl import AclOperation, ResourceType
from kvorum.runtime.errors import ErrorCode
from kvorum.wire.kio_codec import uuid_bytes
from kvorum.wire.versions import Api

API = Api(key=9, name="offset_fetch", min_version=1, max_version=10, first_flexible=6)
ACCESS = ((AclOperation.DESCRIBE, ResourceType.GROUP), (AclOperation.DESCRIBE, ResourceType.TOPIC))

_FIRST_WITH_ERROR = 2
_FIRST_WITH_REQUIRE_STABLE = 7
_FIRST_WITH_GROUPS = 8
_FIRST_WITH_TOPIC_ID = 10


async def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    version = context.api_version
    require_stable = version >= _FIRST_WITH_REQUIRE_STABLE and request.require_stable
    if version < _FIRST_WITH_GROUPS:
        found = await _fetch(context, request, require_stable)
        if isinstance(found, ErrorCode):
            topics = _all_failed(request.topics, found) if version < _FIRST_WITH_ERROR else ()
            return {"error_code": found, "topics": _rows(topics)}
        return {"error_code": ErrorCode.NONE, "topics": _rows(found)}
    # A repeated group is refused: it takes a few bytes of the request, and its answer has all its
    # offsets and metadata. No correct client names a group twice.
    counts = Counter(group.group_id for group in request.groups)
    asked = [group for group in request.groups if counts[group.group_id] == 1]
    answers = await asyncio.gather(*(_fetch(context, group, require_stable) for group in asked))
    by_id = {group.group_id: found for group, found in zip(asked, answers, strict=True)}
    groups = []
    for group in request.groups:
        found = by_id.get(group.group_id, ErrorCode.INVALID_REQUEST)
        error = found if isinstance(found, ErrorCode) else ErrorCode.NONE
        topics = () if isinstance(found, ErrorCode) else found
        if error != ErrorCode.NONE or version < _FIRST_WITH_TOPIC_ID:
            rows = _rows(topics)
        else:
            rows = _rows_by_id(context, topics) + _unknown_rows(context, group.topics or ())
        groups.append({"group_id": group.group_id, "topics": rows, "error_code": error})
    return {"groups": groups}


async def _fetch(
    context: RequestContext, group: Any, require_stable: bool
) -> tuple[FetchedTopicOffsets, ...] | ErrorCode:
    """The offsets of one group of the request; those of topics with an unknown id are left out."""
    asked = None if group.topics is None else _each_once(context, group.topics)
    hidden: tuple[TopicPartitions, ...] = ()
    if asked is not None and context.has_access_control:
        hidden = tuple(
            row for row in asked if not context.allows_topic(AclOperation.DESCRIBE, row.topic)
        )
    body = FetchOffsets(
        group_id=group.group_id,
        topics=None if asked is None else tuple(row for row in asked if row not in hidden),
        require_stable=require_stable,
        member_id=getattr(group, "member_id", None),
        member_epoch=getattr(group, "member_epoch", -1),
    )
    found = await ask(context, group.group_id, body, needs=AclOperation.DESCRIBE)
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


def _each_once(context: RequestContext, topics: Any) -> tuple[TopicPartitions, ...]:
    """Each partition once: a repeated one would repeat the metadata of its offset."""
    found: dict[str, dict[int, None]] = {}
    for row in topics:
        topic = asked_topic(context, row)
        if not isinstance(topic, ErrorCode):
            name = row.name if topic is None else topic.name
            found.setdefault(name, {}).update(dict.fromkeys(row.partition_indexes))
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
        {"name": topic.topic, "partitions": _partition_rows(topic.partitions)} for topic in topics
    ]


def _rows_by_id(
    context: RequestContext, topics: tuple[FetchedTopicOffsets, ...]
) -> list[dict[str, Any]]:
    """As `_rows`, with ids. A topic that was deleted meanwhile has none, and no row."""
    ids = context.services.image().topic_ids
    return [
        {"topic_id": ids[topic.topic], "partitions": _partition_rows(topic.partitions)}
        for topic in topics
        if topic.topic in ids
    ]


def _unknown_rows(context: RequestContext, topics: Any) -> list[dict[str, Any]]:
    """The rows of the topics whose id is unknown."""
    unknown = {
        uuid_bytes(topic.topic_id): dict.fromkeys(topic.partition_indexes)
        for topic in topics
        if asked_topic(context, topic) is ErrorCode.UNKNOWN_TOPIC_ID
    }
    return [
        {
            "topic_id": topic_id,
            "partitions": _partition_rows(
                FetchedOffset(p, error=ErrorCode.UNKNOWN_TOPIC_ID) for p in partitions
            ),
        }
        for topic_id, partitions in unknown.items()
    ]


def _partition_rows(partitions: Iterable[FetchedOffset]) -> list[dict[str, Any]]:
    return [
        {
            "partition_index": row.partition,
            "committed_offset": row.offset,
            "committed_leader_epoch": row.leader_epoch,
            "metadata": row.metadata,
            "error_code": row.error,
        }
        for row in partitions
    ]
