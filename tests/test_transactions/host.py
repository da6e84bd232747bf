"""A simple host of one shard: a log in memory, replication when a test says so, fail-overs.

It keeps the contract of coordinator.model: effects in their order; a durable answer only once all
records before it are replicated; NOT_COORDINATOR to all waiting requests when the leadership is
lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kvorum.broker.coordinator.model import (
    Append,
    Ask,
    Barrier,
    CancelTimer,
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
)
from kvorum.broker.transactions.core.config import PARK_MS, TransactionConfig
from kvorum.broker.transactions.core.model import Transaction
from kvorum.broker.transactions.core.records import decode_key, decode_value
from kvorum.broker.transactions.core.requests import ProducerIdTaken, SendMarkers, TakeProducerId
from kvorum.broker.transactions.core.shard import TransactionShard
from kvorum.runtime.errors import ErrorCode

START_MS = 1_000_000


@dataclass
class Parked:
    """An effect that waits until the log is replicated up to `end_offset`."""

    end_offset: int
    effect: ShardAnswer | Barrier


class Host:
    """answers: by token, all answers that were sent. asks: the questions of the shard that are not
    answered yet."""

    def __init__(self, config: TransactionConfig | None = None, level: int = 2) -> None:
        self.config = config or TransactionConfig()
        self.level = level
        self.log: list[CoordinatorRecord] = []
        self.replicated = 0
        self.now_ms = START_MS
        self.coordinator_epoch = 0
        self.answers: dict[int, Any] = {}
        self.timers: dict[Any, int] = {}
        self.asks: list[Any] = []
        self.parked: list[Parked] = []
        self.trace: list[str] = []
        self._next_token = 0
        self._next_producer_id = 1000
        self._open_tokens: dict[int, None] = {}
        self._load()

    @property
    def now(self) -> Instant:
        return Instant(self.now_ms - START_MS, self.now_ms)

    # --- events -------------------------------------------------------------------------------

    def ask(self, body: Any) -> int:
        """A client's request; returns its token."""
        token = self._next_token
        self._next_token += 1
        self._open_tokens[token] = None
        self.give(ShardRequest(token=token, body=body))
        return token

    def call(self, body: Any) -> Any:
        """Send a request, replicate at once, and give producer ids at once; its answer. A request
        that waits for markers, which do not come, waits until the shard gives up.
        """
        token = self.ask(body)
        self.give_producer_ids()
        self.replicate()
        if token not in self.answers:
            self.advance(PARK_MS)
        return self.answers[token]

    def give(self, event: Event) -> None:
        self.carry_out(self.shard.step(event, self.now))

    def tell(self, fact: Any) -> None:
        self.give(FactLearned(fact=fact))

    def give_producer_ids(self, *, is_there: bool = True) -> None:
        for question in [ask for ask in self.asks if isinstance(ask, TakeProducerId)]:
            self.asks.remove(question)
            producer_id = None
            if is_there:
                producer_id, self._next_producer_id = (
                    self._next_producer_id,
                    self._next_producer_id + 1,
                )
            self.tell(
                ProducerIdTaken(transactional_id=question.transactional_id, producer_id=producer_id)
            )

    @property
    def markers(self) -> list[SendMarkers]:
        return [ask for ask in self.asks if isinstance(ask, SendMarkers)]

    def advance(self, by_ms: int) -> None:
        """Advance the clock; timers fire in the order of their deadlines."""
        until_ms = self.now_ms + by_ms
        while True:
            due = sorted(
                (deadline, str(name), name)
                for name, deadline in self.timers.items()
                if deadline + START_MS <= until_ms
            )
            if not due:
                break
            deadline, _, name = due[0]
            self.now_ms = max(self.now_ms, deadline + START_MS)
            del self.timers[name]
            self.give(TimerFired(name=name))
        self.now_ms = until_ms

    def replicate(self, up_to: int | None = None) -> None:
        """The followers have the log up to `up_to` (exclusive; None: all of it). Release the
        effects that waited for this."""
        self.replicated = max(self.replicated, len(self.log) if up_to is None else up_to)
        while self.parked and self.parked[0].end_offset <= self.replicated:
            effect = self.parked.pop(0).effect
            if isinstance(effect, ShardAnswer):
                self._answer(effect)
            else:
                self.give(Durable(tag=effect.tag))
            if up_to is None:
                self.replicated = len(self.log)

    def fail_over(self, keep: int | None = None) -> None:
        """A new leader loads the log, which has all replicated records and at most `keep` records
        (None: all)."""
        end = max(self.replicated, len(self.log) if keep is None else min(keep, len(self.log)))
        del self.log[end:]
        for token in list(self._open_tokens):
            self._answer(ShardAnswer(token=token, response=ErrorCode.NOT_COORDINATOR))
        self._load()

    # --- effects ------------------------------------------------------------------------------

    def _load(self) -> None:
        self.coordinator_epoch += 1
        self.timers.clear()
        self.asks.clear()
        self.parked.clear()
        self.shard = TransactionShard(
            coordinator_epoch=self.coordinator_epoch,
            config=self.config,
            transaction_version=lambda: self.level,
        )
        for offset, record in enumerate(self.log):
            self.shard.replay(ReplayedRecord(offset, 0, record.key, record.value, -1, -1, False))
        self.carry_out(self.shard.on_loaded(self.now))

    def carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Append():
                    self.log.extend(effect.records)
                    for record in effect.records:
                        self.trace.append(f"append {describe(record)}")
                case ShardAnswer(is_durable=False):
                    self._answer(effect)
                case ShardAnswer() | Barrier():
                    if self.replicated >= len(self.log) and not self.parked:
                        if isinstance(effect, ShardAnswer):
                            self._answer(effect)
                        else:
                            self.parked.append(Parked(len(self.log), effect))
                    else:
                        self.parked.append(Parked(len(self.log), effect))
                case SetTimer():
                    self.timers[effect.name] = effect.deadline_ms
                case CancelTimer():
                    self.timers.pop(effect.name, None)
                case Ask():
                    self.asks.append(effect.question)
                    if isinstance(effect.question, SendMarkers):
                        self.trace.append(f"send {say_markers(effect.question)}")

    def _answer(self, effect: ShardAnswer) -> None:
        assert effect.token in self._open_tokens, f"token {effect.token} is answered twice"
        del self._open_tokens[effect.token]
        self.answers[effect.token] = effect.response
        self.trace.append(f"answer {effect.token}: {say(effect.response)}")

    def states(self, transactional_id: str) -> list[Transaction | None]:
        """All that the log says of an id."""
        return [
            None if record.value is None else decode_value(transactional_id, record.value)
            for record in self.log
            if decode_key(record.key) == transactional_id
        ]

    def state(self, transactional_id: str) -> Transaction | None:
        return self.states(transactional_id)[-1]


def describe(record: CoordinatorRecord) -> str:
    transactional_id = decode_key(record.key)
    assert transactional_id is not None
    if record.value is None:
        return f"{transactional_id} tombstone"
    return decode_value(transactional_id, record.value).summary()


def say(response: Any) -> str:
    if isinstance(response, ErrorCode):
        return response.name
    if isinstance(response, dict):
        return " ".join(f"{t}-{p}={e.name}" for (t, p), e in sorted(response.items()))
    return str(response)


def say_markers(question: SendMarkers) -> str:
    outcome = "commit" if question.is_commit else "abort"
    partitions = " ".join(f"{t}-{p}" for t, p in sorted(question.partitions))
    return (
        f"{outcome} producer={question.producer_id}/{question.producer_epoch}"
        f" coordinator={question.coordinator_epoch} to {partitions}"
    )
