"""The answers of StreamsGroupDescribe and ListGroups for Streams groups, and the description of a
topology (KIP-1331). Pure."""

from __future__ import annotations

from kvorum.broker.groups.steps.refusals import is_blank, unknown_member
from kvorum.broker.groups.steps.requests import GroupListing
from kvorum.broker.groups.streams.assignor import NAME as ASSIGNOR_NAME
from kvorum.broker.groups.streams.group import PROTOCOL_TYPE, TYPE_NAME, StreamsGroup
from kvorum.broker.groups.streams.member import StreamsMember
from kvorum.broker.groups.streams.requests import (
    DescribedStreamsMember,
    StreamsGroupDescription,
    UpdateTopologyDescription,
)
from kvorum.broker.groups.streams.targets import StreamsStep
from kvorum.broker.groups.streams.topology import NO_TOPOLOGY_EPOCH
from kvorum.runtime.errors import ErrorCode, Rejected

DESCRIPTION_RETRY_MS = 30_000
"""Time after which another member is asked for a description that was not pushed (Kafka's)."""


def describe(group: StreamsGroup) -> StreamsGroupDescription:
    configured = group.configured
    return StreamsGroupDescription(
        group_id=group.group_id,
        state=group.state.value,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=ASSIGNOR_NAME,
        topology=group.topology,
        configured=configured if configured is not None and configured.is_ready else None,
        description=(
            group.description
            if group.epoch.stored_description_epoch == group.topology_epoch
            else None
        ),
        members=tuple(
            DescribedStreamsMember(
                member=member,
                target=group.target(member_id),
                task_offsets=tuple(sorted(group.task_offsets.get(member_id, {}).items())),
                task_end_offsets=tuple(sorted(group.task_end_offsets.get(member_id, {}).items())),
            )
            for member_id, member in group.members.items()
        ),
    )


def listing(group: StreamsGroup) -> GroupListing:
    return GroupListing(group.group_id, PROTOCOL_TYPE, group.state.value, TYPE_NAME)


# --- the topology's description ------------------------------------------------------------------


def asks_for_description(group: StreamsGroup, member: StreamsMember, now_ms: int) -> bool:
    """True if this member is to push its topology's description: nobody has, and nobody was asked a
    short time ago."""
    epoch = group.topology_epoch
    has_outcome = epoch in (
        group.epoch.stored_description_epoch,
        group.epoch.failed_description_epoch,
    )
    if epoch == NO_TOPOLOGY_EPOCH or has_outcome or member.topology_epoch < epoch:
        return False
    asked_ms = group.description_asked_ms
    return asked_ms is None or now_ms >= asked_ms + DESCRIPTION_RETRY_MS


def update_description(
    group: StreamsGroup, request: UpdateTopologyDescription, step: StreamsStep
) -> Rejected | ErrorCode:
    """Keep the description that a member pushed."""
    if is_blank(request.member_id):
        return Rejected(ErrorCode.INVALID_REQUEST, "MemberId can't be empty.")
    if request.member_id not in group.members:
        return unknown_member(group.group_id, request.member_id)
    epoch = request.topology_epoch
    if epoch != group.topology_epoch:
        text = (
            f"Topology epoch {epoch} does not match the group's current topology epoch "
            f"{group.topology_epoch}."
        )
        return Rejected(ErrorCode.INVALID_REQUEST, text)
    problem = request.description.problem()
    if problem is not None:
        return Rejected(ErrorCode.INVALID_REQUEST, problem)
    record = group.description_record(request.description)
    if not step.effects.fits(record):
        # Remembered, so that no member is asked for it again.
        group.epoch = group.epoch._replace(failed_description_epoch=epoch)
        step.out.append(group.epoch_record())
        text = "The description of the topology does not fit into one record."
        return Rejected(ErrorCode.STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED, text)
    group.description = request.description
    group.epoch = group.epoch._replace(stored_description_epoch=epoch)
    step.out += [record, group.epoch_record()]
    return ErrorCode.NONE
