"""Checks of clients' batches: each fault has its error code; any consumer reads the others."""

from __future__ import annotations

import gzip

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvorum.runtime.errors import ErrorCode
from kvorum.storage.format.batch import (
    HEADER_BYTES,
    BatchError,
    build_batch,
    check_crc,
    encode_record,
    read_header,
)
from kvorum.storage.format.client_batch import UNPACKED_BYTES_MAX, validate_client_records
from kvorum.storage.format.compression import Codec, compress
from kvorum.storage.format.record_codec import read_record, read_varint, varint
from kvorum.storage.format.record_validation import BATCH_ITEMS_MAX, BadRecords, check_records
from tests.test_storage.client_batches import (
    TIMESTAMP_MS,
    code_of,
    resealed,
    two_records,
    validated,
)

# --- the header ------------------------------------------------------------------------------


def test_a_sound_client_batch_passes_as_it_is() -> None:
    batch = two_records()
    before = bytes(batch)
    assert validated(memoryview(batch), max_message_bytes=86) == read_header(batch, 0)
    assert batch == before


def test_each_fault_of_a_header_gets_its_kafka_code() -> None:
    batch = two_records()
    flipped = bytearray(batch)
    flipped[-1] ^= 1
    assert code_of(b"") is ErrorCode.INVALID_RECORD
    assert code_of(batch[:11]) is ErrorCode.INVALID_RECORD
    assert code_of(batch[:-1]) is ErrorCode.INVALID_RECORD
    assert code_of(batch + batch) is ErrorCode.INVALID_RECORD
    assert code_of(flipped) is ErrorCode.CORRUPT_MESSAGE
    assert code_of(batch, max_message_bytes=85) is ErrorCode.MESSAGE_TOO_LARGE
    assert code_of(resealed(batch, magic=1)) is ErrorCode.INVALID_RECORD
    assert code_of(resealed(batch, magic=3)) is ErrorCode.CORRUPT_MESSAGE
    assert code_of(resealed(batch, magic=-1)) is ErrorCode.CORRUPT_MESSAGE
    assert code_of(resealed(batch, base_offset=5)) is ErrorCode.INVALID_RECORD
    assert code_of(resealed(batch, record_count=1)) is ErrorCode.INVALID_RECORD
    empty = resealed(batch, record_count=0, last_offset_delta=-1)
    assert code_of(empty) is ErrorCode.INVALID_RECORD
    assert code_of(resealed(batch, attributes=0x20)) is ErrorCode.INVALID_RECORD
    assert code_of(resealed(batch, attributes=5)) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert code_of(resealed(batch, base_sequence=-1)) is ErrorCode.INVALID_RECORD
    for epoch in (-1, -2, -(1 << 15)):
        wrong = resealed(batch, producer_epoch=epoch)
        assert code_of(wrong) is ErrorCode.INVALID_PRODUCER_EPOCH
    no_producer = resealed(batch, producer_id=-1, attributes=0x10)
    assert code_of(no_producer) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("length", [-(1 << 31), -1, 0, 13, 14, 48])
def test_a_length_field_below_that_of_a_header_is_corrupt(length: int) -> None:
    batch = two_records()
    batch[8:12] = length.to_bytes(4, "big", signed=True)
    assert code_of(batch) is ErrorCode.CORRUPT_MESSAGE
    assert code_of(batch[:60]) is ErrorCode.CORRUPT_MESSAGE
    # A message of an older format may be as short.
    batch[16] = 1
    assert code_of(batch) is ErrorCode.INVALID_RECORD
    assert code_of(batch[:60]) is ErrorCode.INVALID_RECORD


def test_timestamps_outside_the_window_are_refused_when_asked() -> None:
    batch = two_records()
    late = {"now_ms": TIMESTAMP_MS - 100, "timestamp_after_max_ms": 104}
    early = {"now_ms": TIMESTAMP_MS + 100, "timestamp_before_max_ms": 99}
    assert code_of(batch, **late) is ErrorCode.INVALID_TIMESTAMP
    assert code_of(batch, **early) is ErrorCode.INVALID_TIMESTAMP
    validated(batch, now_ms=TIMESTAMP_MS - 100, timestamp_after_max_ms=105)


def test_each_record_out_of_bounds_is_named_and_those_without_a_timestamp_are_not() -> None:
    # The two records have the timestamps TIMESTAMP_MS and TIMESTAMP_MS + 5.
    batch = two_records()
    now_ms = TIMESTAMP_MS + 100
    validated(batch, now_ms=now_ms, timestamp_before_max_ms=100)
    with pytest.raises(BatchError) as caught:
        validated(batch, now_ms=now_ms, timestamp_before_max_ms=97, timestamp_after_max_ms=0)
    assert caught.value.code is ErrorCode.INVALID_TIMESTAMP
    low, high = now_ms - 97, now_ms
    why = f"timestamp {TIMESTAMP_MS} is not within {low} to {high}"
    assert caught.value.record_errors == [(0, why)]
    assert why in caught.value.reason
    with pytest.raises(BatchError) as caught:
        validated(batch, now_ms=TIMESTAMP_MS - 1, timestamp_after_max_ms=0)
    assert [at for at, _ in caught.value.record_errors] == [0, 1]
    timeless = [
        encode_record(offset_delta=0, timestamp_delta_ms=-1 - TIMESTAMP_MS, key=None, value=b"v"),
        encode_record(offset_delta=1, timestamp_delta_ms=0, key=None, value=b"w"),
    ]
    some = resealed(batch, b"".join(timeless), max_timestamp_ms=TIMESTAMP_MS)
    validated(some, now_ms=TIMESTAMP_MS, timestamp_before_max_ms=0, timestamp_after_max_ms=0)


INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1
int64 = st.integers(INT64_MIN, INT64_MAX) | st.sampled_from(
    (INT64_MIN, INT64_MIN + 1, -1, 0, 1, INT64_MAX - 1, INT64_MAX, 1 << 62, -(1 << 62))
)


def as_java(value: int) -> int:
    """The low 64 bits, signed, by Python's own conversion."""
    return int.from_bytes((value & ((1 << 64) - 1)).to_bytes(8, "big"), "big", signed=True)


@settings(max_examples=500)
@given(
    int64,
    st.lists(int64, min_size=1, max_size=3),
    st.booleans(),
    int64,
    st.sampled_from((0, 1 << 62, INT64_MAX)),
    st.sampled_from((0, 3_600_000, INT64_MAX)),
)
def test_sums_and_distances_of_timestamps_wrap_as_in_kafka(
    base_ms: int,
    deltas: list[int],
    is_stamped_by_leader: bool,
    max_ms: int,
    before_ms: int,
    after_ms: int,
) -> None:
    # Bug: a sum beyond 64 bits ended the broker, and then the next broker that its client tried.
    records = b"".join(
        encode_record(offset_delta=at, timestamp_delta_ms=delta, key=None, value=b"v")
        for at, delta in enumerate(deltas)
    )
    batch = resealed(
        two_records(), records, record_count=len(deltas), last_offset_delta=len(deltas) - 1,
        base_timestamp_ms=base_ms, max_timestamp_ms=max_ms,
    )  # fmt: skip
    if is_stamped_by_leader:
        assert validated(batch, now_ms=None).max_timestamp_ms == max_ms
        return
    bounds = {"timestamp_before_max_ms": before_ms, "timestamp_after_max_ms": after_ms}
    times = [as_java(base_ms + delta) for delta in deltas]
    # LogValidator.recordHasInvalidTimestamp.
    pasts = [as_java(TIMESTAMP_MS - time_ms) for time_ms in times]
    wrong = [
        at
        for at, past_ms in enumerate(pasts)
        if times[at] != -1 and (past_ms > before_ms or as_java(-past_ms) > after_ms)
    ]
    if not wrong:
        assert validated(batch, **bounds).max_timestamp_ms == max(times)
        return
    with pytest.raises(BatchError) as caught:
        validated(batch, **bounds)
    assert caught.value.code is ErrorCode.INVALID_TIMESTAMP
    assert [at for at, _ in caught.value.record_errors] == wrong


@pytest.mark.parametrize(
    ("base_ms", "delta_ms", "code"),
    [
        # The distance wraps: a time near -2^63 counts as one in the future.
        (INT64_MIN, 0, ErrorCode.INVALID_TIMESTAMP),
        (0, INT64_MIN, ErrorCode.INVALID_TIMESTAMP),
        (TIMESTAMP_MS, INT64_MIN, ErrorCode.NONE),
        (TIMESTAMP_MS - 1, INT64_MIN, ErrorCode.INVALID_TIMESTAMP),
        (TIMESTAMP_MS + INT64_MIN, 0, ErrorCode.NONE),
        (TIMESTAMP_MS + INT64_MIN - 1, 0, ErrorCode.INVALID_TIMESTAMP),
        # The sum wraps: to a time that is in bounds, or not.
        (INT64_MAX, INT64_MAX, ErrorCode.NONE),
        (INT64_MAX, 1, ErrorCode.INVALID_TIMESTAMP),
        (-1, INT64_MIN, ErrorCode.INVALID_TIMESTAMP),
    ],
)
def test_a_timestamp_that_wraps_is_held_to_the_bounds_after_it_has(
    base_ms: int, delta_ms: int, code: ErrorCode
) -> None:
    # A hundred records, because short and long batches take different ways through the check.
    for count in (1, 100):
        deltas = [0 if delta_ms == INT64_MIN else delta_ms] * (count - 1) + [delta_ms]
        records = b"".join(
            encode_record(offset_delta=at, timestamp_delta_ms=delta, key=None, value=b"v")
            for at, delta in enumerate(deltas)
        )
        batch = resealed(
            two_records(), records, record_count=count, last_offset_delta=count - 1,
            base_timestamp_ms=base_ms,
        )  # fmt: skip
        limits = {"timestamp_after_max_ms": 3_600_000, "max_message_bytes": 10_000}
        if code is not ErrorCode.NONE:
            assert code_of(batch, **limits) is code
            continue
        times = [as_java(base_ms + delta) for delta in deltas]
        assert validated(batch, **limits).max_timestamp_ms == max(times)


def test_a_producer_may_not_set_the_type_log_append_time_where_the_topic_has_it() -> None:
    batch = resealed(two_records(), attributes=0x08)
    assert code_of(batch, now_ms=None) is ErrorCode.INVALID_TIMESTAMP


def test_a_header_that_hides_a_late_record_does_not_let_it_in() -> None:
    batch = resealed(two_records(), max_timestamp_ms=TIMESTAMP_MS)
    bounds = {"now_ms": TIMESTAMP_MS - 100, "timestamp_after_max_ms": 104}
    assert code_of(batch, **bounds) is ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize(
    "fields",
    [
        {"attributes": 0x08},
        {"attributes": 0x40},
        {"attributes": 0x7F00},
        {"max_timestamp_ms": TIMESTAMP_MS + 6},
        {"max_timestamp_ms": -1},
    ],
)
def test_what_a_producer_has_no_say_in_is_put_right(fields: dict[str, int]) -> None:
    batch = resealed(two_records(), **fields)
    assert validated(batch) == read_header(two_records(), 0)
    assert batch == two_records()
    assert check_crc(batch, 0, read_header(batch, 0))


# --- records ---------------------------------------------------------------------------------


def counted(batch: bytearray, count: int) -> bytearray:
    return resealed(batch, record_count=count, last_offset_delta=count - 1)


@pytest.mark.parametrize("count", [1, 3, 12, 2_000_000_000])
def test_a_false_count_is_refused(count: int) -> None:
    assert code_of(counted(two_records(), count)) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
def test_compressed_records_are_looked_at_too(codec: Codec) -> None:
    batch = two_records()
    packed = compress(codec, bytes(batch[HEADER_BYTES:]))
    sound = resealed(batch, packed, attributes=int(codec))
    assert validated(sound) == read_header(sound, 0)
    assert code_of(counted(sound, 3)) is ErrorCode.INVALID_RECORD
    assert code_of(resealed(batch, attributes=int(codec))) is ErrorCode.INVALID_RECORD
    garbage = resealed(batch, compress(codec, b"\xff" * 50), attributes=int(codec))
    assert code_of(garbage) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize(("size", "is_taken"), [(993, True), (994, False)])
def test_a_record_of_a_compressed_batch_has_a_limit_of_its_own(
    codec: Codec, size: int, is_taken: bool
) -> None:
    """As Apache Kafka 4.4 answers: 993 bytes of value make a record of 1000 bytes."""
    records = [(None, b"small"), (None, bytes(size)), (None, b"small")]
    batch = memoryview(build_batch(records, timestamp_ms=TIMESTAMP_MS, compression=codec))
    header = read_header(batch, 0)
    if is_taken or codec is Codec.NONE:
        validate_client_records(batch, header, decompressed_record_bytes_max=1000)
        return
    with pytest.raises(BatchError, match="record 1 has 1001 bytes") as refused:
        validate_client_records(batch, header, decompressed_record_bytes_max=1000)
    assert refused.value.code is ErrorCode.INVALID_RECORD


def test_records_out_of_order_and_bytes_behind_the_last_are_refused() -> None:
    batch = two_records()
    first = encode_record(offset_delta=0, timestamp_delta_ms=0, key=b"k", value=b"v")
    second = encode_record(offset_delta=1, timestamp_delta_ms=5, key=b"k", value=b"v")
    assert code_of(resealed(batch, second + first)) is ErrorCode.INVALID_RECORD
    assert code_of(resealed(batch, first + first)) is ErrorCode.INVALID_RECORD
    assert code_of(resealed(batch, first + second + b"x")) is ErrorCode.INVALID_RECORD
    with pytest.raises(BatchError) as caught:
        validated(resealed(batch, first + first))
    assert caught.value.record_errors == [(1, "its offset delta is not its place")]


def test_a_decompression_bomb_is_refused() -> None:
    bomb = gzip.compress(bytes(UNPACKED_BYTES_MAX + 1))
    batch = resealed(two_records(), bomb, attributes=int(Codec.GZIP))
    assert code_of(batch, max_message_bytes=1 << 20) is ErrorCode.INVALID_RECORD


def test_a_batch_of_endlessly_many_records_is_refused() -> None:
    with pytest.raises(BadRecords, match="are taken"):
        check_records(memoryview(bytes(100)), BATCH_ITEMS_MAX + 1)


# --- against the obvious ---------------------------------------------------------------------


def sizes_of(data: bytes, at: int) -> list[int]:
    """Key, value and headers of the record at `at`, which is whole."""
    _, at = read_varint(data, at)
    _, at = read_varint(data, at + 1)
    _, at = read_varint(data, at)
    found: list[int] = []
    for _ in range(2):
        size, at = read_varint(data, at)
        found.append(size)
        at += max(size, 0)
    count, at = read_varint(data, at)
    for _ in range(2 * count):
        size, at = read_varint(data, at)
        found.append(size)
        at += max(size, 0)
    return found


def newest_by_hand(data: bytes, count: int) -> int | None:
    """The slow, obvious check: the largest timestamp delta, None if the records are wrong."""
    at, deltas = 0, []
    try:
        for index in range(count):
            start = at
            delta_ms, offset_delta, _, _, _, at = read_record(data, at)
            # Null is -1; producers use no value below it.
            if offset_delta != index or min(sizes_of(data, start)) < -1:
                return None
            deltas.append(delta_ms)
    except (IndexError, ValueError):
        return None
    return max(deltas) if at == len(data) else None


def newest(data: bytes, count: int) -> int | None:
    try:
        return check_records(memoryview(data), count).newest_delta_ms
    except BadRecords:
        return None


sizes = st.one_of(st.none(), st.integers(0, 3), st.integers(60, 70), st.just(300))
headers = st.lists(st.tuples(st.binary(max_size=3), st.none() | st.binary(max_size=3)), max_size=2)
stretch = st.tuples(
    st.integers(1, 90), sizes, sizes, st.integers(-70, 20_000), st.integers(0, 3), headers
)
stretches = st.lists(stretch, min_size=1, max_size=5)


def encoded(stretches_of_records: list[tuple]) -> tuple[bytes, int]:
    """Stretches of like records: (how many, key size, value size, first timestamp delta, step)."""
    parts: list[bytes] = []
    for count, key, value, first_ms, step_ms, own_headers in stretches_of_records:
        parts += [
            encode_record(
                offset_delta=len(parts) + i,
                timestamp_delta_ms=first_ms + i * step_ms,
                key=None if key is None else bytes(key),
                value=None if value is None else b"\xee" * value,
                headers=own_headers,
            )
            for i in range(count)
        ]
    return b"".join(parts), sum(stretch[0] for stretch in stretches_of_records)


@pytest.mark.parametrize("size", [-2, -45])
@pytest.mark.parametrize("place", ["key", "value", "header"])
def test_a_length_below_that_of_null_is_refused(size: int, place: str) -> None:
    # librdkafka stops at such a record without an error, and fetches it for ever.
    body = b"\0" + varint(0) + varint(0)
    body += varint(size if place == "key" else -1) + varint(size if place == "value" else -1)
    body += varint(1) + varint(1) + b"h" + varint(size) if place == "header" else varint(0)
    data = varint(len(body)) + body
    assert newest(data, 1) is None
    run = b"".join(varint(len(body)) + body[:2] + varint(i) + body[3:] for i in range(20))
    assert newest(run, 20) is None


def test_timestamps_of_more_than_64_bits_are_refused_in_runs_too() -> None:
    deltas = [b"\xff" * 9 + b"\x01"] * 19 + [b"\xff" * 9 + b"\x7f"]
    bodies = [
        b"\0" + delta + varint(i) + varint(-1) * 2 + varint(0) for i, delta in enumerate(deltas)
    ]
    assert newest(b"".join(varint(len(body)) + body for body in bodies), 20) is None
    sound = b"".join(varint(len(body)) + body for body in bodies[:19])
    assert newest(sound, 19) == newest_by_hand(sound, 19) == -(1 << 63)


@given(stretches)
def test_sound_records_pass_with_their_largest_timestamp(made: list[tuple]) -> None:
    data, count = encoded(made)
    assert newest(data, count) == newest_by_hand(data, count) is not None


@settings(max_examples=400)
@given(stretches, st.data())
def test_broken_records_are_found_as_by_reading_each(
    made: list[tuple], draw: st.DataObject
) -> None:
    data, count = encoded(made)
    broken = bytearray(data)
    for _ in range(draw.draw(st.integers(1, 3))):
        at = draw.draw(st.integers(0, len(broken) - 1))
        match draw.draw(st.sampled_from(["flip", "cut", "add", "repeat"])):
            case "flip":
                broken[at] ^= 1 << draw.draw(st.integers(0, 7))
            case "cut":
                del broken[at : at + draw.draw(st.integers(1, 20))]
            case "add":
                broken[at:at] = draw.draw(st.binary(min_size=1, max_size=5))
            case "repeat":
                broken[at:at] = broken[at : at + draw.draw(st.integers(1, 40))]
        if not broken:
            return
    count = draw.draw(st.sampled_from([count, count, count - 1, count + 1]))
    assert newest(bytes(broken), count) == newest_by_hand(bytes(broken), count)


@pytest.mark.parametrize("count", [63, 64, 65, 8_191, 8_192, 8_193, 32_768, 33_000])
def test_offset_deltas_of_every_size_are_checked(count: int) -> None:
    data, _ = encoded([(count, None, 3, 0, 0, [])])
    assert newest(data, count) == 0
    last = data.rindex(b"\x06\xee\xee\xee") - 2
    assert newest(data[:last] + bytes([data[last] ^ 2]) + data[last + 1 :], count) is None


@pytest.mark.parametrize("first_ms", [0, 100])
def test_each_flipped_bit_of_a_run_is_judged_as_by_reading_each_record(first_ms: int) -> None:
    data, count = encoded([(20, 2, 3, first_ms, 1, [])])
    for at in range(len(data)):
        for bit in range(8):
            broken = bytearray(data)
            broken[at] ^= 1 << bit
            assert newest(bytes(broken), count) == newest_by_hand(bytes(broken), count), (at, bit)
