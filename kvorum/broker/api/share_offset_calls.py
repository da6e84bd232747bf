"""The shared part of AlterShareGroupOffsets and DeleteShareGroupOffsets."""

from __future__ import annotations

from typing import Any

from kvorum.broker.api import share_partitions
from kvorum.broker.api.context import RequestContext
from kvorum.broker.api.group_calls import ask_named
from kvorum.metadata.image.acl import AclOperation
from kvorum.metadata.image.image import TopicImage
from kvorum.runtime.errors import ErrorCode


async def ask_group(
    context: RequestContext, group_id: str, body: Any, *, needs: AclOperation
) -> Any:
    """The answer of the group's coordinator, or a refusal of the whole request."""
    refused = share_partitions.feature_refusal(context)
    if refused is not None:
        return refused
    return await ask_named(context, group_id, body, needs=needs)


def topic_or_refusal(context: RequestContext, name: str) -> TopicImage | ErrorCode:
    """The topic of that name, if the client may read it."""
    if not context.allows_topic(AclOperation.READ, name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    topic = context.services.image().topic(name)
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic
