"""compression.type: batches are compressed again in threads, appended in their order, and answered
correctly."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from kio.schema.errors import ErrorCode as KioError

from kvorum.broker.config.broker_config import BrokerConfig
from kvorum.broker.config.topic_config import resolve
from kvorum.broker.partition.recompression import Recompression
from kvorum.broker.partition.replica import Replica
from kvorum.metadata.image.records import Config, RemoveTopic
from kvorum.runtime.clock import wall_ms
from kvorum.storage.format.batch import (
    CODEC_MASK,
    LOG_APPEND_TIME_BIT,
    Record,
    build_batch,
    iter_headers,
    iter_records,
    read_header,
)
from kvorum.storage.format.client_batch import DEFAULT_LIMITS
from kvorum.storage.format.compression import Codec
from kvorum.storage.format.recompression import TargetCompression
from tests.polling import eventually
from tests.test_broker.config_calls import BROKER, TOPIC, alter, replace
from tests.test_broker.harness import DEADLINE_S, Harness
from tests.test_broker.raw_client import RawClient, produce_values

CODECS = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    harness = Harness(tmp_path_factory.mktemp("target_compression"))
    yield harness
    harness.close()


@pytest.fixture
def client(harness: Harness) -> Iterator[RawClient]:
    client = RawClient(harness.cluster.brokers[1].port)
    yield client
    assert replace(client, BROKER, "1").error_code is KioError.none
    client.close()


_names = iter(range(1000))


def make(
    harness: Harness, partitions: int = 1, replicas: tuple[int, ...] = (1,), **configs: str
) -> str:
    name = f"packed-{next(_names)}"
    named = {key.replace("_", "."): value for key, value in configs.items()}
    harness.call(lambda: harness.cluster.controller.create(name, [replicas] * partitions, named))
    return name


def lead_with_absent(harness: Harness, topic: str, *, leader: int) -> None:
    """Broker 2, which does not run, is in the ISR."""
    topic_id = replica(harness, topic).core.topic_id
    harness.call(lambda: harness.cluster.controller.lead(topic_id, 0, leader, (1, 2)))


def batch_of(*values: bytes, codec: Codec = Codec.NONE, **fields: Any) -> bytearray:
    return build_batch(
        [(b"k", value) for value in values], timestamp_ms=wall_ms(), compression=codec, **fields
    )


def send(client: RawClient, topic: str, batch: bytes, **fields: Any) -> None:
    client.send("produce", 9, produce_values(topic, bytes(batch), **fields))


def answer(client: RawClient) -> Any:
    return client.answer("produce", 9).responses[0].partition_responses[0]


def replica(harness: Harness, topic: str) -> Replica:
    return harness.cluster.replica(1, topic)


def log_file(harness: Harness, topic: str) -> bytes:
    (path,) = (Path(harness.cluster.directory) / "broker-1" / f"{topic}-0").glob("*.log")
    return path.read_bytes()


def stored(harness: Harness, topic: str) -> list[tuple[Codec, list[Record]]]:
    """The batches of the log, each with its codec and its records."""
    data = log_file(harness, topic)
    return [
        (Codec(header.attributes & CODEC_MASK), list(iter_records(data, at, header)))
        for at, header in iter_headers(data)
    ]


class HeldThreads(Recompression):
    """Compression threads that pack one batch each time `free` is called."""

    def __init__(self, harness: Harness) -> None:
        super().__init__(DEFAULT_LIMITS)
        self._harness = harness
        self._free: list[asyncio.Future[None]] = []

    async def run(self, work: Callable[[], Any]) -> Any:
        future = asyncio.get_running_loop().create_future()
        self._free.append(future)
        await future
        return await super().run(work)

    def wait(self, count: int = 1) -> None:
        eventually(lambda: len(self._free) == count, f"{count} batches are being packed")

    def free(self) -> None:
        self._harness.call(lambda: self._free.pop(0).set_result(None))


@pytest.fixture
def held(harness: Harness) -> Iterator[HeldThreads]:
    services = harness.cluster.brokers[1].server.services
    own, services.recompression = services.recompression, HeldThreads(harness)
    yield services.recompression
    services.recompression = own


@pytest.mark.parametrize("source", Codec)
@pytest.mark.parametrize("name", CODECS)
def test_a_batch_is_stored_in_the_codec_of_its_topic(
    harness: Harness, client: RawClient, name: str, source: Codec
) -> None:
    topic = make(harness, compression_type=name)
    for at, values in enumerate(((b"a", b"b"), (b"c",))):
        send(client, topic, batch_of(*values, codec=source))
        found = answer(client)
        assert (found.error_code, found.base_offset) == (KioError.none, 2 * at)
    batches = stored(harness, topic)
    assert [codec for codec, _ in batches] == [CODECS[name]] * 2
    assert [(r.offset, r.value) for _, records in batches for r in records] == [
        (0, b"a"),
        (1, b"b"),
        (2, b"c"),
    ]


def test_a_batch_that_has_the_codec_is_stored_as_it_came(
    harness: Harness, client: RawClient, held: HeldThreads
) -> None:
    topic = make(harness, compression_type="zstd", compression_zstd_level="19")
    batch = batch_of(b"x" * 999, codec=Codec.ZSTD)
    send(client, topic, batch)
    assert answer(client).error_code is KioError.none
    assert log_file(harness, topic)[16:] == batch[16:]


def test_batches_for_topics_that_ask_for_no_codec_wait_for_nothing(
    harness: Harness, client: RawClient, held: HeldThreads
) -> None:
    topic = make(harness)
    send(client, topic, batch_of(b"x", codec=Codec.GZIP))
    assert answer(client).error_code is KioError.none
    assert stored(harness, topic)[0][0] is Codec.GZIP


def test_batches_of_a_partition_stay_in_order_and_others_go_on(
    harness: Harness, client: RawClient, held: HeldThreads
) -> None:
    """1. Batch A is being packed. 2. Batch B comes, which already has the codec. 3. Batch C comes
    for another partition: C is appended at once, B only after A."""
    topic = make(harness, 2, compression_type="lz4")
    other = RawClient(harness.cluster.brokers[1].port)
    send(client, topic, batch_of(b"a"))
    send(client, topic, batch_of(b"b", codec=Codec.LZ4))
    held.wait()
    send(other, topic, batch_of(b"c", codec=Codec.LZ4), partition=1)
    assert answer(other).base_offset == 0
    assert replica(harness, topic).log.end_offset == 0
    held.free()
    assert answer(client).base_offset == 0
    held.wait()
    held.free()
    assert answer(client).base_offset == 1
    values = [records[0].value for _, records in stored(harness, topic)]
    assert values == [b"a", b"b"]
    other.close()


def test_batches_in_line_stay_first_once_the_topic_asks_for_no_codec(
    harness: Harness, client: RawClient, held: HeldThreads
) -> None:
    topic = make(harness, compression_type="lz4")
    send(client, topic, batch_of(b"a"))
    held.wait()
    commit = harness.cluster.controller.commit
    harness.call(lambda: commit(Config(TOPIC, topic, "compression.type", None)))
    send(client, topic, batch_of(b"b"))
    held.free()
    assert answer(client).base_offset == 0
    held.wait()
    held.free()
    assert answer(client).base_offset == 1
    assert [codec for codec, _ in stored(harness, topic)] == [Codec.LZ4, Codec.NONE]
    send(client, topic, batch_of(b"c"))
    assert answer(client).base_offset == 2


def test_an_open_partition_takes_a_codec_over(harness: Harness, client: RawClient) -> None:
    topic = make(harness)
    send(client, topic, batch_of(b"a"))
    assert answer(client).error_code is KioError.none
    assert alter(client, BROKER, "1", compression_type="gzip").error_code is KioError.none
    eventually(
        lambda: replica(harness, topic).config.target_compression is not None, "it is taken over"
    )
    send(client, topic, batch_of(b"b"))
    assert answer(client).base_offset == 1
    assert [codec for codec, _ in stored(harness, topic)] == [Codec.NONE, Codec.GZIP]


def test_a_batch_that_grows_above_the_limit_is_refused(harness: Harness, client: RawClient) -> None:
    topic = make(harness, compression_type="uncompressed", max_message_bytes="1000")
    send(client, topic, batch_of(b"x" * 5_000, codec=Codec.ZSTD))
    found = answer(client)
    assert found.error_code is KioError.message_too_large
    assert replica(harness, topic).log.end_offset == 0


def test_a_damaged_batch_is_refused_and_the_one_behind_it_goes_on(
    harness: Harness, client: RawClient, held: HeldThreads
) -> None:
    topic = make(harness, compression_type="lz4")
    bad = batch_of(b"x")
    bad[-1] ^= 1
    send(client, topic, bad)
    send(client, topic, batch_of(b"y"))
    for error in (KioError.corrupt_message, KioError.none):
        held.wait()
        held.free()
        assert answer(client).error_code is error
    assert replica(harness, topic).log.end_offset == 1


def test_a_batch_that_leaves_the_line_of_a_deleted_topic_is_refused(
    harness: Harness, client: RawClient, held: HeldThreads
) -> None:
    topic = make(harness, compression_type="lz4")
    send(client, topic, batch_of(b"x"))
    held.wait()
    controller = harness.cluster.controller
    harness.call(lambda: controller.commit(RemoveTopic(replica(harness, topic).core.topic_id)))
    held.free()
    assert answer(client).error_code is KioError.not_leader_or_follower


def test_a_request_that_is_over_its_time_is_answered_once_and_appended(
    harness: Harness, client: RawClient, held: HeldThreads
) -> None:
    topic = make(harness, compression_type="lz4")
    send(client, topic, batch_of(b"x"), timeout_ms=1)
    held.wait()
    assert answer(client).error_code is KioError.request_timed_out
    held.free()
    eventually(lambda: replica(harness, topic).log.end_offset == 1, "it is appended")
    # The next answer is that of the next request.
    send(client, topic, batch_of(b"y", codec=Codec.LZ4))
    assert answer(client).base_offset == 1


def test_acks_of_all_wait_for_the_replicas_behind_the_packing(
    harness: Harness, client: RawClient
) -> None:
    topic = make(harness, replicas=(1, 2), compression_type="lz4")
    lead_with_absent(harness, topic, leader=1)
    send(client, topic, batch_of(b"x"), timeout_ms=200)
    assert answer(client).error_code is KioError.request_timed_out
    assert replica(harness, topic).log.end_offset == 1


def test_a_follower_packs_nothing(harness: Harness, client: RawClient, held: HeldThreads) -> None:
    topic = make(harness, replicas=(1, 2), compression_type="lz4")
    lead_with_absent(harness, topic, leader=2)
    send(client, topic, batch_of(b"x"))
    assert answer(client).error_code is KioError.not_leader_or_follower


@pytest.mark.parametrize("acks", [0, 1])
def test_acks_that_wait_for_nobody_wait_for_the_packing(
    harness: Harness, client: RawClient, held: HeldThreads, acks: int
) -> None:
    topic = make(harness, compression_type="lz4")
    send(client, topic, batch_of(b"x"), acks=acks)
    held.wait()
    held.free()
    if acks:
        assert answer(client).base_offset == 0
    eventually(lambda: replica(harness, topic).log.end_offset == 1, "it is appended")


def test_repeats_of_an_idempotent_producer_are_known_behind_the_packing(
    harness: Harness, client: RawClient
) -> None:
    topic = make(harness, compression_type="gzip")
    first = batch_of(b"a", producer_id=9, producer_epoch=0, base_sequence=0)
    second = batch_of(b"b", producer_id=9, producer_epoch=0, base_sequence=1)
    gap = batch_of(b"c", producer_id=9, producer_epoch=0, base_sequence=7)
    for batch, error, offset in (
        (first, KioError.none, 0),
        (second, KioError.none, 1),
        (first, KioError.none, 0),
        (gap, KioError.out_of_order_sequence_number, -1),
    ):
        send(client, topic, batch)
        found = answer(client)
        assert (found.error_code, found.base_offset) == (error, offset)
    assert len(stored(harness, topic)) == 2


def test_the_leaders_stamp_comes_on_top(harness: Harness, client: RawClient) -> None:
    topic = make(harness, compression_type="zstd", message_timestamp_type="LogAppendTime")
    send(client, topic, build_batch([(None, b"x")], timestamp_ms=5))
    found = answer(client)
    assert found.error_code is KioError.none
    header = read_header(log_file(harness, topic), 0)
    assert header.attributes == Codec.ZSTD | LOG_APPEND_TIME_BIT
    assert header.max_timestamp_ms > 1_700_000_000_000
    assert stored(harness, topic)[0][1][0].timestamp_ms == header.max_timestamp_ms


def test_a_client_that_sends_faster_than_is_packed_is_not_read_from(
    harness: Harness, client: RawClient, held: HeldThreads
) -> None:
    topic = make(harness, compression_type="lz4", max_message_bytes=str(40 << 20))
    server = harness.cluster.brokers[1].server
    limit = server.config.connection_output_bytes_max
    batch = batch_of(b"x" * (30 << 20))
    own = client.sock.getsockname()
    (connection,) = [c for c in server._connections if c._sock.getpeername() == own]
    for _ in range(3):
        send(client, topic, batch)
    held.wait()
    eventually(lambda: connection._output_bytes > limit, "all is in line")
    send(client, topic, batch_of(b"last"))
    eventually(lambda: not connection._is_reading, "the connection is not read from")
    assert len(connection.slots) == 3
    for at in range(4):
        held.wait()
        held.free()
        assert answer(client).base_offset == at
    eventually(lambda: connection._output_bytes == 0, "nothing is kept")


def test_librdkafkas_idempotent_producer_is_told_every_offset(harness: Harness) -> None:
    topic = make(harness, compression_type="zstd")
    offsets: list[int] = []
    producer = Producer(
        {"bootstrap.servers": harness.bootstrap, "enable.idempotence": True, "linger.ms": 1}
    )
    for at in range(2_000):
        producer.produce(
            topic,
            b"value-%d" % at,
            on_delivery=lambda error, message: offsets.append(message.offset()),
        )
        producer.poll(0)
    assert producer.flush(DEADLINE_S) == 0
    assert offsets == list(range(2_000))
    batches = stored(harness, topic)
    assert {codec for codec, _ in batches} == {Codec.ZSTD}
    values = [record.value for _, records in batches for record in records]
    assert values == [b"value-%d" % at for at in range(2_000)]


@pytest.mark.parametrize(
    ("configs", "target_compression"),
    [
        ({}, None),
        ({"compression.type": "producer"}, None),
        ({"compression.type": "uncompressed"}, TargetCompression(Codec.NONE)),
        ({"compression.type": "gzip"}, TargetCompression(Codec.GZIP)),
        (
            {"compression.type": "gzip", "compression.gzip.level": "9"},
            TargetCompression(Codec.GZIP, 9),
        ),
        ({"compression.type": "snappy"}, TargetCompression(Codec.SNAPPY)),
        ({"compression.type": "lz4"}, TargetCompression(Codec.LZ4, 9)),
        (
            {"compression.type": "lz4", "compression.lz4.level": "1"},
            TargetCompression(Codec.LZ4, 1),
        ),
        ({"compression.type": "zstd"}, TargetCompression(Codec.ZSTD, 3)),
        (
            {"compression.type": "zstd", "compression.gzip.level": "1"},
            TargetCompression(Codec.ZSTD, 3),
        ),
    ],
)
def test_configs_come_to_a_codec_and_its_level(
    configs: dict[str, str], target_compression: TargetCompression | None
) -> None:
    assert resolve(BrokerConfig(), configs).target_compression == target_compression


def test_the_brokers_codec_is_that_of_topics_that_ask_for_none() -> None:
    config = BrokerConfig(compression_type="gzip", compression_gzip_level=4)
    assert resolve(config, {}).target_compression == TargetCompression(Codec.GZIP, 4)
    assert resolve(config, {"compression.type": "producer"}).target_compression is None
