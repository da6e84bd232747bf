"""Heartbeats, LeaveGroup, and the removal of members that send nothing. Pure."""

from __future__ import annotations

from kvorum.broker.groups.classic.group import ClassicGroup
from kvorum.broker.groups.classic.rebalance import (
    complete_if_all_joined,
    drop,
    extend_session,
    forget_pending,
    prepare,
    rebalance,
)
from kvorum.broker.groups.classic.states import ClassicGroupState
from kvorum.broker.groups.steps.requests import (
    NO_MEMBER,
    GroupHeartbeat,
    LeaveGroup,
    LeavingMember,
    LeftMember,
)
from kvorum.broker.groups.steps.step_effects import StepEffects
from kvorum.runtime.errors import ErrorCode


def heartbeat(group: ClassicGroup, request: GroupHeartbeat, step: StepEffects) -> ErrorCode:
    """Extend the member's session. REBALANCE_IN_PROGRESS tells it to join again; its session is
    extended in that case too."""
    error = group.check_member(request.member_id, request.group_instance_id)
    if error != ErrorCode.NONE:
        return error
    if request.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    extend_session(group, group.members[request.member_id], step)
    if group.state == ClassicGroupState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def leave(group: ClassicGroup, request: LeaveGroup, step: StepEffects) -> tuple[LeftMember, ...]:
    """Remove the named members: one result for each, and one rebalance for all."""
    rows: list[LeftMember] = []
    members_before = len(group.members)
    for leaving in request.members:
        error = _leave_one(group, leaving, step)
        rows.append(LeftMember(leaving.member_id, leaving.group_instance_id, error))
    if len(group.members) < members_before:
        rebalance(group, step)
    else:
        # The rebalance may have waited only for a pending member id.
        complete_if_all_joined(group, step)
    return tuple(rows)


def _leave_one(group: ClassicGroup, leaving: LeavingMember, step: StepEffects) -> ErrorCode:
    member_id = leaving.member_id
    if member_id == NO_MEMBER:
        holder = group.static_members.get(leaving.group_instance_id or "")
        if leaving.group_instance_id is None or holder is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        drop(group, group.members[holder], step)
        return ErrorCode.NONE
    if member_id in group.pending_members:
        forget_pending(group, member_id, step)
        return ErrorCode.NONE
    error = group.check_member(member_id, leaving.group_instance_id)
    if error == ErrorCode.NONE:
        drop(group, group.members[member_id], step)
    return error


def on_session_timer(group: ClassicGroup, member_id: str, step: StepEffects) -> None:
    """Remove the member, unless it has sent a request meanwhile or has one parked."""
    member = group.members.get(member_id)
    if member is None:
        return
    member.session_timer_ms = None
    left_ms = member.session_deadline_ms - step.now.monotonic_ms
    if left_ms > 0:
        extend_session(group, member, step, left_ms)
        return
    if member.is_waiting and not member.is_new:
        # The session starts again when the parked request is answered.
        return
    drop(group, member, step)
    rebalance(group, step)


def on_pending_member_timer(group: ClassicGroup, member_id: str, step: StepEffects) -> None:
    """Drop a pending member id that no client has used."""
    if group.pending_members.pop(member_id, False) is None:
        complete_if_all_joined(group, step)


def on_loaded(group: ClassicGroup, step: StepEffects) -> None:
    """Start the timers of a group that was loaded from the log."""
    is_due, group.needs_rebalance = group.needs_rebalance, False
    for member in group.members.values():
        extend_session(group, member, step)
    if len(group.members) > step.config.group_max_size or is_due:
        prepare(group, step)
