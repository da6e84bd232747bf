"""The log cleaner at work in brokers, as their clients see it."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from kio.schema.errors import ErrorCode as KioError

from kvorum.broker.config.broker_config import BrokerConfig
from kvorum.metadata.image.records import RemoveTopic
from kvorum.storage.cleaning.cleaner import CleaningJob
from kvorum.storage.files.checkpoints import CLEANER_OFFSET
from kvorum.storage.format.batch import build_batch
from kvorum.storage.format.compression import Codec
from tests.polling import eventually
from tests.test_broker.harness import Harness
from tests.test_broker.raw_client import RawClient, produce_values

CONFIGS = {
    "cleanup.policy": "compact",
    "segment.bytes": "4000",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "0",
}
KEYS = 20


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    config = BrokerConfig(log_cleaner_backoff_ms=20)
    harness = Harness(tmp_path_factory.mktemp("cleaner"), count=3, config=config)
    yield harness
    harness.close()


_names = iter(range(1000))


@pytest.fixture
def topic(harness: Harness) -> str:
    name = f"compacted-{next(_names)}"
    harness.call(lambda: harness.cluster.controller.create(name, [(1, 2, 3)], CONFIGS))
    return name


def put(producer: Producer, topic: str, rounds: int) -> None:
    for at in range(rounds):
        for key in range(KEYS):
            producer.produce(topic, f"{at}-{key}".encode(), f"key-{key}".encode())
        producer.flush(10)


def read_all(
    harness: Harness, topic: str, end_offset: int
) -> list[tuple[int, bytes, bytes | None]]:
    settings = {"bootstrap.servers": harness.bootstrap, "group.id": "x"}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found: list[tuple[int, bytes, bytes]] = []

    def poll() -> None:
        message = consumer.poll(0.2)
        if message is not None:
            assert message.error() is None
            found.append((message.offset(), message.key(), message.value()))

    eventually(
        lambda: found and found[-1][0] >= end_offset - 1,
        f"{topic} is read up to offset {end_offset}",
        meanwhile=poll,
    )
    consumer.close()
    return found


def is_cleaned(harness: Harness, broker_id: int, topic: str, offset: int) -> bool:
    store = harness.cluster.replica(broker_id, topic).log_dir.store
    return (store.checkpoints.cleaner_offset(topic, 0) or 0) >= offset


def active_base(harness: Harness, broker_id: int, topic: str) -> int:
    return harness.cluster.replica(broker_id, topic).log.segments.bases[-1]


def test_every_replica_compacts_and_a_consumer_reads_the_latest_of_each_key(
    harness: Harness, topic: str
) -> None:
    producer = Producer(
        {"bootstrap.servers": harness.bootstrap, "acks": "all", "enable.idempotence": True}
    )
    put(producer, topic, 30)
    producer.produce(topic, None, b"key-0")
    put(producer, topic, 1)
    producer.produce(topic, None, b"key-1")
    producer.flush(10)
    end_offset = 31 * KEYS + 2
    for broker_id in (1, 2, 3):
        eventually(
            lambda b=broker_id: harness.call(
                lambda: is_cleaned(harness, b, topic, active_base(harness, b, topic))
            ),
            f"broker {broker_id} compacts",
        )
        log = harness.cluster.replica(broker_id, topic).log
        assert log.end_offset == end_offset
        assert log.size_bytes < 9000
    found = read_all(harness, topic, end_offset)
    offsets = [offset for offset, _, _ in found]
    assert offsets == sorted(set(offsets))
    assert len(found) < 5 * KEYS
    latest = {key: value for _, key, value in found}
    expected = {b"key-%d" % key: b"0-%d" % key for key in range(KEYS)}
    assert latest == {**expected, b"key-1": None}


def test_the_cleaners_checkpoint_outlives_a_restart(harness: Harness, topic: str) -> None:
    producer = Producer({"bootstrap.servers": harness.bootstrap, "acks": "all"})
    put(producer, topic, 20)
    eventually(
        lambda: harness.call(lambda: is_cleaned(harness, 3, topic, active_base(harness, 3, topic))),
        "broker 3 compacts",
    )
    store = harness.cluster.replica(3, topic).log_dir.store
    before = harness.call(lambda: store.checkpoints.cleaner_offset(topic, 0))
    path = Path(harness.cluster.directory) / "broker-3" / CLEANER_OFFSET
    eventually(lambda: f"{topic} 0 {before}\n" in path.read_text(), "it is checkpointed")
    harness.run(harness.cluster.stop_broker(3))
    harness.run(harness.cluster.start_broker(3))
    assert is_cleaned(harness, 3, topic, before)


@pytest.mark.parametrize("version", range(3, 13))
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_records_without_key_are_refused_one_by_one(
    client: RawClient, topic: str, version: int, codec: Codec
) -> None:
    if codec is Codec.ZSTD and version < 7:
        pytest.skip("zstd needs v7")
    pairs = [(b"a", b"1"), (None, b"2"), (b"b", b"3"), (None, b"4")]
    batch = bytes(build_batch(pairs, timestamp_ms=int(time.time() * 1000), compression=codec))
    answer = client.call("produce", version, produce_values(topic, batch))
    row = answer.responses[0].partition_responses[0]
    assert (row.error_code, row.base_offset) == (KioError.invalid_record, -1)
    if version >= 8:
        assert [error.batch_index for error in row.record_errors] == [1, 3]
        sentence = row.record_errors[0].batch_index_error_message
        assert sentence == (
            f"Compacted topic cannot accept message without key in topic partition {topic}-0."
        )
        assert "due to 2 record errors in total" in row.error_message
    good = bytes(build_batch([(b"a", None)], timestamp_ms=int(time.time() * 1000)))
    answer = client.call("produce", version, produce_values(topic, good))
    assert answer.responses[0].partition_responses[0].error_code is KioError.none


def test_librdkafka_hears_of_a_missing_key(harness: Harness, topic: str) -> None:
    producer = Producer({"bootstrap.servers": harness.bootstrap})
    errors = []
    producer.produce(topic, b"x", on_delivery=lambda error, _: errors.append(error))
    producer.flush(10)
    assert errors[0].name() == "INVALID_RECORD"


def test_a_damaged_log_is_left_alone_and_the_others_go_on(harness: Harness, topic: str) -> None:
    other = f"{topic}-other"
    harness.call(lambda: harness.cluster.controller.create(other, [(1, 2, 3)], CONFIGS))

    def spoil() -> None:
        log = harness.cluster.replica(2, topic).log
        path = Path(log.directory) / f"{log.segments.bases[0]:020d}.log"
        data = bytearray(path.read_bytes())
        data[70] ^= 0xFF
        path.write_bytes(data)

    producer = Producer({"bootstrap.servers": harness.bootstrap, "acks": "all", "linger.ms": 0})
    producer.produce(topic, b"v", b"key-0")
    producer.flush(10)
    eventually(lambda: harness.cluster.replica(2, topic).log.end_offset == 1, "it is replicated")
    harness.call(spoil)
    put(producer, topic, 30)
    put(producer, other, 30)
    eventually(lambda: harness.cluster.replica(2, topic).uncleanable, "the damage is found")
    assert "00000000000000000000.log" in harness.cluster.replica(2, topic).uncleanable
    for broker_id, name in ((1, topic), (2, other)):
        eventually(
            lambda b=broker_id, n=name: harness.call(lambda: is_cleaned(harness, b, n, 20)),
            f"broker {broker_id} compacts {name}",
        )


def test_a_bug_that_one_log_brings_out_ends_its_compaction_and_no_broker(
    harness: Harness,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    # Bug: such an error ended the cleaner's task and with it the broker: every broker that has a
    # replica of the partition, and again after each start.
    other = f"{topic}-other"
    harness.call(lambda: harness.cluster.controller.create(other, [(1, 2, 3)], CONFIGS))
    advance = CleaningJob.advance

    def advance_or_fail(job: CleaningJob) -> int:
        if f"{topic}-0/" in job.segments[0].file.path:
            raise struct.error("int too large to convert")
        return advance(job)

    monkeypatch.setattr(CleaningJob, "advance", advance_or_fail)
    producer = Producer({"bootstrap.servers": harness.bootstrap, "acks": "all"})
    put(producer, topic, 20)
    put(producer, other, 20)
    eventually(lambda: harness.cluster.replica(1, topic).uncleanable, "the bug is met")
    assert "int too large to convert" in harness.cluster.replica(1, topic).uncleanable
    eventually(lambda: "advance_or_fail" in caplog.text, "it is said where it happened")
    eventually(
        lambda: harness.call(lambda: is_cleaned(harness, 1, other, 20)), "broker 1 compacts another"
    )
    assert not harness.cluster.replica(1, topic).is_offline
    assert "cleaned" not in " ".join(os.listdir(harness.cluster.replica(1, topic).log.directory))


def test_a_topic_may_go_while_it_is_compacted(harness: Harness) -> None:
    producer = Producer({"bootstrap.servers": harness.bootstrap, "acks": "all"})
    for at in range(3):
        name = f"short-lived-{at}"
        harness.call(lambda n=name: harness.cluster.controller.create(n, [(1, 2, 3)], CONFIGS))
        put(producer, name, 15)
        gone = RemoveTopic(harness.cluster.controller.image.topic_ids[name])
        harness.call(lambda r=gone: harness.cluster.controller.commit(r))
        put_again = f"after-{at}"
        harness.call(lambda n=put_again: harness.cluster.controller.create(n, [(1, 2, 3)], CONFIGS))
        put(producer, put_again, 20)
        eventually(
            lambda n=put_again: harness.call(lambda: is_cleaned(harness, 1, n, 20)),
            "the cleaner goes on",
        )
