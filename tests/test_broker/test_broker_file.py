"""The properties of a broker's file, seen over the wire: described, and obeyed."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest
from kio.schema.errors import ErrorCode as KioError

from kvorum.broker.config.broker_config import BrokerConfig
from kvorum.broker.config.config_entries import ConfigEntries
from kvorum.launch.config.properties import static_values
from kvorum.metadata.configs.effective import ConfigSource
from kvorum.metadata.configs.model import ConfigType
from tests.test_broker.config_calls import (
    BROKER,
    TOPIC,
    alter,
    describe,
    entry,
    replace,
    synonyms_of,
)
from tests.test_broker.harness import Harness
from tests.test_broker.raw_client import RawClient

CONFIG = BrokerConfig(
    delete_topic_enable=False,
    log_retention_ms=24 * 3_600_000,
    socket_receive_buffer_bytes=30_000,
    socket_send_buffer_bytes=40_000,
)
FILE: dict[str, Any] = {
    "node.id": 1,
    "cluster.id": "H8cXxonAvNgrLxjJFXJs9g",
    "listeners": "PLAINTEXT://127.0.0.1:9092",
    "log.retention.hours": 24,
    "num.io.threads": 4,
    "sasl.jaas.config": "hunter2",
    "my.plugin": "hunter2",
    "num.partitions": 1,
}


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    harness = Harness(tmp_path_factory.mktemp("file"), count=1, config=CONFIG)
    services = harness.cluster.brokers[1].server.services
    services.config_entries = ConfigEntries(1, static_values(FILE), services.image)
    harness.call(lambda: harness.cluster.controller.create("t", [(1,)]))
    yield harness
    harness.close()


@pytest.fixture
def client(harness: Harness) -> Iterator[RawClient]:
    client = RawClient(harness.cluster.brokers[1].port)
    yield client
    for name in ("", "1"):
        assert replace(client, BROKER, name).error_code is KioError.none
    client.close()


def test_properties_of_the_file_are_described_as_static(client: RawClient) -> None:
    for name in FILE:
        found = entry(client, BROKER, "1", name)
        assert (found.config_source, found.read_only) == (
            ConfigSource.STATIC_BROKER,
            name not in ("num.io.threads", "sasl.jaas.config"),
        ), name
        assert found.value == (None if FILE[name] == "hunter2" else str(FILE[name])), name
    told = entry(client, BROKER, "1", "advertised.listeners")
    assert (told.value, told.config_source) == (None, ConfigSource.DEFAULT), "not in the file"
    assert entry(client, BROKER, "1", "my.plugin").config_type == ConfigType.UNKNOWN
    assert entry(client, BROKER, "1", "sasl.jaas.config").config_type == ConfigType.PASSWORD
    assert describe(client, BROKER, "1", ["no.such.config"]).configs == ()


def test_hours_of_the_file_are_the_value_of_the_finer_names(client: RawClient) -> None:
    found = entry(client, TOPIC, "t", "retention.ms")
    assert (found.value, found.config_source) == ("86400000", ConfigSource.DEFAULT)
    assert synonyms_of(found) == []
    # The broker's own config of that name is not set.
    found = entry(client, BROKER, "1", "log.retention.ms")
    assert (found.value, found.config_source) == (None, ConfigSource.DEFAULT)


def test_ignored_configs_can_be_set_while_the_broker_runs(client: RawClient) -> None:
    values = {"num_io_threads": "7", "my_plugin": "x"}
    assert alter(client, BROKER, "1", **values).error_code is KioError.none
    found = entry(client, BROKER, "1", "num.io.threads")
    assert synonyms_of(found) == [
        ("num.io.threads", "7", ConfigSource.DYNAMIC_BROKER),
        ("num.io.threads", "4", ConfigSource.STATIC_BROKER),
        ("num.io.threads", "8", ConfigSource.DEFAULT),
    ]
    found = entry(client, BROKER, "1", "my.plugin")
    assert (found.value, found.is_sensitive, found.config_source) == (
        None,
        True,
        ConfigSource.DYNAMIC_BROKER,
    )


def test_configs_of_tiers_are_shown_as_kafka_shows_them(client: RawClient) -> None:
    found = entry(client, TOPIC, "t", "remote.storage.enable")
    assert (found.value, synonyms_of(found)) == ("false", [])
    found = entry(client, TOPIC, "t", "local.retention.ms")
    assert synonyms_of(found) == [("log.local.retention.ms", "-2", ConfigSource.DEFAULT)]


@pytest.mark.parametrize(
    ("version", "error"),
    [
        (1, KioError.invalid_request),
        (2, KioError.invalid_request),
        (3, KioError.topic_deletion_disabled),
        (6, KioError.topic_deletion_disabled),
    ],
)
def test_topics_stay_where_deletion_is_disabled(
    client: RawClient, harness: Harness, version: int, error: KioError
) -> None:
    names: dict[str, Any] = {"topic_names": ["t"]}
    if version == 6:
        names = {"topics": [{"name": "t", "topic_id": bytes(16)}]}
    answer = client.call("delete_topics", version, {**names, "timeout": 1000})
    (found,) = answer.responses
    assert (found.name, found.error_code) == ("t", error)
    assert harness.cluster.controller.image.topic("t") is not None


def test_sockets_have_the_buffers_of_the_file(harness: Harness) -> None:
    (listener,) = harness.cluster.brokers[1].server._listeners
    # Linux doubles the given size, to have room for its bookkeeping.
    assert listener.sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 60_000
    assert listener.sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == 80_000
