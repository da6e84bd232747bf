"""Passes requests of classic members in a group of the consumer protocol to their rules, and writes
the records. Pure.

The group is of the consumer protocol as long as it has a member of that protocol.
`consumer.coordinator` upgrades and downgrades it.
"""

from __future__ import annotations

from dataclasses import replace

from kvorum.broker.coordinator.model import ShardRequest
from kvorum.broker.groups.classic import joining as classic_joining
from kvorum.broker.groups.consumer.group import ConsumerGroup
from kvorum.broker.groups.consumer.targets import StepInputs
from kvorum.broker.groups.consumer_coordinator import ConsumerGroups
from kvorum.broker.groups.migration import downgrade, joining, membership
from kvorum.broker.groups.migration.joining import Joiner
from kvorum.broker.groups.steps.config import GroupConfig
from kvorum.broker.groups.steps.requests import (
    GroupHeartbeat,
    Joined,
    LeaveGroup,
    Left,
    Synced,
    SyncGroup,
)
from kvorum.broker.groups.steps.step_effects import StepEffects
from kvorum.runtime.errors import ErrorCode


class MixedGroups:
    """Groups that may have members of both protocols."""

    __slots__ = ("_config", "_consumer")

    def __init__(self, consumer: ConsumerGroups, config: GroupConfig) -> None:
        self._consumer = consumer
        self._config = config

    def join(self, group: ConsumerGroup, event: ShardRequest, step: StepEffects) -> None:
        """Handle JoinGroup. The answer waits until its records are replicated, because the member's
        next requests name its epoch."""
        if self._consumer.image is None:
            error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            step.answer(event.token, Joined(error=error, member_id=event.body.member_id))
            return
        inputs = self._consumer.inputs(step, event.client)
        joiner = joining.admitted(group, event, inputs, step)
        if isinstance(joiner, Joined):
            step.answer(event.token, joiner)
        elif not self._join_as_classic(group, joiner, event, inputs, step):
            joined = joining.join(group, joiner, inputs, step)
            step.append_all(inputs.out)
            step.answer_durably(event.token, joined)

    def _join_as_classic(
        self,
        group: ConsumerGroup,
        joiner: Joiner,
        event: ShardRequest,
        inputs: StepInputs,
        step: StepEffects,
    ) -> bool:
        """True if the joiner takes the place of the group's last member of the consumer protocol.
        The group is then downgraded first, and the joiner joins the classic group."""
        before = joiner.before
        if before.member_id not in group.members or before.classic is not None:
            return False
        group.put(replace(joiner.updated, member_id=before.member_id))
        if downgrade.is_due(group, self._config):
            epoch, image = group.group_epoch, inputs.image
            classic = downgrade.downgraded(group, epoch, inputs.out, image, step)
            if classic is not None:
                self._consumer.groups[group.group_id] = classic
                classic_joining.join(classic, event, step)
                return True
        group.put(before)
        return False

    def sync(
        self, group: ConsumerGroup, event: ShardRequest, body: SyncGroup, step: StepEffects
    ) -> None:
        """Handle SyncGroup. The answer waits for records, as a heartbeat of the consumer protocol
        does."""
        image = self._consumer.image
        if image is None:
            step.answer(event.token, Synced(error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        else:
            step.answer_durably(event.token, membership.sync(group, body, image, step))

    def heartbeat(self, group: ConsumerGroup, body: GroupHeartbeat, step: StepEffects) -> ErrorCode:
        image = self._consumer.image
        if image is None:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return membership.heartbeat(group, body, image, step)

    def leave(
        self, group: ConsumerGroup, event: ShardRequest, body: LeaveGroup, step: StepEffects
    ) -> None:
        if self._consumer.image is None:
            step.answer(event.token, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            return
        inputs, epoch = self._consumer.inputs(step), group.group_epoch
        rows = membership.leave(group, body, inputs, step)
        self._consumer.finish(group, epoch, inputs, step)
        step.answer(event.token, Left(members=rows))
