"""AlterPartitionReassignments (45, KIP-455). Served: v0-1; any broker forwards it to the
controller."""

from __future__ import annotations

from typing import Any

from kvorum.broker.api.context import RequestContext, error_fields, refusal_fields
from kvorum.metadata.image.acl import AclOperation, ResourceType
from kvorum.metadata.requests.controller_requests import (
    AlterReassignments,
    Reassignment,
)
from kvorum.metadata.rpc.calls import ALTER_REASSIGNMENTS
from kvorum.runtime.errors import Rejected
from kvorum.wire.kio_codec import milliseconds
from kvorum.wire.versions import Api

API = Api(
    key=45,
    name="alter_partition_reassignments",
    min_version=0,
    max_version=1,
    first_flexible=0,
    needs_controller=True,
)
ACCESS = ((AclOperation.ALTER, ResourceType.CLUSTER),)


async def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    may_change_factor = getattr(request, "allow_replication_factor_change", True)
    asked = AlterReassignments(
        reassignments=tuple(
            Reassignment(
                topic=topic.name,
                partition_id=partition.partition_index,
                replicas=None if partition.replicas is None else tuple(partition.replicas),
            )
            for topic in request.topics
            for partition in topic.partitions
        ),
        allow_replication_factor_change=may_change_factor,
    )
    timeout_ms = max(milliseconds(request.timeout), 0)
    reply = await context.ask_controller(
        ALTER_REASSIGNMENTS, asked, timeout_ms, needs=AclOperation.ALTER
    )
    refused = reply if isinstance(reply, Rejected) else None
    answer: dict[str, Any] = {**refusal_fields(refused), "responses": []}
    if context.api_version >= 1:
        answer["allow_replication_factor_change"] = may_change_factor
    if isinstance(reply, Rejected):
        return answer
    by_topic: dict[str, list[dict[str, Any]]] = {}
    for outcome in reply:
        row = {"partition_index": outcome.partition_id, **error_fields(outcome)}
        by_topic.setdefault(outcome.topic, []).append(row)
    answer["responses"] = [
        {"name": name, "partitions": partitions} for name, partitions in by_topic.items()
    ]
    return answer
