"""Clients, partitions and a coordinator that fails over at any point: what must hold in the end.

Two instances share one transactional id and fence each other; their requests are repeated, their
answers lost, transactions time out, the coordinator dies with all that was not replicated, its
markers arrive late and twice. The world keeps, for each transaction that a client believed in, how
each of its partitions saw it end.

Invariants: a transaction ends the same way in all of its partitions; it ends as its client was
told; it is never committed unless its client asked for that; no request with an older identity
succeeds once a newer one was given out; epochs never go back; no request is answered twice.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from kvorum.broker.transactions.core.model import (
    AT_REST,
    State,
    TopicPartition,
    Transaction,
)
from kvorum.broker.transactions.core.records import encode_key, encode_value
from kvorum.broker.transactions.core.requests import (
    AddPartitions,
    EndTransaction,
    InitProducerId,
    MarkersWritten,
    ProducerIdentity,
    SendMarkers,
)
from kvorum.runtime.errors import ErrorCode
from tests.test_transactions.host import START_MS, CoordinatorRecord, Host

PARTITIONS = [TopicPartition("t", number) for number in range(3)]
ID = "x"
TRY_AGAIN = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)


@dataclass(eq=False)
class Work:
    """One transaction as its client sees it. ended: by partition, True if it was committed
    there."""

    is_commit_asked: bool = False
    told_commit: bool | None = None
    partitions: set[TopicPartition] = field(default_factory=set)
    ended: dict[TopicPartition, bool] = field(default_factory=dict)


@dataclass(eq=False)
class Client:
    """One producer instance. request, token: the request that it waits for; it sends one at a
    time."""

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
    """Markers on their way. missing: the partitions that have no marker yet."""

    question: SendMarkers
    missing: set[TopicPartition]
    is_stale: bool = False


class World:
    """versions: of the two clients. epoch: the producer epoch of the transactional id in the log;
    None: the id is new."""

    def __init__(self, epoch: int | None, versions: tuple[int, int]) -> None:
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
        self.given: list[ProducerIdentity] = []

    # --- clients ------------------------------------------------------------------------------

    def init(self, which: int, *, goes_on: bool) -> None:
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

    def work(self, which: int, partitions: Collection[TopicPartition]) -> None:
        """Without faults, bring the client from any state to a transaction with open partitions."""
        client = self.clients[which]
        if client.identity is None or client.is_dead:
            self.init(which, goes_on=False)
            self.settle()
            if client.request is not None:
                self.carry_through()
                self.repeat(which)
                self.settle()
        self.add(which, partitions)
        self.settle()

    def add(self, which: int, partitions: Collection[TopicPartition]) -> None:
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
                producer_epoch=client.identity.producer_epoch, partitions=frozenset(partitions),
                client_version=client.version,
            ),
        )  # fmt: skip

    def end(self, which: int, *, is_commit: bool) -> None:
        client = self.clients[which]
        if client.request is not None or client.work is None or client.is_dead:
            return
        self._end(client, is_commit)

    def change_mind(self, which: int) -> None:
        """No answer came, and the client now asks for the opposite."""
        client = self.clients[which]
        if client.is_retriable and isinstance(client.request, EndTransaction):
            self._end(client, not client.request.is_commit)

    def _end(self, client: Client, is_commit: bool) -> None:
        assert client.work is not None and client.identity is not None
        client.work.is_commit_asked |= is_commit
        self._ask(
            client,
            EndTransaction(
                transactional_id=ID, producer_id=client.identity.producer_id,
                producer_epoch=client.identity.producer_epoch, is_commit=is_commit,
                client_version=client.version,
            ),
        )  # fmt: skip

    def repeat(self, which: int) -> None:
        """Send the same request again, after a lost answer or a retriable error."""
        client = self.clients[which]
        if client.request is not None and client.is_retriable:
            self._ask(client, client.request)

    def _ask(self, client: Client, request: Any) -> None:
        client.request, client.is_retriable = request, False
        client.token = self.host.ask(request)
        self.hear()

    def hear(self) -> None:
        """Process the answers and questions of the coordinator."""
        for client in sorted(self.clients, key=lambda client: client.token):
            if client.request is None or client.is_retriable:
                continue
            if client.token in self.host.answers:
                self._take(client, self.host.answers[client.token])
        for question in self.host.markers:
            self.host.asks.remove(question)
            self.sent.append(Sent(question, set(question.partitions)))

    def _take(self, client: Client, answer: Any) -> None:
        if answer in TRY_AGAIN:
            client.is_retriable = True
            return
        request, client.request = client.request, None
        if isinstance(answer, ErrorCode):
            # All these errors are fatal: the instance must restart.
            client.is_dead, client.work = True, None
            return
        if isinstance(request, InitProducerId):
            self.given.append(answer)
            client.identity = answer
            return
        self._check_not_fenced(client, request)
        assert client.work is not None
        if isinstance(request, AddPartitions):
            assert answer == dict.fromkeys(request.partitions, ErrorCode.NONE)
            for partition in sorted(request.partitions):
                self._produce(client, partition)
            return
        client.work.told_commit = request.is_commit
        client.work = None
        client.identity = answer
        self.given.append(answer)

    def _check_not_fenced(self, client: Client, request: Any) -> None:
        """A request succeeded: assert that no newer epoch of its producer id was given out
        before."""
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

    def replicate(self, count: int) -> None:
        self.host.replicate(min(self.host.replicated + count, len(self.host.log)))
        self.hear()

    def settle(self) -> None:
        """Give producer ids, and replicate the log."""
        self.host.give_producer_ids()
        self.host.replicate()
        self.hear()

    def give_producer_ids(self, *, is_there: bool) -> None:
        self.host.give_producer_ids(is_there=is_there)
        self.hear()

    def fail_over(self, keep: int) -> None:
        self.host.fail_over(self.host.replicated + keep)
        for sent in self.sent:
            sent.is_stale = True
        self.hear()

    def pass_time(self, by_ms: int = 30_000) -> None:
        self.host.advance(by_ms)
        self.hear()

    # --- markers ------------------------------------------------------------------------------

    def deliver(self, sent: Sent, partition: TopicPartition, *, times: int = 1) -> None:
        """Deliver a marker to its partition, maybe one of a stale coordinator."""
        for _ in range(times):
            self._mark(partition, sent.question)
        sent.missing.discard(partition)
        self._finish(sent)

    def carry_through(self) -> None:
        """Deliver every marker of the present coordinator."""
        for sent in [sent for sent in self.sent if not sent.is_stale]:
            for partition in sorted(sent.missing):
                self.deliver(sent, partition)

    def _mark(self, partition: TopicPartition, marker: SendMarkers) -> None:
        """Write the marker as the partition's leader does; older coordinators are refused (52)."""
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
        if sent.missing or sent not in self.sent:
            return
        self.sent.remove(sent)
        if not sent.is_stale:
            question = sent.question
            self.host.tell(MarkersWritten(ask_id=question.ask_id, transactional_id=ID))
            self.hear()

    # --- what holds -----------------------------------------------------------------------------

    def check(self) -> None:
        for work in self.works:
            ends = set(work.ended.values())
            assert len(ends) <= 1, "one partition committed, another aborted"
            assert True not in ends or work.is_commit_asked, "nobody asked for this commit"
            assert work.told_commit is None or ends <= {work.told_commit}, "not as it was told"

    def finish(self) -> None:
        """No more faults: every decision is completed, every partition gets its marker."""
        self.sent = [sent for sent in self.sent if not sent.is_stale]
        for _ in range(3):
            self.settle()
            self.carry_through()
            self.pass_time(70_000)
        self.settle()
        self.carry_through()
        assert not self.sent
        held = self.host.state(ID) if self.host.log else None
        assert held is None or held.state in AT_REST, held.summary()
        assert not self.open, "a transaction hangs"
        epochs: dict[int, int] = {}
        for state in self.host.states(ID):
            assert state is not None
            assert state.producer_epoch >= epochs.get(state.producer_id, 0), "an epoch went back"
            epochs[state.producer_id] = state.producer_epoch
        self.check()
        for work in self.works:
            assert set(work.ended) == work.partitions
