"""Records of groups of the consumer protocol: Kafka's bytes read, and written again."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvorum.broker.coordinator.model import ReplayedRecord
from kvorum.broker.groups.consumer import records
from kvorum.broker.groups.consumer.member import ConsumerMember
from kvorum.broker.groups.consumer.records import (
    ConsumerKey,
    CurrentAssignment,
    GroupEpoch,
    ResolvedExpression,
    decode_key,
    decode_value,
    encode_key,
)
from kvorum.broker.groups.consumer.states import ConsumerGroupState, MemberState
from kvorum.broker.groups.shard import GroupShard
from kvorum.broker.groups.steps.config import GroupConfig
from kvorum.runtime.errors import CorruptData
from kvorum.storage.format.batch import iter_headers, iter_records

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "groups" / "consumer-4.1.0.log"

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(max_size=10)
PARTITIONS = st.frozensets(
    st.tuples(st.sampled_from([b"a" * 16, b"b" * 16]), st.integers(0, 200)), max_size=5
)


def golden():
    """All records of the segment that Apache Kafka 4.1.0 wrote (tests/golden/make_groups.py)."""
    data = GOLDEN.read_bytes()
    for position, header in iter_headers(data):
        yield from iter_records(data, position, header)


def encoded(key, value):
    """The bytes of a decoded value."""
    match value:
        case GroupEpoch():
            return records.encode_group_epoch(value)
        case ConsumerMember():
            return records.encode_member_metadata(value)
        case int():
            return records.encode_target_epoch(value)
        case CurrentAssignment():
            named = value._asdict()
            return records.encode_current_assignment(ConsumerMember(member_id=key.item, **named))
        case ResolvedExpression():
            return records.encode_expression(value)
        case _:
            return records.encode_member_target(value)


def test_kafkas_records_are_read_and_written_again():
    types = set()
    for record in golden():
        key = decode_key(record.key)
        if key is None:
            continue
        types.add(key.record_type)
        assert encode_key(key) == record.key
        if record.value is None:
            continue
        value = decode_value(key, record.value)
        ours = encoded(key, value)
        if isinstance(value, ConsumerMember) and value.subscribed_topic_regex is None:
            # librdkafka sends "" for no expression. The shard does not distinguish it from null,
            # and writes null.
            assert record.value.count(b"\x01\x00\x04\x93\xe0") == 1
            ours = ours.replace(b"\x00\x00\x04\x93\xe0", b"\x01\x00\x04\x93\xe0")
        # Kafka lists topics and partitions in no order: the same bytes, maybe in other places.
        assert sorted(ours) == sorted(record.value)
        assert decode_value(key, encoded(key, value)) == value
        has_lists = key.record_type in (records.MEMBER_TARGET, records.CURRENT_ASSIGNMENT)
        if not has_lists or len(record.value) < 50:
            assert ours == record.value
    assert types == {3, 5, 6, 7, 8, 16}


def test_a_group_is_loaded_from_kafkas_log():
    shard = GroupShard(GroupConfig(), random.Random(1))
    told = {}
    for record in golden():
        key, value = record.key, record.value
        shard.replay(ReplayedRecord(record.offset, 0, key, value, -1, -1, False))
        group = shard.groups["golden"]
        told[record.offset] = (group.state, len(group.members))
    assert told[15] == (ConsumerGroupState.STABLE, 2)
    assert shard.unknown_records == {}
    group = shard.groups["golden"]
    (member,) = group.members.values()
    assert (group.group_epoch, group.assignment_epoch) == (3, 2)
    assert (member.instance_id, member.member_epoch) == ("static-1", -2)
    assert (member.rack_id, member.subscribed_topic_regex) == ("r1", "(^pay.*)")
    assert group.topics_of(member) == {"payments"}
    assert group.target(member.member_id) == member.assigned
    assert set(group.holders) == member.assigned


MEMBERS = st.builds(
    ConsumerMember,
    member_id=st.just("m"),
    instance_id=st.none() | TEXT,
    rack_id=st.none() | TEXT,
    client_id=TEXT,
    client_host=TEXT,
    rebalance_timeout_ms=INT32,
    subscribed_topic_names=st.lists(TEXT, max_size=3).map(tuple),
    subscribed_topic_regex=st.none() | st.text(min_size=1, max_size=5),
    server_assignor=st.none() | TEXT,
)
CURRENT = st.builds(
    CurrentAssignment,
    INT32,
    INT32,
    st.sampled_from([s for s in MemberState if s != MemberState.UNKNOWN]),
    PARTITIONS,
    PARTITIONS,
)
VALUES = st.one_of(
    st.tuples(st.just(3), st.builds(GroupEpoch, INT32, INT64)),
    st.tuples(st.just(5), MEMBERS),
    st.tuples(st.just(6), INT32),
    st.tuples(st.just(7), PARTITIONS),
    st.tuples(st.just(8), CURRENT),
    st.tuples(
        st.just(16),
        st.builds(ResolvedExpression, st.lists(TEXT, max_size=3).map(tuple), INT64, INT64),
    ),
)


@given(row=VALUES, group_id=TEXT)
def test_values_come_back(row, group_id):
    record_type, value = row
    key = ConsumerKey(record_type, group_id, "" if record_type in (3, 6) else "m")
    assert decode_key(encode_key(key)) == key
    assert decode_value(key, encoded(key, value)) == value


@given(row=VALUES, data=st.data())
def test_a_value_that_is_cut_off_is_corrupt(row, data):
    record_type, value = row
    key = ConsumerKey(record_type, "g", "m")
    whole = encoded(key, value)
    cut = whole[: data.draw(st.integers(0, len(whole) - 2))]
    with pytest.raises(CorruptData):
        decode_value(key, cut)


def test_keys_of_other_groups_are_not_ours_and_cut_ones_corrupt():
    assert decode_key(b"\x00\x02\x00\x01g") is None
    assert decode_key(b"\x00\x0b\x00\x01g") is None
    with pytest.raises(CorruptData):
        decode_key(b"\x00\x05\x00\x01g")


def test_a_version_of_later_is_corrupt():
    with pytest.raises(CorruptData, match="version 1"):
        decode_value(ConsumerKey(6, "g"), b"\x00\x01\x00\x00\x00\x01\x00")


def test_the_obsolete_topics_of_a_group_are_read_over():
    assert decode_key(b"\x00\x04\x00\x01g") == ConsumerKey(4, "g")
    assert decode_value(ConsumerKey(4, "g"), b"\x00\x00whatever") is None
