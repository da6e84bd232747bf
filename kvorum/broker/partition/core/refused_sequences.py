"""Batches of idempotent producers that were refused with NOT_ENOUGH_REPLICAS. Pure.

Bad sequence of a client with several requests in flight: 1. Batch A is refused with
NOT_ENOUGH_REPLICAS. 2. A follower joins the ISR. 3. Batch B arrives, sent after A. As a gap, B
would get OUT_OF_ORDER_SEQUENCE_NUMBER. On that error librdkafka raises its producer epoch and
writes all batches in flight anew, to any partition, including those that a log has already:
duplicates.

So B is refused with A's error until A arrives again. A client retries in order. If B arrives a
second time and no earlier batch has, the client gave up A (its retries are over), and B is checked
as if A had not been sent.
"""

from __future__ import annotations

from kvorum.runtime.errors import ErrorCode
from kvorum.storage.files.producer_state import BATCHES_KEPT, Duplicate, ProducerStateTable
from kvorum.storage.format.batch import BatchError, BatchHeader

SEQUENCES = 1 << 31
PRODUCERS_KEPT_MAX = 1_000
"""Producers remembered for one partition; the one refused longest ago is forgotten first."""


_Batch = tuple[int, int]
"""Producer epoch and first sequence."""


class RefusedSequences:
    """Batches of one partition that this broker refused while it leads. A new leader starts with
    none."""

    __slots__ = ("_by_producer",)

    def __init__(self) -> None:
        self._by_producer: dict[int, dict[_Batch, bool]] = {}
        """Refused batches by producer id. True: the batch was held back for an earlier one, and no
        earlier batch has arrived since."""

    def note(self, header: BatchHeader, *, is_held_back: bool = False) -> None:
        """Remember that the batch was refused and that its producer will send it again."""
        if header.base_sequence < 0:
            return
        # Move the producer to the end of the dict's order.
        refused = self._by_producer.pop(header.producer_id, None) or {}
        self._by_producer[header.producer_id] = refused
        batch = _of(header)
        refused.pop(batch, None)
        _note_arrival(refused, batch)
        refused[batch] = is_held_back
        if len(refused) > BATCHES_KEPT:
            del refused[next(iter(refused))]
        if len(self._by_producer) > PRODUCERS_KEPT_MAX:
            del self._by_producer[next(iter(self._by_producer))]

    def explains(self, header: BatchHeader, expected_sequence: int) -> bool:
        """True if the batch that is missing before this one was refused."""
        refused = self._by_producer.get(header.producer_id, ())
        return (header.producer_epoch, expected_sequence) in refused

    def is_behind(self, header: BatchHeader) -> bool:
        """True if an earlier batch of that producer was refused and has not arrived again."""
        return any(
            _is_before(b, _of(header)) for b in self._by_producer.get(header.producer_id, ())
        )

    def holds_back(self, header: BatchHeader) -> bool:
        """True if this batch is refused too, because an earlier one may still arrive again.

        False if this batch was held back before and no earlier one has arrived since: the producer
        gave up the earlier ones.
        """
        refused = self._by_producer[header.producer_id]
        batch = _of(header)
        if refused.get(batch):
            for earlier in [other for other in refused if _is_before(other, batch)]:
                del refused[earlier]
            return False
        self.note(header, is_held_back=True)
        return True

    def forget(self, header: BatchHeader) -> None:
        """Forget the batch: it is accepted now, and must not explain a later gap."""
        refused = self._by_producer.get(header.producer_id)
        if refused is not None:
            refused.pop(_of(header), None)
            _note_arrival(refused, _of(header))
            if not refused:
                del self._by_producer[header.producer_id]

    def clear(self) -> None:
        self._by_producer.clear()


def _of(header: BatchHeader) -> _Batch:
    return header.producer_epoch, header.base_sequence


def _is_before(batch: _Batch, other: _Batch) -> bool:
    return batch[0] == other[0] and 0 < (other[1] - batch[1]) % SEQUENCES <= SEQUENCES // 2


def _note_arrival(refused: dict[_Batch, bool], batch: _Batch) -> None:
    """`batch` has arrived: batches after it that were held back may be held back once more."""
    for other in refused:
        if _is_before(batch, other):
            refused[other] = False


def check_sequence(
    producers: ProducerStateTable,
    refused: RefusedSequences,
    header: BatchHeader,
    *,
    has_too_few_replicas: bool,
) -> Duplicate | None:
    """The batch in the log that this one repeats; None if this one is to be appended.

    A duplicate appends nothing. The producer gets the first answer again, even while appends are
    refused: with NOT_ENOUGH_REPLICAS, a producer would believe that the batch is not in the log.

    Raises BatchError: see `ProducerStateTable.check`, and NOT_ENOUGH_REPLICAS.
    """
    if has_too_few_replicas:
        duplicate = producers.duplicate_of(header) if header.producer_id >= 0 else None
        if duplicate is None:
            refused.note(header)
            raise BatchError(ErrorCode.NOT_ENOUGH_REPLICAS, "too few replicas are in sync")
        return duplicate
    if header.producer_id < 0:
        return None
    try:
        duplicate = producers.check(header)
    except BatchError as gap:
        is_gap = gap.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        is_explained = is_gap and refused.explains(header, producers.expected_sequence(header))
        if not (is_explained and refused.holds_back(header)):
            raise
        raise _behind_a_refused() from gap
    # If the log does not know the producer, it accepts any first sequence.
    is_unknown = header.producer_id not in producers.entries
    if is_unknown and refused.is_behind(header) and refused.holds_back(header):
        raise _behind_a_refused()
    refused.forget(header)
    return duplicate


def _behind_a_refused() -> BatchError:
    return BatchError(
        ErrorCode.NOT_ENOUGH_REPLICAS,
        "a batch before it was refused when too few replicas were in sync",
    )
