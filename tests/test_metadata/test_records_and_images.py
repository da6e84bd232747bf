import itertools

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvorum.metadata.image.delta import Delta
from kvorum.metadata.image.features import SUPPORTED
from kvorum.metadata.image.image import EMPTY_IMAGE
from kvorum.metadata.image.record_codec import UnreadableRecord, decode_record, encode_record
from kvorum.metadata.image.records import (
    BrokerRegistrationChange,
    Config,
    Endpoint,
    FeatureLevel,
    NoOp,
    Partition,
    PartitionChange,
    ProducerIds,
    RegisterBroker,
    RegisterController,
    RemoveTopic,
    Topic,
    UnregisterBroker,
    UnregisterController,
)
from kvorum.runtime.errors import InvariantViolated
from tests.test_metadata.worlds import World, busy_world

SAMPLES = [
    RegisterBroker(1, 7, b"i" * 16, (Endpoint("PLAINTEXT", "h", 9), Endpoint("X", "i", 1)), "r"),
    RegisterBroker(1, 7, b"i" * 16, (), None, False),
    RegisterBroker(1, 7, b"i" * 16, (), None, False, SUPPORTED),
    RegisterBroker(1, 7, b"i" * 16, (), None, False, SUPPORTED, (b"d" * 16, b"e" * 16)),
    RegisterController(1, b"i" * 16, (Endpoint("CONTROLLER", "h", 9),), SUPPORTED),
    UnregisterBroker(1, 7),
    UnregisterController(1),
    Topic("t", b"t" * 16),
    Partition(b"t" * 16, 3, (1, 2), (1,), 1, 4, 5),
    Partition(b"t" * 16, 3, (1, 2, 3), (1,), 1, 4, 5, (1,), (3,), 1, (2,), (3,)),
    Partition(b"t" * 16, 3, (1, 2), (1,), 1, 4, 5, (), (), 0, (), (), (b"d" * 16, bytes(16))),
    Config(2, "t", "retention.ms", "1"),
    Config(2, "t", "retention.ms", None),
    PartitionChange(b"t" * 16, 3, isr=(1, 2)),
    PartitionChange(b"t" * 16, 3, leader=-1),
    PartitionChange(b"t" * 16, 3, replicas=(1,)),
    PartitionChange(b"t" * 16, 3, adding_replicas=(1,), removing_replicas=(), elr=()),
    PartitionChange(b"t" * 16, 3, leader_recovery_state=1, last_known_elr=(2,)),
    PartitionChange(b"t" * 16, 3, directories=(b"d" * 16, bytes(16))),
    RemoveTopic(b"t" * 16),
    FeatureLevel("metadata.version", 3),
    ProducerIds(1, 7, 1000),
    BrokerRegistrationChange(1, 7, is_fenced=False),
    BrokerRegistrationChange(1, 7, in_controlled_shutdown=True),
    BrokerRegistrationChange(1, 7, log_dirs=(b"d" * 16,)),
    NoOp(),
]


@pytest.mark.parametrize("record", SAMPLES, ids=lambda r: type(r).__name__)
def test_every_record_survives_its_encoding(record):
    assert decode_record(encode_record(record)) == record


def test_records_of_older_builds_are_read_with_nothing_under_way():
    topic_id = b"t" * 16
    partition = decode_record(msgpack.packb([3, 0, topic_id, 3, [1, 2], [1], 1, 4, 5]))
    assert partition == Partition(topic_id, 3, (1, 2), (1,), 1, 4, 5)
    change = decode_record(msgpack.packb([5, 0, topic_id, 3, [1, 2], None, None]))
    assert change == PartitionChange(topic_id, 3, isr=(1, 2))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (b"\x92\xcc\xfa\x00", "type 250 is unknown"),
        (b"\x92\x02\x09", "Topic version 9 is newer"),
        (b"\x92\x02\x00", "malformed Topic"),
        (b"\xc1", "not msgpack"),
        (b"\x01", "not an array"),
    ],
)
def test_what_this_build_cannot_read_is_refused_by_name(value, message):
    with pytest.raises(UnreadableRecord, match=message):
        decode_record(value)


@given(st.binary(max_size=40))
def test_garbage_is_refused_and_never_crashes(value):
    try:
        decode_record(value)
    except UnreadableRecord:
        return


def apply(image, records):
    delta = Delta(image)
    delta.replay_all(records)
    return delta.apply(end_offset=image.end_offset + len(records), epoch=1)


@given(st.integers(0, 10_000), st.lists(st.integers(0, 200), max_size=5))
def test_records_applied_in_any_portions_give_the_same_image(seed, cuts):
    world = busy_world(seed % 50)
    records = [decode_record(encode_record(record)) for record in world.records]
    whole = apply(EMPTY_IMAGE, records)
    image = EMPTY_IMAGE
    edges = sorted({0, len(records), *(cut for cut in cuts if cut < len(records))})
    for start, end in itertools.pairwise(edges):
        image = apply(image, records[start:end])
    assert image == whole
    assert image.topics == world.image.topics
    assert image.brokers == world.image.brokers


def test_an_image_is_never_changed_by_a_later_one():
    world = World()
    world.create("t")
    before = world.image
    partitions = dict(before.topic("t").partitions)
    world.controller.sessions.stream_broke(101, world.epochs[101], 0)
    world.expire(100)
    assert dict(before.topic("t").partitions) == partitions


@pytest.mark.parametrize(
    "record",
    [
        Partition(b"x" * 16, 0, (1,), (1,), 1),
        PartitionChange(b"x" * 16, 0, leader=1),
        RemoveTopic(b"x" * 16),
        UnregisterBroker(9, 1),
        UnregisterController(9),
        BrokerRegistrationChange(9, 1, is_fenced=True),
        BrokerRegistrationChange(101, 999, is_fenced=True),
    ],
    ids=lambda r: type(r).__name__,
)
def test_a_record_that_does_not_fit_stops_the_node(record):
    with pytest.raises(InvariantViolated):
        apply(World().image, [record])


def test_a_delta_names_what_changed():
    world = World()
    world.create("t", partitions=2)
    topic_id = world.image.topic("t").topic_id
    delta = Delta(world.image)
    delta.replay(PartitionChange(topic_id, 1, isr=(101,)))
    assert delta.changed_partitions == {topic_id: {1}}
    delta = Delta(world.image)
    delta.replay(RemoveTopic(topic_id))
    assert list(delta.deleted_topics) == [topic_id]
    assert delta.changed_partitions == {}


def test_the_whole_image_as_a_delta_names_everything():
    world = World()
    world.create("t", partitions=2)
    delta = Delta.of_whole(world.image)
    assert delta.changed_partitions == {world.image.topic("t").topic_id: {0, 1}}
    assert delta.changed_brokers == {101, 102, 103}
