"""Transactions as consumers see them; their markers are put into the log by the test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from kvorum.storage.format.batch import build_batch
from tests.polling import eventually
from tests.test_broker.harness import DEADLINE_S, Harness
from tests.test_broker.raw_client import RawClient, fetch_values
from tests.test_broker.transaction_writer import Writer, offsets


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    harness = Harness(tmp_path_factory.mktemp("committed"), count=2)
    yield harness
    harness.close()


_names = iter(range(1000))


@pytest.fixture
def topic(harness: Harness) -> str:
    name = f"committed-{next(_names)}"
    harness.call(lambda: harness.cluster.controller.create(name, [(1, 2)]))
    return name


@pytest.mark.parametrize("version", [4, 7, 12])
def test_a_read_committed_fetch_ends_at_the_last_stable_offset_and_names_aborted_transactions(
    client: RawClient, harness: Harness, topic: str, version: int
) -> None:
    writer = Writer(harness, topic)
    writer.put(b"no", 7)
    writer.end(7, is_commit=False)
    writer.put(b"open", 8)
    writer.put(b"behind", 9)
    writer.end(9, is_commit=True)
    writer.wait_replicated()

    def fetched(isolation_level: int):
        values = {**fetch_values(topic, 0), "isolation_level": isolation_level}
        return client.call("fetch", version, values).responses[0].partitions[0]

    row = fetched(1)
    assert (row.high_watermark, row.last_stable_offset) == (5, 2)
    assert [(a.producer_id, a.first_offset) for a in row.aborted_transactions] == [(7, 0)]
    committed = bytes(row.records)
    row = fetched(0)
    assert (row.last_stable_offset, row.aborted_transactions) == (2, None)
    assert bytes(row.records).startswith(committed) and len(bytes(row.records)) > len(committed)


def test_list_offsets_tells_read_committed_clients_the_last_stable_offset(
    client: RawClient, harness: Harness, topic: str
) -> None:
    writer = Writer(harness, topic)
    writer.put(b"a", 7)
    writer.end(7, is_commit=True)
    writer.put(b"b", 8)
    writer.wait_replicated()
    assert (offsets(client, topic, 0), offsets(client, topic, 1)) == (3, 2)
    writer.end(8, is_commit=True)
    writer.wait_replicated()
    assert (offsets(client, topic, 0), offsets(client, topic, 1)) == (4, 4)


def test_a_parked_read_committed_fetch_is_woken_by_the_marker_and_not_before(
    client: RawClient, harness: Harness, topic: str
) -> None:
    writer = Writer(harness, topic)
    values = {**fetch_values(topic, 0, max_wait_ms=10_000), "isolation_level": 1}
    client.send("fetch", 12, values)
    writer.put(b"a", 7)
    writer.wait_replicated()
    other = RawClient(harness.cluster.brokers[1].port)
    assert offsets(other, topic, 1) == 0
    writer.end(7, is_commit=True)
    row = client.answer("fetch", 12).responses[0].partitions[0]
    assert (row.last_stable_offset, len(bytes(row.records)) > 0) == (2, True)
    other.close()


@pytest.mark.parametrize(
    ("isolation", "expected"),
    [
        ("read_committed", [b"yes-1", b"yes-2", b"plain"]),
        ("read_uncommitted", [b"yes-1", b"no-1", b"yes-2", b"no-2", b"plain"]),
    ],
)
def test_librdkafka_skips_what_was_aborted(
    harness: Harness, topic: str, isolation: str, expected: list[bytes]
) -> None:
    writer = Writer(harness, topic)
    writer.put(b"yes-1", 7)
    writer.put(b"no-1", 8)
    writer.put(b"yes-2", 7, sequence=1)
    writer.put(b"no-2", 8, sequence=1)
    writer.end(8, is_commit=False)
    writer.end(7, is_commit=True)
    writer.append(build_batch([(None, b"plain")], timestamp_ms=1000))
    writer.wait_replicated()
    settings = {"bootstrap.servers": harness.bootstrap, "group.id": "g"}
    consumer = Consumer({**settings, "enable.auto.commit": False, "isolation.level": isolation})
    consumer.assign([TopicPartition(topic, 0, 0)])
    got = consumer.consume(len(expected), DEADLINE_S)
    consumer.close()
    assert [message.value() for message in got] == expected


def test_followers_know_the_last_stable_offset_themselves(harness: Harness, topic: str) -> None:
    writer = Writer(harness, topic)
    writer.put(b"a", 7)
    writer.wait_replicated()
    follower = harness.cluster.replica(2, topic)
    assert follower.log.last_stable_offset(follower.core.high_watermark) == 0
    writer.end(7, is_commit=False)
    writer.wait_replicated()
    assert follower.log.last_stable_offset(follower.core.high_watermark) == 2
    directory = Path(follower.log.directory)
    harness.call(lambda: follower.log.roll(now_ms=0))
    eventually(lambda: (directory / f"{0:020d}.txnindex").exists(), "the roll is flushed")
