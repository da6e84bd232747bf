"""Dead letters of share groups (KIP-1191), on two brokers."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from kvorum.metadata.image.features import SHARE_VERSION
from kvorum.metadata.image.records import Config, FeatureLevel
from kvorum.storage.format.batch import build_batch, iter_headers, iter_records
from kvorum.storage.format.record_codec import Record
from tests.polling import eventually
from tests.test_broker.harness import Harness
from tests.test_broker.raw_client import RawClient, fetch_partition, fetch_values, produce_values
from tests.test_share.members import RESOURCE_GROUP, Member, id_of, produce

ACCEPT, RELEASE, REJECT = 1, 2, 3
RESOURCE_BROKER = 4
ENABLE = "errors.deadletterqueue.group.enable"
NAME = "errors.deadletterqueue.topic.name"
COPY = "errors.deadletterqueue.copy.record.enable"
PREFIX = "errors.deadletterqueue.topic.name.prefix"
AUTO_CREATE = "errors.deadletterqueue.auto.create.topics.enable"
_names = itertools.count()


def commit(harness: Harness, *records: Any) -> None:
    harness.call(lambda: harness.cluster.controller.commit(*records))


def of_group(harness: Harness, group_id: str, **configs: str) -> None:
    names = {"name": NAME, "copy": COPY, "limit": "share.delivery.count.limit"}
    commit(
        harness,
        *(Config(RESOURCE_GROUP, group_id, names[key], value) for key, value in configs.items()),
    )


def make(harness: Harness, name: str, leaders: tuple[int, ...] = (1,), **configs: str) -> None:
    texts = {ENABLE: "true"} | {key.replace("_", "."): value for key, value in configs.items()}
    harness.call(
        lambda: harness.cluster.controller.create(
            name, [(leader, 3 - leader) for leader in leaders], texts
        )
    )


def lead(harness: Harness, topic: str, leader: int) -> None:
    """Let this broker lead partition 0, or nobody (-1)."""
    topic_id = id_of(harness, topic)
    harness.call(lambda: harness.cluster.controller.lead(topic_id, 0, leader=leader, isr=(1, 2)))


@pytest.fixture
def letters_topic(harness: Harness, group_id: str) -> str:
    """A topic that may have the group's dead letters, of three partitions; the source partition
    is 0, and broker 2 leads it."""
    name = f"dlq.{next(_names)}"
    make(harness, name, (2, 1, 1))
    of_group(harness, group_id, name=name)
    return name


@pytest.fixture
def other(harness: Harness) -> Iterator[RawClient]:
    client = RawClient(harness.cluster.brokers[2].port)
    yield client
    client.close()


def letters_in(client: RawClient, topic: str) -> list[Record]:
    """The records of partition 0, from its leader."""
    whole = [fetch_partition(0, bytes_max=16 << 20)]
    answer = client.call("fetch", 12, fetch_values(topic, 0, partitions=whole))
    (row,) = answer.responses[0].partitions
    data = bytes(row.records or b"")
    return [r for at, header in iter_headers(data) for r in iter_records(data, at, header)]


def headers_of(record: Record) -> dict[str, str]:
    prefix = b"__dlq.errors."
    assert all(name.startswith(prefix) for name, _ in record.headers)
    return {name.removeprefix(prefix).decode(): str(text, "utf-8") for name, text in record.headers}


def start_of(harness: Harness, group_id: str, broker_id: int = 1) -> int | None:
    """The start offset of the group's only share-partition on this broker."""
    services = harness.cluster.brokers[broker_id].server.services
    rows = services.share.partitions.led.of_group(group_id)
    return next((led.core.start_offset for led in rows if led.core is not None), None)


def await_start(harness: Harness, group_id: str, offset: int, broker_id: int = 1) -> None:
    eventually(
        lambda: start_of(harness, group_id, broker_id) == offset, f"the start is at {offset}"
    )


def test_a_rejected_record_gets_a_dead_letter_that_says_where_it_is(
    client, other, harness, topic, group_id, member, letters_topic
):
    produce(client, topic, 3)
    member.take()
    member.acknowledge([(0, 2, (ACCEPT, REJECT, ACCEPT))])
    await_start(harness, group_id, 3)
    (letter,) = letters_in(other, letters_topic)
    assert (letter.key, letter.value) == (None, None)
    assert list(headers_of(letter).items()) == [
        ("topic", topic), ("partition", "0"), ("offset", "1"), ("group", group_id),
        ("delivery.count", "1"), ("message", "Offset rejected by client."),
    ]  # fmt: skip


def test_a_record_that_was_delivered_too_often_gets_one(
    client, other, harness, topic, group_id, member, letters_topic
):
    of_group(harness, group_id, limit="2")
    produce(client, topic, 1)
    for count in (1, 2):
        assert member.take() == [(0, 0, count)]
        member.acknowledge([(0, 0, RELEASE)])
    await_start(harness, group_id, 1)
    (letter,) = letters_in(other, letters_topic)
    assert headers_of(letter)["delivery.count"] == "2"
    assert headers_of(letter)["message"] == "Offset delivery count exceeded the threshold."


def test_a_record_that_is_accepted_or_comes_again_gets_none(
    client, other, harness, topic, group_id, member, letters_topic
):
    produce(client, topic, 2)
    member.take()
    member.acknowledge([(0, 1, (ACCEPT, RELEASE))])
    assert member.take() == [(1, 1, 2)]
    member.acknowledge([(1, 1, ACCEPT)])
    await_start(harness, group_id, 2)
    assert letters_in(other, letters_topic) == []


def test_key_and_value_are_copied_on_demand(
    client, other, harness, topic, group_id, member, letters_topic
):
    of_group(harness, group_id, copy="true")
    produce(client, topic, 3)
    produce(client, topic, 3)
    member.take()
    member.acknowledge([(0, 5, (REJECT, ACCEPT, REJECT, ACCEPT, ACCEPT, REJECT))])
    await_start(harness, group_id, 6)
    found = [(headers_of(r)["offset"], r.key, r.value) for r in letters_in(other, letters_topic)]
    assert found == [("0", b"k", b"v0"), ("2", b"k", b"v2"), ("5", b"k", b"v2")]


def test_a_copy_that_the_topic_does_not_let_in_is_left_out(
    client, other, harness, topic, group_id, member
):
    name = f"dlq.{next(_names)}"
    make(harness, name, (2,), max_message_bytes="330")
    of_group(harness, group_id, name=name, copy="true")
    produce(client, topic, 1)
    large = b"x" * 300
    answer = client.call("produce", 7, large_record(topic, large))
    assert answer.responses[0].partition_responses[0].error_code == 0
    found = 0
    while found < 2:
        for first, last, _ in member.take():
            member.acknowledge([(first, last, REJECT)])
            found += last - first + 1
    await_start(harness, group_id, 2)
    assert [letter.value for letter in letters_in(other, name)] == [b"v0", None]


def large_record(topic: str, value: bytes) -> dict[str, Any]:
    return produce_values(topic, bytes(build_batch([(b"k", value)], timestamp_ms=1_000)))


def test_copies_of_more_than_one_read_are_all_there(
    client, other, harness, topic, group_id, member, letters_topic
):
    of_group(harness, group_id, copy="true")
    values = [bytes([number]) * 500_000 for number in range(4)]
    for value in values:
        client.call("produce", 7, large_record(topic, value))
    taken = 0
    while taken < 4:
        taken += sum(last - first + 1 for first, last, _ in member.take(max_bytes=4 << 20))
    member.acknowledge([(0, 3, REJECT)])
    await_start(harness, group_id, 4)
    assert [letter.value for letter in letters_in(other, letters_topic)] == values


def test_records_that_are_left_have_copies_beside_deleted_ones(
    client, other, harness, topic, group_id, member
):
    name = f"dlq.{next(_names)}"
    make(harness, name, (2,))
    of_group(harness, group_id, name=name, copy="true")
    lead(harness, name, -1)
    for _ in range(2):
        produce(client, topic, 3)
    taken = 0
    while taken < 6:
        taken += sum(last - first + 1 for first, last, _ in member.take())
    member.acknowledge([(0, 5, REJECT)])
    rows = [{"name": topic, "partitions": [{"partition_index": 0, "offset": 3}]}]
    deleted = client.call("delete_records", 2, {"topics": rows, "timeout": 5_000})
    assert deleted.topics[0].partitions[0].error_code == 0
    lead(harness, name, 2)
    await_start(harness, group_id, 6)
    values = [letter.value for letter in letters_in(other, name)]
    assert values == [None, None, None, b"v0", b"v1", b"v2"]


def test_more_dead_letters_than_a_batch_may_have_are_all_written(
    client, other, harness, topic, group_id, member
):
    name = f"dlq.{next(_names)}"
    make(harness, name, (2,), max_message_bytes="1000")
    of_group(harness, group_id, name=name)
    metrics = harness.cluster.brokers[1].manager.metrics.share
    written, failed = metrics.dead_letters, metrics.failed_dead_letter_writes
    produce(client, topic, 40)
    member.take()
    member.acknowledge([(0, 39, REJECT)])
    await_start(harness, group_id, 40)
    assert metrics.dead_letters == written + 40
    assert metrics.failed_dead_letter_writes == failed
    offsets = [int(headers_of(letter)["offset"]) for letter in letters_in(other, name)]
    assert offsets == list(range(40))


@pytest.mark.parametrize(
    ("name", "configs", "said"),
    [
        ("elsewhere", {ENABLE: "true"}, "does not begin with 'dlq.'"),
        ("dlq.closed", {}, f"has no {ENABLE}=true"),
        ("dlq.missing", None, "does not exist"),
    ],
)
def test_a_topic_that_may_have_none_loses_them_with_a_warning(
    client, harness, topic, group_id, member, caplog, name, configs, said
):
    if configs is not None:
        harness.call(lambda: harness.cluster.controller.create(name, [(1, 2)], configs))
    of_group(harness, group_id, name=name)
    metrics = harness.cluster.brokers[1].manager.metrics.share
    lost = metrics.lost_dead_letters
    produce(client, topic, 1)
    member.take()
    with caplog.at_level(logging.WARNING):
        member.acknowledge([(0, 0, REJECT)])
        await_start(harness, group_id, 1)
    assert said in caplog.text
    assert f"1 dead letters of {group_id}:" in caplog.text
    assert metrics.lost_dead_letters == lost + 1
    if configs is not None:
        assert letters_in(client, name) == []


def test_records_that_a_compacted_topic_takes_are_not_lost_with_those_that_it_refuses(
    client, other, harness, topic, group_id, member
):
    name = f"dlq.{next(_names)}"
    make(harness, name, (2,), cleanup_policy="compact")
    of_group(harness, group_id, name=name, copy="true")
    metrics = harness.cluster.brokers[1].manager.metrics.share
    lost = metrics.lost_dead_letters
    rows = [(b"k", b"0"), (None, b"1"), (b"l", b"2")]
    client.call("produce", 7, produce_values(topic, bytes(build_batch(rows, timestamp_ms=1_000))))
    member.take()
    member.acknowledge([(0, 2, REJECT)])
    await_start(harness, group_id, 3)
    assert [headers_of(letter)["offset"] for letter in letters_in(other, name)] == ["0", "2"]
    assert metrics.lost_dead_letters == lost + 1


def test_a_missing_topic_is_made_if_the_brokers_may(client, harness, topic, group_id, member):
    name = f"dlq.made-{next(_names)}"
    commit(harness, Config(RESOURCE_BROKER, "", AUTO_CREATE, "true"))
    try:
        of_group(harness, group_id, name=name)
        produce(client, topic, 1)
        member.take()
        member.acknowledge([(0, 0, REJECT)])
        await_start(harness, group_id, 1)
    finally:
        commit(harness, Config(RESOURCE_BROKER, "", AUTO_CREATE, None))
    configs = harness.cluster.controller.image.topic_configs(name)
    assert dict(configs) == {ENABLE: "true", "message.timestamp.type": "CreateTime"}
    assert len(letters_in(client, name)) == 1


def test_without_a_prefix_any_name_will_do(client, other, harness, topic, group_id, member):
    name = f"letters-{next(_names)}"
    make(harness, name, (2,))
    of_group(harness, group_id, name=name)
    commit(harness, Config(RESOURCE_BROKER, "", PREFIX, ""))
    try:
        produce(client, topic, 1)
        member.take()
        member.acknowledge([(0, 0, REJECT)])
        await_start(harness, group_id, 1)
    finally:
        commit(harness, Config(RESOURCE_BROKER, "", PREFIX, None))
    assert len(letters_in(other, name)) == 1


def test_a_dead_letter_that_cannot_be_written_now_is_tried_again(
    client, other, harness, topic, group_id, member
):
    name = f"dlq.{next(_names)}"
    make(harness, name, (2,))
    lead(harness, name, -1)
    of_group(harness, group_id, name=name)
    produce(client, topic, 2)
    member.take()
    # The member is answered once the rejection is kept; it does not wait for the dead letter.
    member.acknowledge([(0, 1, (REJECT, ACCEPT))])
    assert member.fetch().error_code == 0
    assert start_of(harness, group_id) == 0
    lead(harness, name, 2)
    await_start(harness, group_id, 2)
    assert [headers_of(letter)["offset"] for letter in letters_in(other, name)] == ["0"]


def test_a_new_leader_writes_the_dead_letters_of_the_one_before(
    client, other, harness, topic, group_id, member
):
    name = f"dlq.{next(_names)}"
    make(harness, name, (2,))
    lead(harness, name, -1)
    of_group(harness, group_id, name=name)
    produce(client, topic, 2)
    member.take()
    member.acknowledge([(0, 1, (REJECT, ACCEPT))])
    lead(harness, topic, 2)
    there = Member(other, group_id, "b", id_of(harness, topic))
    eventually(
        lambda: there.fetch().error_code == 0 and start_of(harness, group_id, 2) == 0,
        "the new leader has the state",
    )
    lead(harness, name, 2)
    await_start(harness, group_id, 2, broker_id=2)
    (letter,) = letters_in(other, name)
    assert headers_of(letter)["message"] == "Offset rejected by client."


def test_share_version_1_has_no_dead_letters(
    client, other, harness, topic, group_id, member, letters_topic
):
    commit(harness, FeatureLevel(SHARE_VERSION, 1))
    try:
        produce(client, topic, 1)
        member.take()
        member.acknowledge([(0, 0, REJECT)])
        await_start(harness, group_id, 1)
    finally:
        commit(harness, FeatureLevel(SHARE_VERSION, 2))
    assert letters_in(other, letters_topic) == []
