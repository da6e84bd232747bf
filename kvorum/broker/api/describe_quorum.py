"""DescribeQuorum (55). Served: v0-2, for `__cluster_metadata` partition 0; the active controller is
asked.

Listeners of nodes are named CONTROLLER. Without a leader, the answer is REQUEST_TIMED_OUT within a
second. Its message lists the missing controllers, and its nodes give all addresses.
"""

from __future__ import annotations

from typing import Any

from kvorum.broker.api.context import CLUSTER_REFUSED, RequestContext, refusal_fields
from kvorum.broker.controller_channel.controller_api import (
    NoQuorum,
    QuorumDescription,
    ReplicaState,
)
from kvorum.metadata.image.acl import AclOperation, ResourceType
from kvorum.raft.node.control_records import LISTENER_NAME
from kvorum.runtime.errors import ErrorCode, Rejected
from kvorum.wire.versions import Api

API = Api(
    key=55,
    name="describe_quorum",
    min_version=0,
    max_version=2,
    first_flexible=0,
)
ACCESS = ((AclOperation.DESCRIBE, ResourceType.CLUSTER),)

METADATA_TOPIC = "__cluster_metadata"


async def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    if not context.allows_on_cluster(AclOperation.DESCRIBE):
        return {**refusal_fields(CLUSTER_REFUSED), "topics": (), "nodes": ()}
    described = await context.services.controller.describe_quorum()
    if isinstance(described, Rejected):
        return {
            "error_code": described.code,
            "error_message": described.message or None,
            "topics": (),
            "nodes": _nodes(described.nodes) if isinstance(described, NoQuorum) else (),
        }
    topics = [
        {
            "topic_name": topic.topic_name,
            "partitions": [
                _partition(topic.topic_name, asked.partition_index, described)
                for asked in topic.partitions
            ],
        }
        for topic in request.topics
    ]
    return {"error_code": ErrorCode.NONE, "topics": topics, "nodes": _nodes(described.nodes)}


def _nodes(nodes: tuple[tuple[int, str, int], ...]) -> list[dict[str, Any]]:
    return [
        {"node_id": node_id, "listeners": [{"name": LISTENER_NAME, "host": host, "port": port}]}
        for node_id, host, port in nodes
    ]


def _partition(topic: str, partition_id: int, quorum: QuorumDescription) -> dict[str, Any]:
    is_known = topic == METADATA_TOPIC and partition_id == 0
    return {
        "partition_index": partition_id,
        "error_code": ErrorCode.NONE if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "error_message": None,
        "leader_id": quorum.leader_id if is_known else -1,
        "leader_epoch": quorum.leader_epoch if is_known else -1,
        "high_watermark": quorum.high_watermark if is_known else -1,
        "current_voters": [_state(state) for state in quorum.voters] if is_known else (),
        "observers": [_state(state) for state in quorum.observers] if is_known else (),
    }


def _state(state: ReplicaState) -> dict[str, Any]:
    return {
        "replica_id": state.id,
        "replica_directory_id": state.directory_id,
        "log_end_offset": state.log_end_offset,
        "last_fetch_timestamp": state.last_fetch_timestamp_ms,
        "last_caught_up_timestamp": state.last_caught_up_timestamp_ms,
    }
