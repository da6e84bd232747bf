"""Which transaction a batch belongs to, for a cleaner that reads the log from its start."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from storage.batch import BatchHeader
from storage.markers import Marker
from storage.transaction_index import AbortedTransaction


class CleanedTransactions:
    """Feed it every batch in order of offsets.

    aborted: all aborted transactions of the log. kept: those whose records are not all gone yet,
    appended as their markers come by; they make the new transaction index.
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
        """Whether the records of a batch that is no marker were aborted."""
        self._open_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        if header.producer_id in self._open_aborted:
            self._observed.add(header.producer_id)
            return True
        self._committed.add(header.producer_id)
        return False

    def is_marker_of_nothing(self, header: BatchHeader, marker: Marker | None) -> bool:
        """Whether no batch of the transaction that the marker ends was left in the log.

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
        entry = self._open_aborted.pop(producer_id, None)
        if entry is None or producer_id not in self._observed:
            return True
        self._observed.discard(producer_id)
        self.kept.append(entry)
        return False

    def _open_up_to(self, offset: int) -> None:
        while self._aborted and self._aborted[0][0] <= offset:
            entry = heapq.heappop(self._aborted)[1]
            self._open_aborted.setdefault(entry.producer_id, entry)
