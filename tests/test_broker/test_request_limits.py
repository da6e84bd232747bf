"""The limits of a client's batch and request that a broker's file may set."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode as KioError

from kvorum.broker.config.broker_config import BrokerConfig
from kvorum.launch.config.properties import broker_config
from kvorum.runtime.errors import ConfigError
from kvorum.storage.format.batch import build_batch
from kvorum.storage.format.compression import Codec
from tests.test_broker.config_calls import BROKER, entry
from tests.test_broker.harness import Harness
from tests.test_broker.raw_client import RawClient, fetch_partition, fetch_values, produce_values

RECORDS_MAX, ITEMS_MAX = 5, 20
CONFIG = BrokerConfig(kvorum_batch_records_max=RECORDS_MAX, kvorum_request_items_max=ITEMS_MAX)
FILE = {
    "node.id": 101,
    "cluster.id": "H8cXxonAvNgrLxjJFXJs9g",
    "listeners": "PLAINTEXT://127.0.0.1:9092",
    "log.dirs": "/nowhere",
    "controller.quorum.voters": "1@127.0.0.1:9093",
}


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    harness = Harness(tmp_path, count=1, config=CONFIG)
    harness.call(lambda: harness.cluster.controller.create("t", [(1,)]))
    zstd = {"compression.type": "zstd"}
    harness.call(lambda: harness.cluster.controller.create("repacked", [(1,)], zstd))
    yield harness
    harness.close()


@pytest.mark.parametrize("topic", ["t", "repacked"])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_batch_has_as_many_records_as_the_file_says(
    client: RawClient, topic: str, codec: Codec
) -> None:
    errors = []
    for count in (RECORDS_MAX, RECORDS_MAX + 1):
        batch = build_batch([(b"k", b"v")] * count, timestamp_ms=1, compression=codec)
        answer = client.call("produce", 9, produce_values(topic, bytes(batch)))
        errors.append(answer.responses[0].partition_responses[0].error_code)
    assert errors == [KioError.none, KioError.invalid_record]


@pytest.mark.parametrize("api", ["produce", "fetch", "metadata", "create_delegation_token"])
def test_a_request_has_as_many_items_as_the_file_says(client: RawClient, api: str) -> None:
    version, few, many = {
        "produce": (9, *(_produce(count) for count in (ITEMS_MAX - 1, ITEMS_MAX))),
        "fetch": (12, *(_fetch(count) for count in (ITEMS_MAX - 1, ITEMS_MAX))),
        "metadata": (9, *(_metadata(count) for count in (ITEMS_MAX, ITEMS_MAX + 1))),
        "create_delegation_token": (3, *(_token(count) for count in (ITEMS_MAX, ITEMS_MAX + 1))),
    }[api]
    assert client.call(api, version, few) is not None
    client.send(api, version, many)
    assert client.is_closed_by_peer()


def _produce(partitions: int) -> dict[str, object]:
    values = produce_values("nowhere", b"")
    rows = [{"index": at, "records": None} for at in range(partitions)]
    return values | {"topic_data": [{"name": "nowhere", "partition_data": rows}]}


def _fetch(partitions: int) -> dict[str, object]:
    rows = [fetch_partition(0, partition=at) for at in range(partitions)]
    return fetch_values("t", 0, partitions=rows)


def _metadata(topics: int) -> dict[str, object]:
    return {
        "topics": [{"name": f"nowhere-{at}"} for at in range(topics)],
        "allow_auto_topic_creation": False,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }


def _token(renewers: int) -> dict[str, object]:
    rows = [{"principal_type": "User", "principal_name": "a"}] * renewers
    return {
        "owner_principal_type": None, "owner_principal_name": None, "renewers": rows,
        "max_lifetime": -1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "default"),
    [("kvorum.batch.records.max", 1_000_000), ("kvorum.request.items.max", 100_000)],
)
def test_the_limits_are_read_from_the_file_and_described(
    client: RawClient, name: str, default: int
) -> None:
    field = name.replace(".", "_")
    assert getattr(broker_config(FILE)[1], field) == default
    assert getattr(broker_config(FILE | {name: "3000000"})[1], field) == 3_000_000
    for wrong in ("0", "-1", "many"):
        with pytest.raises(ConfigError, match=name):
            broker_config(FILE | {name: wrong})
    row = entry(client, BROKER, "1", name)
    assert (row.value, row.read_only) == (str(getattr(CONFIG, field)), True)
