"""DeleteShareGroupOffsets (92). Served: v0 (KIP-932): a group forgets topics.

The group has no members. If it subscribes to such a topic again, it begins where
share.auto.offset.reset says. Errors of the request: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP,
GROUP_AUTHORIZATION_FAILED, the coordinator errors 14 to 16.
"""

from __future__ import annotations

from typing import Any

from kvorum.broker.api.context import RequestContext, refusal_fields
from kvorum.broker.api.share_offset_calls import ask_group, topic_or_refusal
from kvorum.broker.groups.share.requests import DeleteShareOffsets, StatesChanged
from kvorum.metadata.image.acl import AclOperation, ResourceType
from kvorum.metadata.image.image import TopicImage
from kvorum.runtime.errors import ErrorCode, Rejected
from kvorum.runtime.ids import UUID_ZERO
from kvorum.wire.versions import Api

API = Api(key=92, name="delete_share_group_offsets", min_version=0, max_version=0, first_flexible=0)
ACCESS = ((AclOperation.DELETE, ResourceType.GROUP), (AclOperation.READ, ResourceType.TOPIC))


async def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    names = list(dict.fromkeys(topic.topic_name for topic in request.topics))
    topics = {name: topic_or_refusal(context, name) for name in names}
    ids = tuple(topic.topic_id for topic in topics.values() if isinstance(topic, TopicImage))
    body = DeleteShareOffsets(group_id=request.group_id, topic_ids=ids)
    said = await ask_group(context, request.group_id, body, needs=AclOperation.DELETE)
    if not isinstance(said, StatesChanged):
        return {**refusal_fields(said), "responses": ()}
    return {
        **refusal_fields(ErrorCode.NONE),
        "responses": [
            {
                "topic_name": name,
                "topic_id": topic.topic_id if isinstance(topic, TopicImage) else UUID_ZERO,
                **refusal_fields(_error_of(topic, said)),
            }
            for name, topic in topics.items()
        ],
    }


def _error_of(topic: TopicImage | ErrorCode, said: StatesChanged) -> ErrorCode | Rejected:
    if not isinstance(topic, TopicImage):
        return topic
    errors = [error for (topic_id, _), error in said.errors.items() if topic_id == topic.topic_id]
    return next((error for error in errors if error != ErrorCode.NONE), ErrorCode.NONE)
