"""The transaction of each batch, for a cleaner that reads the log from its start."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from kvorum.storage.files.transaction_index import AbortedTransaction
from kvorum.storage.format.batch import BatchHeader
from kvorum.storage.format.markers import Marker


class CleanedTransactions:
    """Takes the batches in order of offsets, from the start of the log or from a later offset on.

    aborted: all aborted transactions of the log.
    kept: the transactions that still have records. Each is added at its marker; they form the new
        transaction index.
    """

    __slots__ = ("_aborted", "_committed", "_observed", "_open_aborted", "kept")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._aborted = [(entry.first_offset, entry) for entry in aborted]
        heapq.heapify(self._aborted)
        self._open_aborted: dict[int, AbortedTransaction] = {}
        self._observed: set[int] = set()
        self._committed: set[int] = set()
        self.kept: list[AbortedTransaction] = []

    def is_aborted(self, header: BatchHeader) -> bool:
        """True if a batch, which is not a marker, belongs to an aborted transaction."""
        self._open_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        if self._is_open(header):
            self._observed.add(header.producer_id)
            return True
        self._committed.add(header.producer_id)
        return False

    def is_marker_without_records(self, header: BatchHeader, marker: Marker | None) -> bool:
        """True if the log holds no batch of the transaction that the marker ends.

        marker: None for a control batch that an earlier clean has emptied.
        """
        self._open_up_to(header.last_offset)
        if marker is None:
            return True
        producer_id = header.producer_id
        if marker.is_commit:
            was_seen = producer_id in self._committed
            self._committed.discard(producer_id)
            return not was_seen
        if not self._is_open(header):
            return True
        entry = self._open_aborted.pop(producer_id)
        if producer_id not in self._observed:
            return True
        self._observed.discard(producer_id)
        self.kept.append(entry)
        return False

    def _is_open(self, header: BatchHeader) -> bool:
        """True if an aborted transaction of the batch's producer covers the batch.

        A transaction is over after its marker's offset, even if the marker was not seen. Bad
        sequence without this rule:
        1. The first pass skips the clean segments, and with them a marker.
        2. A later, committed tombstone of the producer counts as aborted.
        3. The tombstone hides nothing and expires, and the old value is back.
        """
        entry = self._open_aborted.get(header.producer_id)
        return entry is not None and header.last_offset <= entry.last_offset

    def _open_up_to(self, offset: int) -> None:
        while self._aborted and self._aborted[0][0] <= offset:
            entry = heapq.heappop(self._aborted)[1]
            # A producer has one transaction at a time, so its earlier one has ended.
            self._open_aborted[entry.producer_id] = entry
            self._observed.discard(entry.producer_id)
