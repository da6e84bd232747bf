"""An accepted join or heartbeat: the member enters the group, and the group gets a new epoch and
target if needed. Pure.

Members of both protocols use it. Nothing here refuses; records are appended to `Setting.out`.
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
    """The static member whose client has restarted: at epoch 0, with its assignment. Its pending
    revocations are done, because the old client is gone."""
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
    """Put member `told` into the group, or in the place of static member `before`.

    The caller writes the member's assignment when it reconciles it: from epoch 0, reconciling
    always changes the member.
    """
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
        # Members of the two protocols have different timers.
        forget_timers(group, told.member_id, step)
    if is_new_or_says_more or told != before:
        group.put(told)
    if is_new_or_says_more:
        setting.out.append(group.metadata_record(told))


def says_more(group: ConsumerGroup, before: ConsumerMember, told: ConsumerMember) -> bool:
    """True if the member's metadata record must be written."""
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
    """Start a new group epoch and make a new target, if this heartbeat or the metadata requires
    it."""
    is_new = told.member_id not in group.targets and told.member_epoch == JOIN_EPOCH
    has_changed = is_new or (
        (before.subscribed_topic_names, before.subscribed_topic_regex)
        != (told.subscribed_topic_names, told.subscribed_topic_regex)
    )
    if has_changed or group.is_metadata_stale:
        refresh(group, setting)
        bump_epoch(group, setting, has_changed=has_changed)
    update_target(group, setting)
