"""Clients, partitions and a coordinator that fails over at any point: what must hold in the end.

Two instances share one transactional id and fence each other; their requests are repeated, their
answers lost, transactions time out, the coordinator dies with all that was not replicated, its
markers arrive late and twice. The world keeps, for each transaction that a client believed in, how
each of its partitions saw it end.

Invariants: a transaction ends the same way in all of its partitions; it ends as its client was
told; it is never committed unless its client asked for that; nobody with an older identity gets
anything done once a newer one was given out; epochs never go back; no request is answered twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker.transactions.model import AT_REST, EPOCH_EXHAUSTED, State, TopicPartition, Transaction
from broker.transactions.records import encode_key, encode_value
from broker.transactions.requests import (
    AddPartitions,
    EndTransaction,
    InitProducerId,
    MarkersWritten,
    ProducerIdentity,
    SendMarkers,
    TakeProducerId,
)
from runtime.errors import ErrorCode
from tests.test_transactions.host import START_MS, CoordinatorRecord, Host

PARTITIONS = [TopicPartition("t", number) for number in range(3)]
ID = "x"


@dataclass(eq=False)
class Work:
    """One transaction as its client sees it. ended: partition to whether it was committed."""

    is_commit_asked: bool = False
    told_commit: bool | None = None
    partitions: set[TopicPartition] = field(default_factory=set)
    ended: dict[TopicPartition, bool] = field(default_factory=dict)


@dataclass(eq=False)
class Client:
    """One instance. request, token: what it waits for; it asks one thing at a time."""

    version: int
    identity: ProducerIdentity | None = None
    work: Work | None = None
    request: Any = None
    token: int = -1
    is_retriable: bool = False
    is_dead: bool = False


@dataclass(eq=False)
class Open:
    """Records of a transaction in a partition, without a marker yet."""

    epoch: int
    work: Work


@dataclass(eq=False)
class Sent:
    """Markers on their way. missing: partitions that have not answered."""

    question: SendMarkers
    missing: set[TopicPartition]
    is_stale: bool = False


class Transactions(RuleBasedStateMachine):
    @initialize(
        epoch=st.sampled_from([None, 0, EPOCH_EXHAUSTED - 2, EPOCH_EXHAUSTED]),
        versions=st.sampled_from([(2, 2), (0, 0), (0, 2)]),
    )
    def start(self, epoch: int | None, versions: tuple[int, int]) -> None:
        self.host = Host()
        if epoch is not None:
            held = Transaction(
                transactional_id=ID, producer_id=7, producer_epoch=epoch, timeout_ms=60_000,
                state=State.EMPTY, updated_ms=START_MS,
            )  # fmt: skip
            self.host.log.append(CoordinatorRecord(encode_key(ID), encode_value(held, 1)))
            self.host.replicated = 1
            self.host.fail_over()
        self.clients = [Client(version) for version in versions]
        self.works: list[Work] = []
        self.open: dict[tuple[TopicPartition, int], Open] = {}
        self.coordinator_epochs: dict[tuple[TopicPartition, int], int] = {}
        self.marker_epochs: dict[tuple[TopicPartition, int], int] = {}
        self.sent: list[Sent] = []
        #: Position in the order of identities given out; a client asks with that of its request.
        self.given: list[ProducerIdentity] = []

    # --- clients ------------------------------------------------------------------------------

    @rule(which=st.integers(0, 1), goes_on=st.booleans())
    def init(self, which: int, goes_on: bool) -> None:
        client = self.clients[which]
        if client.request is not None:
            return
        fields = {}
        if goes_on and client.identity is not None and not client.is_dead:
            fields = {
                "producer_id": client.identity.producer_id,
                "producer_epoch": client.identity.producer_epoch,
            }
        else:
            client.is_dead = False
        client.work = None
        self._ask(client, InitProducerId(transactional_id=ID, timeout_ms=60_000, **fields))

    @rule(which=st.integers(0, 1), partition=st.sampled_from(PARTITIONS))
    def add(self, which: int, partition: TopicPartition) -> None:
        client = self.clients[which]
        if client.request is not None or client.identity is None or client.is_dead:
            return
        if client.work is None:
            client.work = Work()
            self.works.append(client.work)
        self._ask(
            client,
            AddPartitions(
                transactional_id=ID, producer_id=client.identity.producer_id,
                producer_epoch=client.identity.producer_epoch, partitions=frozenset({partition}),
                client_version=client.version,
            ),
        )  # fmt: skip

    @rule(which=st.integers(0, 1), is_commit=st.booleans())
    def end(self, which: int, is_commit: bool) -> None:
        client = self.clients[which]
        if client.request is not None or client.identity is None or client.is_dead:
            return
        if client.work is None:
            return
        client.work.is_commit_asked = is_commit
        self._ask(
            client,
            EndTransaction(
                transactional_id=ID, producer_id=client.identity.producer_id,
                producer_epoch=client.identity.producer_epoch, is_commit=is_commit,
                client_version=client.version,
            ),
        )  # fmt: skip

    @rule(which=st.integers(0, 1))
    def repeat(self, which: int) -> None:
        """The answer was lost, or it said to try again."""
        client = self.clients[which]
        if client.request is not None and client.is_retriable:
            self._ask(client, client.request)

    def _ask(self, client: Client, request: Any) -> None:
        client.request, client.is_retriable = request, False
        client.token = self.host.ask(request)
        self._hear()

    def _hear(self) -> None:
        """Take the answers that are there."""
        for client in self.clients:
            if client.request is None or client.is_retriable:
                continue
            if client.token in self.host.answers:
                self._take(client, self.host.answers[client.token])
        for question in [a for a in self.host.asks if isinstance(a, SendMarkers)]:
            self.host.asks.remove(question)
            self.sent.append(Sent(question, set(question.partitions)))

    def _take(self, client: Client, answer: Any) -> None:
        if answer in (
            ErrorCode.CONCURRENT_TRANSACTIONS,
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ):
            client.is_retriable = True
            return
        request, client.request = client.request, None
        if isinstance(answer, ErrorCode):
            # All of these are fatal: the instance must start anew.
            client.is_dead, client.work = True, None
            return
        if isinstance(request, InitProducerId):
            self.given.append(answer)
            client.identity = answer
            return
        assert client.identity is not None
        self._check_not_fenced(client, answer, request)
        if isinstance(request, AddPartitions):
            assert client.work is not None and answer == dict.fromkeys(request.partitions, 0)
            for partition in request.partitions:
                self._produce(client, partition)
            return
        assert client.work is not None
        client.work.told_commit = request.is_commit
        client.work = None
        client.identity = answer
        self.given.append(answer)

    def _check_not_fenced(self, client: Client, answer: Any, request: Any) -> None:
        """Success for an identity: none above it was given to anybody else before."""
        assert client.identity is not None
        newest = max(
            (i.producer_epoch for i in self.given if i.producer_id == client.identity.producer_id),
            default=-1,
        )
        assert client.identity.producer_epoch >= newest, f"{client.identity} did {request}"

    def _produce(self, client: Client, partition: TopicPartition) -> None:
        assert client.identity is not None and client.work is not None
        if partition in client.work.partitions:
            return
        client.work.partitions.add(partition)
        key = (partition, client.identity.producer_id)
        assert key not in self.open, f"{partition} has a transaction open still"
        self.open[key] = Open(client.identity.producer_epoch, client.work)

    # --- the coordinator ------------------------------------------------------------------------

    @rule(count=st.integers(1, 3))
    def replicate(self, count: int) -> None:
        self.host.replicate(min(self.host.replicated + count, len(self.host.log)))
        self._hear()

    @precondition(lambda self: any(isinstance(a, TakeProducerId) for a in self.host.asks))
    @rule(is_there=st.booleans())
    def give_producer_id(self, is_there: bool) -> None:
        self.host.give_producer_ids(is_there=is_there)
        self._hear()

    @rule(keep=st.integers(0, 2))
    def fail_over(self, keep: int) -> None:
        self.host.fail_over(self.host.replicated + keep)
        for sent in self.sent:
            sent.is_stale = True
        self._hear()

    @rule()
    def time_passes(self) -> None:
        self.host.advance(30_000)
        self._hear()

    # --- markers ------------------------------------------------------------------------------

    @precondition(lambda self: self.sent)
    @rule(data=st.data(), is_repeated=st.booleans())
    def deliver(self, data: Any, is_repeated: bool) -> None:
        """A marker reaches its partition; of a stale coordinator too."""
        sent = data.draw(st.sampled_from(self.sent))
        if not sent.missing:
            return
        partition = data.draw(st.sampled_from(sorted(sent.missing)))
        for _ in range(2 if is_repeated else 1):
            self._mark(partition, sent.question)
        sent.missing.discard(partition)
        self._finish(sent)

    def _mark(self, partition: TopicPartition, marker: SendMarkers) -> None:
        """What the partition's leader does; older coordinators are refused (52)."""
        key = (partition, marker.producer_id)
        if marker.coordinator_epoch < self.coordinator_epochs.get(key, 0):
            return
        self.coordinator_epochs[key] = marker.coordinator_epoch
        assert marker.producer_epoch >= self.marker_epochs.get(key, 0)
        self.marker_epochs[key] = marker.producer_epoch
        held = self.open.pop(key, None)
        if held is not None:
            least = held.epoch + (1 if marker.transaction_version == 2 else 0)
            assert marker.producer_epoch >= least
            held.work.ended[partition] = marker.is_commit

    def _finish(self, sent: Sent) -> None:
        if sent.missing:
            return
        self.sent.remove(sent)
        if not sent.is_stale:
            question = sent.question
            self.host.tell(MarkersWritten(ask_id=question.ask_id, transactional_id=ID))
            self._hear()

    # --- what holds -----------------------------------------------------------------------------

    @invariant()
    def transactions_end_as_one(self) -> None:
        for work in getattr(self, "works", []):
            ends = set(work.ended.values())
            assert len(ends) <= 1, "one partition committed, another aborted"
            if True in ends:
                assert work.is_commit_asked
            if work.told_commit is not None:
                assert ends <= {work.told_commit}

    @invariant()
    def epochs_never_go_back(self) -> None:
        if not hasattr(self, "host"):
            return
        epochs: dict[int, int] = {}
        for held in self.host.states(ID):
            if held is not None:
                assert held.producer_epoch >= epochs.get(held.producer_id, 0)
                epochs[held.producer_id] = held.producer_epoch

    def teardown(self) -> None:
        """Nothing fails any more: every decision is carried through, every partition hears."""
        if not hasattr(self, "host"):
            return
        self.sent = [sent for sent in self.sent if not sent.is_stale]
        for _ in range(20):
            self.host.replicate()
            self.host.give_producer_ids()
            self._hear()
            for sent in list(self.sent):
                for partition in sorted(sent.missing):
                    self._mark(partition, sent.question)
                sent.missing.clear()
                self._finish(sent)
            if self.host.state(ID) if self.host.log else None:
                self.host.advance(70_000)
        self._hear()
        assert not self.sent
        held = self.host.state(ID) if self.host.log else None
        assert held is None or held.state in AT_REST, held.summary()
        assert not self.open, "a transaction hangs"
        for work in self.works:
            assert set(work.ended) == work.partitions
            if work.told_commit is not None:
                assert set(work.ended.values()) <= {work.told_commit}


TestTransactions = Transactions.TestCase
TestTransactions.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
