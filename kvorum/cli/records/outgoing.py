"""New records, and the batches that carry them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kvorum.storage.format.batch import (
    HEADER_BYTES,
    MAGIC,
    SEQUENCE_MODULUS,
    BatchHeader,
    build_batch,
    seal_batch,
)
from kvorum.storage.format.compression import Codec, compress
from kvorum.storage.format.record_codec import encode_record

RECORD_OVERHEAD_BYTES = 20
"""Generous for the lengths, deltas and attributes of a record."""

Headers = tuple[tuple[bytes, bytes | None], ...]


class NewRecord(NamedTuple):
    """A record to be sent. partition: None lets the key decide. timestamp_ms: None means the time
    at which its batch is made."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None

    @property
    def size_bytes(self) -> int:
        """The approximate size of the record in a batch."""
        size = RECORD_OVERHEAD_BYTES + len(self.key or b"") + len(self.value or b"")
        if self.headers:
            size += sum(len(name) + len(value or b"") + 4 for name, value in self.headers)
        return size


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdentity:
    """The producer id and epoch of an idempotent producer; -1 and -1 for any other."""

    producer_id: int = -1
    producer_epoch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingBatch:
    """Records for one partition, sent again under the same sequence until they are acknowledged.

    base_sequence: -1 without idempotence. timestamp_ms: of the records that have none of their own.
    deadline_s: monotonic time at which the records count as undelivered.
    """

    partition: int
    records: Sequence[NewRecord]
    timestamp_ms: int
    base_sequence: int
    deadline_s: float

    def halves(self) -> tuple[OutgoingBatch, OutgoingBatch]:
        """Two batches in place of one that is too large. Sequences stay with their records."""
        middle = len(self.records) // 2
        sequence = self.base_sequence
        if sequence >= 0:
            sequence = (sequence + middle) % SEQUENCE_MODULUS
        return (
            OutgoingBatch(
                partition=self.partition,
                records=self.records[:middle],
                timestamp_ms=self.timestamp_ms,
                base_sequence=self.base_sequence,
                deadline_s=self.deadline_s,
            ),
            OutgoingBatch(
                partition=self.partition,
                records=self.records[middle:],
                timestamp_ms=self.timestamp_ms,
                base_sequence=sequence,
                deadline_s=self.deadline_s,
            ),
        )

    def encode(self, identity: ProducerIdentity, codec: Codec) -> bytearray:
        """The batch in Kafka's format."""
        if all(not r.headers and r.timestamp_ms is None for r in self.records):
            return build_batch(
                [(record.key, record.value) for record in self.records],
                timestamp_ms=self.timestamp_ms,
                leader_epoch=-1,
                producer_id=identity.producer_id,
                producer_epoch=identity.producer_epoch,
                base_sequence=self.base_sequence,
                compression=codec,
            )
        return self._encode_each(identity, codec)

    def _encode_each(self, identity: ProducerIdentity, codec: Codec) -> bytearray:
        times = [
            self.timestamp_ms if r.timestamp_ms is None else r.timestamp_ms for r in self.records
        ]
        parts = [bytes(HEADER_BYTES)]
        parts += (
            encode_record(
                offset_delta=delta,
                timestamp_delta_ms=times[delta] - times[0],
                key=record.key,
                value=record.value,
                headers=record.headers,
            )
            for delta, record in enumerate(self.records)
        )
        if codec is not Codec.NONE:
            parts = [parts[0], compress(codec, b"".join(parts[1:]))]
        header = BatchHeader(
            base_offset=0,
            batch_length=0,
            leader_epoch=-1,
            magic=MAGIC,
            crc=0,
            attributes=int(codec),
            last_offset_delta=len(self.records) - 1,
            base_timestamp_ms=times[0],
            max_timestamp_ms=max(times),
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            base_sequence=self.base_sequence,
            record_count=len(self.records),
        )
        return seal_batch(header, parts)
