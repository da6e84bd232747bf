"""DeleteTopics (20). Served: v1-6 (by id in v6). Any broker takes it and forwards it.

The answer waits until this broker's own metadata has lost the topics.
"""

from __future__ import annotations

from typing import Any

from broker.context import RequestContext
from metadata.image import ClusterImage
from metadata.requests import DeletedTopic, DeleteTopics, TopicReference
from runtime.errors import ErrorCode, Rejected
from wire.kio_codec import milliseconds, uuid_bytes
from wire.versions import Api

API = Api(key=20, name="delete_topics", min_version=1, max_version=6, first_flexible=4)

IMAGE_WAIT_MAX_MS = 5_000


async def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    references = _references(request)
    timeout_ms = max(milliseconds(request.timeout), 0)
    reply = await context.services.controller.delete_topics(
        DeleteTopics(topics=tuple(references)), timeout_ms
    )
    if isinstance(reply, Rejected):
        reply = tuple(
            DeletedTopic(
                name=item.name, topic_id=item.topic_id, error=reply.code, message=reply.message
            )
            for item in references
        )
    gone = [item.topic_id for item in reply if item.error == ErrorCode.NONE]
    if gone:

        def is_gone(image: ClusterImage) -> bool:
            return not any(topic_id in image.topics for topic_id in gone)

        await context.services.replicas.wait_for_image(
            is_gone, min(max(timeout_ms, 1), IMAGE_WAIT_MAX_MS)
        )
    return {"responses": [_answer(item) for item in reply]}


def _references(request: Any) -> list[TopicReference]:
    names = getattr(request, "topic_names", None)
    if names is not None:
        return [TopicReference(name=name) for name in names]
    return [
        TopicReference(name=item.name or "", topic_id=uuid_bytes(item.topic_id))
        for item in request.topics
    ]


def _answer(item: DeletedTopic) -> dict[str, Any]:
    return {
        "name": item.name or None,
        "topic_id": item.topic_id,
        "error_code": item.error,
        "error_message": item.message or None,
    }
