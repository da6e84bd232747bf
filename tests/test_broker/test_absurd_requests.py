"""Requests that no sound client sends: each costs itself, and neither broker nor cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.client_quotas import PAUSE_MS_MAX, ClientQuotas, QuotaKind
from broker.mutation_quota import TokenBucket
from metadata.decide.quotas import quota_problem
from metadata.records import ClientQuota
from storage.batch import build_batch
from tests.test_broker.harness import Harness
from tests.test_broker.raw_client import RawClient, produce_values

SMALLEST = 5e-324
"""The smallest number above 0."""
RAW = (("client-id", "raw"),)
"""Whom the quotas here bind: the raw client by its name."""
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


@pytest.fixture
def client(harness: Harness) -> Iterator[RawClient]:
    made = RawClient(harness.cluster.brokers[1].port)
    yield made
    made.close()


@pytest.mark.parametrize("kind", [QuotaKind.REQUEST, QuotaKind.PRODUCE])
def test_the_smallest_quota_makes_the_longest_pause(kind: QuotaKind) -> None:
    """1. Somebody sets request_percentage=1e-310. 2. The first request that is counted makes an
    infinite pause. 3. The broker ends, and again after each start."""
    assert quota_problem(RAW, QuotaKind.REQUEST.value, SMALLEST) is None
    quotas = ClientQuotas()
    quotas.update({RAW: {kind.value: SMALLEST}})
    pause_ms = quotas.throttle_ms(kind, "raw", 1.0, 0)
    assert pause_ms == (1_000 if kind is QuotaKind.REQUEST else PAUSE_MS_MAX)


def test_what_is_owed_can_be_told() -> None:
    for rate in (SMALLEST, 1e-9):
        bucket = TokenBucket(0.0, 0)
        bucket.take(300)
        assert bucket.owed_ms(rate, 0.0, 0) == PAUSE_MS_MAX


def test_a_broker_answers_under_a_quota_of_next_to_nothing(harness: Harness) -> None:
    commit = harness.cluster.controller.commit
    for kind in QuotaKind:
        # LONG quotas are whole numbers, and then one request of 4 MB is an INT32 too many.
        rate = 1.0 if kind in (QuotaKind.PRODUCE, QuotaKind.FETCH) else SMALLEST
        harness.call(lambda kind=kind, rate=rate: commit(ClientQuota(RAW, kind.value, rate)))
    client = RawClient(harness.cluster.brokers[1].port)
    try:
        records = bytes(build_batch([(None, bytes(1_000_000))], timestamp_ms=0))
        values = produce_values("t", records)
        (data,) = values["topic_data"][0]["partition_data"]
        values["topic_data"][0]["partition_data"] = [{**data, "index": i} for i in range(4)]
        answer = client.call("produce", 9, values)
        # What is left of the pause when the answer is made.
        told_ms = answer.throttle_time.total_seconds() * 1000
        assert PAUSE_MS_MAX - 10_000 < told_ms <= PAUSE_MS_MAX
    finally:
        client.close()
        for kind in QuotaKind:
            harness.call(lambda kind=kind: commit(ClientQuota(RAW, kind.value, None)))
    assert harness.failures == []
