"""A shard context: one shard while this broker leads its partition in one leader epoch. The driver
of a shard.

The context loads the shard, gives the shard events and carries out the effects. A durable answer
waits for the high watermark: it is sent once every replica of the maximal ISR has what the shard
had appended by then. (The fsync follows the topic's flush policy, as for any acks=all write.) The
context ends with the leadership, the replica or the disk. Then all waiting requests are answered
NOT_COORDINATOR, and the shard is dropped with all decisions that were not replicated.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from kvorum.broker.coordinator.loading import read_back
from kvorum.broker.coordinator.model import (
    Append,
    Appended,
    Ask,
    Barrier,
    CancelTimer,
    Client,
    Durable,
    Effect,
    Event,
    Instant,
    ReplayedRecord,
    SetTimer,
    Shard,
    ShardAnswer,
    ShardRequest,
    TimerFired,
    TopicsChanged,
    TransactionEnded,
)
from kvorum.broker.coordinator.shard_timers import ShardTimers
from kvorum.broker.log_dirs.log_directories import is_disk_fault
from kvorum.broker.partition.core.batch_validation import ProduceTerms
from kvorum.broker.partition.replica import Replica
from kvorum.broker.purgatory.deadlines import Deadlines
from kvorum.runtime.clock import Clock
from kvorum.runtime.errors import CorruptData, ErrorCode, shortage_of
from kvorum.storage.format.batch import BatchError, build_batch

_log = logging.getLogger(__name__)

REPLICATION_TIMEOUT_MS = 5_000
"""Time that an answer waits for its records to be replicated (Kafka's offsets.commit.timeout.ms).
After it the client gets COORDINATOR_NOT_AVAILABLE and tries again; the records stay in the log."""


class ShardState(enum.Enum):
    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"
    ENDED = "ended"


NO_TOKEN = 0
"""Returned by `call` for a refused request."""

Respond = Callable[[Any], None]
"""Called with the shard's answer, or with an ErrorCode."""


class _Waiter:
    """A request without an answer yet: its `respond`, and the deadline of its answer's
    replication."""

    __slots__ = ("_on_late", "deadline_bucket", "respond", "token")

    def __init__(self, token: int, respond: Respond, on_late: Callable[[_Waiter], None]) -> None:
        self.token = token
        self.respond = respond
        self.deadline_bucket = -1
        self._on_late = on_late

    def expire(self) -> None:
        self._on_late(self)


class _Parked(NamedTuple):
    """An effect that waits until the high watermark reaches required_offset."""

    required_offset: int
    effect: ShardAnswer | Barrier


class ShardContext:
    """See the docstring of this module. The host creates a context and calls `end` exactly once."""

    def __init__(
        self,
        *,
        replica: Replica,
        shard: Shard,
        first_image_end: int,
        clock: Clock,
        deadlines: Deadlines,
        ask: Callable[[ShardContext, Any], None],
        on_broken: Callable[[ShardContext], None],
    ) -> None:
        """first_image_end: end offset of the image that the context begins with.
        ask: carries out `Ask` and answers by `give(FactLearned(...))`.
        on_broken: called when the context has ended because it could not write.
        """
        self.replica = replica
        self.leader_epoch = replica.core.leader_epoch
        self.shard = shard
        self.first_image_end = first_image_end
        self.state = ShardState.LOADING
        self._clock = clock
        self._deadlines = deadlines
        self._ask = ask
        self._on_broken = on_broken
        self._events: deque[Event] = deque()
        self._is_stepping = False
        self._timers = ShardTimers(deadlines, lambda name: self.give(TimerFired(name=name)))
        self._waiters: dict[int, _Waiter] = {}
        self._parked: deque[_Parked] = deque()
        self._next_token = 0
        self._end_offset = 0
        """End offset of the log up to which the shard knows it."""

    @property
    def name(self) -> str:
        return f"{self.replica.core.topic}-{self.replica.core.partition_id}"

    # --- life --------------------------------------------------------------------------------

    async def load(self) -> None:
        """Replay the log; other tasks run between two chunks."""
        shard, records = self.shard, 0
        try:
            for piece in read_back(lambda: self.replica.log):
                for item in piece:
                    if isinstance(item, ReplayedRecord):
                        shard.replay(item)
                    else:
                        shard.replay_end(item)
                records += len(piece)
                await asyncio.sleep(0)
                if self.state is not ShardState.LOADING:
                    return
            if self.state is not ShardState.LOADING:
                return
            effects = shard.on_loaded(self._now())
        except (CorruptData, BatchError, OSError) as failure:
            if self.state is not ShardState.LOADING:
                return  # the log was truncated or closed meanwhile
            # A shard that was loaded in part answers no request.
            self.state = ShardState.FAILED
            limit = shortage_of(failure)
            _log.error(
                "cannot load the coordinator of %s: %s%s",
                self.name, failure, limit and f"; {limit}",
            )  # fmt: skip
            is_damage = isinstance(failure, CorruptData)
            if not isinstance(failure, BatchError) and (is_damage or is_disk_fault(failure)):
                # The failed replica gives up its leadership; another replica's log may be
                # undamaged.
                self.replica.fail(failure, "load of its coordinator")
            return
        self._end_offset = self.replica.log.end_offset
        self.state = ShardState.ACTIVE
        _log.info(
            "coordinator of %s loaded: %d records, leader epoch %d",
            self.name, records, self.leader_epoch,
        )  # fmt: skip
        self._carry_out(effects)
        self._run()

    def end(self) -> None:
        """End the context: nothing more is appended, answered or timed for this shard."""
        self.state = ShardState.ENDED
        self._timers.clear()
        self._events.clear()
        self._parked.clear()
        for token in list(self._waiters):
            self._answer(token, ErrorCode.NOT_COORDINATOR)

    # --- events ------------------------------------------------------------------------------

    async def request(self, body: Any, client: Client) -> Any:
        """As `call`, but returns the answer."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        token = self.call(body, client, partial(_settle, future))
        try:
            return await future
        finally:
            # If cancelled, the shard may still answer the token; that answer is dropped.
            waiter = self._waiters.pop(token, None)
            if waiter is not None:
                self._deadlines.remove(waiter)

    def call(self, body: Any, client: Client, respond: Respond) -> int:
        """Give the shard a request. `respond` is called once: now if the answer need not wait, or
        later.

        Types of `body` that write nothing have `needs_replicas = False`. The others are refused
        with COORDINATOR_NOT_AVAILABLE while too few replicas are in sync to keep their records.
        Returns the token of the request, NO_TOKEN if it was refused.
        """
        refusal = self._refusal(body)
        if refusal is not None:
            respond(refusal)
            return NO_TOKEN
        self._next_token += 1
        token = self._next_token
        self._waiters[token] = _Waiter(token, respond, self._on_late)
        self.give(ShardRequest(token=token, body=body, client=client))
        return token

    def _refusal(self, body: Any) -> ErrorCode | None:
        if self.state is ShardState.LOADING:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if self.state is not ShardState.ACTIVE:
            return ErrorCode.NOT_COORDINATOR
        if getattr(body, "needs_replicas", True):
            error = self.replica.core.check_produce(-1)
            if error != ErrorCode.NONE or self.replica.is_offline:
                return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return None

    def give(self, event: Event) -> None:
        """Give the shard an event; it is ignored if the context has ended or its load failed."""
        if isinstance(event, TransactionEnded):
            self._give_end(event)
        elif self.state is ShardState.ACTIVE:
            self._events.append(event)
            self._run()
        elif (
            self.state is ShardState.LOADING and isinstance(event, TopicsChanged) and event.deleted
        ):
            # The records being read belong to the deleted topics, not to new ones of the same
            # names.
            self._events.append(event)

    def _give_end(self, event: TransactionEnded) -> None:
        """Give the shard a marker, which its context did not append."""
        if self.state is ShardState.LOADING:
            # The marker may lie above the end up to which the log is read. A marker applied twice
            # changes nothing.
            self._events.append(event)
        elif self.state is ShardState.ACTIVE:
            # From now on, durable answers wait for the marker's replication too.
            self._end_offset = self.replica.log.end_offset
            self._events.append(event)
            self._run()

    def on_high_watermark(self) -> None:
        """The partition's high watermark rose."""
        if self._parked:
            self._run()

    def _run(self) -> None:
        """Give the shard all events that are due. A nested call leaves them to the outer call."""
        if self._is_stepping:
            return
        self._is_stepping = True
        try:
            while self.state is ShardState.ACTIVE:
                self._release()
                if not self._events:
                    return
                event, now = self._events.popleft(), self._now()
                if isinstance(event, ShardRequest):
                    self._fire_due(now)
                self._carry_out(self.shard.step(event, now))
        finally:
            self._is_stepping = False

    def _fire_due(self, now: Instant) -> None:
        """Fire the timers whose deadlines have come, so that a request sees what they end."""
        for name in self._timers.take_due(now.monotonic_ms):
            self._carry_out(self.shard.step(TimerFired(name=name), now))

    def _release(self) -> None:
        high_watermark = self.replica.core.high_watermark
        parked = self._parked
        while parked and parked[0].required_offset <= high_watermark:
            effect = parked.popleft().effect
            if isinstance(effect, ShardAnswer):
                self._answer(effect.token, effect.response)
            else:
                self._events.append(Durable(tag=effect.tag))

    # --- effects -----------------------------------------------------------------------------

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            if self.state is not ShardState.ACTIVE:
                return
            match effect:
                case Append():
                    self._append(effect)
                case ShardAnswer() if effect.is_durable:
                    self._park(effect)
                case ShardAnswer():
                    self._answer(effect.token, effect.response)
                case Barrier():
                    self._park(effect)
                case SetTimer():
                    self._timers.set(effect.name, effect.deadline_ms)
                case CancelTimer():
                    self._timers.cancel(effect.name)
                case Ask():
                    self._ask(self, effect.question)

    def _append(self, effect: Append) -> None:
        producer_id, producer_epoch = effect.producer or (-1, -1)
        terms = ProduceTerms(-1, 0, self._clock.monotonic_ms(), self._clock.wall_ms())
        batch = build_batch(
            effect.records,
            timestamp_ms=effect.timestamps_ms or terms.wall_ms,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            is_transactional=effect.producer is not None,
        )
        if self.replica.append_own(batch, terms) != ErrorCode.NONE:
            # This broker no longer leads, the disk failed, or the batch is larger than a segment:
            # the shard's last decision is in no log.
            _log.warning("the coordinator of %s cannot write and stops", self.name)
            self.end()
            self._on_broken(self)
            return
        self._end_offset = self.replica.log.end_offset
        if effect.tag is not None:
            base_offset = self._end_offset - len(effect.records)
            self._events.append(Appended(tag=effect.tag, base_offset=base_offset))

    def _park(self, effect: ShardAnswer | Barrier) -> None:
        self._parked.append(_Parked(self._end_offset, effect))
        if isinstance(effect, ShardAnswer) and self._end_offset > self.replica.core.high_watermark:
            waiter = self._waiters.get(effect.token)
            if waiter is not None:
                self._deadlines.add(waiter, self._clock.monotonic_ms() + REPLICATION_TIMEOUT_MS)

    def _answer(self, token: int, response: Any) -> None:
        waiter = self._waiters.pop(token, None)
        if waiter is not None:
            self._deadlines.remove(waiter)
            waiter.respond(response)

    def _on_late(self, waiter: _Waiter) -> None:
        self._answer(waiter.token, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _now(self) -> Instant:
        return Instant(self._clock.monotonic_ms(), self._clock.wall_ms())


def _settle(future: asyncio.Future[Any], response: Any) -> None:
    # The request may have been cancelled.
    if not future.done():
        future.set_result(response)
