"""DescribeShareGroupOffsets (90). Served: v0-1 (KIP-932, KIP-1226): where share-partitions begin.

The group's coordinator knows which share-partitions have a state; their share coordinators know the
start offsets. v1 has the lag: the records behind the start that are not settled; -1 if it is not
known. A partition without a state has start offset -1; a group that does not exist has no offsets.
Errors of a group: the coordinator errors 14 to 16, GROUP_AUTHORIZATION_FAILED. Topics that the
client may not describe are left out, or get TOPIC_AUTHORIZATION_FAILED if the request names them.
"""

from __future__ import annotations

import asyncio
from typing import Any

from kvorum.broker.api import share_partitions
from kvorum.broker.api.context import RequestContext, refusal_fields
from kvorum.broker.api.group_calls import ask_named
from kvorum.broker.groups.share.requests import ListShareStates
from kvorum.broker.share_state.records import UNKNOWN_COUNT, ShareKey, ShareState
from kvorum.broker.share_state.requests import NO_OFFSET, ReadSummary
from kvorum.metadata.image.acl import AclOperation, ResourceType
from kvorum.metadata.image.image import TopicImage
from kvorum.runtime.errors import ErrorCode, Rejected
from kvorum.runtime.ids import UUID_ZERO
from kvorum.wire.versions import Api

API = Api(
    key=90, name="describe_share_group_offsets", min_version=0, max_version=1, first_flexible=0
)
ACCESS = ((AclOperation.DESCRIBE, ResourceType.GROUP), (AclOperation.DESCRIBE, ResourceType.TOPIC))

Wanted = list[tuple[str, list[int]]]


async def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    return {
        "groups": list(await asyncio.gather(*(_group(context, asked) for asked in request.groups)))
    }


async def _group(context: RequestContext, asked: Any) -> dict[str, Any]:
    refused = share_partitions.feature_refusal(context)
    states: Any = refused
    if refused is None:
        body = ListShareStates(group_id=asked.group_id)
        states = await ask_named(context, asked.group_id, body, needs=AclOperation.DESCRIBE)
    if isinstance(states, Rejected) and states.code == ErrorCode.GROUP_ID_NOT_FOUND:
        states = ()  # as in Kafka: a group that does not exist has no offsets
    if isinstance(states, (Rejected, ErrorCode)):
        return {
            "group_id": asked.group_id,
            "topics": (),
            **refusal_fields(states),
        }
    topics = []
    for name, partitions in _wanted(context, asked, states):
        topics.append(await _topic(context, asked.group_id, name, partitions, set(states)))
    return {"group_id": asked.group_id, "topics": topics, "error_code": ErrorCode.NONE}


def _wanted(context: RequestContext, asked: Any, states: Any) -> Wanted:
    """The topics to tell, with their partitions."""
    if asked.topics is not None:
        return [(topic.topic_name, list(topic.partitions)) for topic in asked.topics]
    image = context.services.image()
    by_name: dict[str, list[int]] = {}
    for topic_id, partition in states:
        topic = image.topics.get(topic_id)
        if topic is not None and context.shows(ResourceType.TOPIC, topic.name):
            by_name.setdefault(topic.name, []).append(partition)
    return sorted(by_name.items())


async def _topic(
    context: RequestContext,
    group_id: str,
    name: str,
    partitions: list[int],
    states: set[tuple[bytes, int]],
) -> dict[str, Any]:
    topic = context.services.image().topic(name)
    error = ErrorCode.NONE
    if not context.allows_topic(AclOperation.DESCRIBE, name):
        error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    elif topic is None:
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    rows: list[dict[str, Any]]
    if error != ErrorCode.NONE or topic is None:
        rows = [_failed(partition, error) for partition in partitions]
        return {"topic_name": name, "topic_id": UUID_ZERO, "partitions": rows}
    rows = list(
        await asyncio.gather(
            *(
                _partition(context, group_id, topic, p, has_state=(topic.topic_id, p) in states)
                for p in partitions
            )
        )
    )
    return {"topic_name": name, "topic_id": topic.topic_id, "partitions": rows}


async def _partition(
    context: RequestContext, group_id: str, topic: TopicImage, partition: int, *, has_state: bool
) -> dict[str, Any]:
    if not has_state:
        return _failed(partition, ErrorCode.NONE)
    services = context.services
    key = ShareKey(group_id, topic.topic_id, partition)
    found = await services.share.client.summary(ReadSummary(key=key))
    if isinstance(found, (ErrorCode, Rejected)):
        return _failed(partition, found)
    if found is None:
        return _failed(partition, ErrorCode.NONE)
    return {
        "partition_index": partition,
        "start_offset": found.start_offset,
        "leader_epoch": max(found.leader_epoch, 0),
        "lag": await _lag(context, topic, partition, found),
        "error_code": ErrorCode.NONE,
    }


async def _lag(
    context: RequestContext, topic: TopicImage, partition: int, state: ShareState
) -> int:
    if state.start_offset == NO_OFFSET or state.delivery_complete_count == UNKNOWN_COUNT:
        return -1
    end_offset = await context.services.share.ends.end_offset(topic, partition)
    if end_offset is None:
        return -1
    return max(end_offset - state.start_offset - state.delivery_complete_count, 0)


def _failed(partition: int, refused: ErrorCode | Rejected) -> dict[str, Any]:
    return {
        "partition_index": partition,
        "start_offset": NO_OFFSET,
        "leader_epoch": 0,
        "lag": -1,
        **refusal_fields(refused),
    }
