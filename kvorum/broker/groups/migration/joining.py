"""JoinGroup of a classic consumer in a group of the consumer protocol. Pure.

  checks, or a new member id -> the member's new values -> new epoch? -> new target?
  -> reconcile with what it still owns -> its epoch, as a generation without a leader

The answer waits for no other member, as the coordinator assigns. The member fetches its assignment
with SyncGroup.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kvorum.broker.coordinator.model import ShardRequest
from kvorum.broker.groups.classic.joining import new_member_id
from kvorum.broker.groups.classic.subscription import CONSUMER_PROTOCOL_TYPE
from kvorum.broker.groups.consumer.entering import back, enter, metadata_changed, update_epochs
from kvorum.broker.groups.consumer.group import ConsumerGroup
from kvorum.broker.groups.consumer.member import ClassicMember, ConsumerMember, Partitions
from kvorum.broker.groups.consumer.membership import await_sync, extend_session, stop_awaiting_join
from kvorum.broker.groups.consumer.reconciliation import reconcile
from kvorum.broker.groups.consumer.targets import StepInputs, forget_unused_expressions
from kvorum.broker.groups.migration.embedded import Subscription, read_subscription, resolved
from kvorum.broker.groups.steps.config import STRING_BYTES_MAX
from kvorum.broker.groups.steps.requests import NO_MEMBER, Joined, JoinGroup
from kvorum.broker.groups.steps.step_effects import StepEffects
from kvorum.runtime.errors import ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class Joiner:
    """An accepted JoinGroup.

    before: the member so far, an empty new one, or the static member whose place is taken.
    updated: the member with the request's values.
    owned: partitions that it has not given up.
    """

    before: ConsumerMember
    updated: ConsumerMember
    owned: Partitions


def admitted(
    group: ConsumerGroup, event: ShardRequest, inputs: StepInputs, step: StepEffects
) -> Joiner | Joined:
    """The joiner; or the answer, if the request is refused or gets a member id to join with."""
    request: JoinGroup = event.body
    if not step.config.group_consumer_migration_policy.allows_mixed_groups:
        return _refused(request, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    place = group.static_members.get(request.group_instance_id or "", request.member_id)
    is_new = place not in group.members
    if is_new and len(group.members) >= step.config.group_consumer_max_size:
        return _refused(request, ErrorCode.GROUP_MAX_SIZE_REACHED)
    subscription = _subscription_of(group, request, place)
    if subscription is None:
        return _refused(request, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    before = _find(group, event, step)
    if isinstance(before, Joined):
        return before
    if is_new and subscription.owned:
        # The member was removed and does not know it: other members may have its partitions. This
        # error makes it give everything up. A client that has just got its id owns nothing.
        return _refused(request, ErrorCode.UNKNOWN_MEMBER_ID)
    updated = _as_told(before, event, subscription)
    if not is_new and request.member_id == NO_MEMBER:
        # A client that still uses the old id is fenced.
        instance_id = request.group_instance_id or ""
        updated = replace(back(updated), member_id=new_member_id(instance_id, step))
    is_too_long = len(updated.member_id.encode()) > STRING_BYTES_MAX
    if is_too_long or (
        metadata_changed(group, before, updated) and not step.fits(group.metadata_record(updated))
    ):
        return _refused(request, ErrorCode.INVALID_REQUEST)
    return Joiner(before=before, updated=updated, owned=resolved(subscription.owned, inputs.image))


def join(group: ConsumerGroup, joiner: Joiner, inputs: StepInputs, step: StepEffects) -> Joined:
    """Put the joiner into the group; nothing is refused any more."""
    updated = joiner.updated
    enter(group, joiner.before, updated, inputs, step)
    forget_unused_expressions(group, inputs)
    update_epochs(group, joiner.before, updated, inputs)
    after = reconcile(
        updated,
        target=group.target(updated.member_id),
        assignment_epoch=group.assignment_epoch,
        owned=joiner.owned,
        taken=group.holders,
    )
    if after != updated:
        group.put(after)
        inputs.out.append(group.current_record(after))
    extend_session(group, after.member_id, step)
    stop_awaiting_join(group, after.member_id, step)
    await_sync(group, after, step)
    return Joined(
        member_id=after.member_id,
        generation_id=after.member_epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=protocol_name_of(after),
    )


def protocol_name_of(member: ConsumerMember) -> str:
    """The protocol name in the answers to a member: the member's own first protocol, because the
    coordinator assigns."""
    classic = member.classic
    return classic.protocols[0].name if classic is not None and classic.protocols else ""


def _find(group: ConsumerGroup, event: ShardRequest, step: StepEffects) -> ConsumerMember | Joined:
    request: JoinGroup = event.body
    member_id, instance_id = request.member_id, request.group_instance_id
    if instance_id is None:
        if member_id != NO_MEMBER:
            # A client with an unknown id got that id from this coordinator, or was removed; it owns
            # nothing here.
            return group.members.get(member_id) or ConsumerMember(member_id=member_id)
        new_id = new_member_id(event.client.id, step)
        if request.requires_known_member_id:
            return Joined(error=ErrorCode.MEMBER_ID_REQUIRED, member_id=new_id)
        return ConsumerMember(member_id=new_id)
    holder = group.static_members.get(instance_id)
    if member_id == NO_MEMBER:
        if holder is not None:
            return group.members[holder]
        return ConsumerMember(member_id=new_member_id(instance_id, step), instance_id=instance_id)
    if holder is None:
        return _refused(request, ErrorCode.UNKNOWN_MEMBER_ID)
    if holder != member_id:
        return _refused(request, ErrorCode.FENCED_INSTANCE_ID)
    return group.members[holder]


def _subscription_of(group: ConsumerGroup, request: JoinGroup, place: str) -> Subscription | None:
    """The member's subscription. None if it is not a consumer, if its subscription does not parse,
    or if it shares no assignor with the other classic members: after a downgrade they need one."""
    if request.protocol_type != CONSUMER_PROTOCOL_TYPE or not request.protocols:
        return None
    common = {protocol.name for protocol in request.protocols}
    for member in group.members.values():
        if member.classic is not None and member.member_id != place:
            common &= {protocol.name for protocol in member.classic.protocols}
    return read_subscription(request.protocols[0].metadata) if common else None


def _as_told(
    before: ConsumerMember, event: ShardRequest, subscription: Subscription
) -> ConsumerMember:
    request: JoinGroup = event.body
    return replace(
        before,
        client_id=event.client.id,
        client_host=event.client.host,
        rack_id=subscription.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        subscribed_topic_names=tuple(sorted(set(subscription.topics))),
        subscribed_topic_regex=None,
        server_assignor=None,
        classic=ClassicMember(
            session_timeout_ms=request.session_timeout_ms, protocols=request.protocols
        ),
    )


def _refused(request: JoinGroup, error: ErrorCode) -> Joined:
    return Joined(error=error, member_id=request.member_id)
