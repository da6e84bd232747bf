"""ListPartitionReassignments (46, KIP-455). Served: v0, by the controller.

So the answer includes a reassignment that was just started through another broker. Partitions that
are unknown or not being reassigned are left out.
"""

from __future__ import annotations

from typing import Any

from kvorum.broker.api.context import RequestContext, refusal_fields
from kvorum.metadata.image.acl import AclOperation, ResourceType
from kvorum.metadata.requests.controller_requests import ListReassignments
from kvorum.metadata.rpc.calls import LIST_REASSIGNMENTS
from kvorum.runtime.errors import Rejected
from kvorum.wire.kio_codec import milliseconds
from kvorum.wire.versions import Api

API = Api(
    key=46,
    name="list_partition_reassignments",
    min_version=0,
    max_version=0,
    first_flexible=0,
    needs_controller=True,
)
ACCESS = ((AclOperation.DESCRIBE, ResourceType.CLUSTER),)


async def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    partitions = None
    if request.topics is not None:
        partitions = tuple(
            (topic.name, partition_id)
            for topic in request.topics
            for partition_id in topic.partition_indexes
        )
    reply = await context.ask_controller(
        LIST_REASSIGNMENTS,
        ListReassignments(partitions=partitions),
        max(milliseconds(request.timeout), 0),
        needs=AclOperation.DESCRIBE,
    )
    if isinstance(reply, Rejected):
        return {**refusal_fields(reply), "topics": []}
    by_topic: dict[str, list[dict[str, Any]]] = {}
    for ongoing in reply:
        by_topic.setdefault(ongoing.topic, []).append(
            {
                "partition_index": ongoing.partition_id,
                "replicas": ongoing.replicas,
                "adding_replicas": ongoing.adding_replicas,
                "removing_replicas": ongoing.removing_replicas,
            }
        )
    topics = [{"name": name, "partitions": rows} for name, rows in by_topic.items()]
    return {**refusal_fields(None), "topics": topics}
