"""CreatePartitions (37). Served: v0-3. Any broker takes it and forwards it to the controller.

The answer waits until this broker's own metadata shows the partitions. Missing: mutation quotas.
"""

from __future__ import annotations

from typing import Any

from broker.context import RequestContext
from metadata.requests import CreatePartitions, GrownTopic, MorePartitions
from runtime.errors import ErrorCode, Rejected
from wire.kio_codec import milliseconds
from wire.versions import Api

API = Api(key=37, name="create_partitions", min_version=0, max_version=3, first_flexible=2)


async def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    asked = CreatePartitions(
        topics=tuple(_more_partitions(topic) for topic in request.topics),
        validate_only=request.validate_only,
    )
    timeout_ms = max(milliseconds(request.timeout), 0)
    reply = await context.services.controller.partitions.create_partitions(asked, timeout_ms)
    if isinstance(reply, Rejected):
        reply = tuple(
            GrownTopic(name=topic.name, error=reply.code, message=reply.message)
            for topic in asked.topics
        )
    # Named twice, a topic is refused twice; Kafka answers once.
    by_name = {grown.name: grown for grown in reply}
    return {"results": [_answer(grown) for grown in by_name.values()]}


def _more_partitions(topic: Any) -> MorePartitions:
    assignments = None
    if topic.assignments is not None:
        assignments = tuple(tuple(item.broker_ids) for item in topic.assignments)
    return MorePartitions(name=topic.name, count=topic.count, assignments=assignments)


def _answer(grown: GrownTopic) -> dict[str, Any]:
    return {
        "name": grown.name,
        "error_code": grown.error,
        "error_message": None if grown.error == ErrorCode.NONE else grown.message,
    }
