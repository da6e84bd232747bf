"""Batches as clients send them, and the results of a leader's checks of them."""

from __future__ import annotations

import pytest

from kvorum.runtime.errors import ErrorCode
from kvorum.storage.format.batch import (
    HEADER_BYTES,
    BatchError,
    BatchHeader,
    encode_record,
    read_header,
    seal_batch,
)
from kvorum.storage.format.client_batch import (
    validate_client_batch,
    validate_client_records,
)

TIMESTAMP_MS = 1_700_000_000_000


def two_records() -> bytearray:
    header = BatchHeader(
        base_offset=0,
        batch_length=0,
        leader_epoch=0,
        magic=2,
        crc=0,
        attributes=0,
        last_offset_delta=1,
        base_timestamp_ms=TIMESTAMP_MS,
        max_timestamp_ms=TIMESTAMP_MS + 5,
        producer_id=4000,
        producer_epoch=0,
        base_sequence=0,
        record_count=2,
    )
    first = encode_record(offset_delta=0, timestamp_delta_ms=0, key=b"k", value=b"v")
    second = encode_record(
        offset_delta=1, timestamp_delta_ms=5, key=None, value=b"hello", headers=[(b"h", b"x")]
    )
    return seal_batch(header, [bytes(HEADER_BYTES), first, second])


def resealed(batch: bytearray, records: bytes | None = None, **fields: int) -> bytearray:
    header = read_header(batch, 0)._replace(**fields)
    body = bytes(batch[HEADER_BYTES:]) if records is None else records
    return seal_batch(header, [bytes(HEADER_BYTES), body])


def validated(
    batch: bytes | bytearray,
    *,
    max_message_bytes: int = 1000,
    now_ms: int | None = TIMESTAMP_MS,
    **bounds: int,
) -> object:
    header = validate_client_batch(batch, max_message_bytes=max_message_bytes)
    return validate_client_records(batch, header, now_ms=now_ms, **bounds)


def code_of(batch: bytes | bytearray, **limits: int) -> ErrorCode:
    with pytest.raises(BatchError) as caught:
        validated(batch, **limits)
    return caught.value.code
