"""How members of a group of the consumer protocol go: by leaving, silence or delay. Pure.

Timers: a session (group.consumer.session.timeout.ms) from each heartbeat, and the member's own
rebalance time-out from when it is told to give up partitions. Who is over either is out; what it
held is free then, so a client stops reading by itself when it has not been heard for that long.
Members of the classic protocol have a session time-out of their own, and the rebalance time-out to
join again when told to, and once more to fetch what they have got.
"""

from __future__ import annotations

from dataclasses import replace

from kvorum.broker.groups.consumer.group import ConsumerGroup
from kvorum.broker.groups.consumer.member import NO_PARTITIONS, STATIC_LEAVE_EPOCH, ConsumerMember
from kvorum.broker.groups.consumer.requests import ConsumerHeartbeat, ConsumerHeartbeated
from kvorum.broker.groups.consumer.states import MemberState
from kvorum.broker.groups.consumer.targets import Setting, bump_epoch, forget_unused_expressions
from kvorum.broker.groups.step_effects import StepEffects
from kvorum.broker.groups.timers import (
    ClassicRejoinTimer,
    ClassicSyncTimer,
    ConsumerRebalanceTimer,
    ConsumerSessionTimer,
)
from kvorum.runtime.errors import ErrorCode, Rejected


def leave(
    group: ConsumerGroup, request: ConsumerHeartbeat, setting: Setting, step: StepEffects
) -> ConsumerHeartbeated | Rejected:
    """Epoch -1: for good. -2, static members only: away, and back before the session ends."""
    member = group.members.get(request.member_id)
    if request.instance_id is not None:
        found = find_static(group, request.instance_id, request.member_id)
        if isinstance(found, Rejected):
            return found
        member = found
    if member is None:
        return unknown_member(group, request.member_id)
    if request.member_epoch == STATIC_LEAVE_EPOCH:
        away = replace(
            member,
            member_epoch=STATIC_LEAVE_EPOCH,
            state=MemberState.STABLE,
            pending_revocation=NO_PARTITIONS,
        )
        group.put(away)
        setting.out.append(group.current_record(away))
        step.cancel_timer(ConsumerRebalanceTimer(group.group_id, member.member_id))
    else:
        remove(group, [member.member_id], setting, step)
    return ConsumerHeartbeated(
        member_id=request.member_id, member_epoch=request.member_epoch, heartbeat_interval_ms=0
    )


def find_static(
    group: ConsumerGroup, instance_id: str, member_id: str
) -> ConsumerMember | Rejected:
    """The member under that instance id, if it is this one."""
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


def unknown_member(group: ConsumerGroup, member_id: str) -> Rejected:
    text = f"Member {member_id} is not a member of group {group.group_id}."
    return Rejected(ErrorCode.UNKNOWN_MEMBER_ID, text)


def remove(
    group: ConsumerGroup, member_ids: list[str], setting: Setting, step: StepEffects
) -> None:
    """They are out: tombstones, one new group epoch. The next heartbeat makes the target."""
    for member_id in member_ids:
        setting.out.extend(group.member_tombstones(member_id))
        group.remove(member_id)
        forget_timers(group, member_id, step)
    forget_unused_expressions(group, setting)
    bump_epoch(group, setting, has_changed=True)


# --- timers --------------------------------------------------------------------------------------


def extend_session(group: ConsumerGroup, member_id: str, step: StepEffects) -> None:
    """It was heard of now. The timer is left alone: when it fires too early it is set anew."""
    classic = group.members[member_id].classic
    timeout_ms = step.session_timeout_ms(group.group_id)
    if classic is not None:
        timeout_ms = classic.session_timeout_ms
    deadline_ms = step.now.monotonic_ms + timeout_ms
    group.session_deadlines[member_id] = deadline_ms
    if deadline_ms < group.session_timers.get(member_id, deadline_ms + 1):
        group.session_timers[member_id] = deadline_ms
        step.set_timer(ConsumerSessionTimer(group.group_id, member_id), timeout_ms)


def forget_timers(group: ConsumerGroup, member_id: str, step: StepEffects) -> None:
    group.session_deadlines.pop(member_id, None)
    if group.session_timers.pop(member_id, None) is not None:
        step.cancel_timer(ConsumerSessionTimer(group.group_id, member_id))
    step.cancel_timer(ConsumerRebalanceTimer(group.group_id, member_id))
    stop_awaiting_join(group, member_id, step)
    stop_awaiting_sync(group, member_id, step)


def await_join(group: ConsumerGroup, member: ConsumerMember, step: StepEffects) -> None:
    """The time to join again runs from when the member is first told."""
    if member.member_id not in group.awaited_joins:
        group.awaited_joins.add(member.member_id)
        timer = ClassicRejoinTimer(group.group_id, member.member_id)
        step.set_timer(timer, max(member.rebalance_timeout_ms, 0))


def stop_awaiting_join(group: ConsumerGroup, member_id: str, step: StepEffects) -> None:
    if member_id in group.awaited_joins:
        group.awaited_joins.remove(member_id)
        step.cancel_timer(ClassicRejoinTimer(group.group_id, member_id))


def await_sync(group: ConsumerGroup, member: ConsumerMember, step: StepEffects) -> None:
    """From each answer to a JoinGroup on."""
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
    """Start, or stop, the time in which the member has to give up partitions."""
    timer = ConsumerRebalanceTimer(group.group_id, member.member_id)
    if member.state == MemberState.UNREVOKED_PARTITIONS:
        if before != member:
            step.set_timer(timer, member.rebalance_timeout_ms)
    elif before.state == MemberState.UNREVOKED_PARTITIONS:
        step.cancel_timer(timer)


def on_session_timer(
    group: ConsumerGroup, member_id: str, setting: Setting, step: StepEffects
) -> None:
    """Out, unless it was heard of meanwhile."""
    if member_id not in group.members:
        return
    del group.session_timers[member_id]
    left_ms = group.session_deadlines[member_id] - step.now.monotonic_ms
    if left_ms > 0:
        group.session_timers[member_id] = group.session_deadlines[member_id]
        step.set_timer(ConsumerSessionTimer(group.group_id, member_id), left_ms)
        return
    remove(group, [member_id], setting, step)


def on_rebalance_timer(
    group: ConsumerGroup, member_id: str, setting: Setting, step: StepEffects
) -> None:
    """It has not given up what it was told to: out, so that the others can go on."""
    member = group.members.get(member_id)
    if member is not None and member.state == MemberState.UNREVOKED_PARTITIONS:
        remove(group, [member_id], setting, step)


def on_classic_timer(
    group: ConsumerGroup,
    name: ClassicRejoinTimer | ClassicSyncTimer,
    setting: Setting,
    step: StepEffects,
) -> None:
    """It has not joined again, or not fetched what it got: out, so that the others can go on."""
    awaited = group.awaited_joins if isinstance(name, ClassicRejoinTimer) else group.awaited_syncs
    if name.member_id in awaited:
        awaited.remove(name.member_id)
        remove(group, [name.member_id], setting, step)


def on_loaded(group: ConsumerGroup, step: StepEffects) -> None:
    """The group as the log has it comes under this coordinator's clock.

    Members of the classic protocol that have to join again hear so with their next heartbeat."""
    for member in group.members.values():
        extend_session(group, member.member_id, step)
        if member.classic is None and member.state == MemberState.UNREVOKED_PARTITIONS:
            timer = ConsumerRebalanceTimer(group.group_id, member.member_id)
            step.set_timer(timer, max(member.rebalance_timeout_ms, 0))
