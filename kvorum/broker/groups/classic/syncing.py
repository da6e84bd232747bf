"""SyncGroup: the leader sends the assignment, every member fetches its own. Pure.

  leader's SyncGroup -> the generation is written -> Stable -> all parked SyncGroups are answered

No member gets its assignment before the record is replicated. Otherwise, after a fail-over, the
next coordinator would not know that assignment. That coordinator could give the same partitions to
other members in a generation of the same number.
"""

from __future__ import annotations

from kvorum.broker.coordinator.model import ShardRequest
from kvorum.broker.groups.classic.group import ClassicGroup
from kvorum.broker.groups.classic.member import Member
from kvorum.broker.groups.classic.rebalance import answer_sync, extend_session, prepare
from kvorum.broker.groups.classic.states import ClassicGroupState
from kvorum.broker.groups.steps.requests import Synced, SyncGroup
from kvorum.broker.groups.steps.step_effects import StepEffects
from kvorum.broker.groups.steps.timers import SyncTimer
from kvorum.runtime.errors import ErrorCode, invariant


def sync(group: ClassicGroup, event: ShardRequest, step: StepEffects) -> None:
    """Answer now, or park the request in its member until the leader has assigned."""
    request: SyncGroup = event.body
    error = _refusal_of(group, request)
    if error != ErrorCode.NONE:
        step.answer(event.token, Synced(error=error))
        return
    member = group.members[request.member_id]
    _no_longer_pending(group, member, step)
    if group.state == ClassicGroupState.STABLE:
        step.answer_durably(event.token, _synced(group, member))
        return
    invariant(
        group.state == ClassicGroupState.COMPLETING_REBALANCE,
        f"group {group.group_id!r} syncs in {group.state.value}",
    )
    # The client has given up its member's parked request.
    answer_sync(member, step, Synced(error=ErrorCode.REBALANCE_IN_PROGRESS))
    member.sync_token = event.token
    if group.leader_id == member.member_id:
        _become_stable(group, request, step)


def _refusal_of(group: ClassicGroup, request: SyncGroup) -> ErrorCode:
    error = group.check_member(request.member_id, request.group_instance_id)
    if error != ErrorCode.NONE:
        return error
    if request.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    if request.protocol_type not in (None, group.protocol_type):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if request.protocol_name not in (None, group.protocol_name):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state == ClassicGroupState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _become_stable(group: ClassicGroup, request: SyncGroup, step: StepEffects) -> None:
    assignments = {row.member_id: row.assignment for row in request.assignments}
    for member in group.members.values():
        member.assignment = assignments.get(member.member_id, b"")
    group.transition_to(ClassicGroupState.STABLE, step.now.wall_ms)
    record = group.record()
    if not step.fits(record):
        # The group's record is too large. As in Kafka all members get an error; the next assignment
        # may be smaller.
        for member in group.members.values():
            member.assignment = b""
            answer_sync(member, step, Synced(error=ErrorCode.UNKNOWN_SERVER_ERROR))
            extend_session(group, member, step)
        prepare(group, step)
        return
    step.append(record)
    for member in group.members.values():
        answer_sync(member, step, _synced(group, member))
        # Members with parked requests counted as alive; their session timers start now.
        extend_session(group, member, step)


def _no_longer_pending(group: ClassicGroup, member: Member, step: StepEffects) -> None:
    if group.pending_sync.pop(member.member_id, False) is None and not group.pending_sync:
        step.cancel_timer(SyncTimer(group.group_id))


def _synced(group: ClassicGroup, member: Member) -> Synced:
    return Synced(
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        assignment=member.assignment,
    )
