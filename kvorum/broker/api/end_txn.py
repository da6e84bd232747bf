"""EndTxn (26). Served: v0-5; v5 is for clients of KIP-890 part 2, and returns the raised epoch.

The answer is sent once the decision is replicated; from then on any coordinator will complete it.
Errors: INVALID_REQUEST for an empty transactional id, INVALID_TXN_STATE if there is nothing to
commit or the opposite was decided, INVALID_PRODUCER_ID_MAPPING for an unknown producer,
CONCURRENT_TRANSACTIONS while the markers are being written (to be retried), PRODUCER_FENCED
(INVALID_PRODUCER_EPOCH before v2), and the coordinator errors 14 to 16.
"""

from __future__ import annotations

from typing import Any

from kvorum.broker.api.context import RequestContext
from kvorum.broker.transactions.core.requests import EPOCH_BUMP_VERSION, EndTransaction
from kvorum.metadata.image.acl import AclOperation, ResourceType
from kvorum.runtime.errors import ErrorCode
from kvorum.wire.versions import Api

API = Api(key=26, name="end_txn", min_version=0, max_version=5, first_flexible=3)
ACCESS = ((AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID),)

FIRST_FENCED_VERSION = 2
FIRST_EPOCH_BUMP_VERSION = 5


async def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    version = context.api_version
    if not context.allows_transactional_id(AclOperation.WRITE, request.transactional_id):
        return {"error_code": ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
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
