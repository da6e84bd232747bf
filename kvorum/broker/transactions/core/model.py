"""The state of one transactional id, and the table of its transitions. Pure.

A transaction is in exactly one state. Each change of state is one record in `__transaction_state`,
so that a new coordinator finds every transactional id where the old one left it. `PREDECESSORS` is
the whole table. Only `Transaction.moved` changes the state, and it refuses transitions that are not
in the table.
"""

from __future__ import annotations

import dataclasses
import enum
from dataclasses import dataclass
from typing import Any, NamedTuple

from kvorum.runtime.errors import invariant

NO_PRODUCER_ID = -1
NO_EPOCH = -1
EPOCH_MAX = 32_767
EPOCH_EXHAUSTED = EPOCH_MAX - 1
"""Highest epoch of a producer; the one above it is kept for fencing that producer."""


class State(enum.IntEnum):
    """The values are those of Kafka's records (TransactionState.java).

    Kafka's state 7, PrepareEpochFence, exists only in memory, between raising the epoch and
    aborting. These two are one step here.
    """

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6


NAMES: dict[State, str] = {
    State.EMPTY: "Empty",
    State.ONGOING: "Ongoing",
    State.PREPARE_COMMIT: "PrepareCommit",
    State.PREPARE_ABORT: "PrepareAbort",
    State.COMPLETE_COMMIT: "CompleteCommit",
    State.COMPLETE_ABORT: "CompleteAbort",
    State.DEAD: "Dead",
}
"""Names of the states in Kafka's tools and KIP-664."""

PREPARED = frozenset({State.PREPARE_COMMIT, State.PREPARE_ABORT})
"""The outcome is decided and markers are being written; no request may change the state."""

AT_REST = frozenset({State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT})
"""No transaction is open."""

PREDECESSORS: dict[State, frozenset[State]] = {
    State.EMPTY: AT_REST,
    State.ONGOING: AT_REST | {State.ONGOING},
    State.PREPARE_COMMIT: frozenset({State.ONGOING}),
    # Not only from ONGOING: with KIP-890 a client may abort a transaction without partitions, and
    # its epoch rises all the same.
    State.PREPARE_ABORT: AT_REST | {State.ONGOING},
    State.COMPLETE_COMMIT: frozenset({State.PREPARE_COMMIT}),
    State.COMPLETE_ABORT: frozenset({State.PREPARE_ABORT}),
    State.DEAD: AT_REST,
}
"""Each state -> the states from which it may be entered."""


class TopicPartition(NamedTuple):
    """A partition by its topic's name, as the records of `__transaction_state` have it."""

    topic: str
    partition_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """One transactional id, as its last record describes it.

    previous_producer_id: the id before the current one, whose epochs were used up; -1 if none.
    next_producer_id: in a PREPARE state, the id that the producer gets when the transaction is
        complete; -1 if none.
    last_producer_epoch: the epoch before the last rise that the producer itself requested
        (KIP-360), by which a repeat of that request is recognised; in memory only, -1 after a load.
    start_ms: wall time of the first partition, -1 while there is none.
    client_version: 2 for clients of KIP-890 part 2 (the epoch rises at each end), else 0.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: State
    partitions: frozenset[TopicPartition] = frozenset()
    updated_ms: int
    start_ms: int = -1
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    last_producer_epoch: int = NO_EPOCH
    client_version: int = 0

    def moved(self, state: State, **changes: Any) -> Transaction:
        """The transactional id in its next state."""
        invariant(
            self.state in PREDECESSORS[state],
            f"transactional id {self.transactional_id}: {self.state.name} to {state.name}",
        )
        after: Transaction = dataclasses.replace(self, state=state, **changes)
        invariant(
            after.producer_id != self.producer_id or after.producer_epoch >= self.producer_epoch,
            f"transactional id {self.transactional_id}: epoch {self.producer_epoch} of producer "
            f"{self.producer_id} to {after.producer_epoch}",
        )
        return after

    @property
    def is_epoch_exhausted(self) -> bool:
        return self.producer_epoch >= EPOCH_EXHAUSTED

    @property
    def is_committed(self) -> bool:
        """In a PREPARE or COMPLETE state: True if the outcome is a commit."""
        return self.state in (State.PREPARE_COMMIT, State.COMPLETE_COMMIT)

    def summary(self) -> str:
        """One line for logs, tests and tools."""
        return (
            f"{self.transactional_id} {NAMES[self.state]} producer={self.producer_id}/"
            f"{self.producer_epoch} partitions={len(self.partitions)}"
        )
