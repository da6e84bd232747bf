"""Leaving a group of the consumer protocol: by request, by silence or by delay. Pure.

Each heartbeat starts a session (group.consumer.session.timeout.ms). A member that is told to give
up partitions has its rebalance timeout to do so. A member that exceeds either is removed and its
partitions are free; so a client must stop reading once it has had no answer for that long. Members
of the classic protocol have their own session timeout; they have the rebalance timeout to join
again when told to, and again to fetch their assignment.
"""

from __future__ import annotations

from dataclasses import replace

from kvorum.broker.groups.consumer.group import ConsumerGroup
from kvorum.broker.groups.consumer.member import NO_PARTITIONS, STATIC_LEAVE_EPOCH, ConsumerMember
from kvorum.broker.groups.consumer.requests import ConsumerHeartbeat, ConsumerHeartbeated
from kvorum.broker.groups.consumer.states import MemberState
from kvorum.broker.groups.consumer.targets import StepInputs, bump_epoch, forget_unused_expressions
from kvorum.broker.groups.steps.refusals import unknown_member
from kvorum.broker.groups.steps.step_effects import StepEffects
from kvorum.broker.groups.steps.timers import (
    ClassicRejoinTimer,
    ClassicSyncTimer,
    ConsumerRebalanceTimer,
)
from kvorum.runtime.errors import ErrorCode, Rejected


def leave(
    group: ConsumerGroup, request: ConsumerHeartbeat, inputs: StepInputs, step: StepEffects
) -> ConsumerHeartbeated | Rejected:
    """Handle a heartbeat that leaves. Epoch -1: for good; -2, for static members only: back before
    the session ends."""
    member = group.members.get(request.member_id)
    if request.instance_id is not None:
        found = find_static(group, request.instance_id, request.member_id)
        if isinstance(found, Rejected):
            return found
        member = found
    if member is None:
        return unknown_member(group.group_id, request.member_id)
    if request.member_epoch == STATIC_LEAVE_EPOCH:
        away = replace(
            member,
            member_epoch=STATIC_LEAVE_EPOCH,
            state=MemberState.STABLE,
            pending_revocation=NO_PARTITIONS,
        )
        group.put(away)
        inputs.out.append(group.current_record(away))
        step.cancel_timer(ConsumerRebalanceTimer(group.group_id, member.member_id))
    else:
        remove(group, [member.member_id], inputs, step)
    return ConsumerHeartbeated(
        member_id=request.member_id, member_epoch=request.member_epoch, heartbeat_interval_ms=0
    )


def find_static(
    group: ConsumerGroup, instance_id: str, member_id: str
) -> ConsumerMember | Rejected:
    """The static member of that instance id; Rejected if there is none or it has another member
    id."""
    holder = group.static_members.get(instance_id)
    if holder is None:
        text = f"Instance id {instance_id} is unknown in group {group.group_id}."
        return Rejected(ErrorCode.UNKNOWN_MEMBER_ID, text)
    if holder != member_id:
        text = (
            f"Static member {member_id} with instance id {instance_id} was fenced by "
            f"member {holder}."
        )
        return Rejected(ErrorCode.FENCED_INSTANCE_ID, text)
    return group.members[holder]


def remove(
    group: ConsumerGroup, member_ids: list[str], inputs: StepInputs, step: StepEffects
) -> None:
    """Remove members: tombstones, and one new group epoch. The next heartbeat makes the target."""
    for member_id in member_ids:
        inputs.out.extend(group.member_tombstones(member_id))
        group.remove(member_id)
        forget_timers(group, member_id, step)
    forget_unused_expressions(group, inputs)
    bump_epoch(group, inputs, has_changed=True)


# --- timers --------------------------------------------------------------------------------------


def extend_session(group: ConsumerGroup, member_id: str, step: StepEffects) -> None:
    """Start the member's session again."""
    classic = group.members[member_id].classic
    timeout_ms = step.session_timeout_ms(group.group_id)
    if classic is not None:
        timeout_ms = classic.session_timeout_ms
    group.sessions.extend(member_id, timeout_ms, step)


def forget_timers(group: ConsumerGroup, member_id: str, step: StepEffects) -> None:
    group.sessions.forget(member_id, step)
    step.cancel_timer(ConsumerRebalanceTimer(group.group_id, member_id))
    stop_awaiting_join(group, member_id, step)
    stop_awaiting_sync(group, member_id, step)


def await_join(group: ConsumerGroup, member: ConsumerMember, step: StepEffects) -> None:
    """Start the time to join again, when the member is first told to."""
    if member.member_id not in group.awaited_joins:
        group.awaited_joins.add(member.member_id)
        timer = ClassicRejoinTimer(group.group_id, member.member_id)
        step.set_timer(timer, max(member.rebalance_timeout_ms, 0))


def stop_awaiting_join(group: ConsumerGroup, member_id: str, step: StepEffects) -> None:
    if member_id in group.awaited_joins:
        group.awaited_joins.remove(member_id)
        step.cancel_timer(ClassicRejoinTimer(group.group_id, member_id))


def await_sync(group: ConsumerGroup, member: ConsumerMember, step: StepEffects) -> None:
    """Start the time to fetch the assignment; each JoinGroup answer starts it again."""
    group.awaited_syncs.add(member.member_id)
    timer = ClassicSyncTimer(group.group_id, member.member_id)
    step.set_timer(timer, max(member.rebalance_timeout_ms, 0))


def stop_awaiting_sync(group: ConsumerGroup, member_id: str, step: StepEffects) -> None:
    if member_id in group.awaited_syncs:
        group.awaited_syncs.remove(member_id)
        step.cancel_timer(ClassicSyncTimer(group.group_id, member_id))


def watch_revocation(
    group: ConsumerGroup, before: ConsumerMember, member: ConsumerMember, step: StepEffects
) -> None:
    """Start or stop the time in which the member has to give up partitions."""
    timer = ConsumerRebalanceTimer(group.group_id, member.member_id)
    if member.state == MemberState.UNREVOKED_PARTITIONS:
        if before != member:
            step.set_timer(timer, member.rebalance_timeout_ms)
    elif before.state == MemberState.UNREVOKED_PARTITIONS:
        step.cancel_timer(timer)


def on_session_timer(
    group: ConsumerGroup, member_id: str, inputs: StepInputs, step: StepEffects
) -> None:
    """Remove the member, unless it has sent a heartbeat meanwhile."""
    if member_id in group.members and group.sessions.is_over(member_id, step):
        remove(group, [member_id], inputs, step)


def on_rebalance_timer(
    group: ConsumerGroup, member_id: str, inputs: StepInputs, step: StepEffects
) -> None:
    """Remove a member that has not given up partitions in time, so that others can get them."""
    member = group.members.get(member_id)
    if member is not None and member.state == MemberState.UNREVOKED_PARTITIONS:
        remove(group, [member_id], inputs, step)


def on_classic_timer(
    group: ConsumerGroup,
    name: ClassicRejoinTimer | ClassicSyncTimer,
    inputs: StepInputs,
    step: StepEffects,
) -> None:
    """Remove a classic member that has not joined again, or not fetched its assignment, in time."""
    awaited = group.awaited_joins if isinstance(name, ClassicRejoinTimer) else group.awaited_syncs
    if name.member_id in awaited:
        awaited.remove(name.member_id)
        remove(group, [name.member_id], inputs, step)


def on_loaded(group: ConsumerGroup, step: StepEffects) -> None:
    """Start the timers of a group that was loaded from the log.

    Classic members that have to join again are told with their next heartbeat.
    """
    for member in group.members.values():
        extend_session(group, member.member_id, step)
        if member.classic is None and member.state == MemberState.UNREVOKED_PARTITIONS:
            timer = ConsumerRebalanceTimer(group.group_id, member.member_id)
            step.set_timer(timer, max(member.rebalance_timeout_ms, 0))
