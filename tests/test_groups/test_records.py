"""Records of __consumer_offsets: Kafka's bytes, all versions read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvorum.broker.groups.steps.records import (
    GroupKey,
    GroupValue,
    MemberValue,
    OffsetKey,
    OffsetValue,
    UnknownKey,
    decode_group,
    decode_key,
    decode_offset,
    encode_group,
    encode_offset,
    group_key,
    offset_key,
)
from kvorum.runtime.errors import CorruptData
from kvorum.runtime.ids import UUID_ZERO

TEXT = st.text(max_size=20)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)

# Written by Apache Kafka 4.1.0, and one by 4.4.0, which adds the topic id.
OFFSET_KEY = bytes.fromhex("0001 0005 67726f7570 0005 746f706963 00000000")
OFFSET_VALUE = bytes.fromhex("0004 0000000000000032 00000000 01 000001a1fd2f7184 00")
OFFSET_VALUE_WITH_ID = bytes.fromhex(
    "0004 0000000000000001 00000000 01 000001a2227d19f3 01 00 10 f13b2aada01548008d52ac793124cf14"
)
NEW_GROUP_KEY = bytes.fromhex("0002 0005 67726f7570")
NEW_GROUP_VALUE = bytes.fromhex("0003 0000 00000000 ffff ffff 000001a1fd2f99aa 00000000")


def test_an_offset_has_kafkas_bytes():
    value = OffsetValue(50, 0, "", 0x1A1FD2F7184)
    assert offset_key("group", "topic", 0) == OFFSET_KEY
    assert encode_offset(value) == OFFSET_VALUE
    assert decode_key(OFFSET_KEY) == OffsetKey("group", "topic", 0)
    assert decode_offset(OFFSET_VALUE) == value
    topic_id = bytes.fromhex("f13b2aada01548008d52ac793124cf14")
    with_id = OffsetValue(1, 0, "", 0x1A2227D19F3, topic_id=topic_id)
    assert encode_offset(with_id) == OFFSET_VALUE_WITH_ID
    assert decode_offset(OFFSET_VALUE_WITH_ID) == with_id


def test_a_new_group_has_kafkas_bytes():
    value = GroupValue("", 0, None, None, 0x1A1FD2F99AA, ())
    assert group_key("group") == NEW_GROUP_KEY
    assert encode_group(value) == NEW_GROUP_VALUE
    assert decode_key(NEW_GROUP_KEY) == GroupKey("group")
    assert decode_group(NEW_GROUP_VALUE) == value


@pytest.mark.parametrize(
    ("hexadecimal", "value"),
    [
        ("0000 0000000000000007 0001 6d 0000000000000064", OffsetValue(7, -1, "m", 100)),
        (
            "0001 0000000000000007 0001 6d 0000000000000064 00000000000000c8",
            OffsetValue(7, -1, "m", 100, 200),
        ),
        ("0002 0000000000000007 0001 6d 0000000000000064", OffsetValue(7, -1, "m", 100)),
        ("0003 0000000000000007 00000005 0001 6d 0000000000000064", OffsetValue(7, 5, "m", 100)),
        (
            "0004 0000000000000007 00000005 02 6d 0000000000000064 01 00 10" + "ab" * 16,
            OffsetValue(7, 5, "m", 100, topic_id=b"\xab" * 16),
        ),
    ],
)
def test_every_version_of_an_offset_is_read(hexadecimal, value):
    assert decode_offset(bytes.fromhex(hexadecimal)) == value


MEMBER = "0001 61{} 0001 63 0002 2f68{} 00000bb8 00000001 05 00000002 0607"


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_every_version_of_a_group_is_read(version):
    instance = " 0001 69" if version >= 3 else ""
    rebalance = " 00001388" if version >= 1 else ""
    timestamp = " 0000000000000064" if version >= 2 else ""
    text = f"{version:04x} 0001 63 00000009 0001 70 0001 61{timestamp} 00000001 " + MEMBER.format(
        instance, rebalance
    )
    member = MemberValue(
        "a",
        "i" if version >= 3 else None,
        "c",
        "/h",
        5000 if version >= 1 else 3000,
        3000,
        b"\x05",
        b"\x06\x07",
    )
    state_ms = 100 if version >= 2 else -1
    assert decode_group(bytes.fromhex(text)) == GroupValue("c", 9, "p", "a", state_ms, (member,))


def test_the_flexible_version_of_a_group_is_read():
    text = (
        "0004 02 63 00000009 02 70 02 61 0000000000000064 02"
        "02 61 00 02 63 03 2f68 00001388 00000bb8 02 05 03 0607 00 00"
    )
    member = MemberValue("a", None, "c", "/h", 5000, 3000, b"\x05", b"\x06\x07")
    assert decode_group(bytes.fromhex(text)) == GroupValue("c", 9, "p", "a", 100, (member,))


@given(
    st.builds(
        OffsetValue,
        offset=INT64,
        leader_epoch=INT32,
        metadata=TEXT,
        commit_timestamp_ms=INT64,
        expire_timestamp_ms=st.just(-1),
        topic_id=st.binary(min_size=16, max_size=16) | st.just(UUID_ZERO),
    )
)
def test_offsets_come_back_as_they_were(value):
    assert decode_offset(encode_offset(value)) == value


@given(
    st.builds(
        GroupValue,
        TEXT,
        INT32,
        st.none() | TEXT,
        st.none() | TEXT,
        INT64,
        st.lists(
            st.builds(
                MemberValue, TEXT, st.none() | TEXT, TEXT, TEXT, INT32, INT32,
                st.binary(max_size=9), st.binary(max_size=9),
            ),
            max_size=3,
        ).map(tuple),
    )
)  # fmt: skip
def test_groups_come_back_as_they_were(value):
    assert decode_group(encode_group(value)) == value


@given(st.text(max_size=9), st.text(max_size=9), INT32)
def test_keys_come_back_as_they_were(group_id, topic, partition):
    assert decode_key(offset_key(group_id, topic, partition)) == (group_id, topic, partition)
    assert decode_key(group_key(group_id)) == (group_id,)


@pytest.mark.parametrize("record_type", [3, 4, 5, 6, 7, 8, 16, 99])
def test_other_types_of_records_are_not_known_and_no_error(record_type):
    assert decode_key(record_type.to_bytes(2, "big") + b"\x00\x01g") == UnknownKey(record_type)


@pytest.mark.parametrize("decode", [decode_offset, decode_group])
@pytest.mark.parametrize("data", [b"", b"\x00", b"\x00\x04", b"\x7f\xff" + bytes(40)])
def test_values_cut_off_or_of_an_unknown_version_are_corrupt(decode, data):
    with pytest.raises(CorruptData):
        decode(data)


def test_what_a_newer_kafka_wrote_is_refused_and_not_guessed_at():
    """The first fields of a newer version may parse, but mean something else."""
    with pytest.raises(CorruptData, match="version 5"):
        decode_offset(b"\x00\x05" + OFFSET_VALUE[2:])
    with pytest.raises(CorruptData, match="version 5"):
        decode_group(b"\x00\x05" + bytes.fromhex("02 63 00000009 00 00 0000000000000064 01 00"))


def test_a_key_cut_off_is_corrupt():
    with pytest.raises(CorruptData):
        decode_key(OFFSET_KEY[:-1])
