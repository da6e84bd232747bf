"""librdkafka against three brokers: every codec, idempotence, admin, consuming by assignment."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from tests.test_broker.harness import DEADLINE_S, Harness

COUNT = 500


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    harness = Harness(tmp_path_factory.mktemp("three"), count=3)
    yield harness
    harness.close()


def settings(harness: Harness, **more: object) -> dict[str, object]:
    base: dict[str, object] = {
        "bootstrap.servers": harness.bootstrap,
        "log_level": 0,
        "error_cb": lambda error: None,
    }
    return base | {key.replace("_", "."): value for key, value in more.items()}


def make_topic(harness: Harness, name: str, partitions: int = 3, **configs: str) -> None:
    admin = AdminClient(settings(harness))
    topic = NewTopic(
        name, partitions, 3, config={k.replace("_", "."): v for k, v in configs.items()}
    )
    admin.create_topics([topic])[name].result(DEADLINE_S)


def produce(harness: Harness, topic: str, values: list[bytes], **more: object) -> None:
    producer = Producer(settings(harness, **more))
    failed: list[object] = []
    for n, value in enumerate(values):
        producer.produce(
            topic,
            value,
            key=str(n).encode(),
            partition=n % 3,
            headers={"n": str(n)},
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    assert producer.flush(DEADLINE_S) == 0
    assert failed == []


def consume(harness: Harness, topic: str, count: int) -> list[object]:
    consumer = Consumer(settings(harness, group_id="g", enable_auto_commit=False))
    consumer.assign([TopicPartition(topic, p, 0) for p in range(3)])
    messages: list[object] = []
    while len(messages) < count:
        batch = consumer.consume(count - len(messages), DEADLINE_S)
        assert batch, f"only {len(messages)} of {count}"
        for message in batch:
            assert message.error() is None
            messages.append(message)
    consumer.close()
    return messages


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("acks", ["1", "all"])
def test_every_codec_round_trips(harness: Harness, codec: str, acks: str) -> None:
    topic = f"codec-{codec}-{acks}"
    make_topic(harness, topic)
    values = [b"value-%d-" % n + b"z" * (n % 300) for n in range(COUNT)]
    produce(harness, topic, values, compression_codec=codec, acks=acks, linger_ms=5)
    got = consume(harness, topic, COUNT)
    assert sorted(m.value() for m in got) == sorted(values)
    assert {m.headers()[0] for m in got} == {("n", str(n).encode()) for n in range(COUNT)}
    for p in range(3):
        offsets = [m.offset() for m in got if m.partition() == p]
        assert offsets == list(range(len(offsets)))


def test_an_idempotent_producer_writes_each_value_once(harness: Harness) -> None:
    make_topic(harness, "idempotent")
    values = [b"%d" % n for n in range(COUNT)]
    produce(harness, "idempotent", values, enable_idempotence=True, linger_ms=1)
    got = consume(harness, "idempotent", COUNT)
    assert sorted(int(m.value()) for m in got) == list(range(COUNT))
    replica = harness.cluster.replica(1, "idempotent", 0)
    assert len(replica.log.producers) == 1


def test_an_idempotent_producer_survives_a_change_of_leader(harness: Harness) -> None:
    make_topic(harness, "moving")
    producer = Producer(settings(harness, enable_idempotence=True, linger_ms=1))
    failed: list[object] = []
    topic_id = harness.cluster.controller.image.topic_ids["moving"]
    for n in range(COUNT):
        producer.produce(
            "moving", b"%d" % n, partition=0,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )  # fmt: skip
        producer.poll(0)
        if n in (100, 250, 400):
            partition = harness.cluster.controller.image.partition(topic_id, 0)
            leader = next(r for r in partition.isr if r != partition.leader)
            harness.call(
                lambda to=leader, isr=partition.isr: harness.cluster.controller.lead(
                    topic_id, 0, to, isr
                )
            )
    assert producer.flush(DEADLINE_S) == 0
    assert failed == []
    got = consume(harness, "moving", COUNT)
    assert [int(m.value()) for m in got] == list(range(COUNT))


def test_log_append_time_topics_carry_the_brokers_time(harness: Harness) -> None:
    make_topic(harness, "stamped", message_timestamp_type="LogAppendTime")
    producer = Producer(settings(harness))
    producer.produce("stamped", b"x", partition=0, timestamp=1000)
    producer.flush(DEADLINE_S)
    (message,) = consume(harness, "stamped", 1)
    kind, timestamp_ms = message.timestamp()
    assert kind == 2
    assert timestamp_ms > 1_700_000_000_000


def test_records_above_the_topics_limit_are_refused(harness: Harness) -> None:
    make_topic(harness, "limited", max_message_bytes="1000")
    producer = Producer(settings(harness))
    errors: list[KafkaError] = []
    producer.produce("limited", b"x" * 5000, partition=0, on_delivery=lambda e, _: errors.append(e))
    producer.flush(DEADLINE_S)
    assert errors[0].code() == KafkaError.MSG_SIZE_TOO_LARGE


def test_admin_sees_topics_and_configs(harness: Harness) -> None:
    make_topic(harness, "seen", 4, retention_ms="60000")
    admin = AdminClient(settings(harness))
    metadata = admin.list_topics(timeout=DEADLINE_S)
    assert len(metadata.topics["seen"].partitions) == 4
    assert set(metadata.brokers) == {1, 2, 3}
    resource = ConfigResource(ConfigResource.Type.TOPIC, "seen")
    configs = admin.describe_configs([resource])[resource].result(DEADLINE_S)
    assert configs["retention.ms"].value == "60000"
    cluster = admin.describe_cluster().result(DEADLINE_S)
    assert len(cluster.nodes) == 3
    admin.delete_topics(["seen"])["seen"].result(DEADLINE_S)
    assert "seen" not in admin.list_topics(timeout=DEADLINE_S).topics
    with pytest.raises(KafkaException) as caught:
        admin.delete_topics(["seen"])["seen"].result(DEADLINE_S)
    assert caught.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_offsets_by_time_and_watermarks(harness: Harness) -> None:
    make_topic(harness, "timed")
    producer = Producer(settings(harness))
    for n in range(10):
        producer.produce("timed", b"x", partition=0, timestamp=1_700_000_000_000 + n * 1000)
        producer.flush(DEADLINE_S)
    consumer = Consumer(settings(harness, group_id="g"))
    assert consumer.get_watermark_offsets(TopicPartition("timed", 0), DEADLINE_S) == (0, 10)
    (found,) = consumer.offsets_for_times(
        [TopicPartition("timed", 0, 1_700_000_003_500)], DEADLINE_S
    )
    assert found.offset == 4
    consumer.close()


def test_auto_creation_serves_a_producer_that_does_not_ask(harness: Harness) -> None:
    producer = Producer(settings(harness))
    errors: list[object] = []
    producer.produce("made-by-producing", b"x", on_delivery=lambda e, _: errors.append(e))
    assert producer.flush(DEADLINE_S) == 0
    assert errors == [None]
