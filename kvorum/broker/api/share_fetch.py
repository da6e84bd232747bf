"""ShareFetch (78). Served: v1-2 (KIP-932, KIP-1206, KIP-1222), by the leaders of partitions.

A member names its partitions when they join its session or leave it. Each request may acknowledge
records of the ones before; their errors have a field of their own. The answer waits for records, or
for MaxWaitMs, and until the acknowledgements are kept. It has whole batches, and the ranges in them
that the member holds from now on. v2 has the acquire mode and the type RENEW: a request with
IsRenewAck fetches nothing.

Errors of the request: GROUP_AUTHORIZATION_FAILED, INVALID_REQUEST, SHARE_SESSION_NOT_FOUND,
INVALID_SHARE_SESSION_EPOCH, SHARE_SESSION_LIMIT_REACHED, UNSUPPORTED_VERSION while share groups are
off.
"""

from __future__ import annotations

from typing import Any

from kvorum.broker.api import share_partitions
from kvorum.broker.api.context import RequestContext
from kvorum.broker.quotas.client_quotas import QuotaKind
from kvorum.broker.share.core.share_partition import Acquire
from kvorum.broker.share.core.states import AcquireMode
from kvorum.broker.share.manager import ShareFetchWish
from kvorum.broker.share.share_fetch import PendingShareRequest, Rows, ShareRow
from kvorum.metadata.image.acl import AclOperation, ResourceType
from kvorum.runtime.errors import ErrorCode, Rejected
from kvorum.wire.kio_codec import milliseconds, uuid_bytes
from kvorum.wire.versions import Api

API = Api(key=78, name="share_fetch", min_version=1, max_version=2, first_flexible=0)
ACCESS = ((AclOperation.READ, ResourceType.GROUP), (AclOperation.READ, ResourceType.TOPIC))


def handle(context: RequestContext, view: memoryview, position: int, end: int) -> None:
    """Answer now, or when there are records."""
    request = context.read_request(API.name, view[position:end])
    refused = share_partitions.request_refusal(context, request)
    asked = None if refused is not None else _wish_of(request)
    if isinstance(asked, Rejected):
        refused = asked
    elif asked is not None:
        pending = context.services.share.partitions.fetch(
            asked,
            context.slot.connection,
            share_partitions.reading_refusal(context),
            lambda rows: _respond(context, request.group_id, rows),
        )
        if pending is None or isinstance(pending, PendingShareRequest):
            context.slot.parked = pending
            return
        refused = pending
    context.answer(API, share_partitions.failed(refused or ErrorCode.UNKNOWN_SERVER_ERROR))


def _wish_of(request: Any) -> ShareFetchWish | Rejected:
    try:
        mode = AcquireMode(int(getattr(request, "share_acquire_mode", 0)))
    except ValueError:
        text = f"the acquire mode {request.share_acquire_mode} is not known"
        return Rejected(ErrorCode.INVALID_REQUEST, text)
    return ShareFetchWish(
        group_id=request.group_id,
        member_id=request.member_id,
        session_epoch=request.share_session_epoch,
        partitions=tuple(
            (uuid_bytes(topic.topic_id), partition.partition_index)
            for topic in request.topics
            for partition in topic.partitions
        ),
        forgotten=tuple(
            (uuid_bytes(topic.topic_id), partition)
            for topic in request.forgotten_topics_data
            for partition in topic.partitions
        ),
        acknowledgements=share_partitions.acknowledgements_of(request.topics),
        wish=Acquire(
            member_id=request.member_id,
            records_max=request.max_records,
            batch_size=max(request.batch_size, 1),
            mode=mode,
        ),
        bytes_min=request.min_bytes,
        bytes_max=request.max_bytes,
        max_wait_ms=milliseconds(request.max_wait),
        is_renewing=bool(getattr(request, "is_renew_ack", False)),
    )


def _respond(context: RequestContext, group_id: str, rows: Rows) -> None:
    if context.slot.connection.is_closed:
        return
    services = context.services
    told = {
        where: row
        for where, row in rows.items()
        if row.acquired or row.error != ErrorCode.NONE or row.acknowledge_error is not None
    }
    size = 0
    for where, row in told.items():
        replica = services.registry.find(*where)
        if replica is not None and row.records:
            size += len(row.records)
            replica.metrics.fetch_requests += 1
            replica.metrics.bytes_out += len(row.records)
    context.pause(QuotaKind.FETCH, size)
    answer = share_partitions.response(context, told, _fields)
    answer["acquisition_lock_timeout"] = services.share.configs.limits(group_id).lock_duration_ms
    context.answer(API, {"error_code": ErrorCode.NONE, **answer})


def _fields(row: ShareRow) -> dict[str, Any]:
    return {
        "error_code": row.error,
        "error_message": row.message,
        "acknowledge_error_code": row.acknowledge_error or ErrorCode.NONE,
        "acknowledge_error_message": row.acknowledge_message,
        "records": row.records,
        "acquired_records": [entry._asdict() for entry in row.acquired],
    }
