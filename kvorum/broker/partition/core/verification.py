"""The verification of transactional batches, in the leader of a partition. Pure.

The first batch of a transaction in a partition is appended only after the coordinator has confirmed
that the partition is part of the transaction (KIP-890). A batch that arrived late, after its
transaction's marker, would open a transaction that no marker ever ends. Batches that arrive
meanwhile wait behind the first one; its result applies to them too, in their order.

A marker makes an earlier result void. Bad sequence otherwise: 1. The coordinator confirms the
partition. 2. The transaction ends, and its marker is appended here. 3. The confirmation arrives,
and the batch is appended after the marker.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from kvorum.runtime.errors import ErrorCode
from kvorum.storage.files.producer_state import ProducerStateTable
from kvorum.storage.format.batch import BatchError, BatchHeader

T = TypeVar("T")

SEQUENCES_KEPT_MAX = 10_000
"""Producers whose first sequence is remembered; above this number the oldest is forgotten."""

FIRST_ADDING_VERSION = 12
"""First version of Produce for which the leader adds the partition to the transaction (KIP-890 part
2)."""

Key = tuple[int, int]
"""Producer id and epoch."""


class _Pending(Generic[T]):
    __slots__ = ("is_void", "leadership", "waiting")

    def __init__(self, leadership: int) -> None:
        self.leadership = leadership
        self.is_void = False
        self.waiting: list[T] = []


class Verifications(Generic[T]):
    """The verifications of one partition. T: the waiting items, which are returned in their
    order."""

    __slots__ = ("_first_sequences", "_leadership", "_pending")

    def __init__(self) -> None:
        self._leadership = 0
        """How often this broker has begun to lead; a new epoch of the same leader does not
        count."""
        self._pending: dict[Key, _Pending[T]] = {}
        self._first_sequences: dict[Key, int] = {}

    def is_pending(self, producer_id: int, producer_epoch: int) -> bool:
        return (producer_id, producer_epoch) in self._pending

    def on_leadership(self) -> None:
        """This broker begins to lead. The batches that waited under the earlier leader may have
        been appended, or sent elsewhere."""
        self._first_sequences.clear()
        self._leadership += 1

    def wait(self, producer_id: int, producer_epoch: int, sequence: int, item: T) -> bool:
        """Queue `item`, whose batch begins with `sequence`. True if the coordinator must be asked
        now."""
        key = (producer_id, producer_epoch)
        self._note_sequence(key, sequence)
        pending = self._pending.get(key)
        is_first = pending is None
        if pending is None:
            pending = self._pending[key] = _Pending(self._leadership)
        pending.waiting.append(item)
        return is_first

    def settle(
        self, producer_id: int, producer_epoch: int, verdict: ErrorCode
    ) -> tuple[list[T], ErrorCode]:
        """Apply the coordinator's answer: returns the waiting items, and the error that applies to
        all of them."""
        pending = self._pending.pop((producer_id, producer_epoch))
        if verdict == ErrorCode.NONE:
            if pending.leadership != self._leadership:
                # Another broker may have led in between, and appended the marker.
                verdict = ErrorCode.NOT_LEADER_OR_FOLLOWER
            elif pending.is_void:
                verdict = ErrorCode.INVALID_TXN_STATE
        return pending.waiting, verdict

    def is_first(self, producer_id: int, producer_epoch: int, sequence: int) -> bool:
        """True if no batch with a lower sequence has been waiting.

        A log that does not know the producer accepts any first sequence. Bad sequence: 1. Batch A
        fails its verification. 2. Batch B, sent after A, passes and starts the producer's sequence
        in the log. 3. A arrives again and is refused.
        """
        noted = self._first_sequences.get((producer_id, producer_epoch))
        return noted is None or sequence <= noted

    def on_append(self, producer_id: int, producer_epoch: int) -> None:
        """Forget the first sequence: a batch was appended, so the log knows the sequence itself."""
        self._first_sequences.pop((producer_id, producer_epoch), None)

    def on_marker(self, producer_id: int, producer_epoch: int, *, is_epoch_raised: bool) -> None:
        """Apply an appended marker. is_epoch_raised: as in ProducerStateTable.check_marker.

        If the epoch is raised, batches that wait in the marker's own epoch belong to the next
        transaction.
        """
        # The remembered sequence is of an ended transaction; the next may begin with any sequence.
        self._first_sequences.pop((producer_id, producer_epoch - is_epoch_raised), None)
        for (waiting_id, epoch), pending in self._pending.items():
            is_ended = epoch < producer_epoch or (epoch == producer_epoch and not is_epoch_raised)
            if waiting_id == producer_id and is_ended:
                pending.is_void = True

    def _note_sequence(self, key: Key, sequence: int) -> None:
        known = self._first_sequences.get(key)
        if known is None and len(self._first_sequences) >= SEQUENCES_KEPT_MAX:
            del self._first_sequences[next(iter(self._first_sequences))]
        self._first_sequences[key] = sequence if known is None else min(known, sequence)


def needs_verification(producers: ProducerStateTable, header: BatchHeader) -> bool:
    """True if the coordinator must first confirm that the batch's transaction has this partition.

    False if the transaction is open here already, or if the batch will be refused or is a
    duplicate.
    """
    if not header.is_transactional or producers.is_open(header.producer_id, header.producer_epoch):
        return False
    try:
        return producers.check(header) is None
    except BatchError:
        return False


def admit(
    producers: ProducerStateTable,
    verifications: Verifications[Any],
    header: BatchHeader,
    version: int,
    is_verified: bool,
) -> None:
    """Check a new transactional batch before its append; raises BatchError if it may not be
        appended.

    producers: of the log to append to. The batch has passed `ProducerStateTable.check`.
    version: of Produce.
    """
    producer_id, epoch = header.producer_id, header.producer_epoch
    if not is_verified and not producers.is_open(producer_id, epoch):
        # No marker would ever end the transaction that this batch opens.
        raise BatchError(
            ErrorCode.INVALID_TXN_STATE,
            f"producer {producer_id} epoch {epoch} has no transaction with this partition",
        )
    is_known = producer_id in producers.entries
    if not is_known and not verifications.is_first(producer_id, epoch, header.base_sequence):
        # Not OUT_OF_ORDER_SEQUENCE_NUMBER, which makes the client abort: the client sends the
        # earlier batch again, and then this one is in order.
        raise BatchError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"producer {producer_id} epoch {epoch} sequence {header.base_sequence}: an earlier"
            " batch of it was sent and is not here",
        )
    if not is_known and version >= FIRST_ADDING_VERSION and header.base_sequence:
        # The producer's epoch is of this transaction alone (KIP-890). So an earlier batch of it was
        # sent, maybe to another leader, and will arrive: after this one it would be out of order.
        raise BatchError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {producer_id} epoch {epoch} begins with sequence {header.base_sequence}, not"
            " with 0",
        )
    verifications.on_append(producer_id, epoch)
