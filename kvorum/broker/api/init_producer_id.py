"""InitProducerId (22). Served: v0-5.

Without a transactional id: a new producer id with epoch 0. A producer id is never given out twice.
So a producer that asks to continue with its id and a higher epoch (KIP-360) gets a new id with
epoch 0 instead, as in Kafka. With a transactional id: its coordinator answers, and fences the
producer that had the id before.

Errors: INVALID_REQUEST for an empty transactional id and for half an identity (a producer id
without an epoch, or the reverse), INVALID_TRANSACTION_TIMEOUT above transaction.max.timeout.ms,
CONCURRENT_TRANSACTIONS while an open transaction is being aborted, PRODUCER_FENCED
(INVALID_PRODUCER_EPOCH before v4), and the coordinator errors 14 to 16. Missing: two-phase commit
(v6).
"""

from __future__ import annotations

from typing import Any

from kvorum.broker.api.context import RequestContext
from kvorum.broker.transactions.core.model import NO_EPOCH, NO_PRODUCER_ID
from kvorum.broker.transactions.core.requests import InitProducerId
from kvorum.metadata.image.acl import AclOperation, ResourceType
from kvorum.runtime.errors import ErrorCode, Rejected
from kvorum.wire.kio_codec import milliseconds
from kvorum.wire.versions import Api

API = Api(key=22, name="init_producer_id", min_version=0, max_version=5, first_flexible=2)
ACCESS = (
    (AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID),
    (AclOperation.WRITE, ResourceType.TOPIC),
    (AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER),
)
"""The first for transactional producers, one of the others for idempotent ones."""

FIRST_IDENTITY_VERSION = 3
FIRST_FENCED_VERSION = 4


async def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    refused = _refusal(context, request)
    if refused is not None:
        return _refused(refused)
    if context.api_version >= FIRST_IDENTITY_VERSION and _has_half_an_identity(request):
        return _refused(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        return await _of_transactional_id(context, request)
    producer_id = await context.services.producer_ids.take()
    if isinstance(producer_id, Rejected):
        # On COORDINATOR_LOAD_IN_PROGRESS the client retries soon. The controller's errors are not
        # errors of this API.
        return _refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return {"error_code": ErrorCode.NONE, "producer_id": producer_id, "producer_epoch": 0}


def _refusal(context: RequestContext, request: Any) -> ErrorCode | None:
    """The error for a client that may not be such a producer. For an idempotent one, permission to
    write to some topic is enough (KIP-679)."""
    if request.transactional_id is not None:
        kind, name = ResourceType.TRANSACTIONAL_ID, request.transactional_id
        if context.allows(AclOperation.WRITE, kind, name):
            return None
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if context.may_write_somewhere() or context.allows_on_cluster(AclOperation.IDEMPOTENT_WRITE):
        return None
    return ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def _has_half_an_identity(request: Any) -> bool:
    """True for a producer id without an epoch, or an epoch without a producer id."""
    has_id = bool(request.producer_id != NO_PRODUCER_ID)
    return has_id != bool(request.producer_epoch != NO_EPOCH)


async def _of_transactional_id(context: RequestContext, request: Any) -> dict[str, Any]:
    has_identity = context.api_version >= FIRST_IDENTITY_VERSION
    body = InitProducerId(
        transactional_id=request.transactional_id,
        timeout_ms=milliseconds(request.transaction_timeout),
        producer_id=request.producer_id if has_identity else NO_PRODUCER_ID,
        producer_epoch=request.producer_epoch if has_identity else NO_EPOCH,
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
