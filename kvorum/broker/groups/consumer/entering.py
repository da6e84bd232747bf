"""An accepted join or heartbeat: the member enters the group, and the group gets a new epoch and
target if needed. Pure.

Members of both protocols use it. Nothing here refuses; records are appended to `StepInputs.out`.
"""

from __future__ import annotations

from dataclasses import replace

from kvorum.broker.groups.consumer.group import ConsumerGroup
from kvorum.broker.groups.consumer.member import JOIN_EPOCH, NO_PARTITIONS, ConsumerMember
from kvorum.broker.groups.consumer.membership import forget_timers
from kvorum.broker.groups.consumer.states import MemberState
from kvorum.broker.groups.consumer.targets import StepInputs, bump_epoch, refresh, update_target
from kvorum.broker.groups.steps.step_effects import StepEffects


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
    updated: ConsumerMember,
    inputs: StepInputs,
    step: StepEffects,
) -> None:
    """Put member `updated` into the group, or in the place of static member `before`.

    The caller writes the member's assignment when it reconciles it: from epoch 0, reconciling
    always changes the member.
    """
    if before.member_id != updated.member_id:
        target = group.target(before.member_id)
        inputs.out.extend(group.member_tombstones(before.member_id))
        group.remove(before.member_id)
        forget_timers(group, before.member_id, step)
        group.put(updated)
        group.targets[updated.member_id] = target
        inputs.out.append(group.metadata_record(updated))
        inputs.out.append(group.target_record(updated.member_id))
        return
    is_new_or_says_more = metadata_changed(group, before, updated)
    if (before.classic is None) != (updated.classic is None) and updated.member_id in group.members:
        # Members of the two protocols have different timers.
        forget_timers(group, updated.member_id, step)
    if is_new_or_says_more or updated != before:
        group.put(updated)
    if is_new_or_says_more:
        inputs.out.append(group.metadata_record(updated))


def metadata_changed(group: ConsumerGroup, before: ConsumerMember, updated: ConsumerMember) -> bool:
    """True if the member's metadata record must be written."""
    return updated.member_id not in group.members or _metadata_fields(before) != _metadata_fields(
        updated
    )


def _metadata_fields(member: ConsumerMember) -> tuple[object, ...]:
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
    group: ConsumerGroup, before: ConsumerMember, updated: ConsumerMember, inputs: StepInputs
) -> None:
    """Start a new group epoch and make a new target, if this heartbeat or the metadata requires
    it."""
    is_new = updated.member_id not in group.targets and updated.member_epoch == JOIN_EPOCH
    has_changed = is_new or (
        (before.subscribed_topic_names, before.subscribed_topic_regex)
        != (updated.subscribed_topic_names, updated.subscribed_topic_regex)
    )
    if has_changed or group.is_metadata_stale:
        refresh(group, inputs)
        bump_epoch(group, inputs, has_changed=has_changed)
    update_target(group, inputs)
