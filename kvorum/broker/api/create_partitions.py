"""CreatePartitions (37). Served: v0-3. Any broker forwards it to the controller.

The answer waits until this broker's own metadata shows the partitions.
"""

from __future__ import annotations

from typing import Any

from kvorum.broker.api.context import TOPIC_REFUSED, RequestContext, error_fields
from kvorum.metadata.image.acl import AclOperation, ResourceType
from kvorum.metadata.requests.controller_requests import (
    CreatedPartitions,
    CreatePartitions,
    NewPartitions,
)
from kvorum.metadata.rpc.calls import CREATE_PARTITIONS
from kvorum.runtime.errors import ErrorCode, Rejected
from kvorum.wire.kio_codec import milliseconds
from kvorum.wire.versions import Api

API = Api(
    key=37,
    name="create_partitions",
    min_version=0,
    max_version=3,
    first_flexible=2,
    needs_controller=True,
)
ACCESS = ((AclOperation.ALTER, ResourceType.TOPIC),)

QUOTA_STRICT_VERSION = 3


async def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    charge = context.mutation_charge(QUOTA_STRICT_VERSION)
    accepted: list[NewPartitions] = []
    outcome: list[CreatedPartitions] = []
    for topic in (_more_partitions(topic) for topic in request.topics):
        count = 0 if request.validate_only else _growth(context, topic)
        refused: Rejected | None = TOPIC_REFUSED
        if context.allows_topic(AclOperation.ALTER, topic.name):
            refused = charge.take(topic.name, count)
        if refused is None:
            accepted.append(topic)
        else:
            outcome.append(_refused(topic, refused))
    if accepted:
        created = await _create(context, request, tuple(accepted))
        for grown in created:
            if grown.error != ErrorCode.NONE:
                charge.give_back(grown.name)
        outcome += created
    context.slot.connection.mute(charge.close())
    # A topic that is named twice is refused twice; Kafka answers once.
    by_name = {grown.name: grown for grown in outcome}
    return {"results": [_answer(grown) for grown in by_name.values()]}


async def _create(
    context: RequestContext, request: Any, topics: tuple[NewPartitions, ...]
) -> tuple[CreatedPartitions, ...]:
    reply = await context.services.controller.request(
        CREATE_PARTITIONS,
        CreatePartitions(topics=topics, validate_only=request.validate_only),
        max(milliseconds(request.timeout), 0),
    )
    if isinstance(reply, Rejected):
        return tuple(_refused(topic, reply) for topic in topics)
    return reply


def _growth(context: RequestContext, topic: NewPartitions) -> int:
    """The number of partitions to be added, as far as this broker knows."""
    known = context.services.image().topic(topic.name)
    return 0 if known is None else max(topic.count - len(known.partitions), 0)


def _refused(topic: NewPartitions, reason: Rejected) -> CreatedPartitions:
    return CreatedPartitions(name=topic.name, error=reason.code, message=reason.message)


def _more_partitions(topic: Any) -> NewPartitions:
    assignments = None
    if topic.assignments is not None:
        assignments = tuple(tuple(item.broker_ids) for item in topic.assignments)
    return NewPartitions(name=topic.name, count=topic.count, assignments=assignments)


def _answer(grown: CreatedPartitions) -> dict[str, Any]:
    return {
        "name": grown.name,
        **error_fields(grown),
    }
