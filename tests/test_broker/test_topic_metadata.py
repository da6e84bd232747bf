"""The cached parts of Metadata answers, and the changes that drop them."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from kvorum.broker.metadata_answers import topic_metadata
from kvorum.broker.metadata_answers.sliced_answer import (
    PARTITIONS_AT_ONCE,
    TOPICS_AT_ONCE,
    packed_topics,
    partition_count,
    slices,
)
from kvorum.broker.metadata_answers.topic_metadata import TopicMetadata, live_brokers
from kvorum.metadata.image.delta import Delta
from kvorum.metadata.image.image import EMPTY_IMAGE, ClusterImage
from kvorum.metadata.image.records import (
    NO_LEADER,
    BrokerRegistrationChange,
    Endpoint,
    Partition,
    PartitionChange,
    RegisterBroker,
    Topic,
)
from kvorum.wire.kio_codec import Packed, encode_response, read_response

VERSION = 12
FIRST, SECOND = b"1" * 16, b"2" * 16


def after(image: ClusterImage, *records: Any) -> ClusterImage:
    delta = Delta(image)
    delta.replay_all(records)
    return delta.apply(end_offset=image.end_offset + len(records), epoch=1)


def broker(broker_id: int) -> RegisterBroker:
    return RegisterBroker(
        broker_id=broker_id,
        incarnation_id=bytes([broker_id]) * 16,
        broker_epoch=broker_id,
        endpoints=(Endpoint(name="PLAINTEXT", host="h", port=broker_id),),
        rack=None,
        is_fenced=False,
    )


def partition(topic_id: bytes, *, leader: int = 1) -> Partition:
    return Partition(
        topic_id=topic_id,
        partition_id=0,
        replicas=(1, 2),
        isr=(1, 2),
        leader=leader,
        leader_epoch=0,
        partition_epoch=0,
    )


def fenced(broker_id: int, *, is_fenced: bool = True) -> BrokerRegistrationChange:
    return BrokerRegistrationChange(
        broker_id=broker_id, broker_epoch=broker_id, is_fenced=is_fenced
    )


@pytest.fixture
def image() -> ClusterImage:
    records = [broker(1), broker(2)]
    for name, topic_id in (("first", FIRST), ("second", SECOND)):
        records += [Topic(name=name, topic_id=topic_id), partition(topic_id)]
    return after(EMPTY_IMAGE, *records)


def ask(packed: TopicMetadata, image: ClusterImage, topic_id: bytes = FIRST) -> Packed:
    return packed.partitions(image, image.topics[topic_id], VERSION)


def told(packed: Packed) -> Any:
    body = encode_response(
        "metadata",
        VERSION,
        {
            "brokers": [],
            "cluster_id": "c",
            "controller_id": 1,
            "topics": [{"error_code": 0, "name": "t", "topic_id": FIRST, "partitions": packed}],
        },
    )
    (found,) = read_response("metadata", VERSION, memoryview(body)).topics[0].partitions
    return found


def test_a_topic_is_packed_once_whatever_else_happens(image: ClusterImage) -> None:
    packed = TopicMetadata()
    first = ask(packed, image)
    assert ask(packed, image) is first
    later = after(image, PartitionChange(topic_id=SECOND, partition_id=0, isr=(1,)))
    assert ask(packed, later) is first
    assert ask(packed, later, SECOND) != ask(packed, image, SECOND)


def test_a_topic_that_changed_is_packed_anew(image: ClusterImage) -> None:
    packed = TopicMetadata()
    assert told(ask(packed, image)).leader_id == 1
    later = after(image, PartitionChange(topic_id=FIRST, partition_id=0, leader=2))
    assert told(ask(packed, later)).leader_id == 2
    leaderless = after(later, PartitionChange(topic_id=FIRST, partition_id=0, leader=NO_LEADER))
    assert told(ask(packed, leaderless)).error_code == 5


def test_a_fenced_or_unregistered_broker_shows_though_the_topic_stays(image: ClusterImage) -> None:
    packed = TopicMetadata()
    assert told(ask(packed, image)).offline_replicas == ()
    without = after(image, fenced(2))
    assert without.topics[FIRST] is image.topics[FIRST]
    assert told(ask(packed, without)).offline_replicas == (2,)
    back = after(without, fenced(2, is_fenced=False))
    assert told(ask(packed, back)).offline_replicas == ()
    gone = dataclasses.replace(image, brokers=image.brokers.delete(2))
    assert told(ask(packed, gone)).offline_replicas == (2,)


def test_each_version_has_its_own_bytes(image: ClusterImage) -> None:
    packed = TopicMetadata()
    topic = image.topics[FIRST]
    old = packed.partitions(image, topic, 4)
    assert old != packed.partitions(image, topic, VERSION)
    assert packed.partitions(image, topic, 4) is old


def test_what_is_kept_is_bounded(image: ClusterImage, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = TopicMetadata()
    first = ask(packed, image)
    monkeypatch.setattr(topic_metadata, "CACHED_BYTES_MAX", len(first))
    second = ask(packed, image, SECOND)
    assert ask(packed, image, SECOND) is second
    again = ask(packed, image)
    assert again == first
    assert again is not first
    # The new bytes of a topic replace its old ones.
    for leader in (2, 1, 2):
        image = after(image, PartitionChange(topic_id=FIRST, partition_id=0, leader=leader))
        kept = ask(packed, image)
        assert ask(packed, image) is kept


def topics_of(*sizes: int) -> ClusterImage:
    records: list[Any] = [broker(1), broker(2), fenced(2)]
    for number, size in enumerate(sizes):
        topic_id = number.to_bytes(16, "big")
        records.append(Topic(name=f"topic-{number}", topic_id=topic_id))
        records += [
            dataclasses.replace(partition(topic_id, leader=1 + at % 2), partition_id=at)
            for at in range(size)
        ]
    return after(EMPTY_IMAGE, *records)


def fields(image: ClusterImage) -> dict[str, Any]:
    topics: list[dict[str, Any]] = [
        {
            "error_code": 0,
            "name": topic.name,
            "topic_id": topic.topic_id,
            "is_internal": False,
            "partitions": topic,
            "topic_authorized_operations": 7,
        }
        for topic in image.topics.values()
    ]
    refused = {"error_code": 3, "name": "none", "topic_id": None, "partitions": ()}
    return {
        "brokers": [{"node_id": 1, "host": "h", "port": 9092, "rack": "r"}],
        "cluster_id": "c",
        "controller_id": 1,
        "topics": [*topics, refused],
        "cluster_authorized_operations": 3,
        "throttle_time": 9,
    }


@pytest.mark.parametrize("version", range(14))
@pytest.mark.parametrize(
    "sizes",
    [
        (),
        (1,),
        (0, 3, 2 * PARTITIONS_AT_ONCE + 1, 0, PARTITIONS_AT_ONCE, 1),
        (1,) * (TOPICS_AT_ONCE + 5),
    ],
    ids=["no topic", "one", "large ones among small", "many small"],
)
def test_slices_are_the_whole_answer(version: int, sizes: tuple[int, ...]) -> None:
    image = topics_of(*sizes)
    answer, live = fields(image), live_brokers(image)
    packed = {**answer, "topics": packed_topics(version, answer["topics"], live)}
    found = list(slices(version, answer, live))
    assert b"".join(found) == encode_response("metadata", version, packed)
    assert partition_count(answer["topics"]) == sum(sizes)


def test_a_slice_has_no_more_than_its_partitions() -> None:
    image = topics_of(5 * PARTITIONS_AT_ONCE)
    found = list(slices(VERSION, fields(image), live_brokers(image)))
    a_fifth = len(ask(TopicMetadata(), image, bytes(16))) / 5
    assert max(map(len, found)) <= 1.01 * a_fifth
    assert len(found) > 5
