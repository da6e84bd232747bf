"""Records of groups with members of both protocols: Kafka's bytes read, written again, loaded."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvorum.broker.coordinator.model import ReplayedRecord, TopicsChanged
from kvorum.broker.groups.classic.group import ClassicGroup
from kvorum.broker.groups.consumer import records
from kvorum.broker.groups.consumer.group import ConsumerGroup
from kvorum.broker.groups.consumer.member import ClassicMember, ConsumerMember
from kvorum.broker.groups.consumer.records import ConsumerKey, decode_key, decode_value
from kvorum.broker.groups.consumer.states import ConsumerGroupState, MemberState
from kvorum.broker.groups.migration.embedded import (
    encode_assignment,
    read_assignment,
    read_subscription,
)
from kvorum.broker.groups.shard import GroupShard
from kvorum.broker.groups.steps.config import GroupConfig
from kvorum.broker.groups.steps.requests import ProtocolMetadata
from kvorum.metadata.image.image import ClusterImage, TopicImage
from kvorum.metadata.image.persistent_map import Map
from kvorum.runtime.errors import CorruptData
from kvorum.storage.format.batch import iter_headers, iter_records
from tests.test_groups.consumer.world import PARTITION, image_of, parts
from tests.test_groups.migration.world import MixedWorld, assignment, orders, subscription
from tests.test_groups.world import join_body

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "groups" / "mixed-4.1.0.log"
KEY = ConsumerKey(records.MEMBER_METADATA, "g", "m")
MEMBER = ConsumerMember(
    member_id="m",
    client_id="c",
    client_host="/h",
    subscribed_topic_names=("t",),
    rebalance_timeout_ms=1_000,
    classic=ClassicMember(
        session_timeout_ms=10_000,
        protocols=(ProtocolMetadata("range", b"\x01\x02\x03"), ProtocolMetadata("sticky", b"")),
    ),
)
# By Kafka 4.1.0's ConsumerGroupMemberMetadataValue.
MEMBER_BYTES = bytes.fromhex(
    "000000000263032f6802027400000003e80001001b0100002710030672616e676504010203000773746963"
    "6b79010000"
)


def golden():
    """All records of the segment that Kafka 4.1.0 wrote (tests/golden/make_mixed_group.py)."""
    data = GOLDEN.read_bytes()
    for position, header in iter_headers(data):
        yield from iter_records(data, position, header)


def test_a_classic_members_metadata_is_written_as_kafka_writes_it():
    assert records.encode_member_metadata(MEMBER) == MEMBER_BYTES
    assert decode_value(KEY, MEMBER_BYTES) == MEMBER


@pytest.mark.parametrize("end", range(2, len(MEMBER_BYTES) - 1))
def test_a_cut_off_one_is_corrupt(end):
    with pytest.raises(CorruptData):
        decode_value(KEY, MEMBER_BYTES[:end])


def test_kafkas_metadata_of_classic_members_is_read_and_written_again():
    seen = 0
    for record in golden():
        key = decode_key(record.key)
        if key is None or key.record_type != records.MEMBER_METADATA or record.value is None:
            continue
        value = decode_value(key, record.value)
        if value.classic is not None:
            seen += 1
            # Kafka writes "" for no expression. The shard does not distinguish it from null, and
            # writes null.
            parts_of = record.value.split(b"\x07orders\x01", 1)
            assert records.encode_member_metadata(value) == b"\x07orders\x00".join(parts_of)
            found = read_subscription(value.classic.protocols[0].metadata)
            assert (found.version, found.topics, found.rack_id) == (3, ("orders",), "r1")
    assert seen == 3


def test_a_group_that_kafka_took_there_and_back_is_loaded_at_every_step():
    shard = GroupShard(GroupConfig(), random.Random(1))
    told = {}
    for record in golden():
        shard.replay(ReplayedRecord(record.offset, 0, record.key, record.value, -1, -1, False))
        group = shard.groups.get("mixed")
        told[record.offset] = (type(group), getattr(group, "state", None))
        if record.offset == 15:
            states = [(m.classic is not None, m.state) for m in group.members.values()]
            assert states == [
                (True, MemberState.UNREVOKED_PARTITIONS),
                (False, MemberState.UNRELEASED_PARTITIONS),
            ]
            assert len(group.holders) == 3
    assert told[1][0] is ClassicGroup
    assert told[7] == (ConsumerGroup, ConsumerGroupState.STABLE)
    assert told[13] == (ConsumerGroup, ConsumerGroupState.RECONCILING)
    assert told[18] == (ConsumerGroup, ConsumerGroupState.STABLE)
    assert told[29][0] is ClassicGroup
    group = shard.groups["mixed"]
    assert group.generation_id == 3
    assert shard.unknown_records == {}


def test_a_group_that_kafka_left_half_way_goes_on_here():
    """In the log of Kafka, a classic member has to give partitions up, and a new member waits for
    them."""
    world = MixedWorld()
    for record in list(golden())[:16]:
        row = ReplayedRecord(record.offset, 0, record.key, record.value, -1, -1, False)
        world.log.append(row)
    world.replicated = len(world.log)
    orders_id = next(iter(world.loaded().groups["mixed"].holders))[0]
    topic = TopicImage("orders", orders_id, Map(dict.fromkeys(range(3), PARTITION)))
    image = ClusterImage(topics=Map({orders_id: topic}), topic_ids=Map({"orders": orders_id}))
    world.tell_topics = lambda *_: world.give(
        TopicsChanged(image=image, changed=frozenset(), deleted=frozenset())
    )
    world.fail_over()
    group = world.shard.groups["mixed"]
    old, new = group.members.values()
    offer = ProtocolMetadata("cooperative-sticky", subscription(("orders",), orders(0, 1)))
    joined = world.call(
        join_body(old.member_id, group_id="mixed", instance="static-1", offers=(offer,))
    )
    # The group epoch rises, because our hash of the topics differs from Kafka's. The join still
    # counts as a confirmation that the member gave up.
    assert (joined.error, joined.generation_id) == (0, 3)
    answer = world.beat(new.member_id, 2, group_id="mixed")
    assert answer.assignment == {(orders_id, 2)}
    assert group.state == ConsumerGroupState.STABLE


# --- what members say and hear -------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_subscriptions_of_every_version_are_read(version):
    found = read_subscription(subscription(("a", "b"), orders(1, 2), version, "r1"))
    assert found.topics == ("a", "b")
    assert found.owned == ((("orders", 1), ("orders", 2)) if version >= 1 else ())
    assert found.rack_id == ("r1" if version >= 3 else None)


@given(data=st.data())
def test_what_is_cut_off_does_not_parse(data):
    whole = subscription(("a",), orders(1), 3, "r1")
    assert read_subscription(whole[: data.draw(st.integers(0, len(whole) - 1))]) is None
    given_whole = assignment(orders(1, 2), b"mine")
    assert read_assignment(given_whole[: data.draw(st.integers(1, len(given_whole) - 1))]) is None


@given(data=st.binary(max_size=60))
def test_anything_may_be_in_them(data):
    read_subscription(data)
    read_assignment(data)


def test_assignments_are_written_as_leaders_write_them():
    image = image_of({"orders": 4})
    partitions = parts("orders", 3, 1) | parts("gone", 0)
    for version in range(5):
        data = encode_assignment(partitions, image, version)
        assert data[:2] == bytes([0, min(version, 3)])
        assert read_assignment(data).partitions == (("orders", 1), ("orders", 3))
    assert encode_assignment(parts("orders", 1), image, 1)[2:-4] == assignment(orders(1))[2:-4]
    assert read_assignment(b"").partitions == ()
