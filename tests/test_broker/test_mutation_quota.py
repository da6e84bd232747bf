"""controller_mutation_rate (KIP-599): the bucket, and what its clients hear."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvorum.broker.quotas.mutation_quota import TokenBucket
from kvorum.metadata.image.records import ClientQuota
from kvorum.runtime.errors import ErrorCode
from tests.test_broker.harness import Harness
from tests.test_broker.raw_client import RawClient

RATE, CAPACITY = 2.0, 22.0
STRICT, OLD = 7, 4
"""Versions of CreateTopics: with the error, and without it."""


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 5_000)), max_size=40))
def test_who_asks_only_while_nothing_is_owed_stays_at_the_rate(
    asked: list[tuple[int, int]],
) -> None:
    """Over any time, the client takes at most the full bucket, what flowed in meanwhile, and one
    request more."""
    bucket, now_ms, taken, largest = TokenBucket(CAPACITY, 0), 0, 0, 0
    for tokens, pause_ms in asked:
        now_ms += pause_ms
        if not bucket.owed_ms(RATE, CAPACITY, now_ms):
            bucket.take(tokens)
            taken, largest = taken + tokens, max(largest, tokens)
    assert taken <= CAPACITY + RATE * now_ms / 1000 + largest + 1e-6


@given(st.integers(1, 1_000))
def test_after_the_pause_that_was_told_nothing_is_owed(tokens: int) -> None:
    bucket = TokenBucket(CAPACITY, 0)
    bucket.take(tokens)
    owed_ms = bucket.owed_ms(RATE, CAPACITY, 0)
    assert bucket.owed_ms(RATE, CAPACITY, owed_ms + 1) == 0
    assert (owed_ms == 0) is (tokens <= CAPACITY)


@contextmanager
def bound(harness: Harness) -> Iterator[None]:
    """Inside the context the quota is 0.01 partitions a second; the bucket holds 0.11, eleven
    samples' worth."""
    broker = harness.cluster.brokers[1]
    broker.server.services.mutations._buckets.clear()
    commit, entity = harness.cluster.controller.commit, (("client-id", None),)
    quota = "controller_mutation_rate"
    harness.call(lambda: commit(ClientQuota(entity, quota, 0.01)))
    try:
        yield
    finally:
        harness.call(lambda: commit(ClientQuota(entity, quota, None)))


def create(
    client: RawClient, version: int, *names: str, partitions: int = 1, validate_only: bool = False
) -> tuple[list[ErrorCode], float]:
    answer = client.call(
        "create_topics",
        version,
        {
            "topics": [
                {
                    "name": name,
                    "num_partitions": partitions,
                    "replication_factor": 1,
                    "assignments": [],
                    "configs": [],
                }
                for name in names
            ],
            "timeout": 10_000,
            "validate_only": validate_only,
        },
    )
    errors = [ErrorCode(int(topic.error_code)) for topic in answer.topics]
    return errors, answer.throttle_time.total_seconds()


def test_what_comes_while_something_is_owed_is_refused_item_by_item(
    harness: Harness, client: RawClient, tmp_path: Path
) -> None:
    with bound(harness):
        errors, throttle_s = create(client, STRICT, *(f"{tmp_path.name}-{i}" for i in range(3)))
    assert errors == [
        ErrorCode.NONE,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    ]
    assert throttle_s == pytest.approx(89, abs=1)


def test_an_older_client_is_served_and_has_to_pause(
    harness: Harness, client: RawClient, tmp_path: Path
) -> None:
    with bound(harness):
        errors, throttle_s = create(client, OLD, *(f"{tmp_path.name}-{i}" for i in range(3)))
    assert errors == [ErrorCode.NONE] * 3
    assert throttle_s == pytest.approx(289, abs=1)


def test_what_is_only_validated_or_refused_costs_nothing(
    harness: Harness, client: RawClient, tmp_path: Path
) -> None:
    name = tmp_path.name
    with bound(harness):
        errors, throttle_s = create(client, STRICT, name, partitions=50, validate_only=True)
        assert (errors, throttle_s) == ([ErrorCode.NONE], 0)
        errors, throttle_s = create(client, STRICT, "no/name", partitions=50)
        assert (errors, throttle_s) == ([ErrorCode.INVALID_TOPIC_EXCEPTION], 0)
        assert create(client, STRICT, f"{name}-1")[0] == [ErrorCode.NONE]


def test_what_the_controller_refuses_is_given_back(
    harness: Harness, client: RawClient, tmp_path: Path
) -> None:
    assert create(client, STRICT, tmp_path.name) == ([ErrorCode.NONE], 0)
    with bound(harness):
        errors, throttle_s = create(client, STRICT, tmp_path.name)
    assert (errors, throttle_s) == ([ErrorCode.TOPIC_ALREADY_EXISTS], 0)


def test_partitions_that_are_added_and_deleted_count_too(
    harness: Harness, client: RawClient, tmp_path: Path
) -> None:
    name = tmp_path.name
    assert create(client, STRICT, name) == ([ErrorCode.NONE], 0)
    with bound(harness):
        grown = client.call(
            "create_partitions",
            3,
            {
                "topics": [{"name": name, "count": 3, "assignments": None}],
                "timeout": 10_000,
                "validate_only": False,
            },
        )
        assert int(grown.results[0].error_code) == ErrorCode.NONE
        # The request was served: a client that knows the error is throttled at its next request,
        # and until then its connection may send requests that cost no quota.
        assert grown.throttle_time.total_seconds() == 0
        assert client.call("metadata", 9, {"topics": [{"name": name}]}).topics
        gone = client.call(
            "delete_topics",
            6,
            {"topics": [{"name": name, "topic_id": None}], "timeout": 10_000},
        )
        assert gone.throttle_time.total_seconds() == pytest.approx(189, abs=1)
        assert int(gone.responses[0].error_code) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert "controller_mutation_rate=0.01" in gone.responses[0].error_message
    again = RawClient(harness.cluster.brokers[1].port)
    gone = again.call(
        "delete_topics", 6, {"topics": [{"name": name, "topic_id": None}], "timeout": 10_000}
    )
    again.close()
    assert int(gone.responses[0].error_code) == ErrorCode.NONE


def named_controllers(harness: Harness) -> list[int]:
    """The controller that each broker's Metadata names."""
    named = []
    for broker in harness.cluster.brokers.values():
        client = RawClient(broker.port)
        named.append(client.call("metadata", 12, {"topics": []}).controller_id)
        assert client.call("describe_cluster", 0, {}).controller_id == named[-1]
        assert client.call("metadata", 12, {"topics": None}).controller_id == named[-1]
        client.close()
    return named


def test_who_is_asked_is_the_controller_unless_all_must_ask_the_same(tmp_path: Path) -> None:
    harness = Harness(tmp_path, count=3)
    try:
        assert named_controllers(harness) == [1, 2, 3]
        with bound(harness):
            assert named_controllers(harness) == [1, 1, 1]
            harness.call(lambda: harness.cluster.fence(1))
            assert named_controllers(harness) == [2, 2, 2]
        assert named_controllers(harness) == [2, 2, 3]
    finally:
        harness.close()
