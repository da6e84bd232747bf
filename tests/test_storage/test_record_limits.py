"""Limits on the work that a few bytes of a client can cause, and on the length of their numbers."""

from __future__ import annotations

import pytest

from kvorum.runtime.errors import ErrorCode
from kvorum.storage.format.batch import (
    DECOMPRESSED_BYTES_MAX,
    BatchError,
    encode_record,
    iter_records,
    iter_times,
    read_header,
    varint,
)
from kvorum.storage.format.client_batch import (
    UNPACKED_BYTES_MAX,
    BatchLimits,
    Unpacking,
    batch_limits,
)
from kvorum.storage.format.compression import Codec, compress
from kvorum.storage.format.record_codec import INT32_MAX, INT32_MIN, INT64_MAX, read_varint32
from kvorum.storage.format.record_validation import BATCH_ITEMS_MAX, BadRecords, check_records
from kvorum.storage.log.log import LogConfig
from kvorum.storage.log.timestamp_lookup import find_max_timestamp
from tests.test_storage.client_batches import (
    TIMESTAMP_MS,
    code_of,
    resealed,
    two_records,
    validated,
)
from tests.test_storage.compacted import opened
from tests.test_storage.small_logs import new_disk


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
    # Bug: 1. 400 bytes of zstd hold five million headers. 2. The broker checks them one by one, and
    # serves no other client for a second. 3. With as many headers as a batch may unpack to, the
    # broker is fenced.
    bomb = client_batch(with_headers(5_000_000), codec=Codec.ZSTD)
    assert len(bomb) < 1_000
    with pytest.raises(BatchError, match="5000000 headers are more than") as caught:
        validated(bomb)
    assert caught.value.code is ErrorCode.INVALID_RECORD
    assert validated(client_batch(with_headers(BATCH_ITEMS_MAX), codec=Codec.ZSTD))


def test_headers_are_counted_over_all_records_of_a_batch() -> None:
    # More than 64 records, because runs of similar records are checked together.
    counts = [BATCH_ITEMS_MAX // 100] * 100
    assert check_records(memoryview(with_headers(*counts)), 100).header_count == BATCH_ITEMS_MAX
    with pytest.raises(BadRecords, match="record 100: its 1 headers are more than"):
        check_records(memoryview(with_headers(*counts, 1)), 101)


def test_a_lookup_by_time_looks_at_no_headers() -> None:
    # Stored records may be older than this limit. 0x7f is a key length of -64, which counts as
    # null.
    broken = b"\0" + varint(7) + varint(0) + b"\x01\x01" + varint(1) + b"\x7f\x01"
    records = varint(len(broken)) + broken
    records += encode_record(offset_delta=1, timestamp_delta_ms=9, key=b"k", value=b"v")
    log = opened(new_disk(), LogConfig())
    batch = client_batch(records, 2, max_timestamp_ms=TIMESTAMP_MS + 9)
    log.append_as_leader(batch, leader_epoch=0, now_ms=TIMESTAMP_MS)
    assert find_max_timestamp(log, end_offset=2) == (TIMESTAMP_MS + 9, 1, 0)


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


# --- the length of numbers -----------------------------------------------------------------------


def longer(encoded: bytes, size: int) -> bytes:
    """The same varint in `size` bytes."""
    return bytes((*encoded[:-1], encoded[-1] | 0x80)).ljust(size - 1, b"\x80") + b"\0"


def one_record(index: int, **encoded: bytes) -> bytes:
    """A record with one header, its numbers as they come by default or as `encoded` has them."""
    numbers = {
        "timestamp": b"\0", "offset": varint(index), "key": b"\x02", "value": b"\x02",
        "headers": b"\x02", "header key": b"\x02", "header value": b"\x01",
    } | encoded  # fmt: skip
    body = b"\0" + numbers["timestamp"] + numbers["offset"] + numbers["key"] + b"k"
    body += numbers["value"] + b"v" + numbers["headers"]
    if numbers["headers"] != b"\0":
        body += numbers["header key"] + b"h" + numbers["header value"]
    size = varint(len(body))
    return (longer(size, int(encoded["length"])) if "length" in encoded else size) + body


NUMBERS = ("offset", "key", "value", "headers", "header key", "header value")


@pytest.mark.parametrize("size", [6, 10])
@pytest.mark.parametrize("number", ["length", *NUMBERS])
def test_a_number_of_more_bytes_than_java_reads_is_refused(number: str, size: int) -> None:
    # Bug: it was stored as it came, and every Java consumer of the partition stopped there for
    # good: "Varint is too long, the most significant bit in the 5th byte is set".
    default = {"offset": b"\0", "header value": b"\x01"}.get(number, b"\x02")

    def encoded(bytes_of_number: int) -> bytes:
        if number == "length":
            return one_record(0, length=b"%d" % bytes_of_number)
        return one_record(0, **{number: longer(default, bytes_of_number)})

    assert validated(client_batch(encoded(5)))
    with pytest.raises(BatchError, match="more than five bytes") as caught:
        validated(client_batch(encoded(size)))
    assert caught.value.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("number", ["length", "offset", "key", "value"])
def test_a_run_of_numbers_of_too_many_bytes_is_refused(number: str) -> None:
    # Of records with equal layout only the first is checked byte by byte.
    def run(bytes_of_number: int) -> bytes:
        parts = []
        for at in range(40):
            own = {"offset": varint(at)}.get(number, b"\x02")
            size = b"%d" % bytes_of_number if number == "length" else longer(own, bytes_of_number)
            parts.append(one_record(at, headers=b"\0", **{number: size}))
        return b"".join(parts)

    assert validated(client_batch(run(5), 40), max_message_bytes=2_000)
    with pytest.raises(BatchError, match="record 0: a varint of more than five bytes"):
        validated(client_batch(run(6), 40), max_message_bytes=2_000)


@pytest.mark.parametrize("raw", [1 << 32, (1 << 35) - 1])
def test_a_length_of_more_than_32_bits_is_refused(raw: int) -> None:
    # Java drops the higher bits, and would continue at a wrong position.
    assert read_varint32(varint(INT32_MAX), 0) == (INT32_MAX, 5)
    assert read_varint32(varint(INT32_MIN), 0) == (INT32_MIN, 5)
    with pytest.raises(ValueError, match="more than 32 bits"):
        read_varint32(varint(raw >> 1 if raw % 2 == 0 else -(raw >> 1) - 1), 0)


def test_a_timestamp_may_take_ten_bytes() -> None:
    assert validated(client_batch(one_record(0, timestamp=longer(b"\0", 10))))


# --- what one request may unpack to --------------------------------------------------------------

MANY = encode_record(offset_delta=0, timestamp_delta_ms=0, key=None, value=bytes(30 << 20))
CODECS = [codec for codec in Codec if codec is not Codec.NONE]


def refused(batch: bytearray, unpacking: Unpacking) -> ErrorCode:
    try:
        validated(batch, max_message_bytes=4 << 20, unpacking=unpacking)
    except BatchError as error:
        return error.code
    return ErrorCode.NONE


@pytest.mark.parametrize("codec", CODECS)
def test_the_batches_of_a_request_share_what_they_may_unpack_to(codec: Codec) -> None:
    # Bug: 1. A request brings twenty batches for as many partitions, of a few kilobytes each. 2.
    # Each unpacks to 99 MB. 3. No other client is served until all are unpacked.
    unpacking = Unpacking(0)
    packed = client_batch(MANY, codec=codec)
    codes = [refused(packed, unpacking) for _ in range(5)]
    assert codes == [ErrorCode.NONE] * 3 + [ErrorCode.MESSAGE_TOO_LARGE] * 2
    assert unpacking.bytes_left <= 0
    # Uncompressed records take no room but that of their bytes.
    assert refused(client_batch(with_headers(1)), unpacking) is ErrorCode.NONE
    assert [refused(packed, Unpacking(0)) for _ in range(4)] == [ErrorCode.NONE] * 4


def test_a_larger_request_may_unpack_to_more() -> None:
    packed = client_batch(MANY, codec=Codec.ZSTD)
    unpacking = Unpacking(3 << 20)
    assert [refused(packed, unpacking) for _ in range(5)] == [
        *[ErrorCode.NONE] * 4, ErrorCode.MESSAGE_TOO_LARGE,
    ]  # fmt: skip


def test_a_batch_that_unpacks_to_too_much_takes_what_its_request_has() -> None:
    # Bug: such a batch was unpacked up to the limit and refused, but did not count toward the
    # request's limit, so each further batch of the request was unpacked as far.
    bomb = client_batch(bytes(UNPACKED_BYTES_MAX + 1), codec=Codec.ZSTD)
    unpacking = Unpacking(0)
    assert refused(bomb, unpacking) is ErrorCode.INVALID_RECORD
    assert refused(bomb, unpacking) is ErrorCode.MESSAGE_TOO_LARGE
    assert refused(client_batch(with_headers(1), codec=Codec.GZIP), unpacking) is (
        ErrorCode.MESSAGE_TOO_LARGE
    )


def test_the_batches_of_a_request_share_how_many_records_and_headers_they_may_have() -> None:
    # The broker checks each header by itself, which costs more than unpacking its two bytes.
    packed = client_batch(with_headers(BATCH_ITEMS_MAX), codec=Codec.ZSTD)
    unpacking = Unpacking(0)
    codes = [refused(packed, unpacking) for _ in range(3)]
    assert codes == [ErrorCode.NONE] + [ErrorCode.MESSAGE_TOO_LARGE] * 2
    wrong = client_batch(with_headers(BATCH_ITEMS_MAX) + b"x", codec=Codec.ZSTD)
    unpacking = Unpacking(0)
    codes = [refused(wrong, unpacking) for _ in range(2)]
    assert codes == [ErrorCode.INVALID_RECORD, ErrorCode.MESSAGE_TOO_LARGE]
    records = b"".join(
        encode_record(offset_delta=at, timestamp_delta_ms=0, key=None, value=b"")
        for at in range(400_000)
    )
    packed = client_batch(records, 400_000, codec=Codec.ZSTD)
    unpacking = Unpacking(0)
    codes = [refused(packed, unpacking) for _ in range(3)]
    assert codes == [ErrorCode.NONE] * 2 + [ErrorCode.MESSAGE_TOO_LARGE]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_the_limit_of_records_and_headers_may_be_raised(codec: Codec) -> None:
    headers = client_batch(with_headers(BATCH_ITEMS_MAX + 1), codec=codec)
    records = b"".join(
        encode_record(offset_delta=at, timestamp_delta_ms=0, key=None, value=b"")
        for at in range(BATCH_ITEMS_MAX + 1)
    )
    many = client_batch(records, BATCH_ITEMS_MAX + 1, codec=codec)
    limits = BatchLimits(items=BATCH_ITEMS_MAX + 1)
    for batch in (headers, many):
        bounds = {"max_message_bytes": 1 << 30}
        assert code_of(batch, unpacking=Unpacking(0), **bounds) is ErrorCode.INVALID_RECORD
        assert validated(batch, unpacking=Unpacking(0, limits), **bounds)


def test_a_broker_of_larger_requests_unpacks_more() -> None:
    bomb = client_batch(
        encode_record(
            offset_delta=0, timestamp_delta_ms=0, key=None, value=bytes(UNPACKED_BYTES_MAX)
        ),
        codec=Codec.ZSTD,
    )
    larger = batch_limits(BATCH_ITEMS_MAX, UNPACKED_BYTES_MAX + (1 << 20))
    assert refused(bomb, Unpacking(0)) is ErrorCode.INVALID_RECORD
    assert refused(bomb, Unpacking(0, larger)) is ErrorCode.NONE
    # Readers of the log unpack no more than that.
    assert batch_limits(1, 1 << 30).unpacked_bytes == DECOMPRESSED_BYTES_MAX
    assert batch_limits(1, 1).unpacked_bytes == UNPACKED_BYTES_MAX


def test_of_very_many_refused_records_the_first_hundred_are_named() -> None:
    # Bug: a million records without key, in a few kilobytes, got an answer of 79 MB.
    records = b"".join(
        encode_record(offset_delta=at, timestamp_delta_ms=0, key=None, value=b"")
        for at in range(1_000)
    )
    bounds = {"now_ms": TIMESTAMP_MS + 9, "timestamp_before_max_ms": 1}
    for limits in ({"keyed_partition": "t-0"}, bounds):
        with pytest.raises(BatchError, match=r"1000 (record errors|of 1000 records)") as caught:
            batch = client_batch(records, 1_000, codec=Codec.ZSTD)
            validated(batch, max_message_bytes=9_000, **limits)
        assert [at for at, _ in caught.value.record_errors] == list(range(100))
