"""Batches of idempotent producers that were refused for want of replicas. Pure.

Bad sequence, as clients with several requests in flight make it: 1. batch A is refused with
NOT_ENOUGH_REPLICAS, 2. a follower joins the ISR, 3. batch B arrives, which was sent behind A. As a
gap it would get OUT_OF_ORDER_SEQUENCE_NUMBER, on which librdkafka bumps its epoch and writes anew
what is in flight to any partition, also what is in a log already: duplicates. So B is refused for
A's reason, until A has come again. A client sends again in order: when B comes a second time and
nothing before it has, A was given up (its retries are over), and B is judged as if A had not been.
"""

from __future__ import annotations

from kvorum.runtime.errors import ErrorCode
from kvorum.storage.format.batch import BatchError, BatchHeader
from kvorum.storage.log.producer_state import BATCHES_KEPT, Duplicate, ProducerStateTable

SEQUENCES = 1 << 31
PRODUCERS_KEPT_MAX = 1_000
"""Of one partition; the one that was refused longest ago is forgotten first."""


_Batch = tuple[int, int]
"""Producer epoch and first sequence."""


class RefusedSequences:
    """Of one partition, while this broker leads it: another leader refused nothing."""

    __slots__ = ("_by_producer",)

    def __init__(self) -> None:
        self._by_producer: dict[int, dict[_Batch, bool]] = {}
        """Refused batches by producer. True: the batch was held back for an earlier one, and none
        has come since."""

    def note(self, header: BatchHeader, *, is_held_back: bool = False) -> None:
        """The batch was refused: its producer will send it again."""
        if header.base_sequence < 0:
            return
        # Put last in the order of the dict.
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
        """True if the batch missing before this one was refused, and not lost."""
        refused = self._by_producer.get(header.producer_id, ())
        return (header.producer_epoch, expected_sequence) in refused

    def is_behind(self, header: BatchHeader) -> bool:
        """True if an earlier batch of that producer was refused, and has not come again."""
        return any(
            _is_before(b, _of(header)) for b in self._by_producer.get(header.producer_id, ())
        )

    def holds_back(self, header: BatchHeader) -> bool:
        """True if this batch is refused as well, for an earlier one that may still come again.

        False if it was before, and none has come since: then the earlier ones were given up.
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
        """The batch is taken now. Kept, it would explain what another refusal has not caused."""
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
    """What was held back, and comes behind this batch, may be held back again."""
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
    """The batch of the log that this one repeats, None if it shall be appended.

    A repeat is no append: it is answered as the first time, even while an append would not be
    taken. Told NOT_ENOUGH_REPLICAS, a producer would believe that it is not in the log.

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
    # Of a producer that the log does not know any sequence is the first.
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
