"""InitProducerId (22). Served: v0-5, for idempotent producers only.

With a transactional id the answer is 15 COORDINATOR_NOT_AVAILABLE: there is no transaction
coordinator yet. An id once given is never given again, so a producer that asks to go on with its
id and a higher epoch (KIP-360) gets a fresh id and epoch 0 instead, as Kafka does without
transactional id.
"""

from __future__ import annotations

from typing import Any

from broker.context import RequestContext
from runtime.errors import ErrorCode, Rejected
from wire.versions import Api

API = Api(key=22, name="init_producer_id", min_version=0, max_version=5, first_flexible=2)


async def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    if request.transactional_id is not None:
        return _refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    producer_id = await context.services.producer_ids.take()
    if isinstance(producer_id, Rejected):
        # The client knows 14 as "try again soon"; 41 is not among this API's errors.
        return _refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return {"error_code": ErrorCode.NONE, "producer_id": producer_id, "producer_epoch": 0}


def _refused(error: ErrorCode) -> dict[str, Any]:
    return {"error_code": error, "producer_id": -1, "producer_epoch": -1}
