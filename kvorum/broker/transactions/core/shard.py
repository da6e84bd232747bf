"""The transactional ids of one partition of `__transaction_state`. Pure; see coordinator.model.

Order of each end: append PREPARE -> replicated -> answer the client and send the markers -> all
partitions have theirs -> append COMPLETE. An answer waits for everything appended before it, and so
do final errors: a client that is told that it is fenced stays fenced after a fail-over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, assert_never

from kvorum.broker.coordinator.model import (
    Append,
    Appended,
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
    TopicsChanged,
    TransactionEnd,
    TransactionEnded,
)
from kvorum.broker.transactions.core import machine
from kvorum.broker.transactions.core.config import (
    PARK_MS,
    PARKED_MAX,
    PARTITIONS_PER_TRANSACTION_MAX,
    TRANSACTIONAL_ID_BYTES_MAX,
    TransactionConfig,
)
from kvorum.broker.transactions.core.model import (
    AT_REST,
    NAMES,
    PREPARED,
    State,
    Transaction,
)
from kvorum.broker.transactions.core.records import (
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from kvorum.broker.transactions.core.requests import (
    AddPartitions,
    DescribeTransaction,
    EndTransaction,
    InitProducerId,
    ListTransactions,
    MarkersWritten,
    ProducerIdTaken,
    SendMarkers,
    TakeProducerId,
    TransactionDescription,
    TransactionListing,
)
from kvorum.runtime.errors import ErrorCode, invariant


class _ParkTimer(NamedTuple):
    """Name of the timer for the requests that are parked for one transactional id."""

    transactional_id: str


ABORT_TIMER = "abort-timed-out"
EXPIRE_TIMER = "expire"

_RETRIABLE = frozenset({ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})
"""Errors that are answered at once: the client retries, and gets the state at that time."""


class TransactionShard:
    """One shard for each leader epoch of its partition.

    coordinator_epoch: that leader epoch.
    transaction_version: returns the feature's current level.
    """

    __slots__ = (
        "_config",
        "_coordinator_epoch",
        "_marker_questions",
        "_next_ask_id",
        "_parked",
        "_transaction_version",
        "_transactions",
        "_waiting",
    )

    def __init__(
        self,
        *,
        coordinator_epoch: int,
        config: TransactionConfig,
        transaction_version: Callable[[], int],
    ) -> None:
        self._coordinator_epoch = coordinator_epoch
        self._config = config
        self._transaction_version = transaction_version
        self._transactions: dict[str, Transaction] = {}
        #: Requests that wait for a producer id, one for each transactional id.
        self._waiting: dict[str, ShardRequest] = {}
        #: Requests that wait for the markers of the last transaction, by transactional id.
        self._parked: dict[str, list[ShardRequest]] = {}
        #: ask_id of the pending question for markers, by transactional id.
        self._marker_questions: dict[str, int] = {}
        self._next_ask_id = 0

    # --- the log ------------------------------------------------------------------------------

    def replay(self, record: ReplayedRecord) -> None:
        """Apply one record. Keys of unknown versions are ignored. Raises CorruptData."""
        transactional_id = decode_key(record.key)
        if transactional_id is None:
            return
        if record.value is None:
            self._transactions.pop(transactional_id, None)
        else:
            self._transactions[transactional_id] = decode_value(transactional_id, record.value)

    def replay_end(self, end: TransactionEnd) -> None:
        """Ignored: no producer writes transactions into this topic."""

    def on_loaded(self, now: Instant) -> list[Effect]:
        """Complete every transaction that the last coordinator had decided and not completed."""
        effects: list[Effect] = [
            SetTimer(name=ABORT_TIMER, deadline_ms=now.monotonic_ms + self._abort_interval_ms),
            SetTimer(name=EXPIRE_TIMER, deadline_ms=now.monotonic_ms + self._expire_interval_ms),
        ]
        # Wait for a barrier, although the records were read from the log: its end may not be
        # replicated. Bad sequence otherwise: 1. Leader A writes PREPARE_COMMIT and dies. 2. Leader
        # B sends a commit marker, and dies before another replica has that record. 3. Leader C
        # finds the transaction open and aborts it: one partition has committed, another has
        # aborted.
        effects += [
            self._barrier(transaction)
            for transaction in self._transactions.values()
            if transaction.state in PREPARED
        ]
        return effects

    # --- events -------------------------------------------------------------------------------

    def step(self, event: Event, now: Instant) -> list[Effect]:
        match event:
            case ShardRequest():
                return self._on_request(event, now)
            case TimerFired(name=name):
                return self._on_timer(name, now)
            case Durable(tag=tag):
                return self._on_prepared(tag, now)
            case FactLearned(fact=fact):
                return self._on_told(fact, now)
            case TransactionEnded() | TopicsChanged() | Appended():
                # The sender of markers skips partitions of deleted topics.
                return []
            case _:
                assert_never(event)

    def _on_timer(self, name: Hashable, now: Instant) -> list[Effect]:
        if isinstance(name, _ParkTimer):
            parked = self._parked.pop(name.transactional_id)
            return [_answer(request.token, ErrorCode.CONCURRENT_TRANSACTIONS) for request in parked]
        if name == ABORT_TIMER:
            next_ms = now.monotonic_ms + self._abort_interval_ms
            effects = self._abort_timed_out(now)
        else:
            next_ms = now.monotonic_ms + self._expire_interval_ms
            effects = self._expire(now)
        return [*effects, SetTimer(name=name, deadline_ms=next_ms)]

    # --- requests -----------------------------------------------------------------------------

    def _on_request(self, request: ShardRequest, now: Instant) -> list[Effect]:
        body = request.body
        if isinstance(body, ListTransactions):
            return [_answer(request.token, self._listed(body, now))]
        transactional_id: str = body.transactional_id
        if not transactional_id:
            return [_answer(request.token, ErrorCode.INVALID_REQUEST)]
        if len(transactional_id.encode()) > TRANSACTIONAL_ID_BYTES_MAX:
            return [_answer(request.token, ErrorCode.INVALID_REQUEST)]
        if isinstance(body, DescribeTransaction):
            return [_answer(request.token, self._described(transactional_id))]
        if isinstance(body, InitProducerId) and not self._is_timeout_allowed(body.timeout_ms):
            return [_answer(request.token, ErrorCode.INVALID_TRANSACTION_TIMEOUT)]
        if transactional_id in self._waiting:
            return [_answer(request.token, ErrorCode.CONCURRENT_TRANSACTIONS)]
        return self._decide_in_turn(request, now)

    def _is_timeout_allowed(self, timeout_ms: int) -> bool:
        return 0 < timeout_ms <= self._config.transaction_max_timeout_ms

    def _decide_in_turn(self, request: ShardRequest, now: Instant) -> list[Effect]:
        """Decide the request; an EndTxn waits behind the parked requests of its transactional id.

        Bad sequence otherwise: 1. A client sends EndTxn(commit), AddPartitionsToTxn and
        EndTxn(abort) without waiting. 2. The AddPartitionsToTxn is parked. 3. The abort is judged
        against the committed transaction and refused. 4. The next transaction begins and stays
        open.
        """
        is_end = isinstance(request.body, EndTransaction)
        if is_end and request.body.transactional_id in self._parked:
            return self._park(request, now)
        return self._decide(request, now, None)

    def _decide(self, request: ShardRequest, now: Instant, fresh_id: int | None) -> list[Effect]:
        body = request.body
        transactional_id = body.transactional_id
        before = self._transactions.get(transactional_id)
        outcome: machine.Outcome
        if isinstance(body, InitProducerId):
            outcome = machine.init_producer_id(before, body, now.wall_ms, fresh_id)
        elif isinstance(body, AddPartitions):
            outcome = machine.add_partitions(before, body, now.wall_ms)
        else:
            invariant(isinstance(body, EndTransaction), f"a transaction request {body!r}")
            outcome = machine.end_transaction(before, body, now.wall_ms, fresh_id)
        if isinstance(outcome, machine.NeedsProducerId):
            self._waiting[transactional_id] = request
            return [Ask(question=TakeProducerId(transactional_id=transactional_id))]
        if outcome.write is None:
            if outcome.reply == ErrorCode.CONCURRENT_TRANSACTIONS and _may_park(body):
                return self._park(request, now)
            return [_answer(request.token, outcome.reply)]
        if len(outcome.write.partitions) > PARTITIONS_PER_TRANSACTION_MAX:
            # Kafka's error if a record of the coordinator is too large for its topic.
            return [_answer(request.token, ErrorCode.UNKNOWN_SERVER_ERROR)]
        # Durable whatever the code is, since this append decided the answer.
        answer = ShardAnswer(token=request.token, response=outcome.reply)
        return self._write(outcome.write, answer)

    def _park(self, request: ShardRequest, now: Instant) -> list[Effect]:
        """Park the request; it is decided again if the markers are written within PARK_MS."""
        transactional_id = request.body.transactional_id
        parked = self._parked.setdefault(transactional_id, [])
        if len(parked) >= PARKED_MAX:
            return [_answer(request.token, ErrorCode.CONCURRENT_TRANSACTIONS)]
        parked.append(request)
        if len(parked) > 1:
            return []
        deadline_ms = now.monotonic_ms + PARK_MS
        return [SetTimer(name=_ParkTimer(transactional_id), deadline_ms=deadline_ms)]

    def _unpark(self, transactional_id: str, now: Instant) -> list[Effect]:
        parked = self._parked.pop(transactional_id, None)
        if parked is None:
            return []
        effects: list[Effect] = [CancelTimer(name=_ParkTimer(transactional_id))]
        for request in parked:
            if transactional_id in self._waiting:
                # The request before this one needs a new producer id first.
                effects.append(_answer(request.token, ErrorCode.CONCURRENT_TRANSACTIONS))
            else:
                effects += self._decide_in_turn(request, now)
        return effects

    def _write(self, transaction: Transaction, *answers: ShardAnswer) -> list[Effect]:
        """Write the transaction's state. Markers follow once a PREPARE state is replicated."""
        self._transactions[transaction.transactional_id] = transaction
        # v1 also below level 1, for a client of KIP-890 that was running when the level changed.
        # Otherwise a fail-over would lose the producer id that the client was promised.
        is_flexible = self._transaction_version() >= 1 or transaction.client_version > 0
        record = CoordinatorRecord(
            encode_key(transaction.transactional_id),
            encode_value(transaction, 1 if is_flexible else 0),
        )
        effects: list[Effect] = [Append(records=(record,)), *answers]
        if transaction.state in PREPARED:
            effects.append(self._barrier(transaction))
        return effects

    def _barrier(self, transaction: Transaction) -> Barrier:
        ask_id = self._next_ask_id
        self._next_ask_id += 1
        self._marker_questions[transaction.transactional_id] = ask_id
        return Barrier(tag=(transaction.transactional_id, ask_id))

    # --- the end of a transaction ---------------------------------------------------------------

    def _on_prepared(self, tag: Any, now: Instant) -> list[Effect]:
        transactional_id, ask_id = tag
        transaction = self._transactions[transactional_id]
        invariant(
            transaction.state in PREPARED and self._marker_questions[transactional_id] == ask_id,
            f"{transaction.summary()} was left before its markers were sent",
        )
        if not transaction.partitions:
            return self._complete(transaction, now)
        return [
            Ask(
                question=SendMarkers(
                    ask_id=ask_id,
                    transactional_id=transactional_id,
                    producer_id=transaction.producer_id,
                    producer_epoch=transaction.producer_epoch,
                    coordinator_epoch=self._coordinator_epoch,
                    is_commit=transaction.is_committed,
                    transaction_version=transaction.client_version,
                    partitions=transaction.partitions,
                )
            )
        ]

    def _complete(self, transaction: Transaction, now: Instant) -> list[Effect]:
        del self._marker_questions[transaction.transactional_id]
        effects = self._write(machine.complete(transaction, now.wall_ms))
        return effects + self._unpark(transaction.transactional_id, now)

    def _on_told(self, fact: Any, now: Instant) -> list[Effect]:
        match fact:
            case MarkersWritten():
                if self._marker_questions.get(fact.transactional_id) != fact.ask_id:
                    return []
                return self._complete(self._transactions[fact.transactional_id], now)
            case ProducerIdTaken():
                request = self._waiting.pop(fact.transactional_id, None)
                if request is None:
                    return []
                if fact.producer_id is None:
                    # As in Kafka: on COORDINATOR_LOAD_IN_PROGRESS the client retries soon.
                    return [_answer(request.token, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)]
                return self._decide(request, now, fact.producer_id)
            case _:
                invariant(False, f"a fact of transactions {fact!r}")
                return []

    # --- time ---------------------------------------------------------------------------------

    @property
    def _abort_interval_ms(self) -> int:
        return self._config.transaction_abort_timed_out_transaction_cleanup_interval_ms

    @property
    def _expire_interval_ms(self) -> int:
        return self._config.transaction_remove_expired_transaction_cleanup_interval_ms

    def _abort_timed_out(self, now: Instant) -> list[Effect]:
        effects: list[Effect] = []
        for transaction in list(self._transactions.values()):
            is_over = transaction.start_ms + transaction.timeout_ms < now.wall_ms
            if transaction.state == State.ONGOING and is_over:
                effects += self._write(machine.fence(transaction, now.wall_ms))
        return effects

    def _expire(self, now: Instant) -> list[Effect]:
        oldest_ms = now.wall_ms - self._config.transactional_id_expiration_ms
        expired = [
            transaction
            for transaction in self._transactions.values()
            if transaction.state in AT_REST
            and transaction.updated_ms <= oldest_ms
            and transaction.transactional_id not in self._waiting
        ]
        effects: list[Effect] = []
        for transaction in expired:
            transaction.moved(State.DEAD)
            del self._transactions[transaction.transactional_id]
            record = CoordinatorRecord(encode_key(transaction.transactional_id), None)
            effects.append(Append(records=(record,)))
        return effects

    # --- inspection -----------------------------------------------------------------------------

    def _described(self, transactional_id: str) -> TransactionDescription | ErrorCode:
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            return ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        return TransactionDescription(
            transactional_id=transactional_id,
            state=transaction.state,
            timeout_ms=transaction.timeout_ms,
            start_ms=transaction.start_ms,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            partitions=tuple(sorted(transaction.partitions)),
        )

    def _listed(self, wanted: ListTransactions, now: Instant) -> tuple[TransactionListing, ...]:
        return tuple(
            TransactionListing(held.transactional_id, held.producer_id, held.state)
            for held in self._transactions.values()
            if (not wanted.states or held.state in wanted.states)
            and (not wanted.producer_ids or held.producer_id in wanted.producer_ids)
            and (wanted.running_ms_min < 0 or _is_running(held, wanted.running_ms_min, now))
        )

    def states(self) -> Counter[str]:
        """Numbers of transactional ids by state."""
        return Counter(t.state.name.lower() for t in self._transactions.values())

    def summary(self) -> str:
        """One line for logs, tests and tools."""
        counts = dict.fromkeys(NAMES.values(), 0)
        for transaction in self._transactions.values():
            counts[NAMES[transaction.state]] += 1
        states = " ".join(f"{name}={count}" for name, count in counts.items() if count)
        return f"transactional_ids={len(self._transactions)} {states}".rstrip()


def _may_park(body: Any) -> bool:
    """True if the request may wait instead of getting CONCURRENT_TRANSACTIONS: it succeeds once the
    last transaction is complete."""
    return isinstance(body, InitProducerId) or (
        isinstance(body, AddPartitions) and not body.is_verify_only
    )


def _is_running(transaction: Transaction, running_ms_min: int, now: Instant) -> bool:
    is_open = transaction.state == State.ONGOING or transaction.state in PREPARED
    return is_open and now.wall_ms - transaction.start_ms > running_ms_min


def _answer(token: int, response: Any) -> ShardAnswer:
    is_durable = not (isinstance(response, ErrorCode) and response in _RETRIABLE)
    return ShardAnswer(token=token, response=response, is_durable=is_durable)
