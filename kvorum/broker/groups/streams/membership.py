"""The members of a Streams group: who a heartbeat is from, entering, leaving, time-outs. Pure."""

from __future__ import annotations

from dataclasses import replace

from kvorum.broker.groups.steps.refusals import fenced_epoch, unknown_member
from kvorum.broker.groups.steps.step_effects import StepEffects
from kvorum.broker.groups.steps.timers import StreamsRebalanceTimer
from kvorum.broker.groups.streams import settings
from kvorum.broker.groups.streams.group import StreamsGroup
from kvorum.broker.groups.streams.member import (
    JOIN_EPOCH,
    STATIC_LEAVE_EPOCH,
    StreamsMember,
)
from kvorum.broker.groups.streams.records import TargetEpoch
from kvorum.broker.groups.streams.requests import StreamsHeartbeat, StreamsHeartbeated
from kvorum.broker.groups.streams.states import StreamsMemberState
from kvorum.broker.groups.streams.targets import StreamsStep
from kvorum.broker.groups.streams.tasks import NOTHING_ASSIGNED
from kvorum.runtime.errors import ErrorCode, Rejected

# --- who it is -----------------------------------------------------------------------------------


def find(group: StreamsGroup, request: StreamsHeartbeat, size_max: int) -> StreamsMember | Rejected:
    """The member as it is; for a new client, an empty member, or the static member whose place the
    client takes, at epoch 0. Rejected if the client may not join."""
    member_id, instance_id = request.member_id, request.instance_id
    is_joining = request.member_epoch == JOIN_EPOCH
    holder = None if instance_id is None else group.static_members.get(instance_id)
    has_place = member_id in group.members or holder is not None
    if is_joining and not has_place and len(group.members) >= size_max:
        text = f"The streams group has reached its maximum capacity of {size_max} members."
        return Rejected(ErrorCode.GROUP_MAX_SIZE_REACHED, text)
    if not is_joining:
        found = _present(group, request)
        return found if isinstance(found, Rejected) else _epoch_refusal(request, found) or found
    if holder in (None, member_id):
        # Also a static member that was fenced and joins again. (Kafka refuses it until its session
        # is over.)
        return group.members.get(member_id) or StreamsMember(member_id=member_id)
    before = group.members[holder]
    if before.member_epoch != STATIC_LEAVE_EPOCH:
        text = (
            f"Static member {member_id} with instance id {instance_id} cannot join the group "
            f"because the instance id is owned by {holder} member."
        )
        return Rejected(ErrorCode.UNRELEASED_INSTANCE_ID, text)
    # On another process the tasks are given anew: another member there may have a copy of one open.
    is_moved = request.process_id not in (None, before.process_id)
    return replace(
        before,
        member_id=member_id,
        member_epoch=JOIN_EPOCH,
        previous_member_epoch=JOIN_EPOCH,
        assigned=NOTHING_ASSIGNED if is_moved else before.assigned,
    )


def _present(group: StreamsGroup, request: StreamsHeartbeat) -> StreamsMember | Rejected:
    """The member that the request names."""
    member_id, instance_id = request.member_id, request.instance_id
    if instance_id is None:
        member = group.members.get(member_id)
        if member is None:
            return unknown_member(group.group_id, member_id)
        return member
    holder = group.static_members.get(instance_id)
    if holder is None:
        return Rejected(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if holder != member_id:
        text = (
            f"Static member {member_id} with instance id {instance_id} was fenced by member "
            f"{holder}."
        )
        return Rejected(ErrorCode.FENCED_INSTANCE_ID, text)
    return group.members[holder]


def _epoch_refusal(request: StreamsHeartbeat, member: StreamsMember) -> Rejected | None:
    """The error if the request is in another epoch than the member's. The previous epoch is
    accepted if the answer with the current one was lost: then the member owns nothing beyond its
    current assignment."""
    epoch = request.member_epoch
    if epoch == member.member_epoch:
        return None
    is_older = epoch < member.member_epoch
    if is_older and epoch == member.previous_member_epoch and _owns_no_more(request, member):
        return None
    return fenced_epoch("streams", epoch, member.member_epoch)


def _owns_no_more(request: StreamsHeartbeat, member: StreamsMember) -> bool:
    owned, has = request.owned, member.assigned.tasks
    if owned is None:
        return False
    return (
        owned.active <= has.active and owned.standby <= has.standby and owned.warmup <= has.warmup
    )


# --- entering and leaving ------------------------------------------------------------------------


def enter(
    group: StreamsGroup, before: StreamsMember, told: StreamsMember, step: StreamsStep
) -> bool:
    """Put the member into the group, or in the place of the static member that it was. True if
    tasks must be assigned anew."""
    present = group.members.get(told.member_id)
    replaced = None
    if told.instance_id is not None:
        replaced = group.static_members.get(told.instance_id)
    if replaced is not None and replaced != told.member_id:
        target = group.target(replaced)
        step.out.extend(group.member_tombstones(replaced))
        group.remove(replaced)
        forget_timers(group, replaced, step)
        group.targets[told.member_id] = target
        step.out.append(group.metadata_record(told))
        step.out.append(group.target_record(told.member_id))
        group.put(told)
        return told.placement != before.placement
    has_changed = present is None or told.metadata != before.metadata
    if has_changed or told != present:
        group.put(told)
    if has_changed:
        step.out.append(group.metadata_record(told))
    if told.instance_id is None:
        return has_changed
    return present is None or told.placement != before.placement


def leave(
    group: StreamsGroup, request: StreamsHeartbeat, step: StreamsStep
) -> StreamsHeartbeated | Rejected:
    """Handle a heartbeat that leaves. Epoch -1: for good; -2, for static members only: back before
    the session ends."""
    member = _present(group, request)
    if isinstance(member, Rejected):
        return member
    if request.shutdown_application and group.shutdown_requested_by is None:
        group.shutdown_requested_by = member.member_id
    if request.member_epoch == STATIC_LEAVE_EPOCH:
        away = replace(
            member,
            member_epoch=STATIC_LEAVE_EPOCH,
            state=StreamsMemberState.STABLE,
            assigned=replace(member.assigned, active=dict.fromkeys(member.assigned.active, 0)),
            pending_revocation=NOTHING_ASSIGNED,
        )
        group.put(away)
        step.out.append(group.current_record(away))
        step.effects.cancel_timer(StreamsRebalanceTimer(group.group_id, member.member_id))
    else:
        remove(group, member.member_id, step)
    return StreamsHeartbeated(member_id=member.member_id, member_epoch=request.member_epoch)


def remove(group: StreamsGroup, member_id: str, step: StreamsStep) -> None:
    """Remove a member, and start a new group epoch. The next heartbeat makes the target."""
    step.out.extend(group.member_tombstones(member_id))
    group.remove(member_id)
    forget_timers(group, member_id, step)
    group.epoch = group.epoch._replace(epoch=group.group_epoch + 1)
    step.out.append(group.epoch_record())
    if group.is_empty:
        # There is nobody to assign to: the next first member need not wait for the interval.
        group.target_epoch = TargetEpoch(group.group_epoch)
        step.out.append(group.target_epoch_record())


# --- timers --------------------------------------------------------------------------------------


def extend_session(group: StreamsGroup, member_id: str, effects: StepEffects) -> None:
    timeout_ms = settings.session_timeout_ms(group.group_id, effects)
    group.sessions.extend(member_id, timeout_ms, effects)


def forget_timers(group: StreamsGroup, member_id: str, step: StreamsStep) -> None:
    group.sessions.forget(member_id, step.effects)
    step.effects.cancel_timer(StreamsRebalanceTimer(group.group_id, member_id))


def watch_revocation(
    group: StreamsGroup, before: StreamsMember, member: StreamsMember, step: StreamsStep
) -> None:
    """Start or stop the time in which the member has to give up tasks."""
    timer = StreamsRebalanceTimer(group.group_id, member.member_id)
    if member.state == StreamsMemberState.UNREVOKED_TASKS:
        if before != member:
            step.effects.set_timer(timer, max(member.rebalance_timeout_ms, 0))
    elif before.state == StreamsMemberState.UNREVOKED_TASKS:
        step.effects.cancel_timer(timer)


def on_session_timer(group: StreamsGroup, member_id: str, step: StreamsStep) -> None:
    """Remove the member, unless it has sent a heartbeat meanwhile."""
    if group.sessions.is_over(member_id, step.effects) and member_id in group.members:
        remove(group, member_id, step)


def on_rebalance_timer(group: StreamsGroup, member_id: str, step: StreamsStep) -> None:
    """Remove a member that has not given up tasks in time, so that others can get them."""
    member = group.members.get(member_id)
    if member is not None and member.state == StreamsMemberState.UNREVOKED_TASKS:
        remove(group, member_id, step)


def on_loaded(group: StreamsGroup, effects: StepEffects) -> None:
    """Start the timers of a group that was loaded from the log."""
    for member in group.members.values():
        extend_session(group, member.member_id, effects)
        if member.state == StreamsMemberState.UNREVOKED_TASKS:
            timer = StreamsRebalanceTimer(group.group_id, member.member_id)
            effects.set_timer(timer, max(member.rebalance_timeout_ms, 0))
