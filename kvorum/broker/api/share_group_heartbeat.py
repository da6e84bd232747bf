"""ShareGroupHeartbeat (76). Served: v1 (KIP-932): members of share groups join, stay and leave.

Epoch 0 joins, -1 leaves. The answer has the assignment if it is new to the member; partitions are
assigned once the share coordinator has a state for them, and until then the member is told a short
heartbeat interval. It waits until its records are replicated.
"""

from __future__ import annotations

from typing import Any

from kvorum.broker.api import share_partitions
from kvorum.broker.api.context import RequestContext, refusal_fields
from kvorum.broker.api.group_calls import call
from kvorum.broker.groups.consumer.records import by_topic
from kvorum.broker.groups.share.requests import ShareHeartbeat, ShareHeartbeated
from kvorum.broker.groups.steps.refusals import is_blank
from kvorum.metadata.image.acl import AclOperation, ResourceType
from kvorum.runtime.errors import ErrorCode, Rejected
from kvorum.wire.versions import Api

API = Api(key=76, name="share_group_heartbeat", min_version=1, max_version=1, first_flexible=0)
ACCESS = ((AclOperation.READ, ResourceType.GROUP), (AclOperation.DESCRIBE, ResourceType.TOPIC))


def handle(context: RequestContext, view: memoryview, position: int, end: int) -> None:
    """Answer when the coordinator does."""
    request = context.read_request(API.name, view[position:end])
    refused = _refusal(context, request)
    if refused is not None:
        context.answer(API, _answer(refused))
        return
    names = request.subscribed_topic_names
    body = ShareHeartbeat(
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        rack_id=request.rack_id,
        subscribed_topic_names=None if names is None else tuple(names),
    )
    call(
        context,
        request.group_id,
        body,
        lambda said: context.answer(API, _answer(said)),
        needs=AclOperation.READ,
    )


def _refusal(context: RequestContext, request: Any) -> Rejected | ErrorCode | None:
    off = share_partitions.feature_refusal(context)
    if off is not None:
        return off
    if is_blank(request.group_id):
        return Rejected(ErrorCode.INVALID_REQUEST, "GroupId can't be empty.")
    if not context.allows(AclOperation.READ, ResourceType.GROUP, request.group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    hidden = [
        name
        for name in sorted(set(request.subscribed_topic_names or ()))
        if not context.allows_topic(AclOperation.DESCRIBE, name)
    ]
    if hidden:
        told = f"The client may not describe the topics {', '.join(hidden)}."
        return Rejected(ErrorCode.TOPIC_AUTHORIZATION_FAILED, told)
    return None


def _answer(said: ShareHeartbeated | Rejected | ErrorCode) -> dict[str, Any]:
    if not isinstance(said, ShareHeartbeated):
        return {
            **refusal_fields(said),
            "member_id": None,
            "member_epoch": 0,
            "heartbeat_interval": 0,
            "assignment": None,
        }
    assignment = None
    if said.assignment is not None:
        assignment = {
            "topic_partitions": [
                {"topic_id": topic_id, "partitions": partitions}
                for topic_id, partitions in by_topic(said.assignment)
            ]
        }
    return {
        "error_code": ErrorCode.NONE,
        "member_id": said.member_id,
        "member_epoch": said.member_epoch,
        "heartbeat_interval": said.heartbeat_interval_ms,
        "assignment": assignment,
    }
