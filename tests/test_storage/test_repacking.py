"""A batch that is compressed again holds the same records in another codec."""

from __future__ import annotations

import random

import pytest

from kvorum.storage.format.batch import (
    CODEC_MASK,
    HEADER_BYTES,
    TRANSACTIONAL_BIT,
    check_crc,
    encode_record,
    iter_records,
    read_header,
    seal_batch,
)
from kvorum.storage.format.batch import BatchHeader as Header
from kvorum.storage.format.client_batch import validate_client_batch, validate_client_records
from kvorum.storage.format.compression import XERIAL_MAGIC, Codec, check_lz4_frame, compress
from kvorum.storage.format.recompression import TargetCompression, packed_anew


def batch_in(codec: Codec, *, count: int = 300) -> bytearray:
    """A batch of a transaction: with headers, null keys and values, and timestamps of their own."""
    records = b"".join(
        encode_record(
            offset_delta=at,
            timestamp_delta_ms=at * 3,
            key=None if at % 5 == 0 else b"key-%d" % at,
            value=None if at % 7 == 0 else b"value %d " % at * 5,
            headers=[(b"h", b"%d" % at), (b"n", None)] if at % 3 else [],
        )
        for at in range(count)
    )
    header = Header(
        base_offset=0,
        batch_length=0,
        leader_epoch=-1,
        magic=2,
        crc=0,
        attributes=codec | TRANSACTIONAL_BIT,
        last_offset_delta=count - 1,
        base_timestamp_ms=1_700_000_000_000,
        max_timestamp_ms=1_700_000_000_000 + (count - 1) * 3,
        producer_id=77,
        producer_epoch=5,
        base_sequence=900,
        record_count=count,
    )
    return seal_batch(header, [bytes(HEADER_BYTES), compress(codec, records)])


@pytest.mark.parametrize("target", Codec)
@pytest.mark.parametrize("source", Codec)
def test_only_codec_length_and_crc_of_the_header_change(source: Codec, target: Codec):
    batch = batch_in(source)
    header = read_header(batch, 0)
    anew = packed_anew(batch, header, TargetCompression(target))
    found = read_header(anew, 0)
    assert check_crc(anew, 0, found)
    assert found.attributes & CODEC_MASK == target
    assert found == header._replace(
        batch_length=len(anew) - 12,
        crc=found.crc,
        attributes=header.attributes & ~CODEC_MASK | target,
    )
    assert list(iter_records(anew, 0, found)) == list(iter_records(batch, 0, header))
    again = validate_client_batch(anew, max_message_bytes=1 << 20)
    assert validate_client_records(anew, again) == found


def test_java_reads_the_frames():
    batch = batch_in(Codec.NONE)
    header = read_header(batch, 0)
    check_lz4_frame(bytes(packed_anew(batch, header, TargetCompression(Codec.LZ4)))[HEADER_BYTES:])
    snappy = packed_anew(batch, header, TargetCompression(Codec.SNAPPY))
    assert snappy[HEADER_BYTES:].startswith(XERIAL_MAGIC)


@pytest.mark.parametrize(
    ("codec", "low", "high"),
    [(Codec.GZIP, 1, 9), (Codec.LZ4, 1, 17), (Codec.ZSTD, -131072, 22)],
)
def test_levels_are_obeyed_at_both_ends(codec: Codec, low: int, high: int):
    rng = random.Random(1)
    words = [rng.randbytes(9) for _ in range(200)]
    data = b" ".join(rng.choice(words) for _ in range(20_000))
    assert len(compress(codec, data, high)) < len(compress(codec, data, low))
    batch = batch_in(Codec.NONE)
    header = read_header(batch, 0)
    sizes = []
    for level in (low, high):
        anew = packed_anew(batch, header, TargetCompression(codec, level))
        assert len(list(iter_records(anew, 0, read_header(anew, 0)))) == 300
        sizes.append(len(anew))
    assert sizes[1] < sizes[0]


def test_a_batch_fits_by_its_codec_alone():
    for codec in Codec:
        batch = batch_in(codec, count=1)
        assert [TargetCompression(other, 5).fits(batch) for other in Codec] == [
            c is codec for c in Codec
        ]
        # Too short for a header: the check reports what is wrong.
        assert TargetCompression(Codec.LZ4).fits(batch[:22])
