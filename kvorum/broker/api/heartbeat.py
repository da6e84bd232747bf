"""Heartbeat (12). Served: v0-4, for members of the classic protocol. v3 has static members.

Hundreds of idle members send nothing else, so it is answered without a task, while it is read.
Errors: the coordinator errors 14 to 16, ILLEGAL_GENERATION, INVALID_GROUP_ID, UNKNOWN_MEMBER_ID,
REBALANCE_IN_PROGRESS (the member must join again), FENCED_INSTANCE_ID.
"""

from __future__ import annotations

import functools

from kvorum.broker.api.context import RequestContext
from kvorum.broker.api.group_calls import call
from kvorum.broker.groups.steps.requests import GroupHeartbeat
from kvorum.metadata.image.acl import AclOperation, ResourceType
from kvorum.runtime.errors import ErrorCode
from kvorum.wire.kio_codec import encode_response
from kvorum.wire.versions import Api

API = Api(key=12, name="heartbeat", min_version=0, max_version=4, first_flexible=4)
ACCESS = ((AclOperation.READ, ResourceType.GROUP),)


def handle(context: RequestContext, view: memoryview, position: int, end: int) -> None:
    """Answer now: the shard writes nothing for a heartbeat."""
    request = context.read_request(API.name, view[position:end])

    def respond(error: ErrorCode) -> None:
        is_muted = context.slot.connection.muted_ms > 0
        context.answer(
            API, {"error_code": error} if is_muted else _body(context.api_version, error)
        )

    if not request.group_id:
        respond(ErrorCode.INVALID_GROUP_ID)
        return
    body = GroupHeartbeat(
        group_id=request.group_id,
        generation_id=request.generation_id,
        member_id=request.member_id,
        group_instance_id=getattr(request, "group_instance_id", None),
    )
    call(context, request.group_id, body, respond, needs=AclOperation.READ)


@functools.cache
def _body(version: int, error: ErrorCode) -> bytes:
    return bytes(encode_response(API.name, version, {"error_code": error}))
