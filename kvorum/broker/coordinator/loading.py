"""Reads a partition of an internal topic from its log start to its end, for a shard."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kvorum.broker.coordinator.model import ReplayedRecord, TransactionEnd
from kvorum.storage.format.batch import BatchHeader, iter_headers, iter_records
from kvorum.storage.format.markers import read_marker
from kvorum.storage.log.log import Log
from kvorum.storage.recovery.batch_walk import first_damage

CHUNK_BYTES = 64 * 1024
"""Bytes that are replayed before other tasks of the event loop run; a larger batch is read
whole."""

Replayed = ReplayedRecord | TransactionEnd


def read_back(current: Callable[[], Log]) -> Iterator[list[Replayed]]:
    """The records and markers of the log in order, a chunk at a time.

    current: returns the log, which may move to another directory, be compacted, and be appended to
        between two chunks. Records appended after the first
    chunk is requested are not read: this broker's own shard appends them. Raises OSError;
    CorruptData for batches that fail their checks; BatchError for valid batches that hold no
    records.
    """
    end_offset = current().end_offset
    offset = current().start_offset
    while offset < end_offset:
        log = current()
        found = log.read(
            max(offset, log.start_offset), bytes_max=CHUNK_BYTES, end_offset=end_offset
        )
        if not found.length:
            return  # compaction removed the rest
        data = found.read()
        damage = first_damage(found, data)
        if damage is not None:
            # Kafka skips such bytes: a committed offset, or an open transaction, is then forgotten.
            raise damage
        piece: list[Replayed] = []
        for position, header in iter_headers(data):
            if header.end_offset > offset:
                piece.extend(_of_batch(data, position, header))
                offset = header.end_offset
        yield piece


def _of_batch(data: bytes, position: int, header: BatchHeader) -> Iterator[Replayed]:
    producer_id, producer_epoch = header.producer_id, header.producer_epoch
    if header.is_control:
        marker = read_marker(data, position, header)
        if marker is not None:
            yield TransactionEnd(producer_id, producer_epoch, marker.is_commit)
        return
    for record in iter_records(data, position, header):
        if record.key is not None:  # a compacted topic has no records without keys
            yield ReplayedRecord(
                record.offset,
                record.timestamp_ms,
                record.key,
                record.value,
                producer_id,
                producer_epoch,
                header.is_transactional,
            )
