"""JoinGroup: which clients may join, with which member id, and the rebalance that follows. Pure.

A new dynamic member first gets an id (79, MEMBER_ID_REQUIRED) and joins with it. So a client that
gives up and tries again does not leave a member behind each time (KIP-394). A static member
(KIP-345) is identified by its instance id. When it returns it replaces the member of that instance
id, and no rebalance follows if its subscription is the same.
"""

from __future__ import annotations

import uuid

from kvorum.broker.coordinator.model import ShardRequest
from kvorum.broker.groups.classic.group import ClassicGroup
from kvorum.broker.groups.classic.member import Member
from kvorum.broker.groups.classic.rebalance import (
    cancel_session,
    complete_if_all_joined,
    drop,
    end_requests,
    extend_session,
    forget_pending,
    joined,
    prepare,
    rebalance,
)
from kvorum.broker.groups.classic.states import ClassicGroupState
from kvorum.broker.groups.classic.subscription import subscribed_topics
from kvorum.broker.groups.steps.config import (
    NAME_BYTES_MAX,
    NEW_MEMBER_JOIN_TIMEOUT_MS,
    PENDING_MEMBERS_MAX,
)
from kvorum.broker.groups.steps.requests import NO_MEMBER, Joined, JoinGroup
from kvorum.broker.groups.steps.step_effects import StepEffects
from kvorum.broker.groups.steps.timers import PendingMemberTimer
from kvorum.runtime.errors import ErrorCode


def refusal_of(request: JoinGroup, client_id: str, step: StepEffects) -> ErrorCode:
    """The error of a request that no group would accept."""
    config = step.config
    if not (
        config.group_min_session_timeout_ms
        <= request.session_timeout_ms
        <= config.group_max_session_timeout_ms
    ):
        return ErrorCode.INVALID_SESSION_TIMEOUT
    names = [client_id, request.group_instance_id or "", request.protocol_type]
    names += [protocol.name for protocol in request.protocols]
    if any(len(name.encode()) > NAME_BYTES_MAX for name in names):
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def join(group: ClassicGroup, event: ShardRequest, step: StepEffects) -> None:
    """Answer now, or park the request in its member until the rebalance is over."""
    request: JoinGroup = event.body
    member_id = request.member_id
    if not _is_welcome(group, member_id, step):
        if member_id in group.members:
            drop(group, group.members[member_id], step)
            rebalance(group, step)
        elif member_id in group.pending_members:
            forget_pending(group, member_id, step)
            complete_if_all_joined(group, step)
        _refuse(event, step, ErrorCode.GROUP_MAX_SIZE_REACHED)
    elif not group.supports(request.protocol_type, request.protocols):
        _refuse(event, step, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    elif member_id == NO_MEMBER:
        _join_new(group, event, step)
    elif member_id in group.pending_members:
        if request.group_instance_id is not None:
            # A static member is never given an id to join with.
            _refuse(event, step, ErrorCode.UNKNOWN_MEMBER_ID)
            return
        forget_pending(group, member_id, step)
        _add(group, event, member_id, step)
    else:
        _join_again(group, event, step)


def _is_welcome(group: ClassicGroup, member_id: str, step: StepEffects) -> bool:
    """True if group.max.size leaves room for the member."""
    size_max = step.config.group_max_size
    if group.is_empty:
        return True
    if group.state == ClassicGroupState.PREPARING_REBALANCE:
        # The limit counts parked joins, not members. After the limit was lowered, the last
        # members to join again are refused.
        member = group.members.get(member_id)
        if member is not None and member.is_awaiting_join:
            return True
        return sum(m.is_awaiting_join for m in group.members.values()) < size_max
    return member_id in group.members or len(group.members) < size_max


# --- new members ---------------------------------------------------------------------------------


def _join_new(group: ClassicGroup, event: ShardRequest, step: StepEffects) -> None:
    request: JoinGroup = event.body
    instance_id = request.group_instance_id
    new_id = new_member_id(instance_id or event.client.id, step)
    if instance_id is not None:
        holder = group.static_members.get(instance_id)
        if holder is None:
            _add(group, event, new_id, step)
        else:
            _replace(group, event, holder, new_id, step)
    elif not request.requires_known_member_id:
        _add(group, event, new_id, step)
    elif len(group.pending_members) >= PENDING_MEMBERS_MAX:
        _refuse(event, step, ErrorCode.GROUP_MAX_SIZE_REACHED)
    else:
        group.pending_members[new_id] = None
        step.set_timer(PendingMemberTimer(group.group_id, new_id), request.session_timeout_ms)
        step.answer(event.token, Joined(error=ErrorCode.MEMBER_ID_REQUIRED, member_id=new_id))


def new_member_id(prefix: str, step: StepEffects) -> str:
    """A member id in Kafka's form: client id or instance id, a dash, a uuid."""
    return f"{prefix}-{uuid.UUID(int=step.rng.getrandbits(128), version=4)}"


def _add(group: ClassicGroup, event: ShardRequest, member_id: str, step: StepEffects) -> None:
    request: JoinGroup = event.body
    member = Member(
        member_id=member_id,
        group_instance_id=request.group_instance_id,
        client_id=event.client.id,
        client_host=event.client.host,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=request.protocols,
    )
    member.is_new = True
    member.join_token = event.token
    group.add(member)
    if group.initial_delay_ms is not None:
        group.has_new_member = True
    extend_session(group, member, step, NEW_MEMBER_JOIN_TIMEOUT_MS)
    rebalance(group, step)


# --- members that come again ---------------------------------------------------------------------


def _join_again(group: ClassicGroup, event: ShardRequest, step: StepEffects) -> None:
    request: JoinGroup = event.body
    error = group.check_member(request.member_id, request.group_instance_id)
    if error != ErrorCode.NONE:
        _refuse(event, step, error)
        return
    member = group.members[request.member_id]
    is_same = member.protocols == request.protocols
    is_leader = group.leader_id == member.member_id
    if group.state == ClassicGroupState.COMPLETING_REBALANCE and is_same:
        # The answer to the member's first request may have been lost on the way.
        step.answer(event.token, joined(group, member))
    elif group.state == ClassicGroupState.STABLE and is_same and not is_leader:
        step.answer_durably(event.token, joined(group, member))
    else:
        # If the leader joins a stable group again it wants to assign again, for example because a
        # topic has more partitions.
        _await_join(member, event, step)
        rebalance(group, step)


def _await_join(member: Member, event: ShardRequest, step: StepEffects) -> None:
    # The client has given up its member's parked request.
    end_requests(member, step, ErrorCode.REBALANCE_IN_PROGRESS)
    member.update(event.body)
    member.join_token = event.token


def _replace(
    group: ClassicGroup, event: ShardRequest, old_id: str, new_id: str, step: StepEffects
) -> None:
    """Replace a static member that returns without its id: the member gets a new id, and a client
    that still uses the old id is fenced."""
    request: JoinGroup = event.body
    member = group.members[old_id]
    old_leader = group.leader_id
    end_requests(member, step, ErrorCode.FENCED_INSTANCE_ID)
    cancel_session(group, member, step)
    topics_before = _topics_of(group, member)
    group.replace_static(old_id, new_id)
    member.update(request)
    member.is_new = False
    member.client_id, member.client_host = event.client.id, event.client.host
    extend_session(group, member, step)
    if group.state != ClassicGroupState.STABLE:
        # In CompletingRebalance the leader may have been sent the old id already; its assignment
        # would then miss the new id.
        member.join_token = event.token
        rebalance(group, step)
        return
    record = group.record()
    if (
        group.select_protocol() != group.protocol_name
        or _topics_of(group, member) != topics_before
        or not step.fits(record)
    ):
        member.join_token = event.token
        prepare(group, step)
        return
    step.append(record)
    answer = joined(group, member, skip_assignment=group.leader_id == new_id)
    if not request.can_skip_assignment:
        # An old client that is named as the leader would assign, and no member waits for that
        # assignment. So it gets the previous leader's id.
        answer = Joined(
            member_id=new_id,
            generation_id=group.generation_id,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            leader=old_leader or NO_MEMBER,
        )
    step.answer(event.token, answer)


def _topics_of(group: ClassicGroup, member: Member) -> frozenset[str] | None:
    """The topics that the member subscribes to; the rest of its metadata (owned partitions) changes
    with each restart."""
    if not group.is_consumer_group:
        return None
    return subscribed_topics(member.metadata_for(group.protocol_name))


def _refuse(event: ShardRequest, step: StepEffects, error: ErrorCode) -> None:
    step.answer(event.token, Joined(error=error, member_id=event.body.member_id))
