"""librdkafka's transactional producer against brokers in one process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from kvorum.broker.coordinator.keys import partition_of
from kvorum.metadata.image.image import RESOURCE_TOPIC
from kvorum.metadata.image.records import Config
from kvorum.storage.format.batch import CODEC_MASK, iter_headers
from kvorum.storage.format.compression import Codec
from tests.polling import eventually
from tests.test_broker.harness import DEADLINE_S, Harness
from tests.test_transactions.raw_producer import CONFIG


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    harness = Harness(tmp_path, count=3, config=CONFIG)
    harness.call(lambda: harness.cluster.controller.create("t", [(1, 2, 3), (2, 3, 1), (3, 1, 2)]))
    yield harness
    harness.close()
    assert not harness.failures, harness.failures


def producer(harness: Harness, transactional_id: str = "x", **settings: object) -> Producer:
    made = Producer(
        {
            "bootstrap.servers": harness.bootstrap,
            "transactional.id": transactional_id,
            "linger.ms": 0,
            **settings,
        }
    )
    made.init_transactions(DEADLINE_S)
    return made


def write(made: Producer, *values: str) -> None:
    """One transaction's records, over all three partitions."""
    for at, value in enumerate(values):
        made.produce("t", value.encode(), partition=at % 3)
    assert made.flush(DEADLINE_S) == 0


def read(harness: Harness, count: int, isolation: str = "read_committed") -> list[str]:
    """The first `count` values of all partitions, sorted."""
    consumer = Consumer(
        {
            "bootstrap.servers": harness.bootstrap,
            "group.id": "g",
            "enable.auto.commit": False,
            "isolation.level": isolation,
        }
    )
    consumer.assign([TopicPartition("t", p, 0) for p in range(3)])
    got = consumer.consume(count, DEADLINE_S)
    consumer.close()
    return sorted(message.value().decode() for message in got)


def test_what_is_committed_is_read_and_what_is_aborted_is_not(harness: Harness) -> None:
    made = producer(harness)
    made.begin_transaction()
    write(made, "a", "b", "c", "d")
    made.commit_transaction(DEADLINE_S)
    made.begin_transaction()
    write(made, "no-1", "no-2", "no-3")
    made.abort_transaction(DEADLINE_S)
    made.begin_transaction()
    write(made, "e", "f", "g")
    made.commit_transaction(DEADLINE_S)
    assert read(harness, 7) == ["a", "b", "c", "d", "e", "f", "g"]
    everything = read(harness, 10, "read_uncommitted")
    assert everything == ["a", "b", "c", "d", "e", "f", "g", "no-1", "no-2", "no-3"]


def codecs(harness: Harness, partition: int) -> list[tuple[bool, Codec]]:
    """For each batch of the partition on its leader: (True for a marker, codec)."""
    folder = Path(harness.cluster.directory) / f"broker-{partition + 1}" / f"t-{partition}"
    (path,) = folder.glob("*.log")
    headers = [header for _, header in iter_headers(path.read_bytes())]
    return [(h.is_control, Codec(h.attributes & CODEC_MASK)) for h in headers]


def test_transactions_go_through_the_packing_and_their_markers_do_not(harness: Harness) -> None:
    commit = harness.cluster.controller.commit
    harness.call(lambda: commit(Config(RESOURCE_TOPIC, "t", "compression.type", "lz4")))
    made = producer(harness, **{"compression.type": "gzip"})
    for number in range(10):
        made.begin_transaction()
        write(made, *(f"{number}-{at}" for at in range(6)))
        if number % 3 == 2:
            made.abort_transaction(DEADLINE_S)
        else:
            made.commit_transaction(DEADLINE_S)
    kept = sorted(f"{n}-{at}" for n in range(10) if n % 3 != 2 for at in range(6))
    assert read(harness, len(kept)) == kept
    for partition in range(3):
        found = codecs(harness, partition)
        assert set(found) == {(False, Codec.LZ4), (True, Codec.NONE)}
        assert sum(is_control for is_control, _ in found) == 10


def test_many_transactions_in_a_row(harness: Harness) -> None:
    made = producer(harness)
    for number in range(30):
        made.begin_transaction()
        write(made, f"{number:02d}-a", f"{number:02d}-b")
        made.commit_transaction(DEADLINE_S)
    expected = sorted(f"{n:02d}-{x}" for n in range(30) for x in "ab")
    assert read(harness, 60) == expected


def test_a_second_instance_fences_the_first_and_aborts_what_it_had_open(harness: Harness) -> None:
    first = producer(harness)
    first.begin_transaction()
    write(first, "lost")
    second = producer(harness)
    second.begin_transaction()
    write(second, "kept")
    second.commit_transaction(DEADLINE_S)
    with pytest.raises(KafkaException) as refused:
        first.commit_transaction(DEADLINE_S)
    assert refused.value.args[0].code() in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED)
    assert read(harness, 1) == ["kept"]


def test_a_transaction_over_its_time_is_aborted(harness: Harness) -> None:
    slow = producer(harness, **{"transaction.timeout.ms": 1000})
    slow.begin_transaction()
    write(slow, "late")
    other = producer(harness, "y")
    other.begin_transaction()
    write(other, "kept")
    other.commit_transaction(DEADLINE_S)
    # Readable only once the marker of the slow one is in the same partition.
    assert read(harness, 1) == ["kept"]
    with pytest.raises(KafkaException):
        slow.commit_transaction(DEADLINE_S)


def test_a_coordinator_that_moves_carries_on(harness: Harness) -> None:
    made = producer(harness)
    made.begin_transaction()
    write(made, "a", "b", "c")

    def move_all() -> None:
        controller = harness.cluster.controller
        topic = controller.image.topic("__transaction_state")
        assert topic is not None
        for partition_id, partition in topic.partitions.items():
            leader = next(r for r in partition.replicas if r != partition.leader)
            controller.lead(topic.topic_id, partition_id, leader, partition.isr)

    def is_in_sync() -> bool:
        topic = harness.cluster.controller.image.topic("__transaction_state")
        assert topic is not None
        return all(len(p.isr) == 3 for p in topic.partitions.values())

    eventually(is_in_sync, "all replicas of __transaction_state are in sync")
    harness.call(move_all)
    made.commit_transaction(DEADLINE_S)
    harness.call(move_all)
    made.begin_transaction()
    write(made, "d")
    made.commit_transaction(DEADLINE_S)
    assert read(harness, 4) == ["a", "b", "c", "d"]


def test_a_coordinator_that_dies_between_decision_and_markers_is_followed_by_one_that_sends_them(
    harness: Harness,
) -> None:
    cluster = harness.cluster
    made = producer(harness)
    made.begin_transaction()
    write(made, "a", "b", "c")
    topic = cluster.controller.image.topic("__transaction_state")
    assert topic is not None
    partition_id = partition_of("x", len(topic.partitions))
    old = topic.partitions[partition_id].leader
    eventually(
        lambda: len(cluster.controller.image.partition(topic.topic_id, partition_id).isr) == 3,
        "the coordinator's partition is in sync",
    )
    # From now on, its markers reach only itself. (Its fetches reach others, over connections that
    # are open already.)
    sender = cluster.brokers[old].server.services.transaction_driver._markers
    harness.call(lambda: setattr(sender._peers, "_peer_address", lambda broker_id: None))
    made.commit_transaction(DEADLINE_S)
    assert [p for p in range(3) if _is_open(harness, p)]
    harness.run(cluster.crash_broker(old))
    harness.call(lambda: cluster.fence(old))
    eventually(lambda: not any(_is_open(harness, p) for p in range(3)), "the markers are written")
    assert read(harness, 3) == ["a", "b", "c"]


def _is_open(harness: Harness, partition_id: int) -> bool:
    """True if the partition's leader has a transaction without marker."""

    def ask() -> bool:
        topic = harness.cluster.controller.image.topic("t")
        assert topic is not None
        leader = topic.partitions[partition_id].leader
        replica = harness.cluster.replica(leader, "t", partition_id)
        return bool(replica.log.producers.ongoing)

    return harness.call(ask)
