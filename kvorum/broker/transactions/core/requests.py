"""The requests to a shard of transactional ids, and their replies: plain data, no schema classes.

A refusal is an ErrorCode instead of the reply. A fenced producer always gets PRODUCER_FENCED; API
files turn it into INVALID_PRODUCER_EPOCH for versions that do not know it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from kvorum.broker.transactions.core.model import (
    NO_EPOCH,
    NO_PRODUCER_ID,
    State,
    TopicPartition,
)
from kvorum.runtime.errors import ErrorCode

EPOCH_BUMP_VERSION = 2
"""transaction.version from which each end of a transaction raises the epoch (KIP-890 part 2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducerId:
    """Register a producer for a transactional id; the producer before it is fenced.

    producer_id, producer_epoch: the client's identity, with which it continues after an error
    (KIP-360). Reply: ProducerIdentity.
    """

    transactional_id: str
    timeout_ms: int
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH

    @property
    def has_identity(self) -> bool:
        return self.producer_id != NO_PRODUCER_ID


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitions:
    """Add the partitions to the producer's transaction, which begins if none is open.

    is_verify_only: change nothing; answer which partitions are in the transaction (KIP-890 part 1).
    client_version: 2 for clients of KIP-890 part 2. Reply: ErrorCode by partition.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: frozenset[TopicPartition]
    is_verify_only: bool = False
    client_version: int = 0

    @property
    def needs_replicas(self) -> bool:
        """A verification writes nothing (see `coordinator.model.Request`)."""
        return not self.is_verify_only


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransaction:
    """Commit or abort. client_version: as in AddPartitions. Reply: ProducerIdentity for the next
    transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_commit: bool
    client_version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeTransaction:
    """Reply: TransactionDescription (KIP-664)."""

    needs_replicas: ClassVar[bool] = False
    transactional_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ListTransactions:
    """Reply: tuple of TransactionListing, of one shard (KIP-664, KIP-994).

    states, producer_ids: empty for all.
    running_ms_min: only transactions open for longer than this; negative for all.
    """

    needs_replicas: ClassVar[bool] = False
    states: frozenset[State] = frozenset()
    producer_ids: frozenset[int] = frozenset()
    running_ms_min: int = -1


TransactionRequest = (
    InitProducerId | AddPartitions | EndTransaction | DescribeTransaction | ListTransactions
)


@dataclass(frozen=True, slots=True)
class ProducerIdentity:
    producer_id: int
    producer_epoch: int


PartitionErrors = Mapping[TopicPartition, ErrorCode]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionDescription:
    """partitions: of a prepared transaction, all its partitions (in Kafka: those without a
    marker)."""

    transactional_id: str
    state: State
    timeout_ms: int
    start_ms: int
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class TransactionListing:
    transactional_id: str
    producer_id: int
    state: State


# --- with the driver ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeProducerId:
    """A question: requests a producer id that was never given out. Answered by ProducerIdTaken."""

    transactional_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdTaken:
    """producer_id: None if there is none now."""

    transactional_id: str
    producer_id: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SendMarkers:
    """A question: write the marker to every partition, and answer MarkersWritten when all have it.

    ask_id: identifies this question in its answer.
    producer_epoch: of the marker.
    coordinator_epoch: leader epoch of the partition of `__transaction_state`, by which partitions
        refuse an older coordinator.
    transaction_version: 2 if the marker's epoch must be above that of the records that it ends.
    """

    ask_id: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    transaction_version: int
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkersWritten:
    """Every partition of that question has its marker, replicated, or was deleted."""

    ask_id: int
    transactional_id: str
