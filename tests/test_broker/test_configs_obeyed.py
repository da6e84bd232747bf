"""Configs are obeyed by brokers and logs that are open."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from kio.schema.errors import ErrorCode as KioError

from kvorum.broker.config.broker_config import BrokerConfig
from kvorum.broker.config.dynamic_config import with_dynamic
from kvorum.broker.quotas.replication_quota import ThrottledReplicas
from kvorum.metadata.configs.config_keys import TOPIC_CONFIGS
from kvorum.metadata.image.records import Config
from kvorum.runtime.clock import wall_ms
from kvorum.storage.files.model import INDEX_BYTES_MIN, CompactionConfig
from kvorum.storage.format.compression import Codec
from kvorum.storage.format.recompression import TargetCompression
from kvorum.storage.log.retention import apply_retention
from tests.test_broker.config_calls import (
    BROKER,
    DELETE,
    SET,
    TOPIC,
    alter,
    entry,
    operate,
    produce,
    replace,
)
from tests.test_broker.harness import Harness
from tests.test_broker.raw_client import RawClient

CONFIG = BrokerConfig()


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    harness = Harness(tmp_path_factory.mktemp("configs"), count=2, config=CONFIG)
    yield harness
    harness.close()


@pytest.fixture
def client(harness: Harness) -> Iterator[RawClient]:
    client = RawClient(harness.cluster.brokers[1].port)
    yield client
    for name in ("", "1"):
        assert replace(client, BROKER, name).error_code is KioError.none
    client.close()


_names = iter(range(1000))


@pytest.fixture
def topic(harness: Harness) -> str:
    name = f"configs-{next(_names)}"
    harness.call(lambda: harness.cluster.controller.create(name, [(1, 2)]))
    return name


#: Config key, its new value, the attribute of an open replica that must follow, and its value.
_TAKEN_OVER: tuple[tuple[str, str, str, Any], ...] = (
    ("cleanup.policy", "compact", "log.config.compaction", CompactionConfig()),
    ("compression.type", "zstd", "config.target_compression", TargetCompression(Codec.ZSTD, 3)),
    ("delete.retention.ms", "5", "config.compaction.delete_retention_ms", 5),
    ("file.delete.delay.ms", "5", "log.config.file_delete_delay_ms", 5),
    ("flush.messages", "5", "log.config.flush_messages", 5),
    (
        "follower.replication.throttled.replicas",
        "0:1",
        "config.follower_throttled",
        ThrottledReplicas(pairs=frozenset({(0, 1)})),
    ),
    (
        "leader.replication.throttled.replicas",
        "*",
        "config.leader_throttled",
        ThrottledReplicas(is_all=True),
    ),
    ("flush.ms", "5", "log.config.flush_ms", 5),
    ("index.interval.bytes", "5", "log.config.index_interval_bytes", 5),
    ("max.compaction.lag.ms", "5", "config.compaction.max_lag_ms", 5),
    ("max.decompressed.message.bytes", "500", "config.decompressed_record_bytes_max", 500),
    ("max.message.bytes", "500", "log.config.max_message_bytes", 500),
    ("message.timestamp.after.max.ms", "5", "config.timestamp_after_max_ms", 5),
    ("message.timestamp.before.max.ms", "5", "config.timestamp_before_max_ms", 5),
    ("message.timestamp.type", "LogAppendTime", "config.is_log_append_time", True),
    ("min.cleanable.dirty.ratio", "0.25", "config.compaction.min_cleanable_dirty_ratio", 0.25),
    ("min.compaction.lag.ms", "5", "config.compaction.min_lag_ms", 5),
    ("min.insync.replicas", "2", "core.min_insync_replicas", 2),
    ("preallocate", "true", "log.segments.reserved_bytes", 1 << 30),
    ("retention.bytes", "5", "log.config.retention_bytes", 5),
    ("retention.ms", "5", "log.config.retention_ms", 5),
    ("segment.bytes", "1048576", "log.config.segment_bytes", 1 << 20),
    ("segment.index.bytes", "800", "log.config.index_bytes_max", 800),
    ("segment.jitter.ms", "5", "log.config.segment_jitter_ms", 5),
    ("segment.ms", "5", "log.config.segment_ms", 5),
)


def test_every_served_topic_config_is_among_those_tested() -> None:
    served = {key.name for key in TOPIC_CONFIGS.values() if not key.is_fixed}
    # Controllers obey unclean.leader.election.enable. A compression level has no effect without its
    # codec: see test_packing.
    levels = {f"compression.{codec}.level" for codec in ("gzip", "lz4", "zstd")}
    # A share group's leader asks for errors.deadletterqueue.group.enable: see test_dead_letters.
    letters = "errors.deadletterqueue.group.enable"
    elsewhere = {"unclean.leader.election.enable", letters, *levels}
    assert served - elsewhere == {row[0] for row in _TAKEN_OVER}


#: These name the partitions of one topic, so no broker has a default for them.
_TOPICS_OWN = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")


@pytest.mark.parametrize(
    ("level", "key", "value", "path", "shown"),
    [
        (level, *row)
        for row in _TAKEN_OVER
        for level in ("topic", "broker", "all brokers")
        if level == "topic" or row[0] not in _TOPICS_OWN
    ],
)
def test_an_open_replica_takes_a_config_over_and_gives_it_up_again(
    client: RawClient,
    harness: Harness,
    topic: str,
    level: str,
    key: str,
    value: str,
    path: str,
    shown: Any,
) -> None:
    kind, name = {"topic": (TOPIC, topic), "broker": (BROKER, "1"), "all brokers": (BROKER, "")}[
        level
    ]
    name_of_key = key if level == "topic" else TOPIC_CONFIGS[key].broker_name

    def now(broker_id: int) -> Any:
        found: Any = harness.cluster.replica(broker_id, topic)
        for part in path.split("."):
            found = getattr(found, part)
        return found

    before = [now(1), now(2)]
    assert shown not in before
    set_it = {"name": name_of_key, "config_operation": SET, "value": value}
    assert operate(client, kind, name, set_it).error_code is KioError.none
    assert now(1) == shown
    assert now(2) == (before[1] if level == "broker" else shown)
    delete_it = {"name": name_of_key, "config_operation": DELETE, "value": None}
    operate(client, kind, name, delete_it)
    assert [now(1), now(2)] == before


def test_a_smaller_batch_limit_holds_at_once(client: RawClient, topic: str) -> None:
    assert produce(client, topic, b"x" * 1000).error_code is KioError.none
    alter(client, TOPIC, topic, max_message_bytes="500")
    assert produce(client, topic, b"x" * 1000).error_code is KioError.message_too_large


def test_more_replicas_in_sync_are_asked_for_at_once(client: RawClient, harness: Harness) -> None:
    harness.call(lambda: harness.cluster.controller.create("lonely", [(1, 3)]))
    assert produce(client, "lonely").error_code is KioError.none
    alter(client, TOPIC, "lonely", min_insync_replicas="2")
    assert produce(client, "lonely").error_code is KioError.not_enough_replicas
    alter(client, TOPIC, "lonely", min_insync_replicas="1")
    assert produce(client, "lonely").error_code is KioError.none


def test_the_leaders_clock_stamps_records_at_once_and_bounds_them_no_more(
    client: RawClient, topic: str
) -> None:
    ahead_ms = int(time.time() * 1000) + 3_000_000
    assert produce(client, topic, timestamp_ms=ahead_ms).log_append_time is None
    alter(client, TOPIC, topic, message_timestamp_after_max_ms="1000")
    refused = produce(client, topic, timestamp_ms=ahead_ms)
    assert refused.error_code is KioError.invalid_timestamp
    behind_ms = int(time.time() * 1000) - 3_000_000
    assert produce(client, topic, timestamp_ms=behind_ms).error_code is KioError.none
    alter(client, TOPIC, topic, message_timestamp_before_max_ms="1000")
    refused = produce(client, topic, timestamp_ms=behind_ms)
    assert refused.error_code is KioError.invalid_timestamp
    alter(client, TOPIC, topic, message_timestamp_type="LogAppendTime")
    assert produce(client, topic, timestamp_ms=ahead_ms).log_append_time is not None
    assert produce(client, topic, timestamp_ms=behind_ms).log_append_time is not None


def test_segments_roll_and_go_by_the_new_settings(
    client: RawClient, harness: Harness, topic: str
) -> None:
    log = harness.cluster.replica(1, topic).log
    start_ms = wall_ms()
    produce(client, topic, timestamp_ms=start_ms)
    produce(client, topic, timestamp_ms=start_ms + 10)
    assert log.segment_count == 1
    alter(client, TOPIC, topic, segment_ms="1")
    produce(client, topic, timestamp_ms=start_ms + 20)
    assert log.segment_count == 2
    alter(client, TOPIC, topic, retention_bytes="1", retention_ms="-1")
    harness.call(lambda: apply_retention(log, now_ms=wall_ms(), high_watermark=log.end_offset))
    assert log.start_offset > 0


def test_the_index_of_the_active_segment_follows_the_new_interval(
    client: RawClient, harness: Harness, topic: str
) -> None:
    log = harness.cluster.replica(1, topic).log
    entries = []
    for _ in range(3):
        produce(client, topic)
        entries.append(len(log.segments.items[-1].indexes[0]))
    assert entries == [0, 0, 0]
    alter(client, TOPIC, topic, index_interval_bytes="0")
    produce(client, topic)
    produce(client, topic)
    assert len(log.segments.items[-1].indexes[0]) > 0


def test_a_topic_made_later_begins_with_what_is_set_for_its_broker(
    client: RawClient, harness: Harness
) -> None:
    alter(client, BROKER, "1", log_retention_ms="123", log_index_interval_bytes="9")
    harness.call(lambda: harness.cluster.controller.create("later", [(1,)]))
    log = harness.cluster.replica(1, "later").log
    assert (log.config.retention_ms, log.segments._index_interval_bytes) == (123, 9)


def test_the_least_index_that_kafka_allows_leaves_the_broker_alive(
    client: RawClient, harness: Harness, topic: str
) -> None:
    assert alter(client, TOPIC, topic, segment_index_bytes="4").error_code is KioError.none
    assert harness.cluster.replica(1, topic).log.config.index_bytes_max == INDEX_BYTES_MIN
    assert produce(client, topic).error_code is KioError.none


def test_producers_are_forgotten_by_the_new_time(client: RawClient, harness: Harness) -> None:
    alter(client, BROKER, "", producer_id_expiration_ms="5")
    for broker in harness.cluster.brokers.values():
        for replica in broker.manager.registry.all():
            assert replica.log.config.producer_id_expiration_ms == 5


def test_the_limit_of_connections_moves(client: RawClient, harness: Harness) -> None:
    port = harness.cluster.brokers[1].port
    alter(client, BROKER, "1", max_connections="1")
    turned_away = RawClient(port)
    assert turned_away.is_closed_by_peer()
    turned_away.close()
    assert entry(client, BROKER, "1", "max.connections").value == "1"
    alter(client, BROKER, "1", max_connections="50")
    let_in = RawClient(port)
    assert entry(let_in, BROKER, "1", "max.connections").value == "50"
    let_in.close()


def test_new_connections_wait_above_their_rate(client: RawClient, harness: Harness) -> None:
    alter(client, BROKER, "", max_connection_creation_rate="1")
    broker = harness.cluster.brokers[2]
    waiting = [RawClient(broker.port) for _ in range(20)]
    # The window of eleven seconds has room for ten.
    for one in waiting[:8]:
        assert one.call("api_versions", 0, {}).error_code is KioError.none
    assert broker.server.metrics.listener("").made < 15
    alter(client, BROKER, "", max_connection_creation_rate="1000000")
    for one in waiting[8:]:
        assert one.call("api_versions", 0, {}).error_code is KioError.none
    for one in waiting:
        one.close()


def test_a_listener_has_a_limit_of_its_own(client: RawClient, harness: Harness) -> None:
    server = harness.cluster.brokers[1].server
    port = harness.run(server.start("127.0.0.1", 0, listener_name="CLIENTS"))
    name = "listener.name.clients.max.connections"
    assert alter(client, BROKER, "1", **{name: "1"}).error_code is KioError.none
    first = RawClient(port)
    assert entry(first, BROKER, "1", "max.connections").value == "10000"
    turned_away = RawClient(port)
    assert turned_away.is_closed_by_peer()
    elsewhere = RawClient(harness.cluster.brokers[1].port)
    assert alter(elsewhere, BROKER, "1", **{name: "2"}).error_code is KioError.none
    let_in = RawClient(port)
    assert entry(let_in, BROKER, "1", "max.connections").value == "10000"
    for one in (first, turned_away, elsewhere, let_in):
        one.close()


def test_the_limit_of_an_address_moves(client: RawClient, harness: Harness) -> None:
    port = harness.cluster.brokers[1].port
    overrides = "max.connections.per.ip.overrides"
    assert alter(client, BROKER, "", **{overrides: "127.0.0.1"}).error_code != KioError.none
    alter(client, BROKER, "", **{overrides: "127.0.0.1:1"})
    turned_away = RawClient(port)
    assert turned_away.is_closed_by_peer()
    alter(client, BROKER, "", **{overrides: "10.0.0.1:1, 127.0.0.1:50"})
    let_in = RawClient(port)
    assert entry(let_in, BROKER, "1", "max.connections").value == "10000"
    for one in (turned_away, let_in):
        one.close()


def test_what_cannot_be_obeyed_is_passed_over_and_the_level_below_holds(
    client: RawClient, harness: Harness
) -> None:
    """Config records as a newer build, or one that accepts more values, may have written them."""
    commit = harness.cluster.controller.commit
    manager = harness.cluster.brokers[1].manager
    harness.call(
        lambda: commit(
            Config(BROKER, "", "max.connections", "60"),
            Config(BROKER, "1", "max.connections", "plenty"),
            Config(BROKER, "1", "num.partitions", "9"),
            Config(BROKER, "1", "unclean.leader.election.enable", "true"),
            Config(BROKER, "1", "of.tomorrow", "1"),
        )
    )
    assert manager.configs.broker.max_connections == 60
    assert manager.configs.broker.num_partitions == 1
    assert not manager.configs.broker.unclean_leader_election_enable
    image = harness.cluster.controller.image
    assert with_dynamic(CONFIG, image, 2).max_connections == 60
