"""Bytes of batches, golden ones first. Batches of clients: test_client_batch.py."""

from __future__ import annotations

import json
import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvorum.runtime.errors import ErrorCode
from kvorum.storage.format.batch import (
    HEADER_BYTES,
    BatchError,
    Record,
    build_batch,
    check_crc,
    encode_record,
    iter_headers,
    iter_records,
    read_header,
    seal_batch,
    stamp,
    stamp_log_append_time,
    varint,
)
from kvorum.storage.format.compression import Codec, compress
from tests.test_storage.client_batches import TIMESTAMP_MS, two_records

GOLDEN = json.loads(
    (pathlib.Path(__file__).parent.parent / "golden" / "record_batches.json").read_text()
)


def test_varints_are_zigzag_as_in_the_reference() -> None:
    expected = {0: "00", -1: "01", 1: "02", 63: "7e", -64: "7f", 64: "8001", -65: "8101"}
    expected[300] = "d804"
    assert {value: varint(value).hex() for value in expected} == expected


def test_one_record_batch_has_the_golden_bytes() -> None:
    batch = build_batch([(b"k", b"v")], timestamp_ms=TIMESTAMP_MS)
    assert batch.hex() == GOLDEN["one_record"] and len(batch) == 70


def test_two_record_batch_has_the_golden_bytes() -> None:
    batch = two_records()
    assert batch.hex() == GOLDEN["two_records_header_producer"] and len(batch) == 86
    assert read_header(batch, 0).crc == 0x6897D88B


def test_commit_marker_has_the_golden_bytes() -> None:
    key, value = bytes.fromhex("00000001"), bytes.fromhex("000000000005")
    batch = build_batch(
        [(key, value)],
        timestamp_ms=TIMESTAMP_MS,
        base_offset=7,
        leader_epoch=3,
        is_control=True,
        is_transactional=True,
        producer_id=4000,
        producer_epoch=1,
    )
    assert batch.hex() == GOLDEN["commit_marker"] and len(batch) == 78
    assert read_header(batch, 0).crc == 0xB254CA7E


def test_header_properties_follow_the_fields() -> None:
    header = read_header(two_records(), 0)
    assert (header.size_bytes, header.last_offset, header.end_offset) == (86, 1, 2)
    assert (header.last_sequence, header.is_control, header.is_transactional) == (1, False, False)
    assert header._replace(base_sequence=(1 << 31) - 1).last_sequence == 0


def test_records_come_back_with_absolute_timestamps_and_headers() -> None:
    batch = two_records()
    stamp(batch, 0, base_offset=100, leader_epoch=9)
    header = read_header(batch, 0)
    assert check_crc(batch, 0, header)
    assert list(iter_records(batch, 0, header)) == [
        Record(100, TIMESTAMP_MS, b"k", b"v"),
        Record(101, TIMESTAMP_MS + 5, None, b"hello", ((b"h", b"x"),)),
    ]


def test_log_append_time_gives_every_record_the_stamped_time() -> None:
    batch = two_records()
    header = stamp_log_append_time(batch, 0, read_header(batch, 0), timestamp_ms=42)
    assert check_crc(batch, 0, header)
    assert [record.timestamp_ms for record in iter_records(batch, 0, header)] == [42, 42]


@given(
    st.lists(
        st.tuples(st.none() | st.binary(max_size=300), st.none() | st.binary(max_size=9000)),
        min_size=1,
        max_size=20,
    ),
    st.sampled_from(list(Codec)),
)
def test_built_records_are_read_back(
    records: list[tuple[bytes | None, bytes | None]], codec: Codec
) -> None:
    batch = build_batch(records, timestamp_ms=5, base_offset=1 << 40, compression=codec)
    header = read_header(batch, 0)
    assert header.size_bytes == len(batch) and check_crc(batch, 0, header)
    assert [(r.key, r.value) for r in iter_records(batch, 0, header)] == records
    assert [r.offset - (1 << 40) for r in iter_records(batch, 0, header)] == list(
        range(len(records))
    )


def test_fast_builder_equals_the_general_encoder_beyond_the_table() -> None:
    records = [(b"k" * 5000, b"v" * 70_000)] + [(None, None)] * 5000
    batch = build_batch(records, timestamp_ms=0)
    slow = b"".join(
        encode_record(offset_delta=at, timestamp_delta_ms=0, key=key, value=value)
        for at, (key, value) in enumerate(records)
    )
    assert batch[HEADER_BYTES:] == slow


def test_iter_headers_leaves_out_a_batch_cut_off() -> None:
    one = build_batch([(None, b"a")], timestamp_ms=1)
    for cut in (1, len(one) - 1):
        assert [at for at, _ in iter_headers(one + one + one[:cut])] == [0, len(one)]


def test_iter_headers_refuses_a_length_no_batch_can_have() -> None:
    one = build_batch([(None, b"a")], timestamp_ms=1)
    one[8:12] = (0).to_bytes(4, "big")
    with pytest.raises(BatchError) as caught:
        list(iter_headers(one))
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_truncated_records_are_refused_not_misread() -> None:
    batch = two_records()
    header = read_header(batch, 0)
    for damaged in (header._replace(record_count=3), header._replace(batch_length=70)):
        with pytest.raises(BatchError):
            list(iter_records(batch, 0, damaged))


def test_a_decompression_bomb_is_refused() -> None:
    batch = build_batch([(None, bytes(1 << 20))], timestamp_ms=1, compression=Codec.GZIP)
    with pytest.raises(BatchError, match="more than"):
        list(iter_records(batch, 0, read_header(batch, 0), decompressed_bytes_max=1 << 16))


# --- codecs ------------------------------------------------------------------------------------


def test_raw_snappy_as_librdkafka_writes_it_is_read() -> None:
    import cramjam

    plain = build_batch([(b"k", b"v" * 500)], timestamp_ms=1)
    packed = bytes(cramjam.snappy.compress_raw(bytes(plain[HEADER_BYTES:])))
    header = read_header(plain, 0)._replace(attributes=int(Codec.SNAPPY))
    batch = seal_batch(header, [bytes(HEADER_BYTES), packed])
    assert [r.value for r in iter_records(batch, 0, read_header(batch, 0))] == [b"v" * 500]


def test_lz4_frames_have_independent_blocks_and_no_content_checksum() -> None:
    frame = compress(Codec.LZ4, b"abc" * 100_000)
    assert frame[:4] == bytes.fromhex("04224d18")
    assert frame[4] & 0b0010_0000 and not frame[4] & 0b0000_0100


def test_snappy_is_a_xerial_stream_of_32_kib_blocks() -> None:
    stream = compress(Codec.SNAPPY, bytes(70_000))
    assert stream[:16] == b"\x82SNAPPY\x00" + bytes.fromhex("0000000100000001")
    blocks, at = 0, 16
    while at < len(stream):
        at += 4 + int.from_bytes(stream[at : at + 4], "big")
        blocks += 1
    assert blocks == 3


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
def test_damaged_payloads_are_refused(codec: Codec) -> None:
    batch = build_batch([(b"k", bytes(range(256)) * 40)], timestamp_ms=1, compression=codec)
    del batch[HEADER_BYTES + 10 :]
    header = read_header(batch, 0)._replace(batch_length=len(batch) - 12)
    with pytest.raises(BatchError):
        list(iter_records(batch, 0, header))
