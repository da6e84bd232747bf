"""How a classic group gets from one generation to the next. Pure.

    prepare -> members join again -> complete_join -> (syncing) the leader's assignment -> stable

A rebalance of a group that was empty waits group.initial.rebalance.delay.ms, and that again each
time somebody has joined meanwhile, up to the rebalance time-out: otherwise ten consumers that
start together would make ten generations. Later ones end when all known members have joined again
or the rebalance time-out is over; dynamic members that have not are removed then, static ones stay
until their session ends.
"""

from __future__ import annotations

from kvorum.broker.groups.classic.group import ClassicGroup
from kvorum.broker.groups.classic.member import Member
from kvorum.broker.groups.classic.states import GroupState
from kvorum.broker.groups.requests import Joined, JoinedMember, Synced
from kvorum.broker.groups.timers import JoinTimer, PendingMemberTimer, SessionTimer, SyncTimer
from kvorum.broker.groups.turn import Turn
from kvorum.runtime.errors import ErrorCode


def rebalance(group: ClassicGroup, turn: Turn) -> None:
    """Something has changed: begin a rebalance, or see whether the one under way can end."""
    if group.state == GroupState.PREPARING_REBALANCE:
        complete_if_all_joined(group, turn)
    else:
        prepare(group, turn)


def prepare(group: ClassicGroup, turn: Turn) -> None:
    """From Empty, CompletingRebalance or Stable: everybody has to join again."""
    if group.state == GroupState.COMPLETING_REBALANCE:
        for member in group.members.values():
            member.assignment = b""
            answer_sync(member, turn, Synced(error=ErrorCode.REBALANCE_IN_PROGRESS))
            # Those that waited count as alive; from here on they must show it.
            extend_session(group, member, turn)
    was_empty = group.is_empty
    if not was_empty:
        # Also if nobody is left in pending_sync: the last of them may just have been dropped, and
        # the timer would put members of the next generation out before their time.
        turn.cancel_timer(SyncTimer(group.group_id))
        group.pending_sync.clear()
    group.transition_to(GroupState.PREPARING_REBALANCE, turn.now.wall_ms)
    if not was_empty:
        # Set once: members that join again and again must not put the end off for ever.
        turn.set_timer(JoinTimer(group.group_id), group.rebalance_timeout_ms)
        complete_if_all_joined(group, turn)
        return
    delay_ms = turn.config.group_initial_rebalance_delay_ms
    group.has_new_member = False
    group.initial_delay_ms = delay_ms
    group.initial_remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
    turn.set_timer(JoinTimer(group.group_id), delay_ms)


def complete_if_all_joined(group: ClassicGroup, turn: Turn) -> None:
    """In PreparingRebalance; elsewhere nothing. The initial delay is never cut short."""
    is_preparing = group.state == GroupState.PREPARING_REBALANCE
    if is_preparing and group.initial_delay_ms is None and group.has_all_joined:
        complete_join(group, turn)


def on_join_timer(group: ClassicGroup, turn: Turn) -> None:
    """The initial delay or the rebalance time-out is over."""
    if group.state != GroupState.PREPARING_REBALANCE:
        return
    delay_ms = group.initial_delay_ms
    if delay_ms is not None and group.has_new_member and group.initial_remaining_ms > 0:
        group.has_new_member = False
        next_ms = min(turn.config.group_initial_rebalance_delay_ms, group.initial_remaining_ms)
        group.initial_remaining_ms = max(group.initial_remaining_ms - next_ms, 0)
        group.initial_delay_ms = next_ms
        turn.set_timer(JoinTimer(group.group_id), next_ms)
        return
    complete_join(group, turn)


def complete_join(group: ClassicGroup, turn: Turn) -> None:
    """Whoever has joined is the next generation."""
    absent = [m for m in group.members.values() if not m.is_awaiting_join and not m.is_static]
    for member in absent:
        drop(group, member, turn)
    if group.members and not group.elect_joined_leader():
        # Only static members that have not come back: wait until their sessions end.
        group.initial_delay_ms = None
        turn.set_timer(JoinTimer(group.group_id), group.rebalance_timeout_ms)
        return
    turn.cancel_timer(JoinTimer(group.group_id))
    group.initial_delay_ms = None
    group.begin_generation(turn.now.wall_ms)
    if group.is_empty:
        group.leader_id = None
        turn.append(group.record())
        return
    for member in group.members.values():
        group.pending_sync[member.member_id] = None
        answer_join(member, turn, joined(group, member))
        member.is_new = False
        extend_session(group, member, turn)
    turn.set_timer(SyncTimer(group.group_id), group.rebalance_timeout_ms)


def on_sync_timer(group: ClassicGroup, turn: Turn) -> None:
    """Members that joined this generation and never asked for their assignment are out."""
    if group.state not in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
        return
    late = [group.members[member_id] for member_id in group.pending_sync]
    for member in late:
        drop(group, member, turn)
    if late:
        prepare(group, turn)


def joined(group: ClassicGroup, member: Member, *, skip_assignment: bool = False) -> Joined:
    """The current generation as that member is told it."""
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


def answer_join(member: Member, turn: Turn, response: Joined) -> None:
    """End its parked JoinGroup, if there is one."""
    token, member.join_token = member.join_token, None
    if token is not None:
        turn.answer(token, response)


def answer_sync(member: Member, turn: Turn, response: Synced) -> None:
    """End its parked SyncGroup, if there is one."""
    token, member.sync_token = member.sync_token, None
    if token is not None:
        turn.answer(token, response)


def end_requests(member: Member, turn: Turn, error: ErrorCode) -> None:
    """It is no member any more, or its request is out of date."""
    answer_join(member, turn, Joined(error=error, member_id=member.member_id))
    answer_sync(member, turn, Synced(error=error))


def drop(group: ClassicGroup, member: Member, turn: Turn) -> None:
    """It is out. What follows from that is up to the caller."""
    end_requests(member, turn, ErrorCode.UNKNOWN_MEMBER_ID)
    cancel_session(group, member, turn)
    group.remove(member.member_id)


def extend_session(
    group: ClassicGroup, member: Member, turn: Turn, timeout_ms: int | None = None
) -> None:
    """It was heard of now. timeout_ms: None for its own session time-out."""
    now_ms = turn.now.monotonic_ms
    deadline_ms = now_ms + (member.session_timeout_ms if timeout_ms is None else timeout_ms)
    member.session_deadline_ms = deadline_ms
    if member.session_timer_ms is None or deadline_ms < member.session_timer_ms:
        member.session_timer_ms = deadline_ms
        turn.set_timer(SessionTimer(group.group_id, member.member_id), deadline_ms - now_ms)


def cancel_session(group: ClassicGroup, member: Member, turn: Turn) -> None:
    if member.session_timer_ms is not None:
        member.session_timer_ms = None
        turn.cancel_timer(SessionTimer(group.group_id, member.member_id))


def forget_pending(group: ClassicGroup, member_id: str, turn: Turn) -> None:
    """The id that was handed out is used, or will not be."""
    del group.pending_members[member_id]
    turn.cancel_timer(PendingMemberTimer(group.group_id, member_id))
