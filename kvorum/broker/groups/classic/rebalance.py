"""The rebalance of a classic group: from one generation to the next. Pure.

  prepare -> members join again -> complete_join -> (syncing) the leader's assignment -> stable

The first rebalance of an empty group waits for group.initial.rebalance.delay.ms, and again each
time a member has joined meanwhile, up to the rebalance timeout. Otherwise ten consumers that start
together would form ten generations. Later rebalances end when all known members have joined again
or the rebalance timeout is over. Dynamic members that have not joined are then removed; static ones
stay until their sessions end.
"""

from __future__ import annotations

from kvorum.broker.groups.classic.group import ClassicGroup
from kvorum.broker.groups.classic.member import Member
from kvorum.broker.groups.classic.states import ClassicGroupState
from kvorum.broker.groups.steps.requests import Joined, JoinedMember, Synced
from kvorum.broker.groups.steps.step_effects import StepEffects
from kvorum.broker.groups.steps.timers import JoinTimer, PendingMemberTimer, SessionTimer, SyncTimer
from kvorum.runtime.errors import ErrorCode


def rebalance(group: ClassicGroup, step: StepEffects) -> None:
    """Start a rebalance after a change, or end the current one if it can end."""
    if group.state == ClassicGroupState.PREPARING_REBALANCE:
        complete_if_all_joined(group, step)
    else:
        prepare(group, step)


def prepare(group: ClassicGroup, step: StepEffects) -> None:
    """Start a rebalance from Empty, CompletingRebalance or Stable: every member has to join
    again."""
    if group.state == ClassicGroupState.COMPLETING_REBALANCE:
        for member in group.members.values():
            member.assignment = b""
            answer_sync(member, step, Synced(error=ErrorCode.REBALANCE_IN_PROGRESS))
            # Members with parked requests counted as alive; their session timers start now.
            extend_session(group, member, step)
    was_empty = group.is_empty
    if not was_empty:
        # Cancel it even if pending_sync is empty: the last entry may just have been dropped, and
        # the timer would remove members of the next generation early.
        step.cancel_timer(SyncTimer(group.group_id))
        group.pending_sync.clear()
    group.transition_to(ClassicGroupState.PREPARING_REBALANCE, step.now.wall_ms)
    if not was_empty:
        # Set the timer once: members that join again repeatedly must not delay the end for ever.
        step.set_timer(JoinTimer(group.group_id), group.rebalance_timeout_ms)
        complete_if_all_joined(group, step)
        return
    delay_ms = step.config.group_initial_rebalance_delay_ms
    group.has_new_member = False
    group.initial_delay_ms = delay_ms
    group.initial_remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
    step.set_timer(JoinTimer(group.group_id), delay_ms)


def complete_if_all_joined(group: ClassicGroup, step: StepEffects) -> None:
    """End PreparingRebalance if all members have joined; do nothing in other states. The initial
    delay is never shortened."""
    is_preparing = group.state == ClassicGroupState.PREPARING_REBALANCE
    if is_preparing and group.initial_delay_ms is None and group.has_all_joined:
        complete_join(group, step)


def on_join_timer(group: ClassicGroup, step: StepEffects) -> None:
    """Handle the end of the initial delay, or of the rebalance timeout."""
    if group.state != ClassicGroupState.PREPARING_REBALANCE:
        return
    delay_ms = group.initial_delay_ms
    if delay_ms is not None and group.has_new_member and group.initial_remaining_ms > 0:
        group.has_new_member = False
        next_ms = min(step.config.group_initial_rebalance_delay_ms, group.initial_remaining_ms)
        group.initial_remaining_ms = max(group.initial_remaining_ms - next_ms, 0)
        group.initial_delay_ms = next_ms
        step.set_timer(JoinTimer(group.group_id), next_ms)
        return
    complete_join(group, step)


def complete_join(group: ClassicGroup, step: StepEffects) -> None:
    """Form a generation of the members that have joined."""
    absent = [m for m in group.members.values() if not m.is_awaiting_join and not m.is_static]
    for member in absent:
        drop(group, member, step)
    if group.members and not group.elect_joined_leader():
        # Only static members are missing: wait until their sessions end.
        group.initial_delay_ms = None
        step.set_timer(JoinTimer(group.group_id), group.rebalance_timeout_ms)
        return
    step.cancel_timer(JoinTimer(group.group_id))
    group.initial_delay_ms = None
    group.begin_generation(step.now.wall_ms)
    if group.is_empty:
        group.leader_id = None
        step.append(group.record())
        return
    for member in group.members.values():
        group.pending_sync[member.member_id] = None
        answer_join(member, step, joined(group, member))
        member.is_new = False
        extend_session(group, member, step)
    step.set_timer(SyncTimer(group.group_id), group.rebalance_timeout_ms)


def on_sync_timer(group: ClassicGroup, step: StepEffects) -> None:
    """Remove members of this generation that never fetched their assignment."""
    if group.state not in (ClassicGroupState.COMPLETING_REBALANCE, ClassicGroupState.STABLE):
        return
    late = [group.members[member_id] for member_id in group.pending_sync]
    for member in late:
        drop(group, member, step)
    if late:
        prepare(group, step)


def joined(group: ClassicGroup, member: Member, *, skip_assignment: bool = False) -> Joined:
    """The JoinGroup answer of that member for the current generation."""
    is_leader = group.leader_id == member.member_id
    return Joined(
        member_id=member.member_id,
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader_id or "",
        members=_members_for_leader(group) if is_leader else (),
        skip_assignment=skip_assignment,
    )


def _members_for_leader(group: ClassicGroup) -> tuple[JoinedMember, ...]:
    return tuple(
        JoinedMember(
            member.member_id,
            member.group_instance_id,
            member.metadata_for(group.protocol_name),
        )
        for member in group.members.values()
    )


# --- one member ----------------------------------------------------------------------------------


def answer_join(member: Member, step: StepEffects, response: Joined) -> None:
    """Answer the member's parked JoinGroup, if there is one."""
    token, member.join_token = member.join_token, None
    if token is not None:
        step.answer(token, response)


def answer_sync(member: Member, step: StepEffects, response: Synced) -> None:
    """Answer the member's parked SyncGroup, if there is one."""
    token, member.sync_token = member.sync_token, None
    if token is not None:
        step.answer(token, response)


def end_requests(member: Member, step: StepEffects, error: ErrorCode) -> None:
    """Answer the member's parked requests with an error: it was removed, or the requests are out of
    date."""
    answer_join(member, step, Joined(error=error, member_id=member.member_id))
    answer_sync(member, step, Synced(error=error))


def drop(group: ClassicGroup, member: Member, step: StepEffects) -> None:
    """Remove the member; the caller starts a rebalance if one is needed."""
    end_requests(member, step, ErrorCode.UNKNOWN_MEMBER_ID)
    cancel_session(group, member, step)
    group.remove(member.member_id)


def extend_session(
    group: ClassicGroup, member: Member, step: StepEffects, timeout_ms: int | None = None
) -> None:
    """Start the member's session again. timeout_ms: None for the member's session timeout."""
    now_ms = step.now.monotonic_ms
    deadline_ms = now_ms + (member.session_timeout_ms if timeout_ms is None else timeout_ms)
    member.session_deadline_ms = deadline_ms
    if member.session_timer_ms is None or deadline_ms < member.session_timer_ms:
        member.session_timer_ms = deadline_ms
        step.set_timer(SessionTimer(group.group_id, member.member_id), deadline_ms - now_ms)


def cancel_session(group: ClassicGroup, member: Member, step: StepEffects) -> None:
    if member.session_timer_ms is not None:
        member.session_timer_ms = None
        step.cancel_timer(SessionTimer(group.group_id, member.member_id))


def forget_pending(group: ClassicGroup, member_id: str, step: StepEffects) -> None:
    """Drop a pending member id: it was used, or never will be."""
    del group.pending_members[member_id]
    step.cancel_timer(PendingMemberTimer(group.group_id, member_id))
