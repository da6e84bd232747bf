"""ElectLeaders (43). Served: v0-2. Any broker forwards it to the controller.

v0 has preferred elections only. An unclean election is an operator's order: it ignores
unclean.leader.election.enable, and elects only for partitions without a leader.
"""

from __future__ import annotations

from typing import Any

from kvorum.broker.api.context import RequestContext
from kvorum.metadata.image.acl import AclOperation, ResourceType
from kvorum.metadata.requests.controller_requests import ElectedLeader, ElectionType, ElectLeaders
from kvorum.metadata.rpc.calls import ELECT_LEADERS
from kvorum.runtime.errors import ErrorCode, Rejected
from kvorum.wire.versions import Api

API = Api(
    key=43,
    name="elect_leaders",
    min_version=0,
    max_version=2,
    first_flexible=2,
    needs_controller=True,
)
ACCESS = ((AclOperation.ALTER, ResourceType.CLUSTER),)


async def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    try:
        election = ElectionType(getattr(request, "election_type", ElectionType.PREFERRED))
    except ValueError:
        return _failed(request, ErrorCode.INVALID_REQUEST)
    partitions: list[tuple[str, int]] = []
    for topic in request.topic_partitions or ():
        partitions += [(topic.topic, partition_id) for partition_id in topic.partitions]
    if request.topic_partitions is not None and not partitions:
        return {"error_code": ErrorCode.NONE, "replica_election_results": ()}
    reply = await context.ask_controller(
        ELECT_LEADERS,
        ElectLeaders(partitions=tuple(partitions), election=election),
        needs=AclOperation.ALTER,
    )
    if isinstance(reply, Rejected):
        return _failed(request, reply.code)
    by_topic: dict[str, list[ElectedLeader]] = {}
    for elected in reply:
        by_topic.setdefault(elected.topic, []).append(elected)
    results = [
        {"topic": topic, "partition_result": [_answer(elected) for elected in rows]}
        for topic, rows in by_topic.items()
    ]
    return {"error_code": ErrorCode.NONE, "replica_election_results": results}


def _answer(elected: ElectedLeader) -> dict[str, Any]:
    return {
        "partition_id": elected.partition_id,
        "error_code": elected.error,
        "error_message": elected.message or None,
    }


def _failed(request: Any, error: ErrorCode) -> dict[str, Any]:
    """The answer if the whole request failed. v0 has no top-level error, so each partition has it
    too."""
    results = [
        {
            "topic": topic.topic,
            "partition_result": [
                {"partition_id": partition_id, "error_code": error, "error_message": None}
                for partition_id in topic.partitions
            ],
        }
        for topic in request.topic_partitions or ()
    ]
    return {"error_code": error, "replica_election_results": results}
