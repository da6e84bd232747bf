"""The shared part of the APIs of groups: requests to the coordinator's shards, and answers."""

from __future__ import annotations

from functools import partial
from typing import Any

from kvorum.broker.api.context import RequestContext
from kvorum.broker.coordinator.model import Client
from kvorum.broker.coordinator.shard_context import Respond
from kvorum.broker.groups.steps.config import STRING_BYTES_MAX
from kvorum.metadata.image.acl import AclOperation, ResourceType
from kvorum.metadata.image.image import TopicImage
from kvorum.runtime.errors import ErrorCode
from kvorum.wire.kio_codec import uuid_bytes


async def ask(context: RequestContext, group_id: str, body: Any, *, needs: AclOperation) -> Any:
    """The answer of the group's coordinator, or an ErrorCode. needs: the operation on the group
    that the client must be allowed.

    A group id that is too long for a key of `__consumer_offsets` is refused here. The caller
    handles an empty group id, for which the APIs differ.
    """
    if not context.allows(needs, ResourceType.GROUP, group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    if _is_too_long(group_id):
        return ErrorCode.INVALID_GROUP_ID
    return await context.services.groups.request(
        key=group_id,
        body=body,
        client=_client(context),
    )


async def ask_named(
    context: RequestContext, group_id: str, body: Any, *, needs: AclOperation
) -> Any:
    """As `ask`; an empty group id is refused, as in all requests of members."""
    if not group_id:
        return ErrorCode.INVALID_GROUP_ID
    return await ask(context, group_id, body, needs=needs)


def call(
    context: RequestContext, group_id: str, body: Any, respond: Respond, *, needs: AclOperation
) -> None:
    """As `ask`, for hot handlers: `respond` is called with the answer, now or later."""
    if not context.allows(needs, ResourceType.GROUP, group_id):
        respond(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        return
    if _is_too_long(group_id):
        respond(ErrorCode.INVALID_GROUP_ID)
        return
    context.services.groups.call(
        key=group_id,
        body=body,
        client=_client(context),
        respond=respond,
    )


def _client(context: RequestContext) -> Client:
    may_describe = None
    if context.has_access_control:
        may_describe = partial(context.shows, ResourceType.TOPIC)
    return Client(id=context.client_id or "", host=context.client_host, may_describe=may_describe)


def _is_too_long(group_id: str) -> bool:
    return len(group_id) * 3 > STRING_BYTES_MAX and len(group_id.encode()) > STRING_BYTES_MAX


def asked_topic(context: RequestContext, topic: Any) -> TopicImage | ErrorCode | None:
    """The topic of a row of a request, which has its name or (since KIP-848) its id. None for an
    unknown name, UNKNOWN_TOPIC_ID for an unknown id."""
    image = context.services.image()
    if not hasattr(topic, "topic_id"):
        return image.topic(topic.name)
    return image.topics.get(uuid_bytes(topic.topic_id), ErrorCode.UNKNOWN_TOPIC_ID)


def topic_fields(topic: Any) -> dict[str, Any]:
    """The name or id with which a row of an answer repeats that of the request."""
    if hasattr(topic, "topic_id"):
        return {"topic_id": uuid_bytes(topic.topic_id)}
    return {"name": topic.name}


def has_partition(context: RequestContext, topic: str, partition: int) -> bool:
    """True if this broker's metadata has the partition."""
    found = context.services.image().topic(topic)
    return found is not None and partition in found.partitions
