"""AlterPartitionReassignments (45, KIP-455). Served: v0-1; any broker forwards it to the
controller."""

from __future__ import annotations

from typing import Any

from kvorum.broker.api.context import RequestContext
from kvorum.metadata.access.model import AclOperation, ResourceType
from kvorum.metadata.requests.controller_requests import (
    AlterReassignments,
    ReassignedPartition,
    Reassignment,
)
from kvorum.metadata.rpc.calls import ALTER_REASSIGNMENTS
from kvorum.runtime.errors import ErrorCode, Rejected
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
    answer: dict[str, Any] = {
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "responses": [],
    }
    if context.api_version >= 1:
        answer["allow_replication_factor_change"] = may_change_factor
    if isinstance(reply, Rejected):
        answer.update(error_code=reply.code, error_message=reply.message)
        return answer
    by_topic: dict[str, list[dict[str, Any]]] = {}
    for outcome in reply:
        by_topic.setdefault(outcome.topic, []).append(_outcome(outcome))
    answer["responses"] = [
        {"name": name, "partitions": partitions} for name, partitions in by_topic.items()
    ]
    return answer


def _outcome(outcome: ReassignedPartition) -> dict[str, Any]:
    return {
        "partition_index": outcome.partition_id,
        "error_code": outcome.error,
        "error_message": None if outcome.error == ErrorCode.NONE else outcome.message,
    }
