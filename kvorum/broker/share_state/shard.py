"""The share-partitions of one partition of `__share_group_state`. Pure; see
`coordinator.model.Shard`.

  request -> checks of the epochs -> the new state -> an update, or after many of them a snapshot

Updates say what has changed since the snapshot before them, so the topic cannot be compacted.
Instead the log's start moves up to the oldest record that a loader needs: the oldest snapshot. A
share-partition that rests gets a snapshot too, so that it does not hold the start back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from kvorum.broker.coordinator.model import (
    Append,
    Appended,
    Ask,
    CoordinatorRecord,
    Durable,
    Effect,
    Event,
    FactLearned,
    Instant,
    ReplayedRecord,
    SetTimer,
    ShardAnswer,
    ShardRequest,
    TimerFired,
    TopicsChanged,
    TransactionEnd,
    TransactionEnded,
)
from kvorum.broker.metrics.share_counters import ShareMetrics
from kvorum.broker.share_state.batches import batches_problem, combined
from kvorum.broker.share_state.records import (
    UNKNOWN_COUNT,
    ShareKey,
    ShareState,
    ShareUpdate,
    decode_key,
    decode_snapshot,
    decode_update,
    encode_snapshot,
    encode_update,
    snapshot_key,
    update_key,
)
from kvorum.broker.share_state.requests import (
    NO_LEADER_EPOCH,
    NO_OFFSET,
    DeleteState,
    InitializeState,
    Prune,
    ReadState,
    ReadSummary,
    WriteState,
)
from kvorum.runtime.errors import ErrorCode, InvariantViolated, Rejected

_PRUNE_TIMER, _COLD_TIMER = "prune", "cold"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareStateConfig:
    """The configs of share coordinators, under Kafka's names (`share.coordinator.*`)."""

    share_coordinator_snapshot_update_records_per_snapshot: int = 500
    share_coordinator_state_topic_prune_interval_ms: int = 300_000
    share_coordinator_cold_partition_snapshot_interval_ms: int = 300_000


class ShareStateShard:
    """states: by share-partition."""

    def __init__(self, config: ShareStateConfig, metrics: ShareMetrics | None = None) -> None:
        """metrics: the broker's, which outlive the shard; None: nobody reads them."""
        self._config = config
        self._metrics = ShareMetrics() if metrics is None else metrics
        self.states: dict[ShareKey, ShareState] = {}
        self._updates: dict[ShareKey, int] = {}
        """Updates since the last snapshot."""
        self._snapshot_offsets: dict[ShareKey, int] = {}
        self._pruned_offset = 0
        self._known_topics: set[bytes] = set()
        """Topics of share-partitions that an image has had: without it, they are deleted."""

    # --- loading -----------------------------------------------------------------------------

    def replay(self, record: ReplayedRecord) -> None:
        found = decode_key(record.key)
        if found is None:
            return  # of a later version
        is_snapshot, key = found
        if not is_snapshot:
            state = self.states.get(key)
            if record.value is None or state is None:
                return  # its snapshot is pruned, or the state is deleted
            self.states[key] = _updated(state, decode_update(record.value), record.timestamp_ms)
            self._updates[key] += 1
        elif record.value is None:
            self._forget(key)
        else:
            self.states[key] = decode_snapshot(record.value)
            self._updates[key] = 0
            self._snapshot_offsets[key] = record.offset

    def replay_end(self, end: TransactionEnd) -> None:
        """Ignored: no producer writes transactions into this topic."""

    def on_loaded(self, now: Instant) -> list[Effect]:
        return [self._prune_timer(now), self._cold_timer(now)]

    def _forget(self, key: ShareKey) -> None:
        self.states.pop(key, None)
        self._updates.pop(key, None)
        self._snapshot_offsets.pop(key, None)

    # --- events ------------------------------------------------------------------------------

    def step(self, event: Event, now: Instant) -> list[Effect]:
        match event:
            case ShardRequest():
                return self._on_request(event, now)
            case Appended():
                for place, key in enumerate(event.tag):
                    if key in self.states:
                        self._snapshot_offsets[key] = event.base_offset + place
                return []
            case TimerFired() if event.name == _PRUNE_TIMER:
                return [*self._prune(), self._prune_timer(now)]
            case TimerFired():
                return [*self._cold_snapshots(now), self._cold_timer(now)]
            case TopicsChanged():
                return self._on_topics(event)
            case TransactionEnded():
                return []  # an administrator may have written a marker
            case Durable() | FactLearned():
                raise InvariantViolated(f"a share coordinator's shard asked for no {event!r}")
            case _:
                assert_never(event)

    def _on_request(self, event: ShardRequest, now: Instant) -> list[Effect]:
        effects: list[Effect] = []
        answer: object
        match event.body:
            case InitializeState() as body:
                answer = self._initialize(body, now, effects)
            case ReadState() as body:
                answer = self._read(body, now, effects)
            case ReadSummary() as body:
                answer = self._summary(body)
            case WriteState() as body:
                answer = self._write(body, now, effects)
            case DeleteState() as body:
                if body.key in self.states:
                    effects.append(self._end([body.key]))
                answer = ErrorCode.NONE
            case _:
                raise InvariantViolated(f"a share coordinator's shard was asked {event.body!r}")
        return [*effects, ShardAnswer(token=event.token, response=answer)]

    # --- the state of one share-partition ----------------------------------------------------

    def _initialize(
        self, body: InitializeState, now: Instant, effects: list[Effect]
    ) -> ErrorCode | Rejected:
        state = self.states.get(body.key)
        if state is not None and state.state_epoch > body.state_epoch:
            return _fenced_state(body.state_epoch, state)
        if state is not None and state.state_epoch == body.state_epoch:
            # A request that is sent again. The leader may have written since the first one.
            return ErrorCode.NONE
        fresh = ShareState(
            snapshot_epoch=0 if state is None else state.snapshot_epoch + 1,
            state_epoch=body.state_epoch,
            leader_epoch=NO_LEADER_EPOCH,
            start_offset=body.start_offset,
            delivery_complete_count=UNKNOWN_COUNT if body.start_offset == NO_OFFSET else 0,
            create_timestamp_ms=now.wall_ms,
            write_timestamp_ms=now.wall_ms,
        )
        effects.append(self._snapshot([(body.key, fresh)]))
        return ErrorCode.NONE

    def _read(self, body: ReadState, now: Instant, effects: list[Effect]) -> ShareState | Rejected:
        state = self._found(body.key, body.leader_epoch)
        if isinstance(state, Rejected) or body.leader_epoch <= state.leader_epoch:
            return state
        # From now on, the leaders before this one are fenced.
        update = ShareUpdate(
            state.snapshot_epoch, body.leader_epoch, NO_OFFSET, state.delivery_complete_count, ()
        )
        effects.append(self._update(body.key, state, update, now))
        return self.states[body.key]

    def _summary(self, body: ReadSummary) -> ShareState | Rejected | None:
        state = self.states.get(body.key)
        if state is not None and body.leader_epoch != NO_LEADER_EPOCH:
            return self._found(body.key, body.leader_epoch)
        return state

    def _write(self, body: WriteState, now: Instant, effects: list[Effect]) -> ErrorCode | Rejected:
        problem = batches_problem(body.batches)
        if problem is not None:
            return Rejected(ErrorCode.INVALID_REQUEST, problem)
        state = self._found(body.key, body.leader_epoch)
        if isinstance(state, Rejected):
            return state
        if state.state_epoch > body.state_epoch:
            return _fenced_state(body.state_epoch, state)
        update = ShareUpdate(
            state.snapshot_epoch,
            body.leader_epoch,
            body.start_offset,
            body.delivery_complete_count,
            body.batches,
        )
        effects.append(self._update(body.key, state, update, now))
        self._metrics.coordinator_writes += 1
        return ErrorCode.NONE

    def _found(self, key: ShareKey, leader_epoch: int) -> ShareState | Rejected:
        state = self.states.get(key)
        if state is None:
            text = f"the share-partition {_name(key)} has no state: it is not initialized"
            return Rejected(ErrorCode.INVALID_REQUEST, text)
        if state.leader_epoch > leader_epoch:
            text = f"leader epoch {leader_epoch} of {_name(key)} is older than {state.leader_epoch}"
            return Rejected(ErrorCode.FENCED_LEADER_EPOCH, text)
        return state

    # --- records -----------------------------------------------------------------------------

    def _update(
        self, key: ShareKey, state: ShareState, update: ShareUpdate, now: Instant
    ) -> Append:
        after = _updated(state, update, now.wall_ms)
        most = self._config.share_coordinator_snapshot_update_records_per_snapshot
        if self._updates[key] + 1 >= most:
            return self._snapshot([(key, replace(after, snapshot_epoch=state.snapshot_epoch + 1))])
        self.states[key] = after
        self._updates[key] += 1
        return Append(records=(CoordinatorRecord(update_key(key), encode_update(update)),))

    def _snapshot(self, rows: Sequence[tuple[ShareKey, ShareState]]) -> Append:
        for key, state in rows:
            self.states[key] = state
            self._updates[key] = 0
        records = [CoordinatorRecord(snapshot_key(key), encode_snapshot(s)) for key, s in rows]
        return Append(records=tuple(records), tag=tuple(key for key, _ in rows))

    def _end(self, keys: Sequence[ShareKey]) -> Append:
        for key in keys:
            self._forget(key)
        return Append(records=tuple(CoordinatorRecord(snapshot_key(key), None) for key in keys))

    # --- the log's start ---------------------------------------------------------------------

    def _prune(self) -> list[Effect]:
        needed = min(self._snapshot_offsets.values(), default=0)
        if needed <= self._pruned_offset:
            return []
        self._pruned_offset = needed
        return [Ask(question=Prune(offset=needed))]

    def _cold_snapshots(self, now: Instant) -> list[Effect]:
        """A snapshot of each share-partition that has updates and rests for long."""
        interval_ms = self._config.share_coordinator_cold_partition_snapshot_interval_ms
        rows = [
            (key, replace(state, snapshot_epoch=state.snapshot_epoch + 1))
            for key, state in self.states.items()
            if self._updates[key] and now.wall_ms - state.write_timestamp_ms >= interval_ms
        ]
        return [self._snapshot([row]) for row in rows]

    def _prune_timer(self, now: Instant) -> SetTimer:
        interval_ms = self._config.share_coordinator_state_topic_prune_interval_ms
        return SetTimer(name=_PRUNE_TIMER, deadline_ms=now.monotonic_ms + interval_ms)

    def _cold_timer(self, now: Instant) -> SetTimer:
        interval_ms = self._config.share_coordinator_cold_partition_snapshot_interval_ms
        return SetTimer(name=_COLD_TIMER, deadline_ms=now.monotonic_ms + interval_ms)

    # --- topics ------------------------------------------------------------------------------

    def _on_topics(self, event: TopicsChanged) -> list[Effect]:
        """End the states of deleted topics. An image may lag behind the log, so a topic counts as
        deleted only if an earlier image had it."""
        topics = event.image.topics
        known, self._known_topics = self._known_topics, set()
        gone = []
        for key in self.states:
            if key.topic_id in topics:
                self._known_topics.add(key.topic_id)
            elif key.topic_id in known:
                gone.append(key)
        return [self._end(gone)] if gone else []


def _updated(state: ShareState, update: ShareUpdate, wall_ms: int) -> ShareState:
    start_offset = state.start_offset
    if update.start_offset != NO_OFFSET:
        start_offset = update.start_offset
    return replace(
        state,
        leader_epoch=update.leader_epoch,
        start_offset=start_offset,
        delivery_complete_count=update.delivery_complete_count,
        write_timestamp_ms=wall_ms,
        batches=combined(state.batches, update.batches, start_offset),
    )


def _fenced_state(state_epoch: int, state: ShareState) -> Rejected:
    text = f"state epoch {state_epoch} is older than {state.state_epoch}"
    return Rejected(ErrorCode.FENCED_STATE_EPOCH, text)


def _name(key: ShareKey) -> str:
    return f"{key.group_id}:{key.topic_id.hex()}:{key.partition}"
