"""The Streams groups of one shard: passes requests, timers and records to the rules of a group.
Pure.

This class shares `groups` with the shard: a group is of one type at a time. An empty classic group
becomes a Streams group with the first member of that protocol, and the other way round.
"""

from __future__ import annotations

from kvorum.broker.coordinator.model import CoordinatorRecord, ShardRequest, TopicsChanged
from kvorum.broker.groups.book import Groups
from kvorum.broker.groups.classic.group import ClassicGroup
from kvorum.broker.groups.steps.records import group_key
from kvorum.broker.groups.steps.step_effects import StepEffects
from kvorum.broker.groups.steps.timers import (
    StreamsInitialDelayTimer,
    StreamsRebalanceTimer,
    StreamsSessionTimer,
)
from kvorum.broker.groups.streams import describing, heartbeat, loading, membership
from kvorum.broker.groups.streams.checks import request_refusal
from kvorum.broker.groups.streams.group import StreamsGroup
from kvorum.broker.groups.streams.member import JOIN_EPOCH, LEAVE_EPOCH, STATIC_LEAVE_EPOCH
from kvorum.broker.groups.streams.records import StreamsKey
from kvorum.broker.groups.streams.requests import (
    DescribeStreamsGroup,
    StreamsGroupDescription,
    StreamsHeartbeat,
    UpdateTopologyDescription,
)
from kvorum.broker.groups.streams.targets import StreamsStep
from kvorum.metadata.image.image import ClusterImage
from kvorum.runtime.errors import ErrorCode, Rejected, required

REQUESTS = (StreamsHeartbeat, DescribeStreamsGroup, UpdateTopologyDescription)
TIMERS = (StreamsSessionTimer, StreamsRebalanceTimer, StreamsInitialDelayTimer)
Timer = StreamsSessionTimer | StreamsRebalanceTimer | StreamsInitialDelayTimer


class StreamsGroups:
    """The shard's Streams groups. image: the metadata; None until the host gives it, right after
    the load."""

    __slots__ = ("groups", "image")

    def __init__(self, groups: Groups) -> None:
        self.groups = groups
        self.image: ClusterImage | None = None

    def find(self, group_id: str) -> StreamsGroup | None:
        group = self.groups.get(group_id)
        return group if isinstance(group, StreamsGroup) else None

    # --- the log -----------------------------------------------------------------------------

    def replay(self, key: StreamsKey, value: bytes | None) -> None:
        """Apply one record of a Streams group. Raises CorruptData."""
        group = self.find(key.group_id)
        if value is not None:
            if group is None:
                group = self.groups[key.group_id] = StreamsGroup(key.group_id)
            loading.replay(group, key, value)
        elif group is not None and not loading.replay_tombstone(group, key):
            del self.groups[key.group_id]

    def on_loaded(self, effects: StepEffects) -> None:
        for group in self.groups.values():
            if isinstance(group, StreamsGroup):
                membership.on_loaded(group, effects)

    # --- events ------------------------------------------------------------------------------

    def on_topics(self, event: TopicsChanged) -> None:
        """Mark the groups whose topics may have changed; their next heartbeat looks the topics
        up."""
        self.image = event.image
        for group in self.groups.values():
            if isinstance(group, StreamsGroup) and not event.changed.isdisjoint(
                group.required_topics
            ):
                group.is_metadata_stale = True

    def on_request(self, event: ShardRequest, effects: StepEffects) -> None:
        """Handle one of REQUESTS. The answer waits until the records of this and of earlier steps
        are replicated."""
        body = event.body
        match body:
            case StreamsHeartbeat():
                answer: object = self._heartbeat(event, body, effects)
            case UpdateTopologyDescription():
                answer = self._update_description(body, effects)
            case _:
                answer = self._describe(body)
        effects.answer_durably(event.token, answer)

    def _heartbeat(
        self, event: ShardRequest, request: StreamsHeartbeat, effects: StepEffects
    ) -> object:
        if self.image is None:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        refused = request_refusal(request)
        if refused is not None:
            return refused
        present = self.groups.get(request.group_id)
        step = self._step(effects)
        if request.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
            if present is None:
                text = f"Group {request.group_id} not found."
                return Rejected(ErrorCode.GROUP_ID_NOT_FOUND, text)
            if not isinstance(present, StreamsGroup):
                return _not_found(request.group_id, is_there=True)
            answer: object = membership.leave(present, request, step)
            effects.append_all(step.out)
            return answer
        group, replaced = present, None
        if not isinstance(group, StreamsGroup):
            if request.member_epoch != JOIN_EPOCH or not _may_become_streams(group):
                return _not_found(request.group_id, is_there=group is not None)
            group, replaced = StreamsGroup(request.group_id), group
        answer = heartbeat.heartbeat(group, event, step)
        if isinstance(answer, Rejected):
            return answer
        if replaced is not None:
            effects.append(CoordinatorRecord(group_key(request.group_id), None))
        self.groups[request.group_id] = group
        effects.append_all(step.out)
        return answer

    def _describe(self, request: DescribeStreamsGroup) -> StreamsGroupDescription | Rejected:
        group = self.find(request.group_id)
        if group is None:
            return _not_found(request.group_id, is_there=request.group_id in self.groups)
        return describing.describe(group)

    def _update_description(
        self, request: UpdateTopologyDescription, effects: StepEffects
    ) -> Rejected | ErrorCode:
        group = self.find(request.group_id)
        if group is None:
            return _not_found(request.group_id, is_there=request.group_id in self.groups)
        step = self._step(effects)
        answer = describing.update_description(group, request, step)
        effects.append_all(step.out)
        return answer

    def on_timer(self, name: Timer, effects: StepEffects) -> None:
        group = self.find(name.group_id)
        if group is None:
            return
        step = self._step(effects)
        match name:
            case StreamsSessionTimer():
                membership.on_session_timer(group, name.member_id, step)
            case StreamsRebalanceTimer():
                membership.on_rebalance_timer(group, name.member_id, step)
            case StreamsInitialDelayTimer():
                heartbeat.on_initial_delay(group, step)
        effects.append_all(step.out)

    def end(self, group: StreamsGroup, effects: StepEffects) -> None:
        """Remove an empty group that was deleted, has expired, or becomes a classic group."""
        effects.append_all(group.tombstones())
        if group.has_initial_delay:
            effects.cancel_timer(StreamsInitialDelayTimer(group.group_id))
        del self.groups[group.group_id]

    def _step(self, effects: StepEffects) -> StreamsStep:
        image = required(self.image, "a Streams group is asked before the metadata was told")
        return StreamsStep(image=image, effects=effects)


def _may_become_streams(group: object) -> bool:
    """True if there is no group of that id, or an empty classic one."""
    return group is None or (isinstance(group, ClassicGroup) and not group.members)


def _not_found(group_id: str, *, is_there: bool) -> Rejected:
    text = f"Group {group_id} is not a streams group."
    return Rejected(
        ErrorCode.GROUP_ID_NOT_FOUND, text if is_there else f"Streams group {group_id} not found."
    )
