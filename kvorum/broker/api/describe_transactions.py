"""DescribeTransactions (65). Served: v0 (KIP-664), for transactional ids that this broker
coordinates.

Errors per id: INVALID_REQUEST for an empty one, TRANSACTIONAL_ID_NOT_FOUND,
COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR. A prepared transaction is described with all its
partitions, including those that have their marker.
"""

from __future__ import annotations

from typing import Any

from kvorum.broker.api.context import RequestContext
from kvorum.broker.transactions.core.model import NAMES
from kvorum.broker.transactions.core.requests import DescribeTransaction
from kvorum.metadata.image.acl import AclOperation, ResourceType
from kvorum.runtime.errors import ErrorCode
from kvorum.wire.versions import Api

API = Api(key=65, name="describe_transactions", min_version=0, max_version=0, first_flexible=0)
ACCESS = (
    (AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID),
    (AclOperation.DESCRIBE, ResourceType.TOPIC),
)


async def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    return {
        "transaction_states": [
            await _describe(context, transactional_id)
            # A repeated id is answered once, since the answer has all its partitions.
            for transactional_id in dict.fromkeys(request.transactional_ids)
        ]
    }


async def _describe(context: RequestContext, transactional_id: str) -> dict[str, Any]:
    answer: Any = ErrorCode.INVALID_REQUEST
    if not context.allows_transactional_id(AclOperation.DESCRIBE, transactional_id):
        answer = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    elif transactional_id:
        answer = await context.services.transactions.request(
            key=transactional_id, body=DescribeTransaction(transactional_id=transactional_id)
        )
    if isinstance(answer, ErrorCode):
        return {
            "error_code": answer,
            "transactional_id": transactional_id,
            "transaction_state": "",
            "transaction_start_time": 0,
            "producer_id": 0,
            "producer_epoch": 0,
            "topics": [],
        }
    topics: dict[str, list[int]] = {}
    for topic, partition_id in answer.partitions:
        if context.shows(ResourceType.TOPIC, topic):
            topics.setdefault(topic, []).append(partition_id)
    return {
        "error_code": ErrorCode.NONE,
        "transactional_id": transactional_id,
        "transaction_state": NAMES[answer.state],
        "transaction_timeout": answer.timeout_ms,
        "transaction_start_time": answer.start_ms,
        "producer_id": answer.producer_id,
        "producer_epoch": answer.producer_epoch,
        "topics": [{"topic": name, "partitions": ids} for name, ids in topics.items()],
    }
