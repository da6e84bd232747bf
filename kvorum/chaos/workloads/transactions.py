"""Transactions: a copy of a topic exactly once, and clients that read and write in transactions.

One transaction is one operation of the history. It is `ok` when its commit was acknowledged, `fail`
when it was aborted for certain, and `info` otherwise: after a commit without an answer it may be
either.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kvorum.chaos.experiment_file.workloads import TransactionalCopyPlan, TransactionsPlan
from kvorum.chaos.history import (
    FAIL,
    INFO,
    INVOKE,
    OK,
    TRANSACTION,
    Commit,
    HistoryWriter,
    Operation,
    Poll,
    Send,
    Type,
)
from kvorum.chaos.workloads.clients import open_consumer, open_producer
from kvorum.chaos.workloads.consume import polls_of
from kvorum.chaos.workloads.record_values import decode, encode, offset_of
from kvorum.chaos.workloads.worker import LoadThread

_TIMEOUT_S = 15.0
_TRANSACTION_TIMEOUT_MS = 10_000
_SESSION_TIMEOUT_MS = 6_000
_RETRIES_MAX = 20
_RECORD_BYTES = 64
_POLL_RECORDS_MAX = 20


class _Abandoned(Exception):
    """The producer cannot go on. Another one with its transactional id takes over."""


class _Transaction:
    """One transaction under way, and its operations so far."""

    def __init__(
        self, *, process: str, transactional_id: str, group: str | None, history: HistoryWriter
    ) -> None:
        self._process = process
        self._id = transactional_id
        self._group = group
        self._history = history
        self._polls: list[Operation] = []
        self._sends: list[Send] = []
        self._commits: list[Operation] = []
        self._invoked_ms: float | None = None

    def polled(self, polls: Sequence[Poll]) -> None:
        self._polls += polls

    def committing(self, commits: Sequence[Commit]) -> None:
        self._commits += commits

    def send(self, producer: Any, send: Send, data: bytes) -> None:
        """Produce one record; its offset is known after a flush."""
        at = len(self._sends)
        self._sends.append(send)

        def delivered(error: Any, message: Any) -> None:
            if error is None:
                self._sends[at] = Send(send.topic, send.partition, send.value, offset_of(message))

        producer.produce(send.topic, data, partition=send.partition, on_delivery=delivered)

    def invoke(self) -> None:
        """Note the invocation in the history. It names the sends and offset commits of the
        transaction, so all of them must be known."""
        self._invoked_ms = self._append(INVOKE, None)

    def note(self, kind: Type, error: str | None = None) -> None:
        """Note the outcome."""
        self._append(kind, error)

    def _append(self, kind: Type, error: str | None) -> float:
        # The records read are stated once, with the outcome.
        polls = () if kind == INVOKE else self._polls
        return self._history.append(
            process=self._process,
            type=kind,
            f=TRANSACTION,
            ops=(*polls, *self._sends, *self._commits),
            transaction=self._id,
            group=self._group,
            invoked_ms=self._invoked_ms,
            error=error,
        )


def _retried(act: Callable[[], object]) -> None:
    """Repeat a call of the transactional API while librdkafka says that it may be repeated."""
    from confluent_kafka import KafkaException

    for attempt in range(_RETRIES_MAX):
        try:
            act()
            return
        except KafkaException as error:
            if not error.args[0].retriable() or attempt == _RETRIES_MAX - 1:
                raise


def _carry_out(producer: Any, transaction: _Transaction, body: Callable[[], Type]) -> Type:
    """Run the body of a transaction, which commits or aborts it, and note the outcome.

    body: returns OK after a commit, FAIL after an abort. Raises _Abandoned when the producer cannot
    be used any more.
    """
    from confluent_kafka import KafkaException

    producer.begin_transaction()
    try:
        kind = body()
    except KafkaException as error:
        reason = error.args[0]
        if not reason.txn_requires_abort():
            transaction.note(INFO, reason.name())
            raise _Abandoned from error
        try:
            _retried(lambda: producer.abort_transaction(_TIMEOUT_S))
        except KafkaException as failure:
            transaction.note(INFO, failure.args[0].name())
            raise _Abandoned from failure
        transaction.note(FAIL, reason.name())
        return FAIL
    transaction.note(kind)
    return kind


def _commit(producer: Any) -> Type:
    # The flush brings the offsets of the records: delivery reports come before the commit.
    producer.flush(_TIMEOUT_S)
    _retried(lambda: producer.commit_transaction(_TIMEOUT_S))
    return OK


def _abort(producer: Any) -> Type:
    producer.flush(_TIMEOUT_S)
    _retried(lambda: producer.abort_transaction(_TIMEOUT_S))
    return FAIL


def _reopened(stop: threading.Event, session: Callable[[int], None]) -> None:
    """Run sessions, each with clients of its own, until `stop` is set."""
    from confluent_kafka import KafkaException

    for number in itertools.count(1):
        if stop.is_set():
            return
        try:
            session(number)
        except _Abandoned:
            continue
        except KafkaException:
            # A client could not begin (no coordinator yet): the next one tries again.
            stop.wait(0.2)


def _open_transactional(bootstrap: str, transactional_id: str) -> Any:
    settings = {
        "transactional.id": transactional_id,
        "transaction.timeout.ms": _TRANSACTION_TIMEOUT_MS,
        "linger.ms": 0,
    }
    producer = open_producer(bootstrap, settings)
    _retried(lambda: producer.init_transactions(_TIMEOUT_S))
    return producer


class TransactionalCopier(LoadThread):
    """One member of the group that copies. A record keeps its partition number."""

    def __init__(
        self,
        *,
        bootstrap: str,
        plan: TransactionalCopyPlan,
        source: str,
        number: int,
        history: HistoryWriter,
    ) -> None:
        super().__init__(f"{plan.group}-{number}", self._copy)
        self._servers = bootstrap
        self._plan = plan
        self._source = source
        self._process = f"{plan.group}-{number}"
        self._history = history
        self.copied = 0

    def _copy(self, stop: threading.Event) -> None:
        _reopened(stop, lambda number: self._session(stop, number))

    def _session(self, stop: threading.Event, number: int) -> None:
        settings = {"group.id": self._plan.group, "session.timeout.ms": 6_000}
        consumer = open_consumer(self._servers, settings)
        try:
            producer = _open_transactional(self._servers, self._process)
            consumer.subscribe([self._source])
            while not stop.is_set():
                messages = consumer.consume(self._plan.records_per_transaction, 0.2)
                read = [message for message in messages if message.error() is None]
                if read:
                    self._copy_batch(consumer, producer, read, f"{self._process}.{number}")
        finally:
            consumer.close()

    def _copy_batch(self, consumer: Any, producer: Any, messages: list[Any], process: str) -> None:
        from confluent_kafka import TopicPartition

        transaction = _Transaction(
            process=process,
            transactional_id=self._process,
            group=self._plan.group,
            history=self._history,
        )
        polls = polls_of(messages)
        transaction.polled(polls)
        commits = [Commit(poll.topic, poll.partition, poll.offsets[-1] + 1) for poll in polls]
        offsets = [TopicPartition(item.topic, item.partition, item.offset) for item in commits]

        def copy() -> Type:
            for message in messages:
                value = message.value()
                send = Send(self._plan.topic, message.partition(), decode(value))
                transaction.send(producer, send, value)
            transaction.committing(commits)
            transaction.invoke()
            member = consumer.consumer_group_metadata()
            _retried(lambda: producer.send_offsets_to_transaction(offsets, member, _TIMEOUT_S))
            return _commit(producer)

        if _carry_out(producer, transaction, copy) == OK:
            self.copied += len(messages)
        else:
            # The same records are read again, from the committed offsets.
            self._rewind(consumer)

    def _rewind(self, consumer: Any) -> None:
        from confluent_kafka import OFFSET_BEGINNING

        for place in consumer.committed(consumer.assignment(), _TIMEOUT_S):
            if place.offset < 0:
                place.offset = OFFSET_BEGINNING
            consumer.seek(place)


class TransactionsClient(LoadThread):
    """Sends to and polls from random partitions in one transaction, and aborts some."""

    def __init__(
        self,
        *,
        bootstrap: str,
        plan: TransactionsPlan,
        number: int,
        values: Iterator[int],
        history: HistoryWriter,
        rng: random.Random,
    ) -> None:
        super().__init__(f"{plan.topic}-txn-{number}", self._work)
        self._servers = bootstrap
        self._plan = plan
        self._process = f"{plan.topic}-txn-{number}"
        self._values = values
        self._history = history
        self._rng = rng
        self.committed = 0

    def _work(self, stop: threading.Event) -> None:
        _reopened(stop, lambda number: self._session(stop, number))

    def _session(self, stop: threading.Event, number: int) -> None:
        from confluent_kafka import TopicPartition

        plan = self._plan
        interval_s = plan.clients / plan.transactions_per_second
        consumer = open_consumer(self._servers, {"group.id": "chaos-transactions"})
        try:
            producer = _open_transactional(self._servers, self._process)
            # A new session is a new process: its reads begin at offset 0 again.
            consumer.assign([TopicPartition(plan.topic, n, 0) for n in range(plan.partitions)])
            while not stop.wait(interval_s * self._rng.uniform(0.5, 1.5)):
                self._transact(consumer, producer, f"{self._process}.{number}")
        finally:
            consumer.close()

    def _transact(self, consumer: Any, producer: Any, process: str) -> None:
        rng, plan = self._rng, self._plan
        transaction = _Transaction(
            process=process, transactional_id=self._process, group=None, history=self._history
        )
        is_aborted = rng.randrange(100) < plan.aborted_percent

        def read_and_write() -> Type:
            for _ in range(rng.randint(1, plan.operations_max)):
                if rng.random() < 0.5:
                    messages = consumer.consume(_POLL_RECORDS_MAX, 0.05)
                    transaction.polled(polls_of([m for m in messages if m.error() is None]))
                else:
                    value = next(self._values)
                    send = Send(plan.topic, rng.randrange(plan.partitions), value)
                    transaction.send(producer, send, encode(value, _RECORD_BYTES))
            transaction.invoke()
            return _abort(producer) if is_aborted else _commit(producer)

        self.committed += _carry_out(producer, transaction, read_and_write) == OK
