"""AddOffsetsToTxn (25). Served: v0-4.

Adds the group's partition of `__consumer_offsets` to the transaction, so that the offsets that the
client then commits (TxnOffsetCommit) get the transaction's marker. Errors:
COORDINATOR_NOT_AVAILABLE while that topic does not exist, INVALID_GROUP_ID for an empty group id,
and those of AddPartitionsToTxn. PRODUCER_FENCED is INVALID_PRODUCER_EPOCH before v2.
"""

from __future__ import annotations

from typing import Any

from kvorum.broker.api.context import RequestContext
from kvorum.broker.metadata_answers.topic_names import OFFSETS_TOPIC
from kvorum.broker.transactions.core.model import TopicPartition
from kvorum.broker.transactions.core.requests import AddPartitions
from kvorum.metadata.image.acl import AclOperation, ResourceType
from kvorum.runtime.errors import ErrorCode
from kvorum.wire.versions import Api

API = Api(key=25, name="add_offsets_to_txn", min_version=0, max_version=4, first_flexible=3)
ACCESS = (
    (AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID),
    (AclOperation.READ, ResourceType.GROUP),
)

FIRST_FENCED_VERSION = 2


async def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    error = await _add(context, request)
    if error == ErrorCode.PRODUCER_FENCED and context.api_version < FIRST_FENCED_VERSION:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return {"error_code": error}


async def _add(context: RequestContext, request: Any) -> ErrorCode:
    services = context.services
    if not context.allows_transactional_id(AclOperation.WRITE, request.transactional_id):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if not context.allows(AclOperation.READ, ResourceType.GROUP, request.group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    if not request.transactional_id:
        return ErrorCode.INVALID_REQUEST
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    partition_id = services.groups.partition_of(request.group_id)
    if partition_id is None:
        services.internal_topics.make(OFFSETS_TOPIC)
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    partition = TopicPartition(OFFSETS_TOPIC, partition_id)
    body = AddPartitions(
        transactional_id=request.transactional_id,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        partitions=frozenset({partition}),
    )
    answer = await services.transactions.request(key=body.transactional_id, body=body)
    if isinstance(answer, ErrorCode):
        return answer
    error: ErrorCode = answer[partition]
    return error
