"""EndTxn (26). Served: v0-5; v5 is of clients by KIP-890 part 2 and returns the raised epoch.

Answered once the decision is replicated; from then on it is carried through, whoever coordinates.
Errors: 42 for an empty transactional id, 48 for nothing to commit or the opposite of what was
decided, 49 for an unknown producer, 51 while the markers are being written (ask again), 90 (47
before v2) for a fenced producer, 14, 15, 16.
"""

from __future__ import annotations

from typing import Any

from kvorum.broker.api.context import RequestContext
from kvorum.broker.transactions.requests import EPOCH_BUMP_VERSION, EndTransaction
from kvorum.runtime.errors import ErrorCode
from kvorum.wire.versions import Api

API = Api(key=26, name="end_txn", min_version=0, max_version=5, first_flexible=3)

FIRST_FENCED_VERSION = 2
FIRST_EPOCH_BUMP_VERSION = 5


async def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    version = context.api_version
    if not request.transactional_id:
        return {"error_code": ErrorCode.INVALID_REQUEST}
    body = EndTransaction(
        transactional_id=request.transactional_id,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        is_commit=request.committed,
        client_version=EPOCH_BUMP_VERSION if version >= FIRST_EPOCH_BUMP_VERSION else 0,
    )
    answer = await context.services.transactions.request(key=body.transactional_id, body=body)
    if isinstance(answer, ErrorCode):
        if answer == ErrorCode.PRODUCER_FENCED and version < FIRST_FENCED_VERSION:
            answer = ErrorCode.INVALID_PRODUCER_EPOCH
        return {"error_code": answer}
    return {
        "error_code": ErrorCode.NONE,
        "producer_id": answer.producer_id,
        "producer_epoch": answer.producer_epoch,
    }
