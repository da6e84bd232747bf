"""DeleteTopics (20). Served: v1-6 (by id in v6). Any broker forwards it to the controller.

The answer waits until the topics are gone from this broker's own metadata. If this broker or the
active controller has delete.topic.enable=false, the error is TOPIC_DELETION_DISABLED
(INVALID_REQUEST before v3).
"""

from __future__ import annotations

from typing import Any

from kvorum.broker.api.context import TOPIC_REFUSED, RequestContext
from kvorum.metadata.image.acl import AclOperation, ResourceType
from kvorum.metadata.requests.controller_requests import DeletedTopic, DeleteTopics, TopicReference
from kvorum.metadata.rpc.calls import DELETE_TOPICS
from kvorum.runtime.errors import ErrorCode, Rejected
from kvorum.runtime.ids import UUID_ZERO
from kvorum.wire.kio_codec import milliseconds, uuid_bytes
from kvorum.wire.versions import Api

API = Api(
    key=20,
    name="delete_topics",
    min_version=1,
    max_version=6,
    first_flexible=4,
    needs_controller=True,
)
ACCESS = ((AclOperation.DELETE, ResourceType.TOPIC),)

QUOTA_STRICT_VERSION = 5
DELETION_DISABLED_VERSION = 3


async def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    unclear = _unclear(request)
    if unclear:
        # Nothing is deleted: the client may have given the id to protect another topic of that
        # name.
        return {"responses": [_not_understood(item, unclear) for item in request.topics]}
    if not context.services.config.delete_topic_enable:
        disabled = Rejected(
            ErrorCode.TOPIC_DELETION_DISABLED,
            f"broker {context.services.broker_id} has delete.topic.enable=false",
        )
        return {
            "responses": [
                _answer(_refused(item, disabled), context.api_version)
                for item in _references(request)
            ]
        }
    charge = context.mutation_charge(QUOTA_STRICT_VERSION)
    accepted: list[TopicReference] = []
    outcome: list[DeletedTopic] = []
    for item in _references(request):
        refused = _refusal(context, item)
        if refused is not None:
            # The answer has only the name or id from the request: a client without access must not
            # learn the other one.
            outcome.append(_refused(item, refused))
            continue
        refused = charge.take(item, _partition_count(context, item))
        if refused is None:
            accepted.append(item)
        else:
            outcome.append(_refused(item, refused))
    timeout_ms = max(milliseconds(request.timeout), 0)
    if accepted:
        deleted = await _delete(context, tuple(accepted), timeout_ms)
        for item, result in zip(accepted, deleted, strict=True):
            if result.error != ErrorCode.NONE:
                charge.give_back(item)
        outcome += deleted
    context.slot.connection.mute(charge.close())
    return {"responses": [_answer(item, context.api_version) for item in outcome]}


async def _delete(
    context: RequestContext, topics: tuple[TopicReference, ...], timeout_ms: int
) -> tuple[DeletedTopic, ...]:
    """The result for each topic, in their order."""
    reply = await context.services.controller.request(
        DELETE_TOPICS, DeleteTopics(topics=topics), timeout_ms
    )
    if isinstance(reply, Rejected):
        return tuple(_refused(item, reply) for item in topics)
    return reply


def _refusal(context: RequestContext, item: TopicReference) -> Rejected | None:
    """The refusal of a client that may not delete the topic. An unknown id is for the controller to
    refuse."""
    if not context.has_access_control:
        return None
    topic = None if item.name else context.services.image().topics.get(item.topic_id)
    name = item.name if topic is None else topic.name
    is_unknown = not name
    if is_unknown or context.allows_topic(AclOperation.DELETE, name):
        return None
    return TOPIC_REFUSED


def _partition_count(context: RequestContext, item: TopicReference) -> int:
    """The topic's number of partitions, as far as this broker knows."""
    image = context.services.image()
    topic = image.topic(item.name) if item.name else image.topics.get(item.topic_id)
    return 0 if topic is None else len(topic.partitions)


def _refused(item: TopicReference, reason: Rejected) -> DeletedTopic:
    return DeletedTopic(
        name=item.name, topic_id=item.topic_id, error=reason.code, message=reason.message
    )


def _unclear(request: Any) -> str:
    """The fault in how the request names topics (v6: by name or by id), "" if there is none."""
    for item in getattr(request, "topics", None) or ():
        has_id = uuid_bytes(item.topic_id) != UUID_ZERO
        if item.name is not None and has_id:
            return f"a topic has both a name, {item.name!r}, and an id: give one of them"
        if item.name is None and not has_id:
            return "a topic has neither a name nor an id"
    return ""


def _not_understood(item: Any, reason: str) -> dict[str, Any]:
    return {
        "name": item.name,
        "topic_id": uuid_bytes(item.topic_id),
        "error_code": ErrorCode.INVALID_REQUEST,
        "error_message": reason,
    }


def _references(request: Any) -> list[TopicReference]:
    names = getattr(request, "topic_names", None)
    if names is not None:
        return [TopicReference(name=name) for name in names]
    return [
        TopicReference(name=item.name or "", topic_id=uuid_bytes(item.topic_id))
        for item in request.topics
    ]


def _answer(item: DeletedTopic, version: int) -> dict[str, Any]:
    error = item.error
    if error == ErrorCode.TOPIC_DELETION_DISABLED and version < DELETION_DISABLED_VERSION:
        error = ErrorCode.INVALID_REQUEST
    return {
        "name": item.name or None,
        "topic_id": item.topic_id,
        "error_code": error,
        "error_message": item.message or None,
    }
