"""Requests in a broker's name, without proof, have no more power than any client's."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode as KioError

from kvorum.broker.config.broker_config import BrokerConfig
from kvorum.broker.metadata_answers.topic_names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from kvorum.runtime.errors import ErrorCode
from kvorum.storage.format.batch import build_batch
from kvorum.wire.fetch_codec import FetchPartition
from kvorum.wire.replica_fetch_codec import (
    ReplicaFetchAnswer,
    pack_replica_fetch,
    parse_replica_answer,
)
from tests.polling import eventually
from tests.test_broker.harness import Harness
from tests.test_broker.raw_client import RawClient, fetch_partition, fetch_values, produce_values

LATER_EPOCH = (1 << 31) - 1


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    config = BrokerConfig(max_incremental_fetch_session_cache_slots=4)
    harness = Harness(tmp_path, count=3, config=config)
    yield harness
    harness.close()


@pytest.fixture
def client(harness: Harness) -> Iterator[RawClient]:
    client = RawClient(harness.cluster.ports[1])
    yield client
    client.close()


def create(harness: Harness, topic: str = "t", replicas: tuple[int, ...] = (1, 2, 3)) -> bytes:
    return harness.call(lambda: harness.cluster.controller.create(topic, [replicas]))


def produce(client: RawClient, *, acks: int = -1, topic: str = "t") -> Any:
    batch = bytes(build_batch([(None, b"v")], timestamp_ms=1000))
    answer = client.call("produce", 9, produce_values(topic, batch, acks=acks))
    return answer.responses[0].partition_responses[0].error_code


def pose(
    client: RawClient,
    replica_id: int,
    broker_epoch: int,
    *topics: tuple[bytes, list[FetchPartition]],
    session: tuple[int, int] = (0, -1),
) -> ReplicaFetchAnswer:
    """Send a Fetch v17 as brokers send it to each other; its answer."""
    frame = pack_replica_fetch(
        correlation_id=7, client_id=b"broker-2-fetcher-1", replica_id=replica_id,
        replica_epoch=broker_epoch, max_wait_ms=0, min_bytes=0, bytes_max=1 << 20,
        session_id=session[0], session_epoch=session[1], topics=topics,
    )  # fmt: skip
    client.sock.sendall(frame)
    (size,) = struct.unpack(">i", client._exactly(4))
    answer = client._exactly(size)
    return parse_replica_answer(answer, 0, len(answer))


def epoch_of(harness: Harness, broker_id: int) -> int:
    return harness.cluster.controller.image.brokers[broker_id].broker_epoch


@pytest.mark.parametrize("leader_epoch", [LATER_EPOCH, 0, -1])
@pytest.mark.parametrize("broker_epoch", [1 << 62, 0, -1])
@pytest.mark.parametrize("replica_id", [2, 1, 99])
def test_a_fetch_in_a_brokers_name_changes_nothing(
    harness: Harness, client: RawClient, replica_id: int, broker_epoch: int, leader_epoch: int
) -> None:
    topic_id = create(harness)
    for offset in (3, 777, 1 << 40):
        asked = FetchPartition(0, leader_epoch, offset, -1, -1, 0)
        answer = pose(client, replica_id, broker_epoch, (topic_id, [asked]))
        assert [p.error for p in answer.partitions] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert produce(client) is KioError.none
    core = harness.cluster.replica(1, "t").core
    assert (core.is_leader, core.leader_epoch) == (True, 0)


def test_a_fetch_in_a_brokers_name_commits_and_reads_nothing(
    harness: Harness, client: RawClient
) -> None:
    topic_id = create(harness)
    harness.call(lambda: [harness.cluster.brokers[b].manager.fetchers.pause(True) for b in (2, 3)])
    assert produce(client, acks=1) is KioError.none
    core = harness.cluster.replica(1, "t").core
    for broker_id in (2, 3):
        for broker_epoch in (-1, epoch_of(harness, broker_id) + 1):
            asked = FetchPartition(0, -1, 1, -1, 0, 1 << 20)
            pose(client, broker_id, broker_epoch, (topic_id, [asked]))
    assert core.high_watermark == 0
    # With the old field replica_id, which has no broker epoch beside it.
    row = fetch_partition(0)
    values = {**fetch_values("t", 0, partitions=[row]), "replica_id": 2}
    (answer,) = client.call("fetch", 12, values).responses[0].partitions
    assert answer.error_code is KioError.not_leader_or_follower
    assert not answer.records
    # A fetch with the right broker epoch is served as a fetch of that broker.
    asked = FetchPartition(0, -1, 0, -1, 0, 1 << 20)
    answer = pose(client, 2, epoch_of(harness, 2), (topic_id, [asked]))
    assert [(p.error, p.length > 0) for p in answer.partitions] == [(0, True)]


def test_a_replica_id_shows_offsets_and_epochs_as_any_consumer_sees_them(
    harness: Harness, client: RawClient
) -> None:
    create(harness)
    harness.call(lambda: [harness.cluster.brokers[b].manager.fetchers.pause(True) for b in (2, 3)])
    assert produce(client, acks=1) is KioError.none
    row = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
    topics = [{"name": "t", "partitions": [row]}]
    asked = {"replica_id": 2, "isolation_level": 0, "topics": topics}
    (answer,) = client.call("list_offsets", 5, asked).topics[0].partitions
    assert (answer.error_code, answer.offset) == (KioError.none, 0)
    row = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}
    asked = {"replica_id": 2, "topics": [{"topic": "t", "partitions": [row]}]}
    (answer,) = client.call("offset_for_leader_epoch", 3, asked).topics[0].partitions
    assert (answer.error_code, answer.end_offset) == (KioError.none, 0)


def test_a_fetch_in_a_brokers_name_takes_no_consumers_session(
    harness: Harness, client: RawClient
) -> None:
    topic_id = create(harness)
    eventually(
        lambda: len(harness.cluster.brokers[1].manager.fetch_services.sessions) == 2,
        "2 and 3 fetch",
    )
    for _ in range(2):
        opened = client.call("fetch", 12, fetch_values("t", 0, session=(0, 0)))
        assert opened.session_id
    asked = FetchPartition(0, -1, 0, -1, 0, 1 << 20)
    answer = pose(client, 2, 1 << 62, (topic_id, [asked]), session=(0, 0))
    assert answer.session_id == 0
    kept = client.call(
        "fetch", 12, fetch_values("t", 0, session=(opened.session_id, 1), partitions=[])
    )
    assert kept.error_code is KioError.none


def test_a_fetch_in_a_brokers_name_is_not_exempt_from_quotas(
    harness: Harness, client: RawClient
) -> None:
    topic_id = create(harness)
    exempt = []
    server = harness.cluster.brokers[1].server
    pause = server.services.quotas.throttle_ms

    def note(*args: Any) -> int:
        exempt.append(False)
        return pause(*args)

    server.services.quotas.throttle_ms = note  # type: ignore[method-assign]
    server.services.quotas.is_active = True
    asked = FetchPartition(0, -1, 0, -1, 0, 1 << 20)
    pose(client, 2, 1 << 62, (topic_id, [asked]))
    assert exempt, "it counts as a client's"


@pytest.mark.parametrize("topic", [OFFSETS_TOPIC, TRANSACTIONS_TOPIC])
def test_no_client_id_opens_internal_topics(harness: Harness, topic: str) -> None:
    create(harness, topic)
    for client_id in (b"__admin_client", b"broker-2-transactions", b""):
        client = RawClient(harness.cluster.ports[1])
        client.client_id = client_id
        assert produce(client, topic=topic) is KioError.invalid_topic_exception
        client.close()


def test_a_marker_of_a_later_coordinator_than_there_is_changes_nothing(
    harness: Harness, client: RawClient
) -> None:
    create(harness)
    transactions = create(harness, TRANSACTIONS_TOPIC)
    harness.call(lambda: harness.cluster.controller.lead(transactions, 0, 1, (1, 2, 3)))
    newest = harness.cluster.controller.image.partition(transactions, 0).leader_epoch

    def write(coordinator_epoch: int) -> Any:
        marker = {
            "producer_id": 7, "producer_epoch": 0, "coordinator_epoch": coordinator_epoch,
            "transaction_result": False, "topics": [{"name": "t", "partition_indexes": [0]}],
        }  # fmt: skip
        answer = client.call("write_txn_markers", 1, {"markers": [marker]})
        return answer.markers[0].topics[0].partitions[0].error_code

    assert write(newest + 1) is KioError.invalid_request
    assert write(LATER_EPOCH) is KioError.invalid_request
    assert harness.cluster.replica(1, "t").log.end_offset == 0
    assert write(newest) is KioError.none, "the coordinator's own is taken"
