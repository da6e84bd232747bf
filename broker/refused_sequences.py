"""Batches of idempotent producers that were refused for want of replicas. Pure.

Bad sequence, as clients with several requests in flight make it: 1. batch A is refused with
NOT_ENOUGH_REPLICAS, 2. a follower joins the ISR, 3. batch B arrives, which was sent behind A. As a
gap it would get OUT_OF_ORDER_SEQUENCE_NUMBER, on which librdkafka bumps its epoch and writes anew
what is in flight to any partition, also what is in a log already: duplicates. So B is refused for
A's reason, until A has come again.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress

from runtime.errors import ErrorCode
from storage.batch import BatchError, BatchHeader
from storage.producer_state import BATCHES_KEPT, Duplicate, ProducerStateTable

SEQUENCES = 1 << 31
PRODUCERS_KEPT_MAX = 1_000
"""Of one partition; the one that was refused longest ago is forgotten first."""


class RefusedSequences:
    """Of one partition, in one leader epoch: the next leader refused nothing."""

    __slots__ = ("_by_producer",)

    def __init__(self) -> None:
        self._by_producer: dict[int, deque[tuple[int, int]]] = {}

    def note(self, header: BatchHeader) -> None:
        """The batch was refused: its producer will send it again."""
        if header.base_sequence < 0:
            return
        # Put last in the order of the dict.
        refused = self._by_producer.pop(header.producer_id, None) or deque(maxlen=BATCHES_KEPT)
        self._by_producer[header.producer_id] = refused
        first = (header.producer_epoch, header.base_sequence)
        if first not in refused:
            refused.append(first)
        if len(self._by_producer) > PRODUCERS_KEPT_MAX:
            del self._by_producer[next(iter(self._by_producer))]

    def explains(self, header: BatchHeader, expected_sequence: int) -> bool:
        """Whether what is missing before this batch was refused, and not lost."""
        refused = self._by_producer.get(header.producer_id, ())
        return (header.producer_epoch, expected_sequence) in refused

    def is_behind(self, header: BatchHeader) -> bool:
        """Whether an earlier batch of that producer was refused, and has not come again."""
        return any(
            epoch == header.producer_epoch
            and 0 < (header.base_sequence - sequence) % SEQUENCES <= SEQUENCES // 2
            for epoch, sequence in self._by_producer.get(header.producer_id, ())
        )

    def forget(self, header: BatchHeader) -> None:
        """The batch is taken now. Kept, it would explain what another refusal has not caused."""
        refused = self._by_producer.get(header.producer_id)
        if refused is not None:
            with suppress(ValueError):
                refused.remove((header.producer_epoch, header.base_sequence))
            if not refused:
                del self._by_producer[header.producer_id]

    def clear(self) -> None:
        self._by_producer.clear()


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
        if not (is_gap and refused.explains(header, producers.expected_sequence(header))):
            raise
        raise _behind_a_refused(refused, header) from gap
    # Of a producer that the log does not know any sequence is the first.
    if header.producer_id not in producers.entries and refused.is_behind(header):
        raise _behind_a_refused(refused, header)
    refused.forget(header)
    return duplicate


def _behind_a_refused(refused: RefusedSequences, header: BatchHeader) -> BatchError:
    refused.note(header)
    return BatchError(
        ErrorCode.NOT_ENOUGH_REPLICAS,
        "a batch before it was refused when too few replicas were in sync",
    )
