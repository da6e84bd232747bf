"""Cleaning of one batch: the records that stay. Pure: bytes in, bytes out.

A record stays if it is the latest of its key, unless it is a tombstone whose delete horizon has
passed. The first clean that meets a tombstone sets the horizon in its batch (KIP-534): bit 6 of the
attributes is set, and the base timestamp becomes the horizon. Timestamp deltas then wrap at 64
bits, as they do for readers. Offsets, timestamps, epochs, producer fields and compression stay the
same. A batch keeps its base and last offset even if records are removed.

Markers outlast the records of their transaction by the same horizon. The last batch of a producer
stays even if it is empty, because its sequence number is needed to detect duplicates.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kvorum.runtime.errors import ErrorCode
from kvorum.storage.cleaning.cleaned_transactions import CleanedTransactions
from kvorum.storage.cleaning.offset_map import OffsetMap
from kvorum.storage.files.producer_state import ProducerEnd
from kvorum.storage.files.transaction_index import AbortedTransaction
from kvorum.storage.format.batch import (
    CODEC_MASK,
    DECOMPRESSED_BYTES_MAX,
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    BatchError,
    BatchHeader,
    seal_batch,
)
from kvorum.storage.format.compression import Codec, CompressionError, compress, decompress
from kvorum.storage.format.markers import read_marker
from kvorum.storage.format.record_codec import (
    INT64_MAX,
    RecordFields,
    encode_record,
    read_record,
    wrapped_int64,
)


class _Parsed(NamedTuple):
    """A record: its bytes with the length prefix, and its fields."""

    raw: bytes
    fields: RecordFields

    @property
    def is_tombstone(self) -> bool:
        return self.fields[3] is None


class BatchCleaner:
    """Takes every batch from the start of the log, in order. offsets: filled by the first pass."""

    def __init__(
        self,
        *,
        offsets: OffsetMap,
        transactions: CleanedTransactions,
        producers: Mapping[int, ProducerEnd],
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        self._offsets = offsets
        self._transactions = transactions
        self._producers = producers
        self._now_ms = now_ms
        self._delete_retention_ms = delete_retention_ms

    def clean(self, batch: bytes, header: BatchHeader) -> bytes | bytearray | None:
        """The cleaned batch, None if nothing of it stays. Raises BatchError."""
        is_expired = header.has_delete_horizon and header.base_timestamp_ms <= self._now_ms
        if header.is_control:
            marker = read_marker(batch, 0, header)
            # Other kinds of control records stay.
            is_marker = marker is not None or header.record_count == 0
            ends_nothing = is_marker and self._transactions.is_marker_without_records(
                header, marker
            )
            drops_all = ends_nothing and is_expired
        else:
            ends_nothing = False
            drops_all = self._transactions.is_aborted(header)
        is_last = self._is_last_of_producer(header)
        if drops_all:
            return _emptied(header) if is_last else None
        records = _parse(batch, header)
        kept = [r for r in records if header.is_control or self._stays(header, r, is_expired)]
        if not kept:
            return _emptied(header) if is_last else None
        needs_horizon = not header.has_delete_horizon and (
            ends_nothing or any(record.is_tombstone for record in kept)
        )
        if needs_horizon:
            return self._with_horizon(header, kept)
        if len(kept) == len(records):
            return batch
        return _rebuilt(header, kept)

    def take_kept_aborted(self) -> list[AbortedTransaction]:
        """Aborted transactions that still have records, of the batches since the last call."""
        kept, self._transactions.kept = self._transactions.kept, []
        return kept

    def _stays(self, header: BatchHeader, record: _Parsed, is_expired: bool) -> bool:
        _, offset_delta, key, value, _, _ = record.fields
        offset = header.base_offset + offset_delta
        if offset > self._offsets.latest_offset:
            return True
        if key is None or offset < self._offsets.get(key):
            return False
        return value is not None or not is_expired

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        end = self._producers.get(header.producer_id) if header.producer_id >= 0 else None
        if end is None:
            return False
        if end.last_data_offset < 0:
            return header.is_control and header.producer_epoch == end.epoch
        return header.last_offset == end.last_data_offset

    def _with_horizon(self, header: BatchHeader, kept: list[_Parsed]) -> bytearray:
        # delete.retention.ms may be as much as 2^63-1.
        horizon_ms = min(self._now_ms + self._delete_retention_ms, INT64_MAX)
        shift_ms = header.base_timestamp_ms - horizon_ms
        moved = []
        for record in kept:
            delta_ms, offset_delta, key, value, headers, at = record.fields
            delta_ms = wrapped_int64(delta_ms + shift_ms)
            raw = encode_record(
                offset_delta=offset_delta,
                timestamp_delta_ms=delta_ms,
                key=key,
                value=value,
                headers=headers,
            )
            fields = (delta_ms, offset_delta, key, value, headers, at)
            moved.append(_Parsed(raw, fields))
        marked = header._replace(
            attributes=header.attributes | DELETE_HORIZON_BIT, base_timestamp_ms=horizon_ms
        )
        return _rebuilt(marked, moved)


def keys_of(batch: bytes, header: BatchHeader) -> list[tuple[bytes, int]]:
    """(key, offset) of the records that have a key. Raises BatchError."""
    return [
        (fields[2], header.base_offset + fields[1])
        for _, fields in _parse(batch, header)
        if fields[2] is not None
    ]


def _parse(batch: bytes, header: BatchHeader) -> list[_Parsed]:
    data = batch[HEADER_BYTES : header.size_bytes]
    try:
        if header.compression_code:
            codec = Codec(header.compression_code)
            data = bytes(decompress(codec, data, bytes_max=DECOMPRESSED_BYTES_MAX))
        records = []
        at = 0
        for _ in range(header.record_count):
            fields = read_record(data, at)
            records.append(_Parsed(data[at : fields[5]], fields))
            at = fields[5]
    except (IndexError, ValueError, CompressionError) as error:
        raise BatchError(
            ErrorCode.CORRUPT_MESSAGE, f"a record of batch {header.base_offset}: {error}"
        ) from error
    return records


def _rebuilt(header: BatchHeader, kept: list[_Parsed]) -> bytearray:
    """The batch with the records in `kept`. header: the new one, except for length, record count,
    largest timestamp and CRC."""
    max_timestamp_ms = header.max_timestamp_ms
    if not header.is_log_append_time:
        base_ms = header.base_timestamp_ms
        max_timestamp_ms = max(wrapped_int64(base_ms + record.fields[0]) for record in kept)
    parts = [record.raw for record in kept]
    if header.compression_code:
        parts = [compress(Codec(header.compression_code), b"".join(parts))]
    return seal_batch(
        header._replace(record_count=len(kept), max_timestamp_ms=max_timestamp_ms),
        [bytes(HEADER_BYTES), *parts],
    )


def _emptied(header: BatchHeader) -> bytearray:
    """A batch without records, as of Kafka's writeEmptyHeader: no codec, no horizon, base timestamp
    -1."""
    attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON_BIT)
    return seal_batch(
        header._replace(attributes=attributes, base_timestamp_ms=-1, record_count=0),
        [bytes(HEADER_BYTES)],
    )
