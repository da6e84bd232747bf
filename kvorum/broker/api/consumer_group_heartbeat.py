"""ConsumerGroupHeartbeat (68). Served: v0-1, if group.version is 1 (KIP-848).

v1 has subscription by regular expression, and member ids that clients choose; in v0 an empty member
id is filled in here. Errors: the coordinator errors 14 to 16, UNKNOWN_MEMBER_ID (the member must
join again), UNSUPPORTED_VERSION (group.version 0), INVALID_REQUEST, GROUP_ID_NOT_FOUND (no such
group, or a classic one that is not upgraded), GROUP_MAX_SIZE_REACHED, FENCED_INSTANCE_ID,
FENCED_MEMBER_EPOCH (the member must give up everything and join again), UNRELEASED_INSTANCE_ID,
UNSUPPORTED_ASSIGNOR, INVALID_REGULAR_EXPRESSION.
"""

from __future__ import annotations

import uuid
from typing import Any

from kvorum.broker.api.context import RequestContext
from kvorum.broker.api.group_calls import call
from kvorum.broker.groups.consumer.records import by_topic
from kvorum.broker.groups.consumer.requests import ConsumerHeartbeat, ConsumerHeartbeated
from kvorum.broker.groups.steps.refusals import is_blank
from kvorum.metadata.image.acl import AclOperation, ResourceType
from kvorum.metadata.image.features import GROUP_VERSION, level_of
from kvorum.runtime.errors import ErrorCode, Rejected
from kvorum.wire.kio_codec import milliseconds, uuid_bytes
from kvorum.wire.versions import Api

API = Api(key=68, name="consumer_group_heartbeat", min_version=0, max_version=1, first_flexible=0)
ACCESS = ((AclOperation.READ, ResourceType.GROUP), (AclOperation.DESCRIBE, ResourceType.TOPIC))

_FIRST_WITH_OWN_IDS = 1


def handle(context: RequestContext, view: memoryview, position: int, end: int) -> None:
    """Answer now, or when the records that the answer relies on are replicated."""
    request = context.read_request(API.name, view[position:end])
    if level_of(context.services.image().features, GROUP_VERSION) < 1:
        told = "group.version is 0: the cluster has no groups of the consumer protocol."
        context.answer(API, _failed(ErrorCode.UNSUPPORTED_VERSION, told))
    elif is_blank(request.group_id):
        context.answer(API, _failed(ErrorCode.INVALID_REQUEST, "GroupId can't be empty."))
    else:
        body = _body_of(request, context.api_version)
        if not context.allows(AclOperation.READ, ResourceType.GROUP, request.group_id):
            context.answer(API, _failed(ErrorCode.GROUP_AUTHORIZATION_FAILED, None))
            return
        hidden = [
            name
            for name in sorted(set(body.subscribed_topic_names or ()))
            if not context.allows_topic(AclOperation.DESCRIBE, name)
        ]
        if hidden:
            told = f"The client may not describe the topics {', '.join(hidden)}."
            context.answer(API, _failed(ErrorCode.TOPIC_AUTHORIZATION_FAILED, told))
            return
        call(
            context,
            request.group_id,
            body,
            lambda said: context.answer(API, _answer(said)),
            needs=AclOperation.READ,
        )


def _body_of(request: Any, version: int) -> ConsumerHeartbeat:
    member_id = request.member_id
    if not member_id and version < _FIRST_WITH_OWN_IDS and request.member_epoch == 0:
        member_id = str(uuid.uuid4())
    names = request.subscribed_topic_names
    return ConsumerHeartbeat(
        group_id=request.group_id,
        member_id=member_id,
        member_epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=milliseconds(request.rebalance_timeout),
        subscribed_topic_names=None if names is None else tuple(names),
        subscribed_topic_regex=getattr(request, "subscribed_topic_regex", None),
        server_assignor=request.server_assignor,
        owned=(
            None
            if request.topic_partitions is None
            else frozenset(
                (uuid_bytes(topic.topic_id), partition)
                for topic in request.topic_partitions
                for partition in topic.partitions
            )
        ),
    )


def _answer(said: ConsumerHeartbeated | Rejected | ErrorCode) -> dict[str, Any]:
    if isinstance(said, Rejected):
        return _failed(said.code, said.message)
    if isinstance(said, ErrorCode):
        return _failed(said, None)
    return _row(said)


def _row(answer: ConsumerHeartbeated) -> dict[str, Any]:
    return {
        "error_code": ErrorCode.NONE,
        "member_id": answer.member_id,
        "member_epoch": answer.member_epoch,
        "heartbeat_interval": answer.heartbeat_interval_ms,
        "assignment": (
            None
            if answer.assignment is None
            else {
                "topic_partitions": [
                    {"topic_id": topic_id, "partitions": partitions}
                    for topic_id, partitions in by_topic(answer.assignment)
                ]
            }
        ),
    }


def _failed(error: ErrorCode, message: str | None) -> dict[str, Any]:
    return {
        "error_code": error,
        "error_message": message,
        "member_id": None,
        "member_epoch": 0,
        "heartbeat_interval": 0,
        "assignment": None,
    }
