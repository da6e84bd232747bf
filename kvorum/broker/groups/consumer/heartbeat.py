"""ConsumerGroupHeartbeat: joining, staying, new subscriptions, and the answer. Pure.

  checks -> the member's new values -> new group epoch? -> new target? -> reconcile

A refusal changes nothing. An accepted heartbeat changes the group and adds its records to
`StepInputs.out`; the caller writes them before it answers.
"""

from __future__ import annotations

from dataclasses import replace

from kvorum.broker.coordinator.model import ShardRequest
from kvorum.broker.groups.consumer.entering import back, enter, metadata_changed, update_epochs
from kvorum.broker.groups.consumer.expressions import expression_refusal
from kvorum.broker.groups.consumer.group import ConsumerGroup
from kvorum.broker.groups.consumer.member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    NO_TIMEOUT,
    STATIC_LEAVE_EPOCH,
    ConsumerMember,
)
from kvorum.broker.groups.consumer.membership import (
    extend_session,
    find_static,
    watch_revocation,
)
from kvorum.broker.groups.consumer.reconciliation import reconcile
from kvorum.broker.groups.consumer.records import ResolvedExpression
from kvorum.broker.groups.consumer.requests import ConsumerHeartbeat, ConsumerHeartbeated
from kvorum.broker.groups.consumer.targets import StepInputs, forget_unused_expressions
from kvorum.broker.groups.steps.config import STRING_BYTES_MAX
from kvorum.broker.groups.steps.refusals import fenced_epoch, is_blank, unknown_member
from kvorum.broker.groups.steps.step_effects import StepEffects
from kvorum.runtime.errors import ErrorCode, Rejected


def request_refusal(request: ConsumerHeartbeat, assignors: tuple[str, ...]) -> Rejected | None:
    """The error of a request that no group would accept (with Kafka's messages)."""
    reason = None
    if is_blank(request.member_id):
        reason = "MemberId can't be empty."
    elif is_blank(request.instance_id):
        reason = "InstanceId can't be empty."
    elif is_blank(request.rack_id):
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
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        return "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when joining."
    return None


def heartbeat(
    group: ConsumerGroup, event: ShardRequest, inputs: StepInputs, step: StepEffects
) -> ConsumerHeartbeated | Rejected:
    """Handle a heartbeat of epoch 0 or above; leaving is in `membership`."""
    request: ConsumerHeartbeat = event.body
    size_max = step.config.group_consumer_max_size
    has_place = request.member_id in group.members or request.instance_id in group.static_members
    if not has_place and len(group.members) >= size_max:
        text = f"Group {group.group_id} has reached its maximum capacity of {size_max} members."
        return Rejected(ErrorCode.GROUP_MAX_SIZE_REACHED, text)
    before = _find(group, request)
    if isinstance(before, Rejected):
        return before
    told = _as_told(before, event)
    resolved = _resolved(group, told, inputs)
    if isinstance(resolved, Rejected):
        return resolved
    if metadata_changed(group, before, told) and not step.fits(group.metadata_record(told)):
        text = f"What member {told.member_id} subscribes to does not fit into one record."
        return Rejected(ErrorCode.INVALID_REQUEST, text)
    # From here on nothing is refused.
    enter(group, before, told, inputs, step)
    if resolved is not None and told.subscribed_topic_regex is not None:
        group.expressions[told.subscribed_topic_regex] = resolved
        inputs.out.append(group.expression_record(told.subscribed_topic_regex))
    forget_unused_expressions(group, inputs)
    update_epochs(group, before, told, inputs)
    after, is_current = told, request.member_epoch == told.member_epoch
    if is_current:
        after = reconcile(
            told,
            target=group.target(told.member_id),
            assignment_epoch=group.assignment_epoch,
            owned=request.owned,
            taken=group.holders,
        )
    # A heartbeat in the previous epoch gets the member's assignment again and no more. Either the
    # answer was lost, and what the member owns does not take the new assignment into account. Or
    # the request was delayed, and the member owns more by now.
    if after != told:
        group.put(after)
        inputs.out.append(group.current_record(after))
    # A member that used the classic protocol until now has no revocation timer yet.
    watch_revocation(group, told if before.classic is None else before, after, step)
    extend_session(group, after.member_id, step)
    is_told_all = request.is_full or not is_current or after.assigned != told.assigned
    return ConsumerHeartbeated(
        member_id=after.member_id,
        member_epoch=after.member_epoch,
        heartbeat_interval_ms=step.heartbeat_interval_ms(group.group_id),
        assignment=after.assigned if is_told_all else None,
    )


# --- the sender ----------------------------------------------------------------------------------


def _find(group: ConsumerGroup, request: ConsumerHeartbeat) -> ConsumerMember | Rejected:
    """The member as it is; for a new client, an empty member, or the static member whose place the
    client takes. Rejected if the client may not join."""
    member_id, instance_id = request.member_id, request.instance_id
    is_joining = request.member_epoch == JOIN_EPOCH
    if instance_id is None:
        member = group.members.get(member_id)
        if member is None:
            if is_joining:
                return ConsumerMember(member_id=member_id)
            return unknown_member(group.group_id, member_id)
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
    if member.classic is not None:
        # A client restarted with the new protocol cannot know the id that the old protocol gave it.
        return member
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
    """The error if the request is in another epoch than the member's. The previous epoch is
    accepted if the answer with the current one was lost: then the member owns nothing beyond its
    current assignment."""
    epoch = request.member_epoch
    if epoch == member.member_epoch:
        return None
    is_older = epoch < member.member_epoch
    owns_no_more = request.owned is not None and request.owned <= member.assigned
    if is_older and epoch == member.previous_member_epoch and owns_no_more:
        return None
    return fenced_epoch("consumer", epoch, member.member_epoch)


def _as_told(before: ConsumerMember, event: ShardRequest) -> ConsumerMember:
    """The member with the values of this heartbeat, as a member of the consumer protocol."""
    request: ConsumerHeartbeat = event.body
    is_from_classic = before.classic is not None and request.member_epoch == JOIN_EPOCH
    if before.member_epoch == STATIC_LEAVE_EPOCH or is_from_classic:
        before = back(before)
    names, expression = request.subscribed_topic_names, request.subscribed_topic_regex
    timeout_ms = request.rebalance_timeout_ms
    return replace(
        before,
        member_id=request.member_id,
        instance_id=before.instance_id if request.instance_id is None else request.instance_id,
        rack_id=before.rack_id if request.rack_id is None else request.rack_id,
        client_id=event.client.id,
        client_host=event.client.host,
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
        classic=None,
    )


def _resolved(
    group: ConsumerGroup, told: ConsumerMember, inputs: StepInputs
) -> ResolvedExpression | Rejected | None:
    """The topics of the member's expression, if it is new to the group; Rejected if it is
    invalid."""
    expression = told.subscribed_topic_regex
    if expression is None or expression in group.expressions:
        return None
    reason = expression_refusal(expression)
    if reason is not None:
        return Rejected(ErrorCode.INVALID_REGULAR_EXPRESSION, reason)
    return inputs.resolve(expression)


LEAVING = (LEAVE_EPOCH, STATIC_LEAVE_EPOCH)
"""Member epochs of requests that `membership.leave` handles."""
