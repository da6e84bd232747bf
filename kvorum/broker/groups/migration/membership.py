"""SyncGroup, Heartbeat and LeaveGroup of classic members in a group of the consumer protocol. Pure.

A member's epoch is its generation. A heartbeat is answered REBALANCE_IN_PROGRESS (27) if the member
has to send JoinGroup again, because:

  the group epoch has risen               it joins, and reports what it owns
  it has to give up partitions            it joins after that; an eager member has given up all
  all partitions it waits for are free    it joins, and gets them
"""

from __future__ import annotations

from kvorum.broker.groups.classic.subscription import CONSUMER_PROTOCOL_TYPE
from kvorum.broker.groups.consumer.group import ConsumerGroup
from kvorum.broker.groups.consumer.member import ConsumerMember
from kvorum.broker.groups.consumer.membership import (
    await_join,
    extend_session,
    remove,
    stop_awaiting_sync,
)
from kvorum.broker.groups.consumer.states import MemberState
from kvorum.broker.groups.consumer.targets import StepInputs, topics_hash
from kvorum.broker.groups.migration.embedded import encode_assignment, read_subscription
from kvorum.broker.groups.migration.joining import protocol_name_of
from kvorum.broker.groups.steps.requests import (
    NO_MEMBER,
    GroupHeartbeat,
    LeaveGroup,
    LeavingMember,
    LeftMember,
    Synced,
    SyncGroup,
)
from kvorum.broker.groups.steps.step_effects import StepEffects
from kvorum.metadata.image.image import ClusterImage
from kvorum.runtime.errors import ErrorCode


def sync(
    group: ConsumerGroup, request: SyncGroup, image: ClusterImage, step: StepEffects
) -> Synced:
    """The member's assignment. Assignments in the request are ignored, since no member leads the
    generation."""
    member = _member(group, request.member_id, request.group_instance_id)
    if isinstance(member, ErrorCode):
        return Synced(error=member)
    if request.generation_id != member.member_epoch:
        return Synced(error=ErrorCode.ILLEGAL_GENERATION)
    protocol_name = protocol_name_of(member)
    is_type_known = request.protocol_type in (None, CONSUMER_PROTOCOL_TYPE)
    if not is_type_known or request.protocol_name not in (None, protocol_name):
        return Synced(error=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    is_revoking = member.state == MemberState.UNREVOKED_PARTITIONS
    if member.member_epoch < group.group_epoch and not is_revoking:
        # The member's JoinGroup is out of date. A member that has to give up partitions is not
        # refused: this answer tells it which.
        await_join(group, member, step)
        return Synced(error=ErrorCode.REBALANCE_IN_PROGRESS)
    stop_awaiting_sync(group, member.member_id, step)
    extend_session(group, member.member_id, step)
    return Synced(
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=protocol_name,
        assignment=encode_assignment(member.assigned, image, _version_of(member)),
    )


def heartbeat(
    group: ConsumerGroup, request: GroupHeartbeat, image: ClusterImage, step: StepEffects
) -> ErrorCode:
    """Handle a heartbeat, as the docstring of this module says. The heartbeat extends the session
    even if the member is told to join again."""
    member = _member(group, request.member_id, request.group_instance_id)
    if isinstance(member, ErrorCode):
        return member
    if request.generation_id != member.member_epoch:
        return ErrorCode.ILLEGAL_GENERATION
    extend_session(group, member.member_id, step)
    if not _has_to_join(group, member, image):
        return ErrorCode.NONE
    await_join(group, member, step)
    return ErrorCode.REBALANCE_IN_PROGRESS


def leave(
    group: ConsumerGroup, request: LeaveGroup, inputs: StepInputs, step: StepEffects
) -> tuple[LeftMember, ...]:
    """Remove the named members: one result for each, and one new group epoch for all."""
    rows: list[LeftMember] = []
    leaving: dict[str, None] = {}
    for row in request.members:
        member_id = _leaving_id(group, row)
        if not isinstance(member_id, ErrorCode) and member_id in leaving:
            member_id = ErrorCode.UNKNOWN_MEMBER_ID
        error = ErrorCode.NONE
        if isinstance(member_id, ErrorCode):
            error = member_id
        else:
            leaving[member_id] = None
        rows.append(LeftMember(row.member_id, row.group_instance_id, error))
    if leaving:
        remove(group, list(leaving), inputs, step)
    return tuple(rows)


def _leaving_id(group: ConsumerGroup, row: LeavingMember) -> str | ErrorCode:
    if row.member_id == NO_MEMBER and row.group_instance_id is not None:
        # An administrator's request, for a static member of either protocol.
        return group.static_members.get(row.group_instance_id, ErrorCode.UNKNOWN_MEMBER_ID)
    # An administrator may also name dynamic members of either protocol by their ids.
    member = _any_member(group, row.member_id, row.group_instance_id)
    return member if isinstance(member, ErrorCode) else member.member_id


def _member(
    group: ConsumerGroup, member_id: str, instance_id: str | None
) -> ConsumerMember | ErrorCode:
    """The classic member; UNKNOWN_MEMBER_ID if there is none, FENCED_INSTANCE_ID if another member
    has its instance id."""
    member = _any_member(group, member_id, instance_id)
    if not isinstance(member, ErrorCode) and member.classic is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return member


def _any_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None
) -> ConsumerMember | ErrorCode:
    """The member of either protocol, or an error as in `_member`."""
    if instance_id is not None:
        holder = group.static_members.get(instance_id)
        if holder is not None and holder != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    member = group.members.get(member_id)
    if member is None or (instance_id is not None and member.instance_id != instance_id):
        return ErrorCode.UNKNOWN_MEMBER_ID
    return member


def _has_to_join(group: ConsumerGroup, member: ConsumerMember, image: ClusterImage) -> bool:
    if member.member_epoch < group.group_epoch:
        return True
    if member.state == MemberState.UNREVOKED_PARTITIONS:
        return True
    if member.state == MemberState.UNRELEASED_PARTITIONS:
        missing = group.target(member.member_id) - member.assigned
        return all(row not in group.holders for row in missing)
    # A heartbeat writes nothing, so the member's JoinGroup starts the new epoch. Without this, a
    # group of classic members would never see that a topic has grown, since it has no leader to
    # watch for that.
    return (
        group.is_metadata_stale
        and topics_hash(group.subscribed_topics(), image) != group.metadata_hash
    )


def _version_of(member: ConsumerMember) -> int:
    """The version of the member's subscription; 0, which every client reads, if a foreign log has
    none."""
    protocols = () if member.classic is None else member.classic.protocols
    found = read_subscription(protocols[0].metadata) if protocols else None
    return 0 if found is None else found.version
