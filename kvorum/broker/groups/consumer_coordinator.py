"""The groups of the consumer protocol of one shard: passes requests, timers and records to the
rules of a group. Pure.

This class shares `groups` with the shard: a group is of one type at a time. An empty group changes
its type freely. A group with members changes its type as group.consumer.migration.policy allows.
Its first member of the consumer protocol upgrades it (`migration.upgrade`). When its last such
member has gone, it is downgraded (`migration.downgrade`). Requests of classic members in between
are in `migration.coordinator`.
"""

from __future__ import annotations

from collections.abc import Mapping

from kvorum.broker.coordinator.model import (
    NOBODY,
    Client,
    CoordinatorRecord,
    ShardRequest,
    TopicsChanged,
)
from kvorum.broker.groups.book import AnyGroup, Groups
from kvorum.broker.groups.classic.group import ClassicGroup
from kvorum.broker.groups.consumer import describing, heartbeat, loading, membership
from kvorum.broker.groups.consumer.group import ConsumerGroup
from kvorum.broker.groups.consumer.member import JOIN_EPOCH
from kvorum.broker.groups.consumer.records import ConsumerKey
from kvorum.broker.groups.consumer.requests import (
    ConsumerGroupDescription,
    ConsumerHeartbeat,
    DescribeConsumerGroup,
)
from kvorum.broker.groups.consumer.targets import StepInputs
from kvorum.broker.groups.migration import downgrade, upgrade
from kvorum.broker.groups.steps.config import GroupConfig
from kvorum.broker.groups.steps.records import group_key
from kvorum.broker.groups.steps.step_effects import NO_CONFIGS, StepEffects
from kvorum.broker.groups.steps.timers import (
    ClassicRejoinTimer,
    ClassicSyncTimer,
    ConsumerRebalanceTimer,
    ConsumerSessionTimer,
)
from kvorum.metadata.image.image import ClusterImage
from kvorum.runtime.errors import ErrorCode, Rejected, required

Timer = ConsumerSessionTimer | ConsumerRebalanceTimer | ClassicRejoinTimer | ClassicSyncTimer


class ConsumerGroups:
    """The shard's groups of the consumer protocol. image: the metadata; None until the host gives
    it, right after the load."""

    __slots__ = ("_config", "groups", "image")

    def __init__(self, groups: Groups, config: GroupConfig) -> None:
        self.groups = groups
        self.image: ClusterImage | None = None
        self._config = config

    @property
    def group_configs(self) -> Mapping[tuple[int, str], Mapping[str, str]]:
        """The dynamic configs of groups in the metadata; empty before the first image."""
        return NO_CONFIGS if self.image is None else self.image.configs

    def find(self, group_id: str) -> ConsumerGroup | None:
        group = self.groups.get(group_id)
        return group if isinstance(group, ConsumerGroup) else None

    # --- the log -----------------------------------------------------------------------------

    def replay(self, key: ConsumerKey, value: bytes | None) -> None:
        """Apply one record of a consumer group. Raises CorruptData."""
        group = self.find(key.group_id)
        if value is not None:
            if group is None:
                group = self.groups[key.group_id] = ConsumerGroup(key.group_id)
            loading.replay(group, key, value)
        elif group is not None and not loading.replay_tombstone(group, key):
            del self.groups[key.group_id]

    def on_loaded(self, step: StepEffects) -> None:
        for group in self.groups.values():
            if isinstance(group, ConsumerGroup):
                membership.on_loaded(group, step)

    # --- events ------------------------------------------------------------------------------

    def on_topics(self, event: TopicsChanged) -> None:
        """Mark the groups whose topics may have changed; their next heartbeat looks the topics
        up."""
        self.image = event.image
        for group in self.groups.values():
            if isinstance(group, ConsumerGroup) and (
                group.expressions or not event.changed.isdisjoint(group.subscribed_topics())
            ):
                group.is_metadata_stale = True

    def heartbeat(self, event: ShardRequest, step: StepEffects) -> None:
        """Handle ConsumerGroupHeartbeat. The answer waits until the records of this and of earlier
        steps are replicated."""
        request: ConsumerHeartbeat = event.body
        step.answer_durably(event.token, self._answer(event, request, step))

    def _answer(self, event: ShardRequest, request: ConsumerHeartbeat, step: StepEffects) -> object:
        if self.image is None:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        refused = heartbeat.request_refusal(request, self._config.group_consumer_assignors)
        if refused is not None:
            return refused
        present = self.groups.get(request.group_id)
        inputs = self.inputs(step, event.client)
        if not isinstance(present, ConsumerGroup):
            return self._begin(event, present, inputs, step)
        if request.member_epoch not in heartbeat.LEAVING:
            answer = heartbeat.heartbeat(present, event, inputs, step)
            step.append_all(inputs.out)
            return answer
        epoch = present.group_epoch
        left = membership.leave(present, request, inputs, step)
        self.finish(present, epoch, inputs, step)
        return left

    def _begin(
        self,
        event: ShardRequest,
        present: AnyGroup | None,
        inputs: StepInputs,
        step: StepEffects,
    ) -> object:
        """Create the group for its first member of the consumer protocol, or upgrade the classic
        group of that id."""
        request: ConsumerHeartbeat = event.body
        if present is not None and not isinstance(present, ClassicGroup):
            return _not_found(request.group_id, is_there=True)
        if request.member_epoch != JOIN_EPOCH:
            return _not_found(request.group_id, is_there=present is not None)
        group = ConsumerGroup(request.group_id)
        records: list[CoordinatorRecord] = []
        if present is not None and not present.members:
            records = [CoordinatorRecord(group_key(request.group_id), None)]
        elif present is not None:
            found = upgrade.upgraded(present, inputs.image, self._config)
            if isinstance(found, str):
                return _not_upgraded(request.group_id, found)
            group, records = found, upgrade.records(found)
            if not step.fit_together(records):
                reason = "what is to be written of its members does not fit into one batch"
                return _not_upgraded(request.group_id, reason)
        answer = heartbeat.heartbeat(group, event, inputs, step)
        if isinstance(answer, Rejected):
            return answer
        self.groups[request.group_id] = group
        if present is not None and step.fit_together([*records, *inputs.out]):
            records, inputs.out[:] = [*records, *inputs.out], []
        if present is not None:
            step.append_together(records)
            upgrade.end_classic(present, step)
        step.append_all(inputs.out)
        for member_id in group.members:
            if member_id not in group.sessions:
                membership.extend_session(group, member_id, step)
        return answer

    def finish(
        self, group: ConsumerGroup, epoch: int, inputs: StepInputs, step: StepEffects
    ) -> None:
        """Append the records of a step. A group that the step left with classic members only is
        downgraded.

        epoch: the group epoch before the step.
        """
        if downgrade.is_due(group, self._config):
            classic = downgrade.downgraded(group, epoch, inputs.out, inputs.image, step)
            if classic is not None:
                self.groups[group.group_id] = classic
                return
        step.append_all(inputs.out)

    def describe(self, request: DescribeConsumerGroup) -> ConsumerGroupDescription | Rejected:
        group = self.find(request.group_id)
        if group is None:
            return _not_found(request.group_id, is_there=request.group_id in self.groups)
        return describing.describe(group, self._config.group_consumer_assignors)

    def on_timer(self, name: Timer, step: StepEffects) -> None:
        group = self.find(name.group_id)
        if group is None:
            return
        inputs, epoch = self.inputs(step), group.group_epoch
        match name:
            case ConsumerSessionTimer():
                membership.on_session_timer(group, name.member_id, inputs, step)
            case ConsumerRebalanceTimer():
                membership.on_rebalance_timer(group, name.member_id, inputs, step)
            case ClassicRejoinTimer() | ClassicSyncTimer():
                membership.on_classic_timer(group, name, inputs, step)
        self.finish(group, epoch, inputs, step)

    def end(self, group: ConsumerGroup, step: StepEffects) -> None:
        """Remove an empty group that was deleted, has expired, or becomes a classic group."""
        step.append_all(group.tombstones())
        del self.groups[group.group_id]

    def inputs(self, step: StepEffects, client: Client = NOBODY) -> StepInputs:
        return StepInputs(
            image=required(self.image, "a group is asked before the metadata was told"),
            now=step.now,
            assignors=self._config.group_consumer_assignors,
            assignment_interval_ms=step.assignment_interval_ms,
            out=[],
            may_describe=client.may_describe,
        )


def _not_found(group_id: str, *, is_there: bool) -> Rejected:
    what = "is not a consumer group" if is_there else "not found"
    return Rejected(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {what}.")


def _not_upgraded(group_id: str, reason: str) -> Rejected:
    text = f"Group {group_id} is a classic group and stays one: {reason}."
    return Rejected(ErrorCode.GROUP_ID_NOT_FOUND, text)
