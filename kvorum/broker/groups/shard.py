"""The groups of one partition of `__consumer_offsets`. Pure; see `coordinator.model.Shard`.

  ShardRequest -> the group's rules (classic/, consumer/, migration/, streams/), its offsets
          (offset_store)
          -> records, answers, timers

An answer that a fail-over could undo waits until its records are replicated: an assignment, a
commit, a fetched offset.

Heartbeats, refusals and joins of the classic protocol rely on no record and are sent at once. After
a fail-over the last written generation counts again. A member of a later generation gets
ILLEGAL_GENERATION and joins again.

Heartbeats of the consumer protocol and of Streams groups rely on records. So do joins and syncs of
classic members in a group of the consumer protocol.
"""

from __future__ import annotations

from random import Random
from typing import assert_never

from kvorum.broker.coordinator.model import (
    Appended,
    CoordinatorRecord,
    Durable,
    Effect,
    Event,
    FactLearned,
    Instant,
    ReplayedRecord,
    ShardRequest,
    TimerFired,
    TopicsChanged,
    TransactionEnd,
    TransactionEnded,
)
from kvorum.broker.groups import share_coordinator, streams_coordinator
from kvorum.broker.groups.book import AnyGroup, Groups
from kvorum.broker.groups.classic import joining, membership, rebalance, syncing
from kvorum.broker.groups.classic.group import ClassicGroup
from kvorum.broker.groups.classic.states import ClassicGroupState
from kvorum.broker.groups.committing import commit_refusal
from kvorum.broker.groups.consumer import committing as consumer_committing
from kvorum.broker.groups.consumer import records as consumer_records
from kvorum.broker.groups.consumer.group import ConsumerGroup
from kvorum.broker.groups.consumer.requests import ConsumerHeartbeat, DescribeConsumerGroup
from kvorum.broker.groups.consumer_coordinator import ConsumerGroups
from kvorum.broker.groups.describing import describe, listings
from kvorum.broker.groups.expiry import expired_offsets
from kvorum.broker.groups.migration_coordinator import MixedGroups
from kvorum.broker.groups.offset_store import OffsetStore
from kvorum.broker.groups.share import records as share_records
from kvorum.broker.groups.share.requests import StatesAnswered
from kvorum.broker.groups.share_coordinator import ShareGroups
from kvorum.broker.groups.steps.config import GroupConfig
from kvorum.broker.groups.steps.records import (
    GroupKey,
    OffsetKey,
    UnknownKey,
    decode_group,
    decode_key,
    group_key,
)
from kvorum.broker.groups.steps.requests import (
    CommitOffsets,
    CommitTransactionOffsets,
    DeletedTopicOffsets,
    DeleteGroup,
    DeleteOffsets,
    DescribeGroup,
    FetchOffsets,
    GroupHeartbeat,
    Joined,
    JoinGroup,
    LeaveGroup,
    Left,
    LeftMember,
    ListGroups,
    OffsetsDeleted,
    Synced,
    SyncGroup,
)
from kvorum.broker.groups.steps.step_effects import StepEffects
from kvorum.broker.groups.steps.timers import (
    ClassicRejoinTimer,
    ClassicSyncTimer,
    ConsumerRebalanceTimer,
    ConsumerSessionTimer,
    ExpiryTimer,
    JoinTimer,
    PendingMemberTimer,
    SessionTimer,
    ShareSessionTimer,
    SyncTimer,
)
from kvorum.broker.groups.streams import committing as streams_committing
from kvorum.broker.groups.streams import records as streams_records
from kvorum.broker.groups.streams.group import StreamsGroup
from kvorum.broker.groups.streams.requests import (
    DescribeStreamsGroup,
    StreamsHeartbeat,
    UpdateTopologyDescription,
)
from kvorum.broker.groups.streams_coordinator import StreamsGroups
from kvorum.broker.metrics.share_counters import ShareMetrics
from kvorum.runtime.errors import ErrorCode, InvariantViolated, Rejected


class GroupShard:
    """groups: by id.
    consumer: the rules of groups of the consumer protocol.
    mixed: the rules of classic members in such groups.
    share: the share groups, which are not in `groups`.
    streams: the rules of Streams groups.
    offsets: of all groups.
    unknown_records: number of records skipped while loading, by record type.
    """

    def __init__(
        self, config: GroupConfig, rng: Random, metrics: ShareMetrics | None = None
    ) -> None:
        """rng: source of member ids. metrics: of the broker's share groups."""
        self.config = config
        self.groups: Groups = {}
        self.consumer = ConsumerGroups(self.groups, config)
        self.mixed = MixedGroups(self.consumer, config)
        self.share = ShareGroups(self.groups, metrics or ShareMetrics())
        self.streams = StreamsGroups(self.groups)
        self.offsets = OffsetStore()
        self.unknown_records: dict[int, int] = {}
        self._rng = rng

    # --- loading -----------------------------------------------------------------------------

    def replay(self, record: ReplayedRecord) -> None:
        key = decode_key(record.key)
        match key:
            case OffsetKey():
                self.offsets.replay(key, record)
                if record.value is not None and key.group_id not in self.groups:
                    self.groups[key.group_id] = ClassicGroup(key.group_id)
            case GroupKey():
                self._replay_group(key.group_id, record.value)
            case UnknownKey() if (found := consumer_records.decode_key(record.key)) is not None:
                self.consumer.replay(found, record.value)
            case UnknownKey() if (shared := share_records.decode_key(record.key)) is not None:
                self.share.replay(shared, record.value)
            case UnknownKey() if (streamed := streams_records.decode_key(record.key)) is not None:
                self.streams.replay(streamed, record.value)
            case UnknownKey():
                # A type of group that this version does not know. Its records stay in the log for a
                # version that does.
                count = self.unknown_records.get(key.record_type, 0)
                self.unknown_records[key.record_type] = count + 1
            case _:
                assert_never(key)

    def _replay_group(self, group_id: str, value: bytes | None) -> None:
        if value is None:
            # This tombstone removes classic groups only: each type of group has keys of its own.
            if self._classic(group_id) is not None:
                del self.groups[group_id]
        else:
            self.groups[group_id] = ClassicGroup.from_value(group_id, decode_group(value))

    def replay_end(self, end: TransactionEnd) -> None:
        self.offsets.end_transaction(end)

    def on_loaded(self, now: Instant) -> list[Effect]:
        step = StepEffects(self.config, self._rng, now, self.consumer.group_configs)
        # A group with offsets exists, even if its own record is gone or its offsets were read
        # first.
        for group_id in self.offsets.books:
            self.groups.setdefault(group_id, ClassicGroup(group_id))
        for group in self.groups.values():
            if isinstance(group, ClassicGroup):
                membership.on_loaded(group, step)
        self.consumer.on_loaded(step)
        self.share.on_loaded(step)
        self.streams.on_loaded(step)
        self._set_expiry_timer(step)
        return step.effects

    # --- events ------------------------------------------------------------------------------

    def step(self, event: Event, now: Instant) -> list[Effect]:
        step = StepEffects(self.config, self._rng, now, self.consumer.group_configs)
        match event:
            case ShardRequest():
                self._on_request(event, step)
            case TimerFired():
                self._on_timer(event, step)
            case TransactionEnded():
                self.offsets.end_transaction(event.end)
            case TopicsChanged():
                self.consumer.on_topics(event)
                self.share.on_topics(event, step)
                self.streams.on_topics(event)
                for group_id, keys in list(self.offsets.of_topics(event.deleted)):
                    self.offsets.delete(group_id, keys, step)
            case FactLearned(fact=StatesAnswered() as fact):
                self.share.on_answered(fact, step)
            case Durable() | FactLearned() | Appended():
                raise InvariantViolated(f"a group's shard asked for no {event!r}")
            case _:
                assert_never(event)
        return step.effects

    def _on_request(self, event: ShardRequest, step: StepEffects) -> None:
        body = event.body
        if isinstance(body, share_coordinator.REQUESTS):
            self.share.on_request(event, step)
            return
        if getattr(body, "group_id", None) in self.share.groups:
            self._on_request_of_share_group(event, step)
            return
        if isinstance(body, streams_coordinator.REQUESTS):
            self.streams.on_request(event, step)
            return
        match body:
            case CommitOffsets():
                self._commit(event, body, step)
            case GroupHeartbeat():
                self._heartbeat(event, body, step)
            case JoinGroup():
                self._join(event, body, step)
            case SyncGroup():
                self._sync(event, body, step)
            case LeaveGroup():
                self._leave(event, body, step)
            case ConsumerHeartbeat():
                self.consumer.heartbeat(event, step)
            case DescribeConsumerGroup():
                step.answer_durably(event.token, self.consumer.describe(body))
            case FetchOffsets():
                self._fetch(event, body, step)
            case CommitTransactionOffsets():
                self._commit_in_transaction(event, body, step)
            case DeleteOffsets():
                self._delete_offsets(event, body, step)
            case DescribeGroup():
                group = self._classic(body.group_id)
                found = ErrorCode.GROUP_ID_NOT_FOUND if group is None else describe(group)
                step.answer_durably(event.token, found)
            case ListGroups():
                rows = listings(self.groups.values(), self.share.listings(), body)
                step.answer_durably(event.token, rows)
            case DeleteGroup():
                self._delete_group(event, body, step)
            case _:
                raise InvariantViolated(f"a group's shard was asked {body!r}")

    def _on_request_of_share_group(self, event: ShardRequest, step: StepEffects) -> None:
        """Handle a request of another type of group that names a share group, as Kafka does."""
        body = event.body
        not_found = ErrorCode.GROUP_ID_NOT_FOUND
        match body:
            case DeleteGroup():
                self.share.delete(event, body, step)
            case JoinGroup():
                error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
                step.answer(event.token, Joined(error=error, member_id=body.member_id))
            case SyncGroup():
                step.answer(event.token, Synced(error=ErrorCode.UNKNOWN_MEMBER_ID))
            case GroupHeartbeat():
                step.answer(event.token, ErrorCode.UNKNOWN_MEMBER_ID)
            case LeaveGroup():
                rows = tuple(
                    LeftMember(m.member_id, m.group_instance_id, ErrorCode.UNKNOWN_MEMBER_ID)
                    for m in body.members
                )
                step.answer(event.token, Left(members=rows))
            case ConsumerHeartbeat() | DescribeConsumerGroup():
                text = f"Group {body.group_id} is not a consumer group."
                step.answer_durably(event.token, Rejected(not_found, text))
            case StreamsHeartbeat() | DescribeStreamsGroup() | UpdateTopologyDescription():
                text = f"Group {body.group_id} is not a streams group."
                step.answer_durably(event.token, Rejected(not_found, text))
            case FetchOffsets():
                self._fetch(event, body, step)
            case _:
                step.answer(event.token, not_found)

    # --- membership --------------------------------------------------------------------------

    def _join(self, event: ShardRequest, body: JoinGroup, step: StepEffects) -> None:
        error = joining.refusal_of(body, event.client.id, step)
        group = self.groups.get(body.group_id)
        emptied: ConsumerGroup | StreamsGroup | None = None
        if isinstance(group, ConsumerGroup):
            if error == ErrorCode.NONE and not group.is_empty:
                self.mixed.join(group, event, step)
                return
            emptied, group = group, None
        elif isinstance(group, StreamsGroup):
            if error == ErrorCode.NONE and not group.is_empty:
                error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
                step.answer(event.token, Joined(error=error))
                return
            emptied, group = group, None
        if error == ErrorCode.NONE and group is None and body.member_id:
            # The group does not exist, so it has no member of that id.
            error = ErrorCode.UNKNOWN_MEMBER_ID
        if error != ErrorCode.NONE:
            step.answer(event.token, Joined(error=error, member_id=body.member_id))
            return
        if group is not None:
            joining.join(group, event, step)
            return
        group = ClassicGroup(body.group_id, step.now.wall_ms)
        joining.join(group, event, step)
        if group.members or group.pending_members:
            if isinstance(emptied, ConsumerGroup):
                self.consumer.end(emptied, step)
            elif emptied is not None:
                self.streams.end(emptied, step)
            self.groups[body.group_id] = group
            step.append(self._empty_record(body.group_id, step))

    @staticmethod
    def _empty_record(group_id: str, step: StepEffects) -> CoordinatorRecord:
        """The record of a group before its first generation."""
        return ClassicGroup(group_id, step.now.wall_ms).record()

    def _classic(self, group_id: str) -> ClassicGroup | None:
        group = self.groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    def _sync(self, event: ShardRequest, body: SyncGroup, step: StepEffects) -> None:
        group = self.groups.get(body.group_id)
        if group is None or isinstance(group, StreamsGroup):
            step.answer(event.token, Synced(error=ErrorCode.UNKNOWN_MEMBER_ID))
        elif isinstance(group, ConsumerGroup):
            self.mixed.sync(group, event, body, step)
        else:
            syncing.sync(group, event, step)

    def _heartbeat(self, event: ShardRequest, body: GroupHeartbeat, step: StepEffects) -> None:
        group = self.groups.get(body.group_id)
        error = ErrorCode.UNKNOWN_MEMBER_ID
        if isinstance(group, ConsumerGroup):
            error = self.mixed.heartbeat(group, body, step)
        elif isinstance(group, ClassicGroup):
            error = membership.heartbeat(group, body, step)
        step.answer(event.token, error)

    def _leave(self, event: ShardRequest, body: LeaveGroup, step: StepEffects) -> None:
        group = self.groups.get(body.group_id)
        if isinstance(group, ConsumerGroup):
            self.mixed.leave(group, event, body, step)
            return
        if group is None or isinstance(group, StreamsGroup):
            rows = tuple(
                LeftMember(m.member_id, m.group_instance_id, ErrorCode.UNKNOWN_MEMBER_ID)
                for m in body.members
            )
        else:
            rows = membership.leave(group, body, step)
        step.answer(event.token, Left(members=rows))

    # --- offsets -----------------------------------------------------------------------------

    def _commit(self, event: ShardRequest, body: CommitOffsets, step: StepEffects) -> None:
        group = self.groups.get(body.group_id)
        if group is None:
            if body.generation_id >= 0:
                knows = body.knows_missing_group
                error = ErrorCode.GROUP_ID_NOT_FOUND if knows else ErrorCode.ILLEGAL_GENERATION
                step.answer(event.token, error)
                return
            group = self._simple_group(body.group_id, step)
        error = _commit_refusal(group, body)
        if error != ErrorCode.NONE:
            step.answer(event.token, error)
            return
        if isinstance(group, ClassicGroup):
            member = group.members.get(body.member_id)
            if member is not None:
                rebalance.extend_session(group, member, step)
        step.answer_durably(event.token, self.offsets.commit(body, step))

    def _commit_in_transaction(
        self, event: ShardRequest, body: CommitTransactionOffsets, step: StepEffects
    ) -> None:
        group = self.groups.get(body.group_id)
        if group is None:
            if body.generation_id >= 0:
                knows = body.knows_missing_group
                error = ErrorCode.GROUP_ID_NOT_FOUND if knows else ErrorCode.ILLEGAL_GENERATION
                step.answer(event.token, error)
                return
            group = self._simple_group(body.group_id, step)
        error = _commit_refusal(group, body)
        if error == ErrorCode.NONE and self.offsets.is_fenced(body):
            error = ErrorCode.INVALID_PRODUCER_EPOCH
        if error != ErrorCode.NONE:
            step.answer(event.token, error)
            return
        step.answer_durably(event.token, self.offsets.commit_in_transaction(body, step))

    def _fetch(self, event: ShardRequest, body: FetchOffsets, step: StepEffects) -> None:
        group = self.groups.get(body.group_id)
        error = ErrorCode.NONE
        if isinstance(group, ConsumerGroup):
            error = consumer_committing.fetch_refusal(group, body)
        elif isinstance(group, StreamsGroup):
            error = streams_committing.fetch_refusal(group, body)
        fetched = self.offsets.fetch(body) if error == ErrorCode.NONE else error
        step.answer_durably(event.token, fetched)

    def _simple_group(self, group_id: str, step: StepEffects) -> ClassicGroup:
        """A group that only has offsets. Such a group has no record of its own; its offsets show
        that it exists."""
        group = self.groups[group_id] = ClassicGroup(group_id, step.now.wall_ms)
        return group

    def _delete_offsets(self, event: ShardRequest, body: DeleteOffsets, step: StepEffects) -> None:
        group = self.groups.get(body.group_id)
        if group is None:
            step.answer(event.token, ErrorCode.GROUP_ID_NOT_FOUND)
            return
        is_known = not isinstance(group, ClassicGroup) or group.is_consumer_group
        if not group.is_empty and not is_known:
            # The coordinator cannot tell which topics these members use.
            step.answer(event.token, ErrorCode.NON_EMPTY_GROUP)
            return
        rows = []
        for topic, partitions in body.topics:
            if not group.is_empty and group.is_subscribed_to(topic):
                error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            else:
                error = ErrorCode.NONE
                self.offsets.delete(body.group_id, [(topic, p) for p in partitions], step)
            rows.append(DeletedTopicOffsets(topic, partitions, error))
        step.answer_durably(event.token, OffsetsDeleted(tuple(rows)))

    # --- the end of groups -------------------------------------------------------------------

    def _delete_group(self, event: ShardRequest, body: DeleteGroup, step: StepEffects) -> None:
        group = self.groups.get(body.group_id)
        if group is None:
            step.answer(event.token, ErrorCode.GROUP_ID_NOT_FOUND)
        elif not group.is_empty:
            step.answer(event.token, ErrorCode.NON_EMPTY_GROUP)
        else:
            self._end_group(group, step)
            step.answer_durably(event.token, ErrorCode.NONE)

    def _end_group(self, group: AnyGroup, step: StepEffects) -> None:
        if not isinstance(group, ClassicGroup):
            self.offsets.delete_all(group.group_id, step)
            if isinstance(group, ConsumerGroup):
                self.consumer.end(group, step)
            else:
                self.streams.end(group, step)
            return
        for member_id in list(group.pending_members):
            rebalance.forget_pending(group, member_id, step)
        group.transition_to(ClassicGroupState.DEAD, step.now.wall_ms)
        self.offsets.delete_all(group.group_id, step)
        step.append(CoordinatorRecord(group_key(group.group_id), None))
        del self.groups[group.group_id]

    def _expire_offsets(self, step: StepEffects) -> None:
        retention_ms = self.config.offsets_retention_ms
        for group in list(self.groups.values()):
            group_id = group.group_id
            book = self.offsets.book(group_id)
            over = expired_offsets(group, book, step.now.wall_ms, retention_ms)
            self.offsets.delete(group_id, over, step)
            is_over = group.is_empty
            if isinstance(group, ClassicGroup) and group.pending_members:
                is_over = False
            if is_over and self.offsets.book(group_id).is_blank:
                self._end_group(group, step)

    def _set_expiry_timer(self, step: StepEffects) -> None:
        step.set_timer(ExpiryTimer(), self.config.offsets_retention_check_interval_ms)

    # --- timers ------------------------------------------------------------------------------

    def _on_timer(self, event: TimerFired, step: StepEffects) -> None:
        name = event.name
        if isinstance(name, ExpiryTimer):
            self._expire_offsets(step)
            self._set_expiry_timer(step)
            return
        if isinstance(
            name,
            (ConsumerSessionTimer, ConsumerRebalanceTimer, ClassicRejoinTimer, ClassicSyncTimer),
        ):
            self.consumer.on_timer(name, step)
            return
        if isinstance(name, streams_coordinator.TIMERS):
            self.streams.on_timer(name, step)
            return
        if isinstance(name, ShareSessionTimer):
            self.share.on_timer(name, step)
            return
        group = self._classic(name.group_id)  # type: ignore[attr-defined]
        if group is None:
            return
        match name:
            case SessionTimer():
                membership.on_session_timer(group, name.member_id, step)
            case PendingMemberTimer():
                membership.on_pending_member_timer(group, name.member_id, step)
            case JoinTimer():
                rebalance.on_join_timer(group, step)
            case SyncTimer():
                rebalance.on_sync_timer(group, step)
            case _:
                raise InvariantViolated(f"a group's shard set no timer {name!r}")


def _commit_refusal(group: AnyGroup, body: CommitOffsets | CommitTransactionOffsets) -> ErrorCode:
    if isinstance(group, StreamsGroup):
        return streams_committing.commit_refusal(group, body)
    if isinstance(group, ConsumerGroup):
        return consumer_committing.commit_refusal(group, body)
    return commit_refusal(group, body)
