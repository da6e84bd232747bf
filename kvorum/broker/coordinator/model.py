"""Events and effects between a coordinator's shard and its host. Pure.

A shard is the state machine of one partition of an internal topic (`__consumer_offsets`,
`__transaction_state`, `__kvorum_events`). Its host replays the partition's log into it. Then the
host gives it events and carries out the effects in order:

  event -> shard.step -> [Append, Answer, SetTimer, ...] -> log, clients, timers

The shard changes its state as it decides, and cannot undo it. That is safe because an append fails
only if the leadership or the disk is lost. The host then drops the whole shard and answers all
waiting requests NOT_COORDINATOR, and the next leader loads the shard from the log. Before a request
that may write, the host has checked that enough replicas are in sync.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from kvorum.runtime.errors import ErrorCode


class Instant(NamedTuple):
    """The time by two clocks.

    monotonic_ms: for timers.
    wall_ms: for timestamps in records.
    """

    monotonic_ms: int
    wall_ms: int


# --- the log -------------------------------------------------------------------------------------


class CoordinatorRecord(NamedTuple):
    """One record to write. value None: a tombstone."""

    key: bytes
    value: bytes | None


class ReplayedRecord(NamedTuple):
    """One record read from the log. producer_id, producer_epoch: of its batch, -1 if it has
    none. A record of a transaction (is_transactional) counts only once that producer's marker
    commits it."""

    offset: int
    timestamp_ms: int
    key: bytes
    value: bytes | None
    producer_id: int
    producer_epoch: int
    is_transactional: bool


class TransactionEnd(NamedTuple):
    """A transaction marker in the partition: it ends that producer's open transaction."""

    producer_id: int
    producer_epoch: int
    is_commit: bool


# --- events --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """The client of a request. host: as Kafka writes it in a member's metadata, `/127.0.0.1`.

    may_describe: whether the client may know of a topic; None if it may know of all.
    """

    id: str = ""
    host: str = ""
    may_describe: Callable[[str], bool] | None = None


NOBODY = Client()
"""The client of a request that is the broker's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardRequest:
    """A client's request.

    token: identifies the request in `ShardAnswer`.
    body: one of the shard's request types.

    A type of body that never leads to an `Append` has `needs_replicas = False`. Others are refused
    with COORDINATOR_NOT_AVAILABLE while too few replicas are in sync. Every timer that is due by
    then has fired before the request.
    """

    token: int
    body: Any
    client: Client = NOBODY


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerFired:
    """The deadline of the timer `name` has passed; the timer is no longer set."""

    name: Hashable


@dataclass(frozen=True, slots=True, kw_only=True)
class Durable:
    """All in-sync replicas have everything appended before `Barrier(tag)`."""

    tag: Hashable


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionEnded:
    """WriteTxnMarkers appended a marker to this partition."""

    end: TransactionEnd


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsChanged:
    """The metadata changed.

    image: the new cluster image.
    deleted: names of deleted topics.

    changed: names of topics that were created, grown or deleted; empty right after the load. An
    image may lag behind the log, so a topic counts as deleted only if `deleted` names it.
    """

    image: Any
    changed: frozenset[str]
    deleted: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class FactLearned:
    """A fact that the coordinator's driver found out, such as another broker's answer."""

    fact: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """The records of `Append(tag)` are in the leader's log, the first of them at `base_offset`."""

    tag: Any
    base_offset: int


Event = (
    ShardRequest | TimerFired | Durable | TransactionEnded | TopicsChanged | FactLearned | Appended
)


# --- effects -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """Write the records as one batch: a reader finds all of them or none.

    producer: (producer id, epoch) makes the batch part of that producer's transaction
        (TxnOffsetCommit).
    timestamps_ms: of each record; None for the time of the append.
    tag: asks for `Appended(tag)`; None asks for nothing.
    """

    records: tuple[CoordinatorRecord, ...]
    producer: tuple[int, int] | None = None
    timestamps_ms: tuple[int, ...] | None = None
    tag: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardAnswer:
    """The answer to a request, or an ErrorCode from which the API file builds it.

    is_durable: the answer is sent once everything appended so far is replicated, so that a
    fail-over cannot undo it. Otherwise it is sent at once.
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
    """A question to the coordinator's driver, which answers by `FactLearned`: a request for a
    producer id, for markers to be sent, or for metadata events."""

    question: Any


Effect = Append | ShardAnswer | Barrier | SetTimer | CancelTimer | Ask


class Shard(Protocol):
    """One partition's shard, created for each leader epoch. See the docstring of this module."""

    def replay(self, record: ReplayedRecord) -> None:
        """Apply one record of the log. Called in log order, before `on_loaded`. Raises
        CorruptData."""
        ...

    def replay_end(self, end: TransactionEnd) -> None:
        """Apply a marker of the log, in log order with the records."""
        ...

    def on_loaded(self, now: Instant) -> list[Effect]:
        """The whole log was replayed: set timers, and resume interrupted work. Raises
        CorruptData."""
        ...

    def step(self, event: Event, now: Instant) -> list[Effect]:
        """Handle an event; never raises for anything that a client can send."""
        ...
