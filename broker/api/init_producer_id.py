"""InitProducerId (22). Served: v0-5.

Without transactional id: a fresh id, epoch 0. An id once given is never given again, so a producer
that asks to go on with its id and a higher epoch (KIP-360) gets a fresh id and epoch 0 instead, as
Kafka does. With one: from its coordinator, which fences whoever had the id before.
Errors: 42 for an empty transactional id, 50 for a time-out above transaction.max.timeout.ms, 51
while an open transaction is being aborted, 90 (47 before v4) for a fenced producer, 14, 15, 16.
Missing: two-phase commit (v6).
"""

from __future__ import annotations

from typing import Any

from kvorum.broker.api.context import RequestContext
from kvorum.broker.transactions.requests import InitProducerId
from kvorum.runtime.errors import ErrorCode, Rejected
from kvorum.wire.kio_codec import milliseconds
from kvorum.wire.versions import Api

API = Api(key=22, name="init_producer_id", min_version=0, max_version=5, first_flexible=2)

FIRST_FENCED_VERSION = 4


async def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    if request.transactional_id is not None:
        return await _of_transactional_id(context, request)
    producer_id = await context.services.producer_ids.take()
    if isinstance(producer_id, Rejected):
        # The client knows 14 as "try again soon"; 41 is not among this API's errors.
        return _refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return {"error_code": ErrorCode.NONE, "producer_id": producer_id, "producer_epoch": 0}


async def _of_transactional_id(context: RequestContext, request: Any) -> dict[str, Any]:
    has_identity = context.api_version >= 3
    body = InitProducerId(
        transactional_id=request.transactional_id,
        timeout_ms=milliseconds(request.transaction_timeout),
        producer_id=request.producer_id if has_identity else -1,
        producer_epoch=request.producer_epoch if has_identity else -1,
    )
    if not body.transactional_id:
        return _refused(ErrorCode.INVALID_REQUEST)
    answer = await context.services.transactions.request(key=body.transactional_id, body=body)
    if isinstance(answer, ErrorCode):
        if answer == ErrorCode.PRODUCER_FENCED and context.api_version < FIRST_FENCED_VERSION:
            answer = ErrorCode.INVALID_PRODUCER_EPOCH
        return _refused(answer)
    return {
        "error_code": ErrorCode.NONE,
        "producer_id": answer.producer_id,
        "producer_epoch": answer.producer_epoch,
    }


def _refused(error: ErrorCode) -> dict[str, Any]:
    return {"error_code": error, "producer_id": -1, "producer_epoch": -1}
