"""Checks that each .txnindex has the aborted transactions that the batches show."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kvorum.runtime.disk import Disk
from kvorum.runtime.errors import CorruptData
from kvorum.storage.files.file_names import TRANSACTION_INDEX_SUFFIX, file_name
from kvorum.storage.files.producer_state import ProducerStateTable
from kvorum.storage.files.transaction_index import AbortedTransaction, parse_aborted
from kvorum.storage.format.batch import BatchError
from kvorum.storage.format.batch_stream import StoredBatch


class _Walked(NamedTuple):
    """An aborted transaction as found in the batches, and its producer's marker before it."""

    entry: AbortedTransaction
    marker_before: int


class TransactionCheck:
    """Follows the transactions of the batches, segment after segment."""

    def __init__(self) -> None:
        self._producers = ProducerStateTable()
        self._last_markers: dict[int, int] = {}
        self._aborted: list[_Walked] = []

    def begin_segment(self) -> None:
        self._aborted = []

    def take(self, path: str, batch: StoredBatch) -> None:
        """Take in the next batch of the log. path: its file. Raises CorruptData on a bad marker."""
        position, header, data = batch
        if header.producer_id < 0:
            return
        try:
            entry = self._producers.update(header, header.last_offset, data, 0)
        except BatchError as error:
            raise CorruptData(path, position, error.reason) from error
        if entry is not None:
            before = self._last_markers.get(header.producer_id, -1)
            self._aborted.append(_Walked(entry, before))
        if header.is_control:
            self._last_markers[header.producer_id] = header.last_offset

    def problems(
        self, disk: Disk, directory: str, base_offset: int, present: set[str]
    ) -> Iterator[str]:
        """The faults of the last segment's .txnindex. The file may have more transactions than the
        batches show, because compaction removes records, also the first ones of a transaction."""
        name = file_name(base_offset, TRANSACTION_INDEX_SUFFIX)
        path = f"{directory}/{name}"
        known: dict[tuple[int, int], AbortedTransaction] = {}
        if name in present:
            try:
                entries = parse_aborted(disk.read_bytes(path), path)
            except CorruptData as damage:
                yield str(damage)
                return
            known = {(entry.producer_id, entry.last_offset): entry for entry in entries}
        lacking = []
        for entry, marker_before in self._aborted:
            said = known.get((entry.producer_id, entry.last_offset))
            if said is None:
                lacking.append(entry)
            elif not marker_before < said.first_offset <= entry.first_offset:
                yield (
                    f"{path}: an aborted transaction of producer {entry.producer_id} up to "
                    f"{entry.last_offset} begins at {said.first_offset}, its first record is at "
                    f"{entry.first_offset}; read_committed would show or hide too many"
                )
        if lacking:
            first = lacking[0]
            yield (
                f"{path}: {'lacks' if name in present else 'is not there, nor are'} {len(lacking)} "
                f"aborted transactions, the first of producer {first.producer_id} from offset "
                f"{first.first_offset} to {first.last_offset}; read_committed would show their "
                "records"
            )
