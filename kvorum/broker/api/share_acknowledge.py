"""ShareAcknowledge (79). Served: v1-2 (KIP-932, KIP-1222), by the leaders of partitions.

Acknowledges records of the member's session, apart from a fetch. The answer waits until the share
coordinators have it. Session epoch -1 ends the session: the member then holds nothing here.

Errors of the request: as of ShareFetch; a request cannot open a session.
"""

from __future__ import annotations

from typing import Any

from kvorum.broker.api import share_partitions
from kvorum.broker.api.context import RequestContext
from kvorum.broker.share.share_fetch import PendingShareRequest, Rows, ShareRow
from kvorum.metadata.image.acl import AclOperation, ResourceType
from kvorum.runtime.errors import ErrorCode
from kvorum.wire.versions import Api

API = Api(key=79, name="share_acknowledge", min_version=1, max_version=2, first_flexible=0)
ACCESS = ((AclOperation.READ, ResourceType.GROUP), (AclOperation.READ, ResourceType.TOPIC))


def handle(context: RequestContext, view: memoryview, position: int, end: int) -> None:
    """Answer now, or when the share coordinators have the acknowledgements."""
    request = context.read_request(API.name, view[position:end])
    refused = share_partitions.request_refusal(context, request)
    if refused is None:
        pending = context.services.share.partitions.acknowledge(
            request.group_id,
            request.member_id,
            request.share_session_epoch,
            share_partitions.acknowledgements_of(request.topics),
            context.slot.connection,
            share_partitions.reading_refusal(context),
            lambda rows: _respond(context, request.group_id, rows),
        )
        if pending is None or isinstance(pending, PendingShareRequest):
            context.slot.parked = pending
            return
        refused = pending
    context.answer(API, share_partitions.failed(refused))


def _respond(context: RequestContext, group_id: str, rows: Rows) -> None:
    if context.slot.connection.is_closed:
        return
    answer = share_partitions.response(context, rows, _fields)
    lock_ms = context.services.share.configs.limits(group_id).lock_duration_ms
    answer["acquisition_lock_timeout"] = lock_ms
    context.answer(API, {"error_code": ErrorCode.NONE, **answer})


def _fields(row: ShareRow) -> dict[str, Any]:
    return {
        "error_code": row.acknowledge_error or ErrorCode.NONE,
        "error_message": row.acknowledge_message,
    }
