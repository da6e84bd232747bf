"""The share groups of one shard: passes requests, timers, records and answers of share coordinators
to the rules of a group. Pure.

Share groups have a book of their own: a group id of theirs is refused by the requests of other
types of groups, and the other way round.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from kvorum.broker.coordinator.model import Ask, CoordinatorRecord, ShardRequest, TopicsChanged
from kvorum.broker.groups.consumer.member import TopicPartition
from kvorum.broker.groups.share import heartbeat, loading
from kvorum.broker.groups.share.assignor import NAME as ASSIGNOR_NAME
from kvorum.broker.groups.share.group import PROTOCOL_TYPE, TYPE_NAME, ShareGroup
from kvorum.broker.groups.share.heartbeat import Step
from kvorum.broker.groups.share.records import ShareGroupKey
from kvorum.broker.groups.share.requests import (
    AlterShareOffsets,
    DeleteShareOffsets,
    DeleteStates,
    DescribeShareGroup,
    InitializeStates,
    ListShareStates,
    ShareGroupDescription,
    ShareHeartbeat,
    StatesAnswered,
    StatesChanged,
    StateToInitialize,
)
from kvorum.broker.groups.steps.requests import DeleteGroup, GroupListing
from kvorum.broker.groups.steps.step_effects import StepEffects
from kvorum.broker.groups.steps.timers import ShareSessionTimer
from kvorum.broker.metrics.share_counters import ShareMetrics
from kvorum.metadata.image.image import ClusterImage
from kvorum.runtime.errors import ErrorCode, Rejected, required

_Errors = Mapping[TopicPartition, Rejected | ErrorCode]

REQUESTS = (
    ShareHeartbeat,
    DescribeShareGroup,
    ListShareStates,
    AlterShareOffsets,
    DeleteShareOffsets,
)


class ShareGroups:
    """groups: by id. image: the metadata; None until the host gives it, right after the load."""

    __slots__ = ("_metrics", "_others", "groups", "image")

    def __init__(self, others: Collection[str], metrics: ShareMetrics) -> None:
        """others: ids of the groups of other types."""
        self._metrics = metrics
        self.groups: dict[str, ShareGroup] = {}
        self.image: ClusterImage | None = None
        self._others = others

    # --- the log -----------------------------------------------------------------------------

    def replay(self, key: ShareGroupKey, value: bytes | None) -> None:
        """Apply one record of a share group. Raises CorruptData."""
        group = self.groups.get(key.group_id)
        if value is not None:
            if group is None:
                group = self.groups[key.group_id] = ShareGroup(key.group_id)
            loading.replay(group, key, value)
        elif group is not None and not loading.replay_tombstone(group, key):
            del self.groups[key.group_id]

    def on_loaded(self, effects: StepEffects) -> None:
        for group in self.groups.values():
            # Nobody knows which of these states are deleted: they are made anew for a member that
            # subscribes, or deleted once more.
            group.states.doubt_deletions()
            for member_id in group.members:
                heartbeat.extend_session(group, member_id, effects)

    # --- events ------------------------------------------------------------------------------

    def on_topics(self, event: TopicsChanged, effects: StepEffects) -> None:
        """Mark the groups whose topics may have changed; forget the states of deleted topics, which
        the share coordinators delete by themselves."""
        before, self.image = self.image, event.image
        for group in self.groups.values():
            if not event.changed.isdisjoint(group.subscribed_topics()):
                group.is_metadata_stale = True
            gone = [
                topic_id
                for topic_id, name in group.states.names.items()
                if name in event.deleted and topic_id not in event.image.topics
            ]
            if gone and before is not None:
                for topic_id in gone:
                    group.states.forget_topic(topic_id)
                effects.append(group.states_record())

    def on_request(self, event: ShardRequest, effects: StepEffects) -> None:
        """Handle one of REQUESTS. Answers wait until the records of this and of earlier steps are
        replicated."""
        body = event.body
        match body:
            case ShareHeartbeat():
                effects.answer_durably(event.token, self._heartbeat(event, body, effects))
            case DescribeShareGroup():
                effects.answer_durably(event.token, self._describe(body))
            case ListShareStates():
                group = self._found(body.group_id)
                rows = (
                    group
                    if isinstance(group, Rejected)
                    else tuple(sorted(group.states.initialized))
                )
                effects.answer_durably(event.token, rows)
            case AlterShareOffsets():
                self._alter(event, body, effects)
            case DeleteShareOffsets():
                self._delete_offsets(event, body, effects)

    def _heartbeat(self, event: ShardRequest, body: ShareHeartbeat, effects: StepEffects) -> object:
        if self.image is None:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        refused = heartbeat.request_refusal(body)
        if refused is not None:
            return refused
        is_joining = body.member_epoch == heartbeat.JOIN_EPOCH
        group = self._found(body.group_id)
        if isinstance(group, Rejected):
            if not is_joining or body.group_id in self._others:
                return group
            group = ShareGroup(body.group_id)
        step, epoch = self._step(effects), group.group_epoch
        if body.member_epoch == heartbeat.LEAVE_EPOCH:
            answer = heartbeat.leave(group, body, step)
        else:
            answer = heartbeat.heartbeat(group, event, step)
            if group.group_epoch > epoch:
                self._metrics.note_rebalance(step.now_ms)
        if not isinstance(answer, Rejected):
            self.groups[body.group_id] = group
            _finish(step)
        return answer

    def _describe(self, body: DescribeShareGroup) -> ShareGroupDescription | Rejected:
        group = self._found(body.group_id)
        if isinstance(group, Rejected):
            return group
        return ShareGroupDescription(
            group_id=group.group_id,
            state=group.state,
            group_epoch=group.group_epoch,
            assignment_epoch=group.assignment_epoch,
            assignor_name=ASSIGNOR_NAME,
            members=tuple(group.members.values()),
        )

    def listings(self) -> list[GroupListing]:
        return [
            GroupListing(group.group_id, PROTOCOL_TYPE, group.state, TYPE_NAME)
            for group in self.groups.values()
        ]

    def on_timer(self, name: ShareSessionTimer, effects: StepEffects) -> None:
        group = self.groups.get(name.group_id)
        if group is not None:
            step = self._step(effects)
            heartbeat.on_session_timer(group, name.member_id, step)
            _finish(step)

    # --- offsets and the end of groups -------------------------------------------------------

    def _alter(self, event: ShardRequest, body: AlterShareOffsets, effects: StepEffects) -> None:
        group = self._emptied(body.group_id)
        if isinstance(group, Rejected):
            if body.group_id in self.groups or body.group_id in self._others:
                effects.answer_durably(event.token, group)
                return
            # As in Kafka: an administrator may say where a group is to begin.
            group = self.groups[body.group_id] = ShareGroup(body.group_id)
        # A new epoch of the group is the new epoch of the states: leaders that hold the old ones
        # are fenced.
        step = self._step(effects)
        heartbeat.bump_epoch(group, step, has_changed=True)
        states = group.states
        states.names.update({row.topic_id: row.topic for row in body.offsets})
        # Not those that have a state: were they initializing and this alteration failed, the next
        # heartbeat would make them anew, without their start offset.
        states.initializing |= {
            (row.topic_id, row.partition) for row in body.offsets
        } - states.initialized
        step.out.append(group.states_record())
        step.questions.append(
            InitializeStates(
                group_id=group.group_id,
                state_epoch=group.group_epoch,
                rows=tuple(
                    StateToInitialize(row.topic_id, row.partition, row.start_offset)
                    for row in body.offsets
                ),
                token=event.token,
            )
        )
        _finish(step)

    def _delete_offsets(
        self, event: ShardRequest, body: DeleteShareOffsets, effects: StepEffects
    ) -> None:
        group = self._emptied(body.group_id)
        if isinstance(group, Rejected):
            effects.answer_durably(event.token, group)
            return
        named = set(body.topic_ids)
        rows = sorted(row for row in group.states.all_rows if row[0] in named)
        if not rows:
            effects.answer_durably(event.token, StatesChanged(errors={}))
            return
        self._ask_to_delete(group, rows, event.token, effects, ends_group=False)

    def delete(self, event: ShardRequest, body: DeleteGroup, effects: StepEffects) -> None:
        """Delete a group without members: first its states, then the group."""
        group = self._emptied(body.group_id)
        if isinstance(group, Rejected):
            effects.answer(event.token, group.code)
            return
        rows = sorted(group.states.all_rows)
        if rows:
            self._ask_to_delete(group, rows, event.token, effects, ends_group=True)
        else:
            self._end(group, effects)
            effects.answer_durably(event.token, ErrorCode.NONE)

    def _ask_to_delete(
        self,
        group: ShareGroup,
        rows: list[TopicPartition],
        token: int,
        effects: StepEffects,
        *,
        ends_group: bool,
    ) -> None:
        group.states.deleting.update({topic_id for topic_id, _ in rows})
        effects.append(group.states_record())
        question = DeleteStates(
            group_id=group.group_id, partitions=tuple(rows), token=token, ends_group=ends_group
        )
        effects.effects.append(Ask(question=question))

    def on_answered(self, fact: StatesAnswered, effects: StepEffects) -> None:
        """The share coordinators have made or deleted states."""
        group = self.groups.get(fact.question.group_id)
        if isinstance(fact.question, DeleteStates):
            self._on_deleted(group, fact.question, fact.errors, effects)
            return
        if group is not None:
            states = group.states
            done = {row for row, error in fact.errors.items() if error == ErrorCode.NONE}
            done &= states.initializing
            if done:
                states.initializing -= done
                states.initialized |= done
                step = self._step(effects)
                step.out.append(group.states_record())
                heartbeat.bump_epoch(group, step, has_changed=False)
                _finish(step)
        if fact.question.token is not None:
            effects.answer_durably(fact.question.token, StatesChanged(errors=dict(fact.errors)))

    def _on_deleted(
        self,
        group: ShareGroup | None,
        question: DeleteStates,
        errors: _Errors,
        effects: StepEffects,
    ) -> None:
        failed = next((error for error in errors.values() if error != ErrorCode.NONE), None)
        if group is not None and question.ends_group and failed is None and not group.members:
            self._end(group, effects)
        elif group is not None:
            # A share-partition whose state stays can be deleted again. One that is subscribed to
            # gets a state anew, as it does if a member has joined the group meanwhile.
            gone = [row for row, error in errors.items() if error == ErrorCode.NONE]
            group.states.forget(gone)
            group.states.deleting -= {topic_id for topic_id, _ in question.partitions}
            group.is_metadata_stale = True
            effects.append(group.states_record())
            if failed is None:
                failed = ErrorCode.NON_EMPTY_GROUP
        if question.ends_group:
            code = failed.code if isinstance(failed, Rejected) else failed
            effects.answer_durably(question.token, code or ErrorCode.NONE)
        else:
            effects.answer_durably(question.token, StatesChanged(errors=dict(errors)))

    def _end(self, group: ShareGroup, effects: StepEffects) -> None:
        effects.append_all(group.tombstones())
        del self.groups[group.group_id]

    # --- parts -------------------------------------------------------------------------------

    def _found(self, group_id: str) -> ShareGroup | Rejected:
        group = self.groups.get(group_id)
        if group is not None:
            return group
        what = "is not a share group" if group_id in self._others else "not found"
        return Rejected(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {what}.")

    def _emptied(self, group_id: str) -> ShareGroup | Rejected:
        group = self._found(group_id)
        if isinstance(group, ShareGroup) and group.members:
            return Rejected(ErrorCode.NON_EMPTY_GROUP, f"Group {group_id} is not empty.")
        return group

    def _step(self, effects: StepEffects) -> Step:
        image = required(self.image, "a share group is asked before the metadata was told")
        return Step(image=image, effects=effects)


def _finish(step: Step) -> None:
    """Write the records of a step, then ask its questions."""
    records: list[CoordinatorRecord] = step.out
    step.effects.append_all(records)
    step.effects.effects.extend(Ask(question=question) for question in step.questions)
