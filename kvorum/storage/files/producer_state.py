"""The last batches of each idempotent producer, to detect duplicates and gaps (KIP-98).

Leaders call `check` before an append. `update` runs on every append, also in recovery and on
followers. It never refuses, because a batch in the log has been accepted. Snapshots use Kafka's
.snapshot format (version 1), which keeps only the last batch of a producer. So after a restart,
duplicates are detected for one batch instead of five.

Transactions: those in `ongoing` have no marker yet. Those in `unreplicated` have a marker that the
high watermark has not passed, so it may still be lost. Both hold back the last stable offset.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from crc32c import crc32c

from kvorum.runtime.disk import Disk
from kvorum.runtime.errors import CorruptData, ErrorCode
from kvorum.storage.files.transaction_index import AbortedTransaction
from kvorum.storage.format.batch import SEQUENCE_MODULUS, BatchError, BatchHeader, Buffer
from kvorum.storage.format.markers import read_marker

BATCHES_KEPT = 5
"""Batches remembered per producer: the in-flight limit of an idempotent client."""

_PREFIX = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")
_VERSION = 1


class ProducerBatch(NamedTuple):
    """One remembered batch. `last_offset` and `last_sequence` are inclusive."""

    first_sequence: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int


class Duplicate(NamedTuple):
    """The batch is in the log already; the producer gets the first response again."""

    base_offset: int
    last_offset: int
    timestamp_ms: int


class ProducerEnd(NamedTuple):
    """A producer's last batch. last_data_offset: -1 if only a marker of it is known."""

    last_data_offset: int
    epoch: int


class ProducerEntry:
    """State of one producer id."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_transaction_first_offset",
        "epoch",
        "last_timestamp_ms",
        "producer_id",
    )

    def __init__(self, producer_id: int, epoch: int) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.batches: list[ProducerBatch] = []
        self.last_timestamp_ms = -1
        self.coordinator_epoch = -1
        self.current_transaction_first_offset = -1


class ProducerStateTable:
    """Producer id -> ProducerEntry.

    ongoing: first offset -> producer id, ascending.
    unreplicated: marker's offset -> first offset.
    """

    __slots__ = ("entries", "ongoing", "unreplicated")

    def __init__(self) -> None:
        self.entries: dict[int, ProducerEntry] = {}
        self.ongoing: dict[int, int] = {}
        self.unreplicated: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.entries)

    def check(self, header: BatchHeader) -> Duplicate | None:
        """Check a batch before its append. Returns None to append it; a Duplicate to answer with
        the Duplicate's offsets and append nothing.

        Raises BatchError: INVALID_PRODUCER_EPOCH for an older epoch, OUT_OF_ORDER_SEQUENCE_NUMBER
        for a gap. An unknown producer may begin with any sequence (KIP-360).
        """
        if header.producer_id < 0:
            return None
        entry = self.entries.get(header.producer_id)
        if entry is None:
            return None
        if entry.current_transaction_first_offset >= 0 and not header.is_transactional:
            raise BatchError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {header.producer_id} has a transaction open since offset"
                f" {entry.current_transaction_first_offset} and sent a batch outside of it",
            )
        if header.producer_epoch < entry.epoch:
            raise BatchError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {header.producer_id} epoch {header.producer_epoch} < {entry.epoch}",
            )
        first = header.base_sequence
        if header.producer_epoch > entry.epoch:
            if first != 0:
                raise _out_of_order(header, "0 in a new epoch")
            return None
        if not entry.batches:
            # Only a marker of this producer is known, so this must be its first batch in the epoch.
            # A later batch that overtook the first one must be refused.
            if first != 0:
                raise _out_of_order(header, "0 as the first of its epoch")
            return None
        duplicate = self.duplicate_of(header)
        if duplicate is not None:
            return duplicate
        expected = (entry.batches[-1].last_sequence + 1) % SEQUENCE_MODULUS
        if first != expected:
            raise _out_of_order(header, str(expected))
        return None

    def is_open(self, producer_id: int, producer_epoch: int) -> bool:
        """True if the producer has an open transaction in this log that began in that epoch."""
        entry = self.entries.get(producer_id)
        return (
            entry is not None
            and entry.current_transaction_first_offset >= 0
            and entry.epoch == producer_epoch
        )

    def check_marker(
        self,
        *,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        is_epoch_raised: bool,
    ) -> None:
        """Raise BatchError if the leader must not append that marker.

        TRANSACTION_COORDINATOR_FENCED: a later coordinator has written to this log.
        INVALID_PRODUCER_EPOCH: the producer has a later epoch.
        is_epoch_raised: the marker's epoch is above the epoch of the records that it ends
            (KIP-890), so a repeated marker cannot end the next transaction.
        """
        entry = self.entries.get(producer_id)
        if entry is None:
            return
        if coordinator_epoch < entry.coordinator_epoch:
            raise BatchError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"coordinator epoch {coordinator_epoch} < {entry.coordinator_epoch} of producer"
                f" {producer_id}",
            )
        is_of_next = is_epoch_raised and self.is_open(producer_id, producer_epoch)
        if producer_epoch < entry.epoch or is_of_next:
            raise BatchError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"a marker of producer {producer_id} epoch {producer_epoch}, which is at"
                f" {entry.epoch}{' with the next transaction open' if is_of_next else ''}",
            )

    def duplicate_of(self, header: BatchHeader) -> Duplicate | None:
        """The batch in the log that this one repeats, if it is one of the last few; else None."""
        entry = self.entries.get(header.producer_id)
        if entry is None or header.producer_epoch != entry.epoch:
            return None
        first, last = header.base_sequence, header.last_sequence
        for batch in reversed(entry.batches):
            if batch.first_sequence == first and batch.last_sequence == last:
                base_offset = batch.last_offset - batch.offset_delta
                return Duplicate(base_offset, batch.last_offset, batch.timestamp_ms)
        return None

    def expected_sequence(self, header: BatchHeader) -> int:
        """The sequence with which that producer has to continue; -1 if any sequence is allowed."""
        entry = self.entries.get(header.producer_id)
        if entry is None:
            return -1
        if header.producer_epoch > entry.epoch or not entry.batches:
            return 0
        return (entry.batches[-1].last_sequence + 1) % SEQUENCE_MODULUS

    def update(
        self, header: BatchHeader, last_offset: int, buffer: Buffer, position: int
    ) -> AbortedTransaction | None:
        """Remember a batch of the log that lies at `position` of `buffer`.

        header: its base offset may differ from the assigned one. Returns the transaction that the
            batch aborts, if any. Raises BatchError on a control batch that cannot be parsed.
        """
        if header.producer_id < 0:
            return None
        if header.is_control:
            return self._take_marker(header, last_offset, buffer, position)
        self.record(header, last_offset)
        return None

    def record(self, header: BatchHeader, last_offset: int) -> None:
        """`update` for a batch of records with a producer id."""
        entry = self._entry(header)
        entry.last_timestamp_ms = header.max_timestamp_ms
        batches = entry.batches
        batches.append(
            ProducerBatch(
                header.base_sequence,
                header.last_sequence,
                last_offset,
                header.last_offset_delta,
                header.max_timestamp_ms,
            )
        )
        if len(batches) > BATCHES_KEPT:
            del batches[0]
        if header.is_transactional and entry.current_transaction_first_offset < 0:
            first_offset = last_offset - header.last_offset_delta
            entry.current_transaction_first_offset = first_offset
            self.ongoing[first_offset] = header.producer_id

    def _entry(self, header: BatchHeader) -> ProducerEntry:
        entry = self.entries.get(header.producer_id)
        if entry is None:
            entry = ProducerEntry(header.producer_id, header.producer_epoch)
            self.entries[header.producer_id] = entry
        elif header.producer_epoch != entry.epoch:
            entry.epoch = header.producer_epoch
            entry.batches.clear()
        return entry

    def _take_marker(
        self, header: BatchHeader, last_offset: int, buffer: Buffer, position: int
    ) -> AbortedTransaction | None:
        marker = read_marker(buffer, position, header)
        entry = self._entry(header)
        entry.last_timestamp_ms = header.max_timestamp_ms
        if marker is None:
            return None
        entry.coordinator_epoch = marker.coordinator_epoch
        first_offset = entry.current_transaction_first_offset
        if first_offset < 0:
            # A coordinator repeats a marker if it cannot tell that the first one arrived.
            return None
        entry.current_transaction_first_offset = -1
        self.ongoing.pop(first_offset, None)
        self.unreplicated[last_offset] = first_offset
        if marker.is_commit:
            return None
        stable = next(iter(self.ongoing), last_offset + 1)
        return AbortedTransaction(header.producer_id, first_offset, last_offset, stable)

    def last_stable_offset(self, high_watermark: int) -> int:
        """Offset (exclusive) below which every transaction is decided and its marker replicated."""
        if not self.ongoing and not self.unreplicated:
            return high_watermark
        self.forget_replicated(high_watermark)
        stable = next(iter(self.ongoing), high_watermark)
        return min((high_watermark, stable, *self.unreplicated.values()))

    def forget_replicated(self, high_watermark: int) -> None:
        """Drop the markers below the high watermark, which no longer hold back the last stable
        offset."""
        for last_offset in [at for at in self.unreplicated if at < high_watermark]:
            del self.unreplicated[last_offset]

    def ends(self) -> dict[int, ProducerEnd]:
        """The last batch of each producer."""
        return {
            entry.producer_id: ProducerEnd(
                entry.batches[-1].last_offset if entry.batches else -1, entry.epoch
            )
            for entry in self.entries.values()
        }

    def expire(self, now_ms: int, *, expiration_ms: int) -> list[int]:
        """Forget producers that were silent for `expiration_ms` and have no open transaction;
        return their ids."""
        expired = [
            entry.producer_id
            for entry in self.entries.values()
            if entry.current_transaction_first_offset < 0
            and now_ms - entry.last_timestamp_ms >= expiration_ms
        ]
        for producer_id in expired:
            del self.entries[producer_id]
        return expired

    def until(self, offset: int) -> ProducerStateTable:
        """The state from the batches below `offset`, as far as this table remembers it.

        It lacks producers that have written five batches since, and transactions that have ended
        since.
        """
        table = ProducerStateTable()
        for entry in self.entries.values():
            kept = [batch for batch in entry.batches if batch.last_offset < offset]
            if entry.batches and not kept:
                continue
            earlier = ProducerEntry(entry.producer_id, entry.epoch)
            earlier.batches = kept
            earlier.last_timestamp_ms = entry.last_timestamp_ms
            earlier.coordinator_epoch = entry.coordinator_epoch
            if entry.current_transaction_first_offset < offset:
                earlier.current_transaction_first_offset = entry.current_transaction_first_offset
            table.entries[entry.producer_id] = earlier
        table.find_ongoing()
        return table

    def complete(self, snapshot: ProducerStateTable) -> None:
        """Add the facts that only removed batches held, from a snapshot at the same offset."""
        for producer_id, known in snapshot.entries.items():
            entry = self.entries.get(producer_id)
            if entry is None or not entry.batches or known.epoch > entry.epoch:
                self.entries[producer_id] = known
            elif known.batches and known.batches[-1].last_offset > entry.batches[-1].last_offset:
                # A clean removed the producer's last batch in favour of a later one, which has been
                # lost since.
                known.batches[:0] = entry.batches[1 - BATCHES_KEPT :]
                self.entries[producer_id] = known
            else:
                # Keep the window of five batches; the snapshot has only one.
                entry.coordinator_epoch = max(entry.coordinator_epoch, known.coordinator_epoch)
        self.find_ongoing()

    def find_ongoing(self) -> None:
        """Build `ongoing` from the entries, ordered by first offset."""
        opened = [
            entry for entry in self.entries.values() if entry.current_transaction_first_offset >= 0
        ]
        opened.sort(key=lambda entry: entry.current_transaction_first_offset)
        self.ongoing = {
            entry.current_transaction_first_offset: entry.producer_id for entry in opened
        }

    def clear(self) -> None:
        self.entries.clear()
        self.ongoing.clear()
        self.unreplicated.clear()

    def to_bytes(self) -> bytes:
        """The content of a .snapshot file."""
        parts = [_COUNT.pack(len(self.entries))]
        for entry in self.entries.values():
            last = entry.batches[-1] if entry.batches else ProducerBatch(-1, -1, -1, 0, -1)
            parts.append(
                _ENTRY.pack(
                    entry.producer_id,
                    entry.epoch,
                    last.last_sequence,
                    last.last_offset,
                    last.offset_delta,
                    entry.last_timestamp_ms,
                    entry.coordinator_epoch,
                    entry.current_transaction_first_offset,
                )
            )
        body = b"".join(parts)
        return _PREFIX.pack(_VERSION, crc32c(body)) + body


def write_snapshot(disk: Disk, path: str, table: ProducerStateTable) -> None:
    """Write a .snapshot file; durable on return."""
    disk.write_atomic(path, table.to_bytes())


def read_snapshot(disk: Disk, path: str) -> ProducerStateTable:
    """The table of a .snapshot file. Raises CorruptData."""
    data = disk.read_bytes(path)
    if len(data) < _PREFIX.size + _COUNT.size:
        raise CorruptData(path, 0, f"a producer snapshot of {len(data)} bytes")
    version, crc = _PREFIX.unpack_from(data)
    if version != _VERSION:
        raise CorruptData(path, 0, f"producer snapshot version {version}")
    if crc32c(memoryview(data)[_PREFIX.size :]) != crc:
        raise CorruptData(path, _PREFIX.size, "the CRC of the producer snapshot does not match")
    (count,) = _COUNT.unpack_from(data, _PREFIX.size)
    start = _PREFIX.size + _COUNT.size
    if len(data) - start != count * _ENTRY.size:
        raise CorruptData(path, start, f"{count} producers in {len(data) - start} bytes")
    table = ProducerStateTable()
    for fields in _ENTRY.iter_unpack(memoryview(data)[start:]):
        producer_id, epoch, last_sequence, last_offset, delta, timestamp_ms = fields[:6]
        entry = ProducerEntry(producer_id, epoch)
        entry.last_timestamp_ms = timestamp_ms
        entry.coordinator_epoch, entry.current_transaction_first_offset = fields[6:]
        if last_offset >= 0:
            first = (last_sequence - delta) % SEQUENCE_MODULUS if last_sequence >= 0 else -1
            batch = ProducerBatch(first, last_sequence, last_offset, delta, timestamp_ms)
            entry.batches.append(batch)
        table.entries[producer_id] = entry
    table.find_ongoing()
    return table


def _out_of_order(header: BatchHeader, expected: str) -> BatchError:
    return BatchError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"producer {header.producer_id} epoch {header.producer_epoch} sequence"
        f" {header.base_sequence}, expected {expected}",
    )
