"""OffsetForLeaderEpoch (23). Served: v2-4.

The answer is the largest epoch that is not above the requested one, with its end offset. The
leader's own epoch ends at the high watermark. Followers do not send it: their Fetch has diverging
epochs (KIP-595). The replica id is ignored, because the request has no broker epoch to prove it.
"""

from __future__ import annotations

from typing import Any

from kvorum.broker.api.context import RequestContext
from kvorum.metadata.image.acl import AclOperation, ResourceType
from kvorum.runtime.errors import ErrorCode
from kvorum.runtime.ids import UUID_ZERO
from kvorum.wire.versions import Api

API = Api(key=23, name="offset_for_leader_epoch", min_version=2, max_version=4, first_flexible=4)
ACCESS = ((AclOperation.DESCRIBE, ResourceType.TOPIC),)


def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    topics = []
    for topic in request.topics:
        partitions = [_answer(context, topic.topic, p) for p in topic.partitions]
        topics.append({"topic": topic.topic, "partitions": partitions})
    return {"topics": topics}


def _answer(context: RequestContext, topic: str, asked: Any) -> dict[str, Any]:
    registry = context.services.registry
    epoch, end_offset = -1, -1
    replica = registry.find_by_name(topic, asked.partition)
    if not context.allows_topic(AclOperation.DESCRIBE, topic):
        error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    elif replica is None:
        error = registry.missing_error(topic, UUID_ZERO, asked.partition)
    else:
        error = replica.core.check_consumer(asked.current_leader_epoch, from_any_replica=False)
        if replica.is_offline:
            error = ErrorCode.KAFKA_STORAGE_ERROR
        if error == ErrorCode.NONE:
            core = replica.core
            epoch, end_offset = replica.log.epochs.end_offset_for(
                asked.leader_epoch, core.high_watermark
            )
    return {
        "error_code": error,
        "partition": asked.partition,
        "leader_epoch": epoch,
        "end_offset": end_offset,
    }
