import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvorum.runtime.errors import CorruptData
from kvorum.snapshots.format import (
    DATA,
    FRAME_BYTES_MAX,
    HEADER,
    SnapshotHeader,
    SnapshotId,
    UnsupportedVersion,
    encode_footer,
    encode_frame,
    encode_header,
    file_name,
    iter_payloads,
    parse_file_name,
    preamble,
    read_header,
    verify_file,
)
from tests.test_snapshots.places import NEW, OLD, PAYLOADS, decode_file

#: A file of the first build that wrote any.
PLAIN = bytes.fromhex(
    "4b56534e00010100000022929e8ba183aa656e645f6f666673657403a565706f636801ac74696d65"
    "7374616d705f6d730a0200000001644548fc7803000000103878989e82a66672616d657301a56279"
    "74657301"
)


def framed(*frames):
    return preamble() + b"".join(frames)


def whole(payloads, header=NEW):
    footer = encode_footer(frames=len(payloads), data_bytes=sum(map(len, payloads)))
    return framed(encode_header(header), *(encode_frame(DATA, p) for p in payloads), footer)


def header_frame(**fields):
    return framed(
        encode_frame(HEADER, msgpack.packb(fields)), encode_footer(frames=0, data_bytes=0)
    )


@given(
    st.lists(st.binary(max_size=100), max_size=10),
    st.builds(
        SnapshotHeader,
        end_offset=st.integers(0, 2**63 - 1),
        epoch=st.integers(0, 2**31 - 1),
        timestamp_ms=st.integers(-1, 2**63 - 1),
        kraft_version=st.integers(0, 1),
        voters=st.lists(
            st.tuples(st.integers(0, 99), st.text(), st.text(), st.integers(0, 65535))
        ).map(tuple),
    ),
)
def test_a_file_reads_back_as_it_was_written(payloads, header):
    assert decode_file("f", whole(payloads, header)) == (header, payloads)


def test_a_header_of_defaults_has_the_bytes_it_always_had():
    assert whole([b"x"], OLD) == PLAIN
    assert decode_file("f", PLAIN) == (OLD, [b"x"])


def test_every_flipped_byte_is_refused():
    good = whole(PAYLOADS)
    for at in range(len(good)):
        for mask in (0x01, 0x41, 0xFF):
            bad = good[:at] + bytes([good[at] ^ mask]) + good[at + 1 :]
            with pytest.raises(CorruptData, match=r"^f at byte \d+: "):
                decode_file("f", bad)


def test_every_truncation_is_refused():
    good = whole(PAYLOADS)
    for size in range(len(good)):
        with pytest.raises(CorruptData, match=r"^f at byte \d+: "):
            decode_file("f", good[:size])


def test_damage_is_named_at_the_begin_of_its_frame():
    good = whole([b"x" * 30])
    at = len(framed(encode_header(NEW)))
    with pytest.raises(CorruptData, match=f"^f at byte {at}: a frame fails its checksum"):
        decode_file("f", good[: at + 20] + b"!" + good[at + 21 :])
    with pytest.raises(CorruptData, match=f"^f at byte {at}: the file is cut off here"):
        decode_file("f", good[: at + 20])


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "the file is cut off here"),
        (b"\x00" * 80, "not a Kvorum snapshot"),
        (b"h1\n", r"not a Kvorum snapshot, it begins with b'h1"),
        (b"KVS", "the file is cut off here"),
        (framed(), "without a footer"),
        (framed(encode_header(OLD)), "without a footer"),
        (framed(encode_header(OLD), encode_frame(DATA, b"")), "without a footer"),
        (framed(encode_frame(DATA, b"x")), "the first frame is not a header"),
        (framed(encode_header(OLD), encode_frame(9, b"")), "a frame of unknown kind 9"),
        (framed(encode_header(OLD), encode_frame(3, b"\xc1")), "not msgpack"),
        (framed(encode_header(OLD), encode_footer(frames=1, data_bytes=0)), "the footer says"),
        (whole([b"x"]) + encode_frame(DATA, b"y"), "bytes after the footer"),
        (whole([b"x"]) + b"\x00", "the file is cut off here"),
        (framed(b"\x01\xff\xff\xff\xff" + bytes(4)), f"is above {FRAME_BYTES_MAX}"),
        (header_frame(end_offset=1, epoch=1), "the header lacks timestamp_ms"),
        (header_frame(end_offset=1, epoch=-1, timestamp_ms=0), "the header's epoch is -1"),
        (header_frame(end_offset=True, epoch=1, timestamp_ms=0), "the header's end_offset is True"),
        (header_frame(end_offset=1, epoch=1, timestamp_ms=0, voters=[[1]]), "the header's voters"),
    ],
)
def test_what_does_not_hold_is_said(data, reason):
    with pytest.raises(CorruptData, match=reason):
        decode_file("f", data)


def test_a_newer_file_is_refused_by_name_and_version():
    newer = b"KVSN\x00\x02" + whole([])[6:]
    with pytest.raises(UnsupportedVersion, match=r"^f at byte 4: snapshot version 2, this build"):
        decode_file("f", newer)
    fields = {"end_offset": 1, "epoch": 1, "timestamp_ms": 0, "compression": 1}
    with pytest.raises(UnsupportedVersion, match="header fields compression are unknown"):
        decode_file("f", header_frame(**fields))


def test_names_are_krafts():
    assert file_name(12, 3) == "00000000000000000012-0000000003.checkpoint"
    assert parse_file_name(file_name(12, 3)) == (12, 3)
    assert parse_file_name("00000000000000000012.log") is None
    assert parse_file_name(file_name(12, 3) + ".part") is None
    assert parse_file_name("²" * 20 + "-0000000003.checkpoint") is None
    assert SnapshotId(2, 9) < SnapshotId(3, 1) < SnapshotId(3, 2)


async def _all(disk, path):
    return [payload async for payload in iter_payloads(disk, path)]


def test_a_file_is_read_frame_by_frame(place):
    path = f"{place.store.directory}/f"
    place.put(path, whole(PAYLOADS))
    assert place.run(_all(place.store.disk, path)) == PAYLOADS
    assert place.run(read_header(place.store.disk, path)) == NEW
    assert place.run(verify_file(place.store.disk, path)) == NEW


def test_reading_frame_by_frame_gives_the_good_payloads_and_then_refuses(place):
    path = f"{place.store.directory}/f"
    place.put(path, whole(PAYLOADS)[:-1])
    seen = []

    async def story():
        async for payload in iter_payloads(place.store.disk, path):
            seen.append(payload)

    with pytest.raises(CorruptData):
        place.run(story())
    assert seen == PAYLOADS
    with pytest.raises(CorruptData):
        place.run(verify_file(place.store.disk, path))
