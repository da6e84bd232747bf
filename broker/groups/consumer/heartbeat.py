"""ConsumerGroupHeartbeat: joining, staying, changing one's mind, and what the member is told. Pure.

    refused? -> the member as it now says it is -> new group epoch? -> new target? -> reconcile

A refusal changes nothing. What is accepted changes the group and puts its records behind
`Setting.out`; the caller writes them before it answers.
"""

from __future__ import annotations

from dataclasses import replace

from broker.coordinator.model import Request
from broker.groups.config import STRING_BYTES_MAX
from broker.groups.consumer.expressions import expression_refusal
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    NO_TIMEOUT,
    STATIC_LEAVE_EPOCH,
    ConsumerMember,
)
from broker.groups.consumer.membership import (
    extend_session,
    find_static,
    forget_timers,
    unknown_member,
    watch_revocation,
)
from broker.groups.consumer.reconciliation import reconcile
from broker.groups.consumer.records import ResolvedExpression
from broker.groups.consumer.requests import ConsumerHeartbeat, ConsumerHeartbeated
from broker.groups.consumer.targets import (
    Setting,
    bump_epoch,
    forget_unused_expressions,
    refresh,
    update_target,
)
from broker.groups.turn import Turn
from runtime.errors import ErrorCode, Rejected


def request_refusal(request: ConsumerHeartbeat, assignors: tuple[str, ...]) -> Rejected | None:
    """What is wrong with the request whatever the group is like (Kafka's own sentences)."""
    reason = None
    if not request.member_id:
        reason = "MemberId can't be empty."
    elif request.instance_id == "":
        reason = "InstanceId can't be empty."
    elif request.rack_id == "":
        reason = "RackId can't be empty."
    elif request.member_epoch < STATIC_LEAVE_EPOCH:
        reason = f"MemberEpoch is invalid: {request.member_epoch}."
    elif request.member_epoch == STATIC_LEAVE_EPOCH and request.instance_id is None:
        reason = "InstanceId can't be null."
    elif request.member_epoch == JOIN_EPOCH:
        reason = _join_refusal(request)
    names = (request.member_id, request.instance_id or "")
    if reason is None and any(len(name.encode()) > STRING_BYTES_MAX for name in names):
        reason = f"MemberId and InstanceId have at most {STRING_BYTES_MAX} bytes."
    if reason is not None:
        return Rejected(ErrorCode.INVALID_REQUEST, reason)
    wanted = request.server_assignor
    if wanted is not None and wanted not in assignors:
        offered = ", ".join(assignors)
        text = f"ServerAssignor {wanted} is not supported. Supported assignors: {offered}."
        return Rejected(ErrorCode.UNSUPPORTED_ASSIGNOR, text)
    return None


def _join_refusal(request: ConsumerHeartbeat) -> str | None:
    if request.rebalance_timeout_ms == NO_TIMEOUT:
        return "RebalanceTimeoutMs must be provided in first request."
    if request.owned is None or request.owned:
        return "TopicPartitions must be empty when (re-)joining."
    if request.subscribed_topic_names is None and not request.subscribed_topic_regex:
        return "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when joining."
    return None


def heartbeat(
    group: ConsumerGroup, event: Request, setting: Setting, turn: Turn
) -> ConsumerHeartbeated | Rejected:
    """Of epoch 0 or above; leaving is in `membership`."""
    request: ConsumerHeartbeat = event.body
    size_max = turn.config.group_consumer_max_size
    has_place = request.member_id in group.members or request.instance_id in group.static_members
    if not has_place and len(group.members) >= size_max:
        text = f"Group {group.group_id} has reached its maximum capacity of {size_max} members."
        return Rejected(ErrorCode.GROUP_MAX_SIZE_REACHED, text)
    before = _find(group, request)
    if isinstance(before, Rejected):
        return before
    told = _as_told(before, event)
    resolved = _resolved(group, told, setting)
    if isinstance(resolved, Rejected):
        return resolved
    is_new_or_says_more = told.member_id not in group.members or _said(before) != _said(told)
    if is_new_or_says_more and not turn.fits(group.metadata_record(told)):
        text = f"What member {told.member_id} subscribes to does not fit into one record."
        return Rejected(ErrorCode.INVALID_REQUEST, text)
    # From here on nothing is refused.
    _enter(group, before, told, setting, turn)
    if resolved is not None and told.subscribed_topic_regex is not None:
        group.expressions[told.subscribed_topic_regex] = resolved
        setting.out.append(group.expression_record(told.subscribed_topic_regex))
    forget_unused_expressions(group, setting)
    _update_epochs(group, before, told, setting)
    after, is_current = told, request.member_epoch == told.member_epoch
    if is_current:
        after = reconcile(
            told,
            target=group.target(told.member_id),
            assignment_epoch=group.assignment_epoch,
            owned=request.owned,
            taken=group.holders,
        )
    # A heartbeat of the epoch before is told again what the member has, no more: either the answer
    # was lost, and what it owns now says nothing of what it is about to hear; or the request was
    # on its way for long, and the member owns more by now.
    if after != told:
        group.put(after)
        setting.out.append(group.current_record(after))
    watch_revocation(group, told, after, turn)
    extend_session(group, after.member_id, turn)
    is_told_all = request.is_full or not is_current or after.assigned != told.assigned
    return ConsumerHeartbeated(
        member_id=after.member_id,
        member_epoch=after.member_epoch,
        heartbeat_interval_ms=turn.config.group_consumer_heartbeat_interval_ms,
        assignment=after.assigned if is_told_all else None,
    )


# --- who it is -----------------------------------------------------------------------------------


def _find(group: ConsumerGroup, request: ConsumerHeartbeat) -> ConsumerMember | Rejected:
    """The member as it is, or as a new one begins; the one whose place a static member takes."""
    member_id, instance_id = request.member_id, request.instance_id
    is_joining = request.member_epoch == JOIN_EPOCH
    if instance_id is None:
        member = group.members.get(member_id)
        if member is None:
            if is_joining:
                return ConsumerMember(member_id=member_id)
            return unknown_member(group, member_id)
        return _epoch_refusal(request, member) or member
    if not is_joining:
        found = find_static(group, instance_id, member_id)
        if isinstance(found, Rejected):
            return found
        return _epoch_refusal(request, found) or found
    holder = group.static_members.get(instance_id)
    if holder is None:
        member = group.members.get(member_id)
        if member is None:
            return ConsumerMember(member_id=member_id, instance_id=instance_id)
        return _epoch_refusal(request, member) or member
    member = group.members[holder]
    if holder != member_id and member.member_epoch != STATIC_LEAVE_EPOCH:
        text = (
            f"Static member {member_id} with instance id {instance_id} cannot join the group "
            f"because the instance id is owned by member {holder}."
        )
        return Rejected(ErrorCode.UNRELEASED_INSTANCE_ID, text)
    if member.member_epoch != STATIC_LEAVE_EPOCH:
        return _epoch_refusal(request, member) or member
    return member


def _epoch_refusal(request: ConsumerHeartbeat, member: ConsumerMember) -> Rejected | None:
    """A member speaks in its epoch; or in the one before, if the answer that told it of this one
    was lost: then it cannot own anything that this one does not give it."""
    epoch = request.member_epoch
    if epoch == member.member_epoch:
        return None
    is_older = epoch < member.member_epoch
    owns_no_more = request.owned is not None and request.owned <= member.assigned
    if is_older and epoch == member.previous_member_epoch and owns_no_more:
        return None
    relation = "smaller" if is_older else "greater"
    text = (
        f"The consumer group member has a {relation} member epoch ({epoch}) than the one known by "
        f"the group coordinator ({member.member_epoch}). The member must abandon all its "
        "partitions and rejoin."
    )
    return Rejected(ErrorCode.FENCED_MEMBER_EPOCH, text)


def _as_told(before: ConsumerMember, event: Request) -> ConsumerMember:
    """The member with what this heartbeat says. A static one that is back begins at epoch 0."""
    request: ConsumerHeartbeat = event.body
    is_back = before.member_epoch == STATIC_LEAVE_EPOCH
    names, expression = request.subscribed_topic_names, request.subscribed_topic_regex
    timeout_ms = request.rebalance_timeout_ms
    return replace(
        before,
        member_id=request.member_id,
        instance_id=before.instance_id if request.instance_id is None else request.instance_id,
        rack_id=before.rack_id if request.rack_id is None else request.rack_id,
        client_id=event.client_id,
        client_host=event.client_host,
        rebalance_timeout_ms=(
            before.rebalance_timeout_ms if timeout_ms == NO_TIMEOUT else timeout_ms
        ),
        subscribed_topic_names=(
            before.subscribed_topic_names if names is None else tuple(sorted(set(names)))
        ),
        subscribed_topic_regex=(
            before.subscribed_topic_regex if expression is None else expression or None
        ),
        server_assignor=request.server_assignor or before.server_assignor,
        member_epoch=JOIN_EPOCH if is_back else before.member_epoch,
        previous_member_epoch=JOIN_EPOCH if is_back else before.previous_member_epoch,
    )


def _resolved(
    group: ConsumerGroup, told: ConsumerMember, setting: Setting
) -> ResolvedExpression | Rejected | None:
    """Topics of its expression, if that is new to the group."""
    expression = told.subscribed_topic_regex
    if expression is None or expression in group.expressions:
        return None
    reason = expression_refusal(expression)
    if reason is not None:
        return Rejected(ErrorCode.INVALID_REGULAR_EXPRESSION, reason)
    return setting.resolve(expression)


# --- what follows --------------------------------------------------------------------------------


def _enter(
    group: ConsumerGroup,
    before: ConsumerMember,
    told: ConsumerMember,
    setting: Setting,
    turn: Turn,
) -> None:
    """Into the group, or in the place of the static member that it was.

    What it has is written when it is reconciled: from epoch 0 on that is always a change."""
    if before.member_id != told.member_id:
        target = group.target(before.member_id)
        setting.out.extend(group.member_tombstones(before.member_id))
        group.remove(before.member_id)
        forget_timers(group, before.member_id, turn)
        group.put(told)
        group.targets[told.member_id] = target
        setting.out.append(group.metadata_record(told))
        setting.out.append(group.target_record(told.member_id))
        return
    is_new_or_says_more = told.member_id not in group.members or _said(before) != _said(told)
    if is_new_or_says_more or told != before:
        group.put(told)
    if is_new_or_says_more:
        setting.out.append(group.metadata_record(told))


def _said(member: ConsumerMember) -> tuple[object, ...]:
    """What the record of a member's metadata holds."""
    return (
        member.instance_id,
        member.rack_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        member.subscribed_topic_names,
        member.subscribed_topic_regex,
        member.server_assignor,
    )


def _update_epochs(
    group: ConsumerGroup, before: ConsumerMember, told: ConsumerMember, setting: Setting
) -> None:
    """A new epoch and target if this heartbeat, or the metadata, give a reason."""
    is_new = told.member_id not in group.targets and told.member_epoch == JOIN_EPOCH
    has_changed = is_new or (
        (before.subscribed_topic_names, before.subscribed_topic_regex)
        != (told.subscribed_topic_names, told.subscribed_topic_regex)
    )
    if has_changed or group.is_metadata_stale:
        refresh(group, setting)
        bump_epoch(group, setting, has_changed=has_changed)
    update_target(group, setting)


LEAVING = (LEAVE_EPOCH, STATIC_LEAVE_EPOCH)
"""Member epochs that are answered by `membership.leave`."""
