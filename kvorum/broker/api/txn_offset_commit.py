"""TxnOffsetCommit (28). Served: v0-6 (v3 has group members, KIP-447; v5 is for KIP-890 part 2;
v6 has topic ids in place of names, KIP-1319).

The offsets are written to the group's partition as part of the producer's transaction, and count
once it commits. The partition must be in the transaction: by AddOffsetsToTxn, or from v5 on this
broker adds it.

Errors are per partition: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID and OFFSET_METADATA_TOO_LARGE
for one. For all: the coordinator errors 14 to 16, ILLEGAL_GENERATION (GROUP_ID_NOT_FOUND for a
missing group and STALE_MEMBER_EPOCH for an older epoch from v6 on), INVALID_GROUP_ID,
UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, INVALID_REQUEST for an empty transactional id,
INVALID_PRODUCER_EPOCH for a fenced producer, INVALID_TXN_STATE (TRANSACTION_ABORTABLE from v4) if
the partition is not in the transaction, INVALID_PRODUCER_ID_MAPPING, CONCURRENT_TRANSACTIONS
(COORDINATOR_LOAD_IN_PROGRESS before v5) while the last transaction's markers are being written.
"""

from __future__ import annotations

from typing import Any

from kvorum.broker.api.context import RequestContext
from kvorum.broker.api.group_calls import ask, asked_topic, topic_fields
from kvorum.broker.groups.steps.requests import CommitTransactionOffsets, OffsetToCommit
from kvorum.broker.metadata_answers.topic_names import OFFSETS_TOPIC
from kvorum.broker.transactions.coordinators import error_for_producer
from kvorum.broker.transactions.offsets_gate import admit_offsets
from kvorum.metadata.image.acl import AclOperation, ResourceType
from kvorum.metadata.image.image import TopicImage
from kvorum.runtime.errors import ErrorCode
from kvorum.wire.versions import Api

API = Api(key=28, name="txn_offset_commit", min_version=0, max_version=6, first_flexible=3)
ACCESS = (
    (AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID),
    (AclOperation.READ, ResourceType.GROUP),
    (AclOperation.READ, ResourceType.TOPIC),
)

FIRST_WITH_LEADER_EPOCH = 2
FIRST_WITH_MEMBER = 3
FIRST_ABORTABLE_VERSION = 4
FIRST_ADDING_VERSION = 5
FIRST_WITH_TOPIC_ID = 6

_Row = tuple[Any, int]
"""The topic's name or id, as in the request, and the partition."""


async def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    refused = _refusal(context, request)
    errors: dict[_Row, ErrorCode] = {}
    offsets: dict[_Row, OffsetToCommit] = {}
    for topic in request.topics:
        found = asked_topic(context, topic)
        error = refused or _topic_error(context, topic, found)
        for row in topic.partitions:
            key = (_key_of(topic), row.partition_index)
            if error is not None:
                errors[key] = error
            elif not isinstance(found, TopicImage) or row.partition_index not in found.partitions:
                errors[key] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                offsets[key] = _offset(context.api_version, found, row)
    if offsets:
        outcome = await _commit(context, request, tuple(offsets.values()))
        if isinstance(outcome, ErrorCode):
            errors |= dict.fromkeys(offsets, outcome)
        else:
            errors |= dict(zip(offsets, outcome.errors, strict=True))
    return {
        "topics": [
            {
                **topic_fields(topic),
                "partitions": [
                    {
                        "partition_index": row.partition_index,
                        "error_code": errors[_key_of(topic), row.partition_index],
                    }
                    for row in topic.partitions
                ],
            }
            for topic in request.topics
        ]
    }


def _refusal(context: RequestContext, request: Any) -> ErrorCode | None:
    """The error of all offsets of a client that may not commit for the group in a transaction."""
    if not context.allows_transactional_id(AclOperation.WRITE, request.transactional_id):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if not context.allows(AclOperation.READ, ResourceType.GROUP, request.group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return None


def _key_of(topic: Any) -> Any:
    return getattr(topic, "topic_id", None) or getattr(topic, "name", None)


def _topic_error(
    context: RequestContext, topic: Any, found: TopicImage | ErrorCode | None
) -> ErrorCode | None:
    if isinstance(found, ErrorCode):
        return found
    name = topic.name if found is None else found.name
    is_allowed = context.allows_topic(AclOperation.READ, name)
    return None if is_allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED


def _offset(version: int, topic: TopicImage, row: Any) -> OffsetToCommit:
    return OffsetToCommit(
        topic.name,
        row.partition_index,
        row.committed_offset,
        row.committed_leader_epoch if version >= FIRST_WITH_LEADER_EPOCH else -1,
        row.committed_metadata or "",
        topic.topic_id,
    )


async def _commit(
    context: RequestContext, request: Any, offsets: tuple[OffsetToCommit, ...]
) -> Any:
    """The answer of the group's shard: OffsetsCommitted, or an ErrorCode for all offsets."""
    services, version = context.services, context.api_version
    if not request.transactional_id:
        return ErrorCode.INVALID_REQUEST
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    partition_id = services.groups.partition_of(request.group_id)
    if partition_id is None:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    replica = services.registry.find_by_name(OFFSETS_TOPIC, partition_id)
    if replica is None or not replica.core.is_leader:
        return ErrorCode.NOT_COORDINATOR
    refused = await admit_offsets(
        services.transaction_driver.coordinators,
        replica,
        transactional_id=request.transactional_id,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        is_add=version >= FIRST_ADDING_VERSION,
    )
    if refused != ErrorCode.NONE:
        return _error_for_version(refused, version)
    has_member = version >= FIRST_WITH_MEMBER
    is_by_id = version >= FIRST_WITH_TOPIC_ID
    generation = "generation_id_or_member_epoch" if is_by_id else "generation_id"
    body = CommitTransactionOffsets(
        group_id=request.group_id,
        generation_id=getattr(request, generation) if has_member else -1,
        member_id=request.member_id if has_member else "",
        group_instance_id=request.group_instance_id if has_member else None,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        offsets=offsets,
        knows_missing_group=is_by_id,
    )
    # `ask` reaches the group's shard and its log without awaiting (see admit_offsets).
    return await ask(context, request.group_id, body, needs=AclOperation.READ)


def _error_for_version(refused: ErrorCode, version: int) -> ErrorCode:
    told = error_for_producer(
        refused,
        knows_concurrent=version >= FIRST_ADDING_VERSION,
        knows_abortable=version >= FIRST_ABORTABLE_VERSION,
    )
    # In this API, COORDINATOR_LOAD_IN_PROGRESS makes the client retry soon, at the same broker.
    return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if told == ErrorCode.NOT_ENOUGH_REPLICAS else told
