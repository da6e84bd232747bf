"""The checks of a StreamsGroupHeartbeat, with Kafka's messages. Pure."""

from __future__ import annotations

from kvorum.broker.groups.steps.config import STRING_BYTES_MAX
from kvorum.broker.groups.steps.refusals import is_blank
from kvorum.broker.groups.streams.configuring import ConfiguredTopology
from kvorum.broker.groups.streams.group import StreamsGroup
from kvorum.broker.groups.streams.member import (
    JOIN_EPOCH,
    NO_TIMEOUT,
    STATIC_LEAVE_EPOCH,
    StreamsMember,
)
from kvorum.broker.groups.streams.requests import StreamsHeartbeat
from kvorum.broker.groups.streams.states import StreamsMemberState
from kvorum.broker.groups.streams.tasks import Task, Tasks
from kvorum.broker.groups.streams.topology import Topology
from kvorum.runtime.errors import ErrorCode, Rejected


def request_refusal(request: StreamsHeartbeat) -> Rejected | None:
    """The error of a request that no group would accept."""
    topology = request.topology
    if topology is not None and any(part.source_topic_regex for part in topology.subtopologies):
        text = "Regular expressions for source topics are not supported yet."
        return Rejected(ErrorCode.INVALID_REQUEST, text)
    reason = _invalid(request)
    if reason is not None:
        return Rejected(ErrorCode.INVALID_REQUEST, reason)
    if topology is None:
        return None
    for part in topology.subtopologies:
        for topic in part.state_changelog_topics:
            if topic.num_partitions != 0:
                text = (
                    f"Changelog topic {topic.name} must have an undefined partition count, but it "
                    f"is set to {topic.num_partitions}."
                )
                return Rejected(ErrorCode.STREAMS_INVALID_TOPOLOGY, text)
    if topology.epoch < 0:
        return Rejected(ErrorCode.INVALID_REQUEST, "Topology epoch must be non-negative.")
    return None


def _invalid(request: StreamsHeartbeat) -> str | None:
    names = (request.member_id, request.instance_id or "")
    if is_blank(request.member_id):
        return "MemberId can't be empty."
    if is_blank(request.instance_id):
        return "InstanceId can't be empty."
    if is_blank(request.rack_id):
        return "RackId can't be empty."
    if any(len(name.encode()) > STRING_BYTES_MAX for name in names):
        return f"MemberId and InstanceId have at most {STRING_BYTES_MAX} bytes."
    if request.member_epoch == JOIN_EPOCH:
        return _invalid_join(request)
    if request.member_epoch == STATIC_LEAVE_EPOCH and request.instance_id is None:
        return "InstanceId can't be null."
    if request.member_epoch < STATIC_LEAVE_EPOCH:
        return (
            f"MemberEpoch is {request.member_epoch}, but must be greater than or equal to "
            f"{STATIC_LEAVE_EPOCH}."
        )
    if request.has_some_roles and request.owned is None:
        return "If one task-type is non-null, all must be non-null."
    if request.topology is not None:
        return "Topology can only be provided when (re-)joining."
    return None


def _invalid_join(request: StreamsHeartbeat) -> str | None:
    if request.rebalance_timeout_ms == NO_TIMEOUT:
        return "RebalanceTimeoutMs must be provided in first request."
    if request.owned is None:
        return "ActiveTasks must be empty when (re-)joining."
    for name, tasks in zip(
        ("ActiveTasks", "StandbyTasks", "WarmupTasks"), request.owned, strict=True
    ):
        if tasks:
            return f"{name} must be empty when (re-)joining."
    if request.topology is None:
        return "Topology must be non-null when (re-)joining."
    return None


def topology_of(group: StreamsGroup, request: StreamsHeartbeat) -> Topology | Rejected:
    """The topology that counts: the group's, or the first member's."""
    told, present = request.topology, group.topology
    if present is None:
        if told is None:
            text = "The group has no topology. The member must rejoin with its own."
            return Rejected(ErrorCode.FENCED_MEMBER_EPOCH, text)
        return told
    if told is not None and told.epoch >= present.epoch and told != present:
        return Rejected(ErrorCode.INVALID_REQUEST, "Topology updates are not supported yet.")
    return present


def unknown_state_refusal(member: StreamsMember, request: StreamsHeartbeat) -> Rejected | None:
    """The error if a later version wrote the member's state, and the member may own something."""
    if member.state != StreamsMemberState.UNKNOWN:
        return None
    if request.owned is not None and request.owned.is_empty:
        return None
    text = (
        "The streams group member is in a unknown state. The member must abandon all its tasks and "
        "rejoin."
    )
    return Rejected(ErrorCode.FENCED_MEMBER_EPOCH, text)


def owned_refusal(configured: ConfiguredTopology, owned: Tasks | None) -> Rejected | None:
    """The error if the member names a task that the topology does not have."""
    if owned is None or not configured.is_ready:
        return None
    for subtopology_id, partition in sorted(owned.active | owned.standby | owned.warmup):
        part = configured.subtopologies.get(subtopology_id)
        text = None
        if part is None:
            text = f"Subtopology {subtopology_id} does not exist in the topology."
        elif not 0 <= partition < part.num_tasks:
            text = (
                f"Task {partition} for subtopology {subtopology_id} is invalid. Number of tasks "
                f"for this subtopology: {part.num_tasks}"
            )
        if text is not None:
            return Rejected(ErrorCode.INVALID_REQUEST, text)
    return None


def offsets_refusal(request: StreamsHeartbeat) -> Rejected | None:
    """The error if a task's offset is reported twice."""
    for rows in (request.task_offsets, request.task_end_offsets):
        seen: set[Task] = set()
        for task, _ in rows or ():
            if task in seen:
                text = (
                    f"Task offsets contain a duplicate entry for subtopology {task[0]} and "
                    f"partition {task[1]}."
                )
                return Rejected(ErrorCode.INVALID_REQUEST, text)
            seen.add(task)
    return None
