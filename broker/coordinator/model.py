"""What a coordinator's shard and its host tell each other. Pure.

A shard is the state machine of one partition of an internal topic (`__consumer_offsets`,
`__transaction_state`). Its host replays the partition's log into it, then gives it events and
carries out the effects, in their order:

    event -> shard.step -> [Append, Answer, SetTimer, ...] -> log, clients, timers

The shard changes its state as it decides; there is no undo. That is sound because an append fails
only together with the leadership or the disk, and then the host drops the whole shard, fails
everyone who waits with NOT_COORDINATOR, and the next leader loads it from the log. Before a request
that may write, the host has made sure that enough replicas are in sync.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from kvorum.runtime.errors import ErrorCode


class Instant(NamedTuple):
    """The time by two clocks. monotonic_ms: for timers. wall_ms: for timestamps in records."""

    monotonic_ms: int
    wall_ms: int


# --- the log -------------------------------------------------------------------------------------


class CoordinatorRecord(NamedTuple):
    """One record to write. value None: a tombstone."""

    key: bytes
    value: bytes | None


class ReplayedRecord(NamedTuple):
    """One record read back. producer_id, producer_epoch: of its batch, -1 without. A record of a
    transaction (is_transactional) counts only once that producer's marker commits it."""

    offset: int
    timestamp_ms: int
    key: bytes
    value: bytes | None
    producer_id: int
    producer_epoch: int
    is_transactional: bool


class TransactionEnd(NamedTuple):
    """A marker in the partition: that producer's open transaction ended here."""

    producer_id: int
    producer_epoch: int
    is_commit: bool


# --- events --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A client's request. token: names this request in `Answer`; body: the shard's own request
    types.

    A body type that never leads to an `Append` has `needs_replicas = False`; others are refused
    with COORDINATOR_NOT_AVAILABLE while too few replicas are in sync. client_host: as Kafka writes
    it in a member's metadata, `/127.0.0.1`.
    """

    token: int
    body: Any
    client_id: str = ""
    client_host: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerFired:
    """The deadline of the timer `name` has passed; the timer is no longer set."""

    name: Hashable


@dataclass(frozen=True, slots=True, kw_only=True)
class Durable:
    """Everything appended before `Barrier(tag)` is replicated to the in-sync replicas."""

    tag: Hashable


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionEnded:
    """A marker was appended to this partition (by WriteTxnMarkers)."""

    end: TransactionEnd


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsChanged:
    """The metadata changed. image: the new cluster image; deleted: names of deleted topics.

    changed: names of topics that are new, grown or deleted; empty right after the load. An image
    may lag the log, so a topic counts as gone only if `deleted` names it.
    """

    image: Any
    changed: frozenset[str]
    deleted: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A fact that the coordinator's driver found out (an answer of another broker)."""

    fact: Any


Event = Request | TimerFired | Durable | TransactionEnded | TopicsChanged | Told


# --- effects -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """Write the records as one batch: a reader finds all of them or none.

    producer: (producer id, epoch) makes the batch part of that producer's transaction
    (TxnOffsetCommit).
    """

    records: tuple[CoordinatorRecord, ...]
    producer: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The response to a request, or the error that its API file turns into one.

    is_durable: the answer leaves once everything appended so far is replicated, so that a fail-over
    cannot take it back. Otherwise it leaves at once.
    """

    token: int
    response: Any | ErrorCode
    is_durable: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Barrier:
    """Asks for `Durable(tag)` once everything appended so far is replicated."""

    tag: Hashable


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTimer:
    """Asks for `TimerFired(name)` at deadline_ms (monotonic); replaces a timer of the same name."""

    name: Hashable
    deadline_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelTimer:
    """Cancels the timer, if it is set."""

    name: Hashable


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A request to the coordinator's driver, which answers by `Told`: a producer id, sent
    markers."""

    question: Any


Effect = Append | Answer | Barrier | SetTimer | CancelTimer | Ask


class Shard(Protocol):
    """See the top of the file. One shard for each partition, made anew for each term as its
    leader."""

    def replay(self, record: ReplayedRecord) -> None:
        """Apply one record of the log; called in order, before `on_loaded`. Raises CorruptData."""
        ...

    def replay_end(self, end: TransactionEnd) -> None:
        """Apply a marker of the log, in order with the records."""
        ...

    def on_loaded(self, now: Instant) -> list[Effect]:
        """The whole log has been replayed: set timers, resume work that was broken off."""
        ...

    def step(self, event: Event, now: Instant) -> list[Effect]:
        """Decide about an event; never raises for anything that a client can send."""
        ...
