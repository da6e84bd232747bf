import asyncio
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata.snapshot_job import header_of, image_of_snapshot, payloads_of
from runtime.errors import CorruptData
from snapshots.format import (
    DATA,
    SnapshotHeader,
    decode_file,
    encode_footer,
    encode_frame,
    encode_header,
    file_name,
    parse_file_name,
    preamble,
)
from snapshots.store import newest_snapshot, read_snapshot, write_snapshot
from tests.test_metadata.worlds import World

HEADER = SnapshotHeader(end_offset=7, epoch=2, timestamp_ms=3)


def whole(payloads):
    return (
        preamble()
        + encode_header(HEADER)
        + b"".join(encode_frame(DATA, p) for p in payloads)
        + encode_footer(frames=len(payloads), data_bytes=sum(map(len, payloads)))
    )


@given(st.lists(st.binary(max_size=100), max_size=10))
def test_a_file_reads_back_as_it_was_written(payloads):
    assert decode_file("f", whole(payloads)) == (HEADER, payloads)


@given(st.lists(st.binary(max_size=20), max_size=4), st.data())
def test_any_flipped_byte_and_any_missing_end_is_refused(payloads, data):
    good = whole(payloads)
    at = data.draw(st.integers(0, len(good) - 1))
    flipped = good[:at] + bytes([good[at] ^ 0x41]) + good[at + 1 :]
    for bad in (flipped, good[:at]):
        with pytest.raises(CorruptData, match=r"^f at byte"):
            decode_file("f", bad)


def test_bytes_after_the_footer_are_refused():
    with pytest.raises(CorruptData, match="after the footer"):
        decode_file("f", whole([b"x"]) + encode_frame(DATA, b"y"))


def test_names_are_krafts():
    assert file_name(12, 3) == "00000000000000000012-0000000003.checkpoint"
    assert parse_file_name(file_name(12, 3)) == (12, 3)
    assert parse_file_name("00000000000000000012.log") is None
    assert parse_file_name(file_name(12, 3) + ".part") is None


def test_an_image_survives_its_snapshot(tmp_path):
    world = World()
    world.create("t", partitions=5, configs=(("retention.ms", "1"),))
    world.heartbeat(101, want_shutdown=True)
    image = world.image

    async def there_and_back():
        header = header_of(image, timestamp_ms=1)
        path = await write_snapshot(str(tmp_path), header, payloads_of(image))
        return image_of_snapshot(await read_snapshot(path))

    assert asyncio.run(there_and_back()) == image


def test_a_damaged_snapshot_is_refused_by_name_and_the_next_older_one_used(tmp_path):
    async def story():
        old = SnapshotHeader(end_offset=1, epoch=1, timestamp_ms=0)
        await write_snapshot(str(tmp_path), old, [b"old"])
        path = await write_snapshot(str(tmp_path), HEADER, [b"new"])
        with open(path, "r+b") as file:
            file.seek(-1, os.SEEK_END)
            file.write(b"\x00")
        return path, await newest_snapshot(str(tmp_path))

    path, (found, refused) = asyncio.run(story())
    assert found.header.end_offset == 1
    assert [error.path for error in refused] == [path]


def test_no_part_file_is_left(tmp_path):
    asyncio.run(write_snapshot(str(tmp_path), HEADER, [b"x"]))
    assert os.listdir(tmp_path) == [file_name(7, 2)]
