"""AlterShareGroupOffsets (91). Served: v0 (KIP-932): new start offsets of share-partitions.

The group has no members. Each share-partition begins anew at its offset, in a new state epoch: a
leader that still holds the old state is fenced. Errors of the request: GROUP_ID_NOT_FOUND,
NON_EMPTY_GROUP, GROUP_AUTHORIZATION_FAILED, the coordinator errors 14 to 16.
"""

from __future__ import annotations

from typing import Any

from kvorum.broker.api.context import RequestContext, refusal_fields
from kvorum.broker.api.share_offset_calls import ask_group, topic_or_refusal
from kvorum.broker.groups.share.requests import AlterShareOffsets, OffsetToAlter, StatesChanged
from kvorum.metadata.image.acl import AclOperation, ResourceType
from kvorum.metadata.image.image import TopicImage
from kvorum.runtime.errors import ErrorCode, Rejected
from kvorum.runtime.ids import UUID_ZERO
from kvorum.wire.versions import Api

API = Api(key=91, name="alter_share_group_offsets", min_version=0, max_version=0, first_flexible=0)
ACCESS = ((AclOperation.READ, ResourceType.GROUP), (AclOperation.READ, ResourceType.TOPIC))


async def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    topics = {t.topic_name: topic_or_refusal(context, t.topic_name) for t in request.topics}
    errors: dict[tuple[str, int], ErrorCode | Rejected] = {}
    offsets = []
    for asked in request.topics:
        topic = topics[asked.topic_name]
        for row in asked.partitions:
            error = _row_error(topic, row)
            errors[asked.topic_name, row.partition_index] = error
            if error == ErrorCode.NONE and isinstance(topic, TopicImage):
                where = topic.topic_id, asked.topic_name, row.partition_index
                offsets.append(OffsetToAlter(*where, row.start_offset))
    body = AlterShareOffsets(group_id=request.group_id, offsets=tuple(offsets))
    said = await ask_group(context, request.group_id, body, needs=AclOperation.READ)
    if not isinstance(said, StatesChanged):
        return {**refusal_fields(said), "responses": ()}
    for offset in offsets:
        answer = said.errors.get((offset.topic_id, offset.partition))
        errors[offset.topic, offset.partition] = (
            ErrorCode.UNKNOWN_SERVER_ERROR if answer is None else answer
        )
    return {
        **refusal_fields(ErrorCode.NONE),
        "responses": [
            {
                "topic_name": asked.topic_name,
                "topic_id": _id_of(topics[asked.topic_name]),
                "partitions": [
                    {
                        "partition_index": row.partition_index,
                        **refusal_fields(errors[asked.topic_name, row.partition_index]),
                    }
                    for row in asked.partitions
                ],
            }
            for asked in request.topics
        ],
    }


def _row_error(topic: TopicImage | ErrorCode, row: Any) -> ErrorCode | Rejected:
    if not isinstance(topic, TopicImage):
        return topic
    if row.partition_index not in topic.partitions:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if row.start_offset < 0:
        text = f"the start offset {row.start_offset} is negative"
        return Rejected(ErrorCode.INVALID_REQUEST, text)
    return ErrorCode.NONE


def _id_of(topic: TopicImage | ErrorCode) -> bytes:
    return topic.topic_id if isinstance(topic, TopicImage) else UUID_ZERO
