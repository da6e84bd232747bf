"""OffsetCommit (8). Served: v2-10.

The answer is sent once the offsets are replicated. v2-4 may have a retention time, v6 leader
epochs, v7 static members. From v9 on, a missing group is GROUP_ID_NOT_FOUND (ILLEGAL_GENERATION
before). Members of the consumer protocol commit with their epoch; an older epoch is
STALE_MEMBER_EPOCH (UNSUPPORTED_VERSION before v9). v10 has topic ids in place of names.

Errors are per partition: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID and OFFSET_METADATA_TOO_LARGE
for one; for all, the coordinator errors 14 to 16, ILLEGAL_GENERATION, INVALID_GROUP_ID,
UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS, GROUP_ID_NOT_FOUND, FENCED_INSTANCE_ID,
STALE_MEMBER_EPOCH. An empty group id is allowed, as in Kafka, for very old consumers.
"""

from __future__ import annotations

from typing import Any

from kvorum.broker.api.context import RequestContext
from kvorum.broker.api.group_calls import ask, asked_topic, topic_fields
from kvorum.broker.groups.steps.requests import NO_RETENTION_TIME, CommitOffsets, OffsetToCommit
from kvorum.metadata.image.acl import AclOperation, ResourceType
from kvorum.runtime.errors import ErrorCode
from kvorum.wire.kio_codec import milliseconds
from kvorum.wire.versions import Api

API = Api(key=8, name="offset_commit", min_version=2, max_version=10, first_flexible=8)
ACCESS = ((AclOperation.READ, ResourceType.GROUP), (AclOperation.READ, ResourceType.TOPIC))

_LAST_WITH_RETENTION_TIME = 4
_FIRST_WITH_LEADER_EPOCH = 6
_FIRST_WITH_GROUP_ID_NOT_FOUND = 9


async def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    version = context.api_version
    errors, offsets = _sort_out(context, request)
    outcome: Any = ()
    if not context.allows(AclOperation.READ, ResourceType.GROUP, request.group_id):
        errors, offsets = [ErrorCode.GROUP_AUTHORIZATION_FAILED] * len(errors), []
    elif offsets or not errors:
        body = CommitOffsets(
            group_id=request.group_id,
            generation_id=request.generation_id_or_member_epoch,
            member_id=request.member_id,
            group_instance_id=getattr(request, "group_instance_id", None),
            retention_time_ms=(
                milliseconds(request.retention_time)
                if version <= _LAST_WITH_RETENTION_TIME
                else NO_RETENTION_TIME
            ),
            offsets=tuple(offsets),
            knows_missing_group=version >= _FIRST_WITH_GROUP_ID_NOT_FOUND,
        )
        outcome = await ask(context, request.group_id, body, needs=AclOperation.READ)
    if isinstance(outcome, ErrorCode):
        answered = iter([outcome] * len(offsets))
    else:
        answered = iter(outcome.errors if offsets else ())
    topics = []
    position = 0
    for topic in request.topics:
        rows = []
        for partition in topic.partitions:
            error = errors[position]
            position += 1
            rows.append(
                {
                    "partition_index": partition.partition_index,
                    "error_code": next(answered) if error == ErrorCode.NONE else error,
                }
            )
        topics.append({**topic_fields(topic), "partitions": rows})
    return {"topics": topics}


def _sort_out(
    context: RequestContext, request: Any
) -> tuple[list[ErrorCode], list[OffsetToCommit]]:
    """(the error of each requested partition, the offsets to send to the coordinator)."""
    has_epoch = context.api_version >= _FIRST_WITH_LEADER_EPOCH
    errors: list[ErrorCode] = []
    offsets: list[OffsetToCommit] = []
    for topic in request.topics:
        found = asked_topic(context, topic)
        if isinstance(found, ErrorCode):
            errors += [found] * len(topic.partitions)
            continue
        name = topic.name if found is None else found.name
        is_allowed = context.allows_topic(AclOperation.READ, name)
        for row in topic.partitions:
            if not is_allowed:
                errors.append(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                continue
            if found is None or row.partition_index not in found.partitions:
                errors.append(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                continue
            errors.append(ErrorCode.NONE)
            offsets.append(
                OffsetToCommit(
                    name,
                    row.partition_index,
                    row.committed_offset,
                    row.committed_leader_epoch if has_epoch else -1,
                    row.committed_metadata or "",
                    found.topic_id,
                )
            )
    return errors, offsets
