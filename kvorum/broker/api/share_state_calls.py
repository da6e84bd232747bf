"""The shared part of the APIs of the share coordinator, which brokers ask each other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from kvorum.broker.api.context import RequestContext, refusal_fields
from kvorum.broker.share_state.client import coordinator_key
from kvorum.broker.share_state.records import ShareKey
from kvorum.metadata.image.acl import AclOperation, ResourceType
from kvorum.runtime.errors import ErrorCode, Rejected
from kvorum.wire.kio_codec import uuid_bytes

ACCESS = ((AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER),)

BodyOf = Callable[[ShareKey, Any], Any]
"""(share-partition, row of the request) -> the request to the shard."""
FieldsOf = Callable[[Any], dict[str, Any]]
"""The shard's answer, unless it refused -> the fields of the answer's row."""


async def answers(
    context: RequestContext, request: Any, body_of: BodyOf, fields_of: FieldsOf
) -> dict[str, Any]:
    """The answer to a request about share-partitions: a row for each."""
    rows = [
        (uuid_bytes(topic.topic_id), row) for topic in request.topics for row in topic.partitions
    ]
    refused = _refusal(context, request)
    if refused is None:
        said = await _ask_all(context, request.group_id, rows, body_of)
    else:
        said = [refused] * len(rows)
    topics: dict[bytes, list[dict[str, Any]]] = {}
    for (topic_id, row), answer in zip(rows, said, strict=True):
        found = _failed(answer) if _is_refused(answer) else fields_of(answer)
        topics.setdefault(topic_id, []).append({"partition": row.partition, **found})
    return {
        "results": [
            {"topic_id": topic_id, "partitions": partitions}
            for topic_id, partitions in topics.items()
        ]
    }


def no_fields(answer: Any) -> dict[str, Any]:
    """For APIs whose rows have an error and no more."""
    return {"error_code": ErrorCode.NONE}


def _refusal(context: RequestContext, request: Any) -> Rejected | ErrorCode | None:
    if not context.allows_on_cluster(AclOperation.CLUSTER_ACTION):
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    if not request.group_id:
        return Rejected(ErrorCode.INVALID_REQUEST, "the group id is empty")
    return None


async def _ask_all(
    context: RequestContext, group_id: str, rows: Iterable[tuple[bytes, Any]], body_of: BodyOf
) -> list[Any]:
    host = context.services.share.states
    asked = []
    for topic_id, row in rows:
        key = ShareKey(group_id, topic_id, row.partition)
        asked.append(host.request(key=coordinator_key(key), body=body_of(key, row)))
    return list(await asyncio.gather(*asked))


def _is_refused(answer: Any) -> bool:
    is_code = isinstance(answer, ErrorCode)
    return isinstance(answer, Rejected) or (is_code and answer != ErrorCode.NONE)


def _failed(refused: Rejected | ErrorCode) -> dict[str, Any]:
    return {
        **refusal_fields(refused),
        "state_epoch": 0,
        "leader_epoch": 0,
        "start_offset": -1,
        "delivery_complete_count": -1,
        "state_batches": (),
    }
