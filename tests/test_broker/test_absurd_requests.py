"""Requests that no sound client sends: each fails alone, and harms neither broker nor cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kvorum.broker.api import offset_fetch
from kvorum.broker.groups.steps.requests import TopicPartitions
from kvorum.broker.metadata_answers.topic_names import TRANSACTIONS_TOPIC
from kvorum.broker.quotas.client_quotas import PAUSE_MS_MAX, ClientQuotas, QuotaKind
from kvorum.broker.quotas.mutation_quota import TokenBucket
from kvorum.metadata.controller.decide.quotas import quota_problem
from kvorum.metadata.image.image import ClusterImage
from kvorum.metadata.image.records import ClientQuota
from kvorum.runtime.errors import ErrorCode
from kvorum.storage.format.batch import build_batch
from tests.test_broker.contexts import request_context
from tests.test_broker.harness import Harness
from tests.test_broker.raw_client import RawClient, produce_values

SMALLEST = 5e-324
"""The smallest number above 0."""
RAW = (("client-id", "raw"),)
"""The entity of the quotas here: the raw client by its client id."""
PARTITIONS = 50
ALL_TOPICS = {
    "allow_auto_topic_creation": False,
    "include_cluster_authorized_operations": False,
    "include_topic_authorized_operations": False,
}


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    made = Harness(Path(tmp_path_factory.mktemp("absurd")), count=1)
    try:
        made.call(lambda: made.cluster.controller.create("t", [(1,)] * PARTITIONS))
        yield made
    finally:
        made.close()


@pytest.mark.parametrize("kind", [QuotaKind.REQUEST, QuotaKind.PRODUCE])
def test_the_smallest_quota_makes_the_longest_pause(kind: QuotaKind) -> None:
    """1. Somebody sets request_percentage=1e-310. 2. The first request that is counted makes an
    infinite pause. 3. The broker ends, and again after each start."""
    assert quota_problem(RAW, QuotaKind.REQUEST.value, SMALLEST) is None
    quotas = ClientQuotas()
    quotas.update({RAW: {kind.value: SMALLEST}})
    pause_ms = quotas.throttle_ms(kind, "ANONYMOUS", "raw", 1.0, 0)
    assert pause_ms == (1_000 if kind is QuotaKind.REQUEST else PAUSE_MS_MAX)


def test_what_is_owed_can_be_told() -> None:
    for rate in (SMALLEST, 1e-9):
        bucket = TokenBucket(0.0, 0)
        bucket.take(300)
        assert bucket.owed_ms(rate, 0.0, 0) == PAUSE_MS_MAX


def test_a_broker_answers_under_a_quota_of_next_to_nothing(harness: Harness) -> None:
    commit = harness.cluster.controller.commit
    for kind in QuotaKind:
        # Byte rates are whole numbers: at 1 byte/s a request of 4 MB makes a pause above an INT32
        # of ms.
        rate = 1.0 if kind in (QuotaKind.PRODUCE, QuotaKind.FETCH) else SMALLEST
        harness.call(lambda kind=kind, rate=rate: commit(ClientQuota(RAW, kind.value, rate)))
    client = RawClient(harness.cluster.brokers[1].port)
    try:
        records = bytes(build_batch([(None, bytes(1_000_000))], timestamp_ms=0))
        values = produce_values("t", records)
        (data,) = values["topic_data"][0]["partition_data"]
        values["topic_data"][0]["partition_data"] = [{**data, "index": i} for i in range(4)]
        answer = client.call("produce", 9, values)
        # The answer tells how much of the pause is left.
        told_ms = answer.throttle_time.total_seconds() * 1000
        assert PAUSE_MS_MAX - 10_000 < told_ms <= PAUSE_MS_MAX
    finally:
        client.close()
        for kind in QuotaKind:
            harness.call(lambda kind=kind: commit(ClientQuota(RAW, kind.value, None)))
    assert harness.failures == []


def test_a_topic_named_again_and_again_is_described_once(
    harness: Harness, client: RawClient
) -> None:
    """1. A request of 252 kB names one topic of 1,000 partitions 84,000 times. 2. Its answer is
    larger than 2 GiB. 3. The broker ends."""
    once = client.call("metadata", 12, {**ALL_TOPICS, "topics": named("t", "nil")})
    often = client.call("metadata", 12, {**ALL_TOPICS, "topics": named(*["t", "nil"] * 500)})
    assert [topic.name for topic in often.topics] == ["t", "nil"]
    assert often.topics == once.topics
    assert len(often.topics[0].partitions) == PARTITIONS


def named(*names: str) -> list[dict[str, Any]]:
    return [{"name": name, "topic_id": None} for name in names]


def test_a_resource_named_again_and_again_is_described_once(client: RawClient) -> None:
    def ask(*keys: list[str] | None) -> list[Any]:
        item = {"resource_type": 2, "resource_name": "t"}
        resources = [{**item, "configuration_keys": wanted} for wanted in keys]
        values = {"include_synonyms": True, "include_documentation": True, "resources": resources}
        return list(client.call("describe_configs", 4, values).results)

    (every,) = ask(*[None] * 500)
    assert every == ask(None)[0]
    (two,) = ask(["segment.ms"], ["retention.ms"], ["segment.ms"])
    assert sorted(entry.name for entry in two.configs) == ["retention.ms", "segment.ms"]
    for keys in ([["segment.ms"], None], [None, ["segment.ms"]], [["segment.ms"], []]):
        assert ask(*keys) == [every]


def test_a_partition_named_twice_has_no_offsets(client: RawClient) -> None:
    def asked(partition_id: int) -> dict[str, Any]:
        return {"partition_index": partition_id, "timestamp": -1, "current_leader_epoch": -1}

    topics = [
        {"name": "t", "partitions": [asked(0), asked(1)]},
        {"name": "t", "partitions": [asked(0)]},
    ]
    values = {"replica_id": -1, "isolation_level": 0, "topics": topics}
    answer = client.call("list_offsets", 7, values)
    codes = [[p.error_code for p in topic.partitions] for topic in answer.topics]
    refused = ErrorCode.INVALID_REQUEST
    assert codes == [[refused, ErrorCode.NONE]]


def test_producers_and_transactions_are_described_once(client: RawClient) -> None:
    topics = [{"name": "t", "partition_indexes": [2, 3, 2]}] * 2
    answer = client.call("describe_producers", 0, {"topics": topics})
    (topic,) = answer.topics
    assert [p.partition_index for p in topic.partitions] == [2, 3]
    answer = client.call("describe_transactions", 0, {"transactional_ids": ["x", "y", "x"]})
    assert [state.transactional_id for state in answer.transaction_states] == ["x", "y"]
    values = {"key_type": 7, "coordinator_keys": ["x", "y", "x"]}
    answer = client.call("find_coordinator", 4, values)
    assert [found.key for found in answer.coordinators] == ["x", "y"]


def test_offsets_of_a_group_are_not_multiplied(monkeypatch: pytest.MonkeyPatch) -> None:
    """1. A request names a group again and again. 2. Each time all its offsets are answered, each
    with metadata of up to 4 kB."""
    asked: list[Any] = []

    async def ask(context: Any, group_id: str, body: Any, *, needs: Any) -> Any:
        asked.append(body)
        return SimpleNamespace(topics=())

    monkeypatch.setattr(offset_fetch, "ask", ask)
    row = SimpleNamespace(name="t", partition_indexes=[0, 1, 0])
    groups = [SimpleNamespace(group_id=name, topics=[row, row]) for name in ("g", "h", "g")]
    request = SimpleNamespace(require_stable=False, groups=groups)
    answer = asyncio.run(offset_fetch.handle(request_context(8, image=ClusterImage), request))
    codes = [group["error_code"] for group in answer["groups"]]
    assert codes == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
    assert [body.topics for body in asked] == [(TopicPartitions("t", (0, 1)),)]


def test_a_marker_of_no_producer_is_refused_and_not_stored(
    harness: Harness, client: RawClient
) -> None:
    """1. A marker of producer -1 is answered NONE. 2. The log has a control batch that no producer
    wrote."""
    for topic in ("marked", TRANSACTIONS_TOPIC):
        harness.call(lambda topic=topic: harness.cluster.controller.create(topic, [(1,)]))
    log = harness.cluster.replica(1, "marked").log

    def write(producer_id: int, producer_epoch: int) -> list[int]:
        marker = {
            "producer_id": producer_id,
            "producer_epoch": producer_epoch,
            "coordinator_epoch": 0,
            "transaction_result": True,
            "topics": [{"name": "marked", "partition_indexes": [0, 0]}],
        }
        answer = client.call("write_txn_markers", 1, {"markers": [marker]})
        (topic,) = answer.markers[0].topics
        return [p.error_code for p in topic.partitions]

    assert write(-1, 0) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    assert write(-(1 << 63), -1) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    assert write(7, -1) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert log.end_offset == 0
    assert write(7, 0) == [ErrorCode.NONE]
    assert log.end_offset == 1  # one marker, though its partition was named twice
