"""Downgrade: a group of the consumer protocol with classic members only becomes a classic group.
Pure.

The group epoch becomes the generation, which the members know as theirs. A rebalance starts at
once, because no member has the partitions of the last member of the consumer protocol. The record
of such a generation has no leader, so that a coordinator that loads it starts that rebalance too.
"""

from __future__ import annotations

from kvorum.broker.coordinator.model import CoordinatorRecord
from kvorum.broker.groups.classic import rebalance
from kvorum.broker.groups.classic.group import ClassicGroup
from kvorum.broker.groups.classic.member import Member
from kvorum.broker.groups.classic.subscription import CONSUMER_PROTOCOL_TYPE
from kvorum.broker.groups.consumer.group import ConsumerGroup
from kvorum.broker.groups.consumer.member import ConsumerMember
from kvorum.broker.groups.consumer.membership import forget_timers
from kvorum.broker.groups.migration.embedded import encode_assignment
from kvorum.broker.groups.steps.config import GroupConfig
from kvorum.broker.groups.steps.step_effects import StepEffects
from kvorum.metadata.image.image import ClusterImage
from kvorum.runtime.errors import required

_ASSIGNMENT_VERSION = 1
"""Version of the embedded assignment; all versions have the same format."""


def is_due(group: ConsumerGroup, config: GroupConfig) -> bool:
    """True if the group has only classic members, which can form a classic group."""
    if not config.group_consumer_migration_policy.allows_downgrade:
        return False
    if not 0 < len(group.members) <= config.group_max_size:
        return False
    offered = []
    for member in group.members.values():
        if member.classic is None:
            return False
        offered.append({protocol.name for protocol in member.classic.protocols})
    # A member from a log that another program wrote may have no assignor in common with the others.
    return bool(set.intersection(*offered))


def downgraded(
    group: ConsumerGroup,
    generation_id: int,
    written: list[CoordinatorRecord],
    image: ClusterImage,
    step: StepEffects,
) -> ClassicGroup | None:
    """The classic group that replaces `group`, with its rebalance started; None if its records do
        not fit.

    written: the records of this step so far; all records go into one batch.
    generation_id: the group epoch before this step, so that members in that epoch are told of a
        rebalance and not of an illegal generation.
    """
    classic = ClassicGroup.from_members(
        group.group_id,
        generation_id,
        [_converted(member, image) for member in group.members.values()],
        step.now.wall_ms,
    )
    records = [*written, *group.tombstones(), classic.record_without_leader()]
    if not step.fit_together(records):
        return None
    for member_id in group.members:
        forget_timers(group, member_id, step)
    step.append_together(records)
    for member in classic.members.values():
        rebalance.extend_session(classic, member, step)
    rebalance.prepare(classic, step)
    return classic


def _converted(member: ConsumerMember, image: ClusterImage) -> Member:
    classic = required(member.classic, f"member {member.member_id!r} is no classic one")
    return Member(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=classic.session_timeout_ms,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocols=classic.protocols,
        # Include the partitions to be revoked: the member may still read them, and no other member
        # has them.
        assignment=encode_assignment(member.held, image, _ASSIGNMENT_VERSION),
    )
