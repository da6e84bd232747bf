"""StreamsGroupHeartbeat (88). Served: v0-1, if streams.version is 1 (KIP-1071).

Epoch 0 joins and brings the topology, -1 leaves, -2 leaves for a while (static members). The answer
has the member's tasks if they are new to it, statuses of the group, and what the members' endpoints
serve. It waits until its records are replicated. v1 has the status MISSING_CLIENT_TAGS and asks for
the topology's description (KIP-1331).

Internal topics that are missing are created in the member's name: it needs CREATE on them or on the
cluster. Errors: the coordinator errors 14 to 16, UNKNOWN_MEMBER_ID and FENCED_MEMBER_EPOCH (the
member must join again), UNSUPPORTED_VERSION, INVALID_REQUEST, GROUP_ID_NOT_FOUND,
GROUP_MAX_SIZE_REACHED, FENCED_INSTANCE_ID, UNRELEASED_INSTANCE_ID, STREAMS_INVALID_TOPOLOGY.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from kvorum.broker.api.context import RequestContext, refusal_fields
from kvorum.broker.api.group_calls import call
from kvorum.broker.api.streams_calls import feature_refusal, task_rows, topology_of
from kvorum.broker.groups.steps.refusals import is_blank
from kvorum.broker.groups.streams.configuring import GroupStatus
from kvorum.broker.groups.streams.member import Endpoint
from kvorum.broker.groups.streams.requests import (
    EndpointPartitions,
    StreamsHeartbeat,
    StreamsHeartbeated,
)
from kvorum.broker.groups.streams.states import Status
from kvorum.broker.groups.streams.tasks import Task, Tasks, TaskSet
from kvorum.broker.groups.streams.topology import InternalTopic, Topology
from kvorum.broker.metadata_answers.topic_names import INTERNAL_TOPICS, name_refusal
from kvorum.metadata.image.acl import AclOperation, ResourceType
from kvorum.runtime.errors import ErrorCode, Rejected
from kvorum.wire.kio_codec import milliseconds
from kvorum.wire.versions import Api

API = Api(key=88, name="streams_group_heartbeat", min_version=0, max_version=1, first_flexible=0)
ACCESS = (
    (AclOperation.READ, ResourceType.GROUP),
    (AclOperation.DESCRIBE, ResourceType.TOPIC),
    (AclOperation.CREATE, ResourceType.TOPIC),
    (AclOperation.CREATE, ResourceType.CLUSTER),
)

_FIRST_WITH_DESCRIPTION = 1
_REASONS_SHOWN = 3


def handle(context: RequestContext, view: memoryview, position: int, end: int) -> None:
    """Answer when the coordinator does."""
    request = context.read_request(API.name, view[position:end])
    topology = None if request.topology is None else topology_of(request.topology)
    refused = _refusal(context, request.group_id, topology)
    if refused is not None:
        context.answer(API, _answer(context, refused))
        return
    call(
        context,
        request.group_id,
        _body_of(request, topology, context.api_version),
        partial(_respond, context),
        needs=AclOperation.READ,
    )


def _refusal(
    context: RequestContext, group_id: str, topology: Topology | None
) -> Rejected | ErrorCode | None:
    off = feature_refusal(context)
    if off is not None:
        return off
    if is_blank(group_id):
        return Rejected(ErrorCode.INVALID_REQUEST, "GroupId can't be empty.")
    if not context.allows(AclOperation.READ, ResourceType.GROUP, group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    names = sorted(topology.all_names()) if topology is not None else []
    internal = [name for name in names if name in INTERNAL_TOPICS]
    if internal:
        text = (
            f"Use of Kafka internal topics {','.join(internal)} in a Kafka Streams topology is "
            "prohibited."
        )
        return Rejected(ErrorCode.STREAMS_INVALID_TOPOLOGY, text)
    invalid = [name for name in names if name_refusal(name) is not None]
    if invalid:
        text = f"Topic names {','.join(invalid)} are not valid topic names."
        return Rejected(ErrorCode.STREAMS_INVALID_TOPOLOGY, text)
    if not all(context.allows_topic(AclOperation.DESCRIBE, name) for name in names):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return None


def _body_of(request: Any, topology: Topology | None, version: int) -> StreamsHeartbeat:
    roles = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    endpoint, tags = request.user_endpoint, request.client_tags
    return StreamsHeartbeat(
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        endpoint_epoch=request.endpoint_information_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=milliseconds(request.rebalance_timeout),
        topology=topology,
        owned=None if None in roles else Tasks(*map(_task_set, roles)),
        has_some_roles=any(role is not None for role in roles),
        process_id=request.process_id,
        user_endpoint=None if endpoint is None else Endpoint(endpoint.host, endpoint.port),
        client_tags=None if tags is None else tuple((tag.key, tag.value) for tag in tags),
        task_offsets=_offsets(request.task_offsets),
        task_end_offsets=_offsets(request.task_end_offsets),
        shutdown_application=request.shutdown_application,
        knows_description=version >= _FIRST_WITH_DESCRIPTION,
    )


def _task_set(rows: Iterable[Any]) -> TaskSet:
    return frozenset(
        (row.subtopology_id, partition) for row in rows for partition in row.partitions
    )


def _offsets(rows: Iterable[Any] | None) -> tuple[tuple[Task, int], ...] | None:
    if rows is None:
        return None
    return tuple(((row.subtopology_id, row.partition), row.offset) for row in rows)


# --- the answer ----------------------------------------------------------------------------------


def _respond(context: RequestContext, said: StreamsHeartbeated | Rejected | ErrorCode) -> None:
    context.answer(API, _answer(context, said))


def _answer(
    context: RequestContext, said: StreamsHeartbeated | Rejected | ErrorCode
) -> dict[str, Any]:
    if not isinstance(said, StreamsHeartbeated):
        return {**_EMPTY, **refusal_fields(said)}
    tasks = said.assignment
    lag = said.acceptable_recovery_lag if context.api_version >= _FIRST_WITH_DESCRIPTION else 0
    return {
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "member_id": said.member_id,
        "member_epoch": said.member_epoch,
        "heartbeat_interval": said.heartbeat_interval_ms,
        "task_offset_interval": said.task_offset_interval_ms,
        "acceptable_recovery_lag": lag,
        "status": [
            {"status_code": int(code), "status_detail": detail}
            for code, detail in _with_creation(context, said)
        ],
        "active_tasks": None if tasks is None else task_rows(tasks.active),
        "standby_tasks": None if tasks is None else task_rows(tasks.standby),
        "warmup_tasks": None if tasks is None else task_rows(tasks.warmup),
        "topology_description_required": said.is_description_required,
        "endpoint_information_epoch": said.endpoint_epoch,
        "partitions_by_user_endpoint": (
            None if said.endpoints is None else [_endpoint_row(row) for row in said.endpoints]
        ),
    }


_EMPTY: dict[str, Any] = {
    "member_id": "",
    "member_epoch": 0,
    "heartbeat_interval": 0,
    "task_offset_interval": 0,
    "acceptable_recovery_lag": 0,
    "status": None,
    "active_tasks": None,
    "standby_tasks": None,
    "warmup_tasks": None,
    "endpoint_information_epoch": 0,
    "partitions_by_user_endpoint": None,
}


def _endpoint_row(row: EndpointPartitions) -> dict[str, Any]:
    return {
        "user_endpoint": {"host": row.endpoint.host, "port": row.endpoint.port},
        "active_partitions": _topic_rows(row.active),
        "standby_partitions": _topic_rows(row.standby),
    }


def _topic_rows(rows: tuple[tuple[str, tuple[int, ...]], ...]) -> list[dict[str, Any]]:
    return [{"topic": topic, "partitions": partitions} for topic, partitions in rows]


def _with_creation(context: RequestContext, said: StreamsHeartbeated) -> list[GroupStatus]:
    """The statuses; missing internal topics are created, or the status says why they are not."""
    statuses = list(said.statuses)
    if not said.to_create:
        return statuses
    added = _create(context, said.to_create, said.heartbeat_interval_ms)
    if added is None:
        return statuses
    return [
        GroupStatus(status.code, f"{status.detail}; {added}.")
        if status.code == Status.MISSING_INTERNAL_TOPICS
        else status
        for status in statuses
    ]


def _create(
    context: RequestContext, topics: tuple[InternalTopic, ...], interval_ms: int
) -> str | None:
    """Create the topics in the client's name. Why they are not, if somebody knows by now."""
    names = [topic.name for topic in topics]
    if not context.shows_cluster_to(AclOperation.CREATE):
        refused = [name for name in names if not context.allows_topic(AclOperation.CREATE, name)]
        if refused:
            return f"Unauthorized to CREATE on topics {', '.join(refused)}"
    maker = context.services.streams_topics
    maker.make(topics, retry_ms=2 * interval_ms)
    found = [(name, maker.refusal(name)) for name in names]
    reasons = [f"{name} ({reason})" for name, reason in found if reason is not None]
    if not reasons:
        return None
    others = len(reasons) - _REASONS_SHOWN
    shown = ", ".join(reasons[:_REASONS_SHOWN]) + (f" and {others} more" if others > 0 else "")
    return f"Creation failed: {shown}"
