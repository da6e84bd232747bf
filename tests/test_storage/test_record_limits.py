"""How much a few bytes of a client may make a broker do, and how long the numbers in them are."""

from __future__ import annotations

import pytest

from runtime.errors import ErrorCode
from storage.batch import BatchError, encode_record, iter_records, iter_times, read_header, varint
from storage.compression import Codec, compress
from storage.log import LogConfig
from storage.record_check import HEADERS_MAX, BadRecords, check_records
from storage.record_codec import INT64_MAX
from tests.test_storage.compacted import new_disk, opened
from tests.test_storage.test_batch import TIMESTAMP_MS, two_records
from tests.test_storage.test_client_batch import resealed, validated


def with_headers(*counts: int) -> bytes:
    """Records that have so many headers, each of two bytes."""
    parts: list[bytes] = []
    for at, count in enumerate(counts):
        body = b"\0\0" + varint(at) + b"\x01\x01" + varint(count) + bytes(2 * count)
        parts.append(varint(len(body)) + body)
    return b"".join(parts)


def client_batch(
    records: bytes, count: int = 1, *, codec: Codec = Codec.NONE, **fields: int
) -> bytearray:
    return resealed(
        two_records(), compress(codec, records), attributes=int(codec), record_count=count,
        last_offset_delta=count - 1, **fields,
    )  # fmt: skip


# --- headers -------------------------------------------------------------------------------------


def test_a_batch_of_endlessly_many_headers_is_refused() -> None:
    # 1. 400 bytes of zstd hold five million headers, 2. they are looked at one by one: for a second
    # nobody else is served, 3. for as many as a batch may unpack to the broker was fenced.
    bomb = client_batch(with_headers(5_000_000), codec=Codec.ZSTD)
    assert len(bomb) < 1_000
    with pytest.raises(BatchError, match="5000000 headers are more than") as caught:
        validated(bomb)
    assert caught.value.code is ErrorCode.INVALID_RECORD
    assert validated(client_batch(with_headers(HEADERS_MAX), codec=Codec.ZSTD))


def test_headers_are_counted_over_all_records_of_a_batch() -> None:
    # More than 64 records, which are looked at in stretches.
    counts = [HEADERS_MAX // 100] * 100
    assert check_records(memoryview(with_headers(*counts)), 100).header_count == HEADERS_MAX
    with pytest.raises(BadRecords, match="record 100: its 1 headers are more than"):
        check_records(memoryview(with_headers(*counts, 1)), 101)


def test_a_lookup_by_time_looks_at_no_headers() -> None:
    # What is stored may be from before there was a bound. 0x7f: a key of -64 bytes is none.
    broken = b"\0" + varint(7) + varint(0) + b"\x01\x01" + varint(1) + b"\x7f\x01"
    records = varint(len(broken)) + broken
    records += encode_record(offset_delta=1, timestamp_delta_ms=9, key=b"k", value=b"v")
    log = opened(new_disk(), LogConfig())
    batch = client_batch(records, 2, max_timestamp_ms=TIMESTAMP_MS + 9)
    log.append_as_leader(batch, leader_epoch=0, now_ms=TIMESTAMP_MS)
    assert log.offset_of_max_timestamp(2) == (TIMESTAMP_MS + 9, 1, 0)


@pytest.mark.parametrize("base_ms", [TIMESTAMP_MS, INT64_MAX])
@pytest.mark.parametrize("attributes", [0, 0x08])
def test_times_alone_are_those_of_the_records(attributes: int, base_ms: int) -> None:
    batch = resealed(two_records(), attributes=attributes, base_timestamp_ms=base_ms)
    header = read_header(batch, 0)
    wanted = [(record.timestamp_ms, record.offset) for record in iter_records(batch, 0, header)]
    assert list(iter_times(batch, 0, header)) == wanted
    for made in (b"\x01", b"\x7f" + bytes(20), b"\x80"):
        cut = resealed(batch, made, record_count=1)
        with pytest.raises(BatchError, match="CORRUPT_MESSAGE"):
            list(iter_times(cut, 0, read_header(cut, 0)))
