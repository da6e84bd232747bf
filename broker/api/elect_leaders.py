"""ElectLeaders (43). Served: v0-2, preferred elections only; unclean ones are refused with 42."""

from __future__ import annotations

from typing import Any

from broker.context import RequestContext
from metadata.requests import ElectedLeader, ElectLeaders
from runtime.errors import ErrorCode, Rejected
from wire.versions import Api

API = Api(key=43, name="elect_leaders", min_version=0, max_version=2, first_flexible=2)

PREFERRED = 0


async def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    if getattr(request, "election_type", PREFERRED) != PREFERRED:
        return {"error_code": ErrorCode.INVALID_REQUEST, "replica_election_results": ()}
    partitions: list[tuple[str, int]] = []
    for topic in request.topic_partitions or ():
        partitions += [(topic.topic, partition_id) for partition_id in topic.partitions]
    if request.topic_partitions is not None and not partitions:
        return {"error_code": ErrorCode.NONE, "replica_election_results": ()}
    reply = await context.services.controller.elect_leaders(
        ElectLeaders(partitions=tuple(partitions))
    )
    if isinstance(reply, Rejected):
        return {"error_code": reply.code, "replica_election_results": ()}
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
