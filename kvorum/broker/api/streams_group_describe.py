"""StreamsGroupDescribe (89). Served: v0-1, if streams.version is 1 (KIP-1071).

The topology is shown with the counts that follow from its topics once it is ready, else as its
member brought it. v1 has the assignor's name, and the topology's description if asked for
(KIP-1331). Errors of a group: the coordinator errors 14 to 16, INVALID_GROUP_ID, GROUP_ID_NOT_FOUND
(also for another type of group), TOPIC_AUTHORIZATION_FAILED if a topic of the topology is hidden
from the client. The answer has replicated state only, but for the offsets of tasks' states.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from kvorum.broker.api.context import RequestContext, refusal_fields
from kvorum.broker.api.group_calls import ask_named
from kvorum.broker.api.group_descriptions import HIDDEN_TOPICS
from kvorum.broker.api.streams_calls import feature_refusal, task_rows
from kvorum.broker.groups.streams.configuring import ConfiguredTopology
from kvorum.broker.groups.streams.description import Node, TopologyDescription
from kvorum.broker.groups.streams.requests import (
    DescribedStreamsMember,
    DescribeStreamsGroup,
    StreamsGroupDescription,
)
from kvorum.broker.groups.streams.tasks import Task, Tasks
from kvorum.broker.groups.streams.topology import InternalTopic, Topology
from kvorum.broker.metadata_answers.authorized_operations import is_asked
from kvorum.metadata.image.acl import AclOperation, ResourceType
from kvorum.runtime.errors import ErrorCode, Rejected
from kvorum.wire.versions import Api

API = Api(key=89, name="streams_group_describe", min_version=0, max_version=1, first_flexible=0)
ACCESS = ((AclOperation.DESCRIBE, ResourceType.GROUP), (AclOperation.DESCRIBE, ResourceType.TOPIC))

_NOT_REQUESTED, _NOT_STORED, _AVAILABLE = 0, 1, 3


async def handle(context: RequestContext, request: Any) -> dict[str, Any]:
    group_ids = list(dict.fromkeys(request.group_ids))
    off = feature_refusal(context)
    if off is not None:
        return {"groups": [_failed(group_id, off) for group_id in group_ids]}
    answers = await asyncio.gather(
        *(
            ask_named(
                context,
                group_id,
                DescribeStreamsGroup(group_id=group_id),
                needs=AclOperation.DESCRIBE,
            )
            for group_id in group_ids
        )
    )
    with_description = getattr(request, "include_topology_description", False)
    with_operations = is_asked(request, "include_authorized_operations")
    rows = []
    for group_id, found in zip(group_ids, answers, strict=True):
        if isinstance(found, (Rejected, ErrorCode)):
            rows.append(_failed(group_id, found))
            continue
        row = _row(found, with_description=with_description)
        if not _shows_topics(context, found.topology):
            row = _failed(group_id, HIDDEN_TOPICS)
        if with_operations:
            row["authorized_operations"] = context.operations(ResourceType.GROUP, group_id)
        rows.append(row)
    return {"groups": rows}


def _shows_topics(context: RequestContext, topology: Topology | None) -> bool:
    if topology is None or not context.has_access_control:
        return True
    names = sorted(topology.all_names())
    return all(context.allows_topic(AclOperation.DESCRIBE, name) for name in names)


def _failed(group_id: str, refused: Rejected | ErrorCode) -> dict[str, Any]:
    return {
        **refusal_fields(refused),
        "group_id": group_id,
        "group_state": "",
        "group_epoch": 0,
        "assignment_epoch": 0,
        "topology": None,
        "members": (),
    }


def _row(found: StreamsGroupDescription, *, with_description: bool) -> dict[str, Any]:
    status, description = _NOT_REQUESTED, None
    if with_description:
        description = found.description
        status = _NOT_STORED if description is None else _AVAILABLE
    return {
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "group_id": found.group_id,
        "group_state": found.state,
        "group_epoch": found.group_epoch,
        "assignment_epoch": found.assignment_epoch,
        "topology": _topology_row(found.topology, found.configured),
        "members": [_member_row(described) for described in found.members],
        "topology_description": None if description is None else _description_row(description),
        "topology_description_status": status,
        "assignor_name": found.assignor_name,
    }


def _topology_row(
    topology: Topology | None, configured: ConfiguredTopology | None
) -> dict[str, Any] | None:
    if topology is None:
        return None
    parts: Iterable[tuple[str, Any]]
    if configured is not None:
        parts = configured.subtopologies.items()
    else:
        parts = [(part.subtopology_id, part) for part in topology.subtopologies]
    return {
        "epoch": topology.epoch,
        "subtopologies": [
            {
                "subtopology_id": subtopology_id,
                "source_topics": sorted(part.source_topics),
                "repartition_sink_topics": sorted(part.repartition_sink_topics),
                "state_changelog_topics": _internal_rows(part.state_changelog_topics),
                "repartition_source_topics": _internal_rows(part.repartition_source_topics),
            }
            for subtopology_id, part in parts
        ],
    }


def _internal_rows(topics: Iterable[InternalTopic]) -> list[dict[str, Any]]:
    return [
        {
            "name": topic.name,
            "partitions": topic.num_partitions,
            "replication_factor": topic.replication_factor,
            "topic_configs": _pair_rows(topic.configs),
        }
        for topic in sorted(topics)
    ]


def _pair_rows(pairs: Iterable[tuple[str, str]]) -> list[dict[str, Any]]:
    return [{"key": key, "value": value} for key, value in pairs]


def _member_row(described: DescribedStreamsMember) -> dict[str, Any]:
    member = described.member
    endpoint = member.user_endpoint
    return {
        "member_id": member.member_id,
        "member_epoch": member.member_epoch,
        "instance_id": member.instance_id,
        "rack_id": member.rack_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "topology_epoch": member.topology_epoch,
        "process_id": member.process_id,
        "user_endpoint": (
            None if endpoint is None else {"host": endpoint.host, "port": endpoint.port}
        ),
        "client_tags": _pair_rows(member.client_tags),
        "task_offsets": _offset_rows(described.task_offsets),
        "task_end_offsets": _offset_rows(described.task_end_offsets),
        "assignment": _assignment_row(member.assigned.tasks),
        "target_assignment": _assignment_row(described.target),
        "is_classic": False,
    }


def _assignment_row(tasks: Tasks) -> dict[str, Any]:
    return {
        "active_tasks": task_rows(tasks.active),
        "standby_tasks": task_rows(tasks.standby),
        "warmup_tasks": task_rows(tasks.warmup),
    }


def _offset_rows(offsets: Iterable[tuple[Task, int]]) -> list[dict[str, Any]]:
    return [
        {"subtopology_id": subtopology_id, "partition": partition, "offset": offset}
        for (subtopology_id, partition), offset in offsets
    ]


def _description_row(description: TopologyDescription) -> dict[str, Any]:
    return {
        "subtopologies": [
            {"subtopology_id": part.subtopology_id, "nodes": [_node_row(n) for n in part.nodes]}
            for part in description.subtopologies
        ],
        "global_stores": [
            {"source": _node_row(store.source), "processor": _node_row(store.processor)}
            for store in description.global_stores
        ],
    }


def _node_row(node: Node) -> dict[str, Any]:
    return node._asdict()
