"""Upgrade: a classic group with members becomes a group of the consumer protocol. Pure.

Its generation becomes the group epoch, the assignment epoch and every member's epoch, so that
members find the number that they know. Each member keeps its partitions, as its assignment and as
its target. The new records and the tombstone of the classic group are one batch: a reader of the
log finds either group, never a mixture.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvorum.broker.coordinator.model import CoordinatorRecord
from kvorum.broker.groups.classic import rebalance
from kvorum.broker.groups.classic.group import ClassicGroup
from kvorum.broker.groups.classic.member import Member
from kvorum.broker.groups.classic.states import ClassicGroupState
from kvorum.broker.groups.consumer.group import ConsumerGroup
from kvorum.broker.groups.consumer.member import ClassicMember, ConsumerMember, Partitions
from kvorum.broker.groups.migration.embedded import (
    Subscription,
    read_assignment,
    read_subscription,
    resolved,
)
from kvorum.broker.groups.steps.config import GroupConfig
from kvorum.broker.groups.steps.records import group_key
from kvorum.broker.groups.steps.step_effects import StepEffects
from kvorum.broker.groups.steps.timers import JoinTimer, SyncTimer
from kvorum.metadata.image.image import ClusterImage
from kvorum.runtime.errors import ErrorCode

CLIENTS_ASSIGNORS = ("range", "roundrobin", "sticky", "cooperative-sticky")
"""Assignors that come with the clients. The sticky ones of librdkafka and others add user data,
which only tell the next leader the last assignment; an upgraded group has no leader. For other
assignors, the coordinator cannot tell how members use their data."""


def upgraded(
    classic: ClassicGroup, image: ClusterImage, config: GroupConfig
) -> ConsumerGroup | str:
    """The upgraded group, or the reason why the group cannot be upgraded. Changes nothing."""
    refusal = _refusal_of(classic, config)
    if refusal is not None:
        return refusal
    group = ConsumerGroup(classic.group_id)
    group.group_epoch = group.assignment_epoch = classic.generation_id
    for member in classic.members.values():
        metadata = _latest_metadata(classic, member)
        subscription = read_subscription(metadata)
        if subscription is None:
            return f"what its member {member.member_id} subscribes to does not parse"
        has = _held(classic, member, subscription, image)
        if isinstance(has, str):
            return has
        # Clients made these assignments: a partition that two members were given stays with the
        # first.
        has = frozenset(row for row in has if row not in group.holders)
        group.put(_converted(classic, member, subscription, has))
        group.targets[member.member_id] = has
    return group


def records(group: ConsumerGroup) -> list[CoordinatorRecord]:
    """All records to write for a group that has just been `upgraded`."""
    return list(_records(group))


def _records(group: ConsumerGroup) -> Iterator[CoordinatorRecord]:
    yield CoordinatorRecord(group_key(group.group_id), None)
    for member in group.members.values():
        yield group.metadata_record(member)
    yield group.epoch_record()
    for member_id in group.members:
        yield group.target_record(member_id)
    yield group.target_epoch_record()
    for member in group.members.values():
        yield group.current_record(member)


def end_classic(classic: ClassicGroup, step: StepEffects) -> None:
    """End the classic group: answer its parked requests and cancel its timers."""
    for member in classic.members.values():
        rebalance.end_requests(member, step, ErrorCode.REBALANCE_IN_PROGRESS)
        rebalance.cancel_session(classic, member, step)
    for member_id in list(classic.pending_members):
        # The client's first JoinGroup will make it a new member.
        rebalance.forget_pending(classic, member_id, step)
    step.cancel_timer(JoinTimer(classic.group_id))
    step.cancel_timer(SyncTimer(classic.group_id))


def _refusal_of(classic: ClassicGroup, config: GroupConfig) -> str | None:
    if not config.group_consumer_migration_policy.allows_upgrade:
        policy = config.group_consumer_migration_policy.value
        return f"it has members, and group.consumer.migration.policy is {policy}"
    if classic.members and not classic.is_consumer_group:
        return f"its members are no consumers, their protocol type is {classic.protocol_type!r}"
    size_max = config.group_consumer_max_size
    if len(classic.members) > size_max:
        return f"it has more than {size_max} members, which group.consumer.max.size allows"
    return None


def _latest_metadata(classic: ClassicGroup, member: Member) -> bytes:
    """The metadata for the assignor of this generation; members that joined later may not offer
    it."""
    return member.metadata_for(classic.protocol_name) or member.protocols[0].metadata


def _held(
    classic: ClassicGroup, member: Member, subscription: Subscription, image: ClusterImage
) -> Partitions | str:
    """The partitions that the member may be reading now; a str is the reason not to upgrade."""
    assignment = read_assignment(member.assignment)
    if assignment is None:
        return f"what its member {member.member_id} was assigned does not parse"
    if assignment.user_data and classic.protocol_name not in CLIENTS_ASSIGNORS:
        return (
            f"its member {member.member_id} uses an assignor of its own, which gives members data "
            "besides partitions; have all members use an assignor that comes with the client first"
        )
    if classic.state != ClassicGroupState.STABLE and not member.assignment:
        # An interrupted rebalance has cleared the assignments. A cooperative member has kept its
        # partitions all the same, and named them when it joined.
        return resolved(subscription.owned, image)
    return resolved(assignment.partitions, image)


def _converted(
    classic: ClassicGroup, member: Member, subscription: Subscription, has: Partitions
) -> ConsumerMember:
    return ConsumerMember(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        subscribed_topic_names=tuple(sorted(set(subscription.topics))),
        member_epoch=classic.generation_id,
        previous_member_epoch=classic.generation_id,
        assigned=has,
        classic=ClassicMember(
            session_timeout_ms=member.session_timeout_ms, protocols=member.protocols
        ),
    )
