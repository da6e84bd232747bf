"""Consumers read from the replica in their rack (KIP-392)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from kio.schema.errors import ErrorCode as KioError

from kvorum.launch.config.properties import RACK_AWARE, broker_config
from kvorum.runtime.errors import ConfigError
from tests.polling import eventually
from tests.test_broker.config_calls import produce
from tests.test_broker.harness import QUICK, Harness
from tests.test_broker.raw_client import RawClient, fetch_values

RACK_AWARE_CONFIG = dataclasses.replace(QUICK, replica_selector_class=RACK_AWARE)


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    """Three brokers, each in a rack of its own; topic `t` at all of them, led by 1."""
    harness = Harness(tmp_path, count=3, config=RACK_AWARE_CONFIG)
    harness.call(lambda: harness.cluster.controller.create("t", [(1, 2, 3)]))
    yield harness
    harness.close()


def fetch(
    harness: Harness, broker_id: int, offset: int, *, version: int = 12, **fields: Any
) -> Any:
    client = RawClient(harness.cluster.brokers[broker_id].port)
    answer = client.call("fetch", version, fetch_values("t", offset, **fields))
    client.close()
    return answer.responses[0].partitions[0]


def write(harness: Harness) -> None:
    client = RawClient(harness.cluster.brokers[1].port)
    assert produce(client, "t").error_code is KioError.none
    client.close()


def knows(harness: Harness, broker_id: int, high_watermark: int) -> None:
    core = harness.cluster.replica(broker_id, "t").core
    eventually(lambda: core.high_watermark >= high_watermark, f"broker {broker_id} has heard")


def test_leader_names_the_replica_in_the_consumers_rack_and_sends_no_records(harness):
    write(harness)
    for rack, preferred in (("rack-2", 2), ("rack-3", 3)):
        answer = fetch(harness, 1, 0, rack=rack)
        assert (answer.error_code, answer.preferred_read_replica) == (KioError.none, preferred)
        assert not answer.records


@pytest.mark.parametrize("rack", ["", "rack-1", "elsewhere"])
def test_leader_serves_who_has_no_replica_nearer(harness, rack):
    write(harness)
    answer = fetch(harness, 1, 0, rack=rack)
    assert answer.preferred_read_replica == -1
    assert answer.records


def test_follower_serves_what_it_knows_to_be_committed(harness):
    write(harness)
    knows(harness, 2, 1)
    answer = fetch(harness, 2, 0, rack="rack-2")
    assert (answer.error_code, answer.high_watermark) == (KioError.none, 1)
    assert answer.records


def test_consumer_that_waits_at_a_follower_hears_of_new_records(harness):
    write(harness)
    knows(harness, 2, 1)
    client = RawClient(harness.cluster.brokers[2].port)
    client.send("fetch", 12, fetch_values("t", 1, max_wait_ms=30_000, rack="rack-2"))
    write(harness)
    partition = client.answer("fetch", 12).responses[0].partitions[0]
    assert (partition.high_watermark, bool(partition.records)) == (2, True)
    client.close()


def test_before_v11_consumers_read_from_leaders_only(harness):
    write(harness)
    answer = fetch(harness, 2, 0, version=10)
    assert answer.error_code is KioError.not_leader_or_follower


def test_replica_that_is_away_is_not_preferred(harness):
    write(harness)
    harness.run(harness.cluster.stop_broker(2))
    assert fetch(harness, 1, 0, rack="rack-2").preferred_read_replica == -1


def test_offset_beyond_the_followers_log_is_out_of_range(harness):
    write(harness)
    assert fetch(harness, 2, 50, rack="rack-2").error_code is KioError.offset_out_of_range


def test_without_a_selector_the_leader_serves_every_rack(tmp_path):
    harness = Harness(tmp_path, count=2)
    harness.call(lambda: harness.cluster.controller.create("t", [(1, 2)]))
    write(harness)
    answer = fetch(harness, 1, 0, rack="rack-2")
    assert answer.preferred_read_replica == -1
    assert answer.records
    harness.close()


def test_other_selectors_are_refused_by_name():
    properties = {
        "node.id": 101,
        "cluster.id": "H8cXxonAvNgrLxjJFXJs9g",
        "listeners": "PLAINTEXT://127.0.0.1:9092",
        "controller.quorum.voters": "1@127.0.0.1:9093",
        "log.dirs": "somewhere",
        "replica.selector.class": "com.example.Mine",
    }
    with pytest.raises(ConfigError, match=r"replica\.selector\.class=com\.example\.Mine"):
        broker_config(properties)


def test_librdkafka_reads_from_the_broker_in_its_rack(harness):
    write(harness)
    consumer = Consumer(
        {
            "bootstrap.servers": harness.bootstrap,
            "group.id": "rack-readers",
            "client.rack": "rack-3",
            "enable.auto.commit": False,
            "log_level": 2,
        }
    )
    consumer.assign([TopicPartition("t", 0, 0)])
    eventually(lambda: (m := consumer.poll(0.1)) is not None and m.error() is None, "a record")
    follower = harness.cluster.replica(3, "t")
    eventually(
        lambda: harness.call(
            lambda: any(w.state.rack_id == "rack-3" for w in list(follower.watchers))
        ),
        "the consumer waits at broker 3",
    )
    consumer.close()
