"""A member that is accepted, and what follows: its place, a new epoch, a new target. Pure.

Common to members of both protocols. Nothing here refuses; records go behind `Setting.out`.
"""

from __future__ import annotations

from dataclasses import replace

from kvorum.broker.groups.consumer.group import ConsumerGroup
from kvorum.broker.groups.consumer.member import JOIN_EPOCH, NO_PARTITIONS, ConsumerMember
from kvorum.broker.groups.consumer.membership import forget_timers
from kvorum.broker.groups.consumer.states import MemberState
from kvorum.broker.groups.consumer.targets import Setting, bump_epoch, refresh, update_target
from kvorum.broker.groups.step_effects import StepEffects


def back(before: ConsumerMember) -> ConsumerMember:
    """A static member whose client has started again: at epoch 0, with its assignment. It has given
    up what it was told to give up, because the old client is gone."""
    return replace(
        before,
        member_epoch=JOIN_EPOCH,
        previous_member_epoch=JOIN_EPOCH,
        state=MemberState.STABLE,
        pending_revocation=NO_PARTITIONS,
    )


def enter(
    group: ConsumerGroup,
    before: ConsumerMember,
    told: ConsumerMember,
    setting: Setting,
    step: StepEffects,
) -> None:
    """Into the group, or in the place of the static member that it was.

    What it has is written when it is reconciled: from epoch 0 on that is always a change."""
    if before.member_id != told.member_id:
        target = group.target(before.member_id)
        setting.out.extend(group.member_tombstones(before.member_id))
        group.remove(before.member_id)
        forget_timers(group, before.member_id, step)
        group.put(told)
        group.targets[told.member_id] = target
        setting.out.append(group.metadata_record(told))
        setting.out.append(group.target_record(told.member_id))
        return
    is_new_or_says_more = says_more(group, before, told)
    if (before.classic is None) != (told.classic is None) and told.member_id in group.members:
        # The timers of the two protocols differ.
        forget_timers(group, told.member_id, step)
    if is_new_or_says_more or told != before:
        group.put(told)
    if is_new_or_says_more:
        setting.out.append(group.metadata_record(told))


def says_more(group: ConsumerGroup, before: ConsumerMember, told: ConsumerMember) -> bool:
    """True if the record of the member's metadata must be written."""
    return told.member_id not in group.members or _said(before) != _said(told)


def _said(member: ConsumerMember) -> tuple[object, ...]:
    """The fields of the record of a member's metadata."""
    return (
        member.instance_id,
        member.rack_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        member.subscribed_topic_names,
        member.subscribed_topic_regex,
        member.server_assignor,
        member.classic,
    )


def update_epochs(
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
