"""DeleteRecords (21). Served: v0-2, by the leader of each partition.

The leader moves the log start; the next retention check deletes the segments. The answer waits
until every live replica has moved its own log start. The new log starts are checkpointed before the
answer is sent, which Kafka delays for a minute.

Errors per partition: OFFSET_OUT_OF_RANGE below 0 or above the high watermark (-1 means the high
watermark), NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION, KAFKA_STORAGE_ERROR,
INVALID_TOPIC_EXCEPTION for internal topics, POLICY_VIOLATION if cleanup.policy is compact alone,
REQUEST_TIMED_OUT at the deadline.
"""

from __future__ import annotations

from typing import Any

from kvorum.broker.api.context import RequestContext
from kvorum.broker.config.topic_config import COMPACT, DELETE
from kvorum.broker.log_dirs.log_directories import LogDirectory
from kvorum.broker.manager.delayed_delete_records import (
    UNKNOWN_LOW_WATERMARK,
    Deleted,
    PendingDeletion,
)
from kvorum.broker.metadata_answers.topic_names import INTERNAL_TOPICS
from kvorum.broker.partition.replica import Replica
from kvorum.metadata.image.acl import AclOperation, ResourceType
from kvorum.runtime.errors import ErrorCode
from kvorum.runtime.ids import UUID_ZERO
from kvorum.runtime.tasks import in_thread
from kvorum.storage.log.log import OffsetOutOfRange
from kvorum.wire.kio_codec import milliseconds
from kvorum.wire.versions import Api

API = Api(key=21, name="delete_records", min_version=0, max_version=2, first_flexible=2)
ACCESS = ((AclOperation.DELETE, ResourceType.TOPIC),)

HIGH_WATERMARK = -1


async def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    replicas, registry = context.services.replicas, context.services.registry
    pending = PendingDeletion(replicas.deadlines)
    asked = [(topic.name, p) for topic in request.topics for p in topic.partitions]
    moved: dict[LogDirectory, list[int]] = {}
    for number, (topic, partition) in enumerate(asked):
        replica = registry.find_by_name(topic, partition.partition_index)
        if not context.allows_topic(AclOperation.DELETE, topic):
            pending.results[number] = Deleted(
                UNKNOWN_LOW_WATERMARK, ErrorCode.TOPIC_AUTHORIZATION_FAILED
            )
            continue
        if replica is None:
            error = registry.missing_error(topic, UUID_ZERO, partition.partition_index)
            pending.results[number] = Deleted(UNKNOWN_LOW_WATERMARK, error)
            continue
        offset, error = _delete(replica, partition.offset)
        if error != ErrorCode.NONE:
            pending.results[number] = Deleted(UNKNOWN_LOW_WATERMARK, error)
            continue
        moved.setdefault(replica.log_dir, []).append(number)
        pending.wait_for(number, replica, offset)
    now_ms = context.services.replicas.now_ms()
    deadline_ms = now_ms + max(milliseconds(request.timeout), 0)
    # The client chooses the time-out, up to 24 days; the wait ends with its connection.
    context.slot.parked = pending
    if context.slot.connection.is_closed:
        pending.cancel()
    await pending.wait(deadline_ms)
    for log_dir, numbers in moved.items():
        log_dir.store.checkpoints.collect_log_offsets(
            [r for r in registry.with_files() if r.log_dir is log_dir]
        )
        try:
            await in_thread(log_dir.store.checkpoints.write_log_offsets)
        except OSError as failure:
            replicas.on_directory_error(log_dir, failure, "checkpoint")
            failed = Deleted(UNKNOWN_LOW_WATERMARK, ErrorCode.KAFKA_STORAGE_ERROR)
            pending.results.update(dict.fromkeys(numbers, failed))
    return {"topics": _rows(request, pending.results)}


def _delete(replica: Replica, offset: int) -> tuple[int, ErrorCode]:
    """Move the log start of a leader; returns the offset that the low watermark must reach,
    and the error."""
    core = replica.core
    if replica.is_offline:
        return 0, ErrorCode.KAFKA_STORAGE_ERROR
    if not core.is_leader:
        return 0, ErrorCode.NOT_LEADER_OR_FOLLOWER
    if core.topic in INTERNAL_TOPICS:
        return 0, ErrorCode.INVALID_TOPIC_EXCEPTION
    policies = replica.config.cleanup_policies
    if COMPACT in policies and DELETE not in policies:
        return 0, ErrorCode.POLICY_VIOLATION
    if offset == HIGH_WATERMARK:
        offset = core.high_watermark
    if not 0 <= offset <= core.high_watermark:
        return 0, ErrorCode.OFFSET_OUT_OF_RANGE
    try:
        replica.move_start(offset)
    except OffsetOutOfRange:
        return 0, ErrorCode.OFFSET_OUT_OF_RANGE
    return offset, ErrorCode.NONE


def _rows(request: Any, results: dict[int, Deleted]) -> list[dict[str, Any]]:
    topics = []
    number = 0
    for topic in request.topics:
        rows = []
        for partition in topic.partitions:
            result = results[number]
            number += 1
            rows.append(
                {
                    "partition_index": partition.partition_index,
                    "low_watermark": result.low_watermark,
                    "error_code": result.error,
                }
            )
        topics.append({"name": topic.name, "partitions": rows})
    return topics
