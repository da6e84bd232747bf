"""Replication quotas: the token bucket against its bound, and which followers are throttled."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode as KioError

from kvorum.broker.quotas.replication_quota import (
    NO_REPLICAS,
    UNLIMITED,
    ReplicationQuota,
    ThrottledReplicas,
    parse_throttled,
)
from kvorum.metadata.image.image import RESOURCE_BROKER, RESOURCE_TOPIC
from kvorum.metadata.image.records import Config
from tests.polling import eventually
from tests.test_broker.config_calls import produce
from tests.test_broker.harness import Harness
from tests.test_broker.raw_client import RawClient

# The bucket.


@given(
    rate=st.integers(1, 10_000_000),
    steps=st.lists(st.tuples(st.integers(0, 3_000), st.integers(1, 200_000)), max_size=60),
)
def test_over_any_time_no_more_goes_than_the_rate_a_second_worth_and_one_answer(rate, steps):
    now_ms = 0
    quota = ReplicationQuota(now_ms)
    quota.set_rate(rate, now_ms)
    sent: list[tuple[int, int]] = []
    for pause_ms, size in steps:
        now_ms += pause_ms
        if quota.room(now_ms) > 0:
            quota.record(size, now_ms)
            sent.append((now_ms, size))
    for first, (begin_ms, _) in enumerate(sent):
        total = 0
        for at_ms, size in sent[first:]:
            total += size
            largest = max(size for _, size in sent[first:])
            assert total <= rate * ((at_ms - begin_ms) / 1000 + 1) + largest + 1


# Some examples take many steps, which take long on a busy machine.
@settings(deadline=None)
@given(rate=st.integers(1_000, 10_000_000), size=st.integers(1, 1_000))
def test_who_always_has_something_to_send_gets_the_rate_within_a_tenth(rate, size):
    now_ms, total = 0, 0
    quota = ReplicationQuota(now_ms)
    quota.set_rate(rate, now_ms)
    while now_ms < 20_000:
        while (room := quota.room(now_ms)) > 0:
            piece = max(room, size)
            quota.record(piece, now_ms)
            total += piece
        now_ms += quota.wait_ms(now_ms, 1_000)
    assert 0.9 * rate * 20 <= total <= 1.1 * rate * 20 + 1_000


def test_without_a_rate_nothing_is_counted():
    quota = ReplicationQuota(0)
    quota.record(1 << 40, 0)
    assert (quota.room(0), quota.is_limited) == (UNLIMITED, False)


def test_rate_of_zero_lets_nothing_through_until_it_is_raised():
    quota = ReplicationQuota(0)
    quota.set_rate(0, 0)
    assert (quota.room(100_000), quota.wait_ms(100_000, 500)) == (0, 500)
    quota.set_rate(1_000, 100_000)
    assert quota.room(100_000) == 0
    assert quota.room(100_500) == 500


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", NO_REPLICAS),
        ("*", ThrottledReplicas(is_all=True)),
        ("0:101,12:3", ThrottledReplicas(pairs=frozenset({(0, 101), (12, 3)}))),
        ("0:x, 1:2", ThrottledReplicas(pairs=frozenset({(1, 2)}))),
    ],
)
def test_lists_of_throttled_replicas(text, found):
    assert parse_throttled(text) == found
    assert bool(found) is (text != "")


# The two sides, over real sockets.


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    harness = Harness(tmp_path, count=2)
    yield harness
    harness.close()


def set_configs(harness: Harness, side: str, broker_id: int, rate: int) -> None:
    """Throttle partition 0 of `moved` on this side, at this broker."""
    records = (
        Config(RESOURCE_TOPIC, "moved", f"{side}.replication.throttled.replicas", f"0:{broker_id}"),
        set_rate(side, broker_id, rate),
    )
    harness.call(lambda: harness.cluster.controller.commit(*records))


def set_rate(side: str, broker_id: int, rate: int) -> Config:
    name = f"{side}.replication.throttled.rate"
    return Config(RESOURCE_BROKER, str(broker_id), name, str(rate))


def follower_out_of_sync(harness: Harness) -> RawClient:
    """Topic `moved` at 1 and 2; 2 is out of the ISR and has fetched nothing of five records."""
    cluster = harness.cluster
    topic_id = harness.call(lambda: cluster.controller.create("moved", [(1, 2)]))
    harness.call(lambda: cluster.brokers[2].manager.fetchers.pause(True))
    harness.call(lambda: cluster.controller.lead(topic_id, 0, 1, (1,)))
    client = RawClient(cluster.brokers[1].port)
    for _ in range(5):
        assert produce(client, "moved", acks=1).error_code is KioError.none
    return client


def is_in_sync(harness: Harness) -> bool:
    core = harness.cluster.replica(1, "moved").core
    return harness.cluster.replica(2, "moved").log.end_offset >= 5 and 2 in core.isr_state.isr


def test_leader_holds_back_a_follower_out_of_sync_until_the_rate_allows(harness):
    client = follower_out_of_sync(harness)
    set_configs(harness, "leader", 1, 0)
    brokers = harness.cluster.brokers
    harness.call(lambda: brokers[2].manager.fetchers.pause(False))
    throttle = brokers[1].manager.fetch_services.throttle
    eventually(lambda: harness.call(lambda: bool(throttle._held)), "the follower is held back")
    assert harness.cluster.replica(2, "moved").log.end_offset == 0
    harness.call(lambda: harness.cluster.controller.commit(set_rate("leader", 1, 1 << 30)))
    eventually(lambda: is_in_sync(harness), "the follower has caught up")
    client.close()


def test_member_of_the_isr_is_never_held_back(harness):
    client = follower_out_of_sync(harness)
    brokers = harness.cluster.brokers
    harness.call(lambda: brokers[2].manager.fetchers.pause(False))
    eventually(lambda: is_in_sync(harness), "the follower has caught up")
    set_configs(harness, "leader", 1, 0)
    set_configs(harness, "follower", 2, 0)
    for _ in range(20):
        assert produce(client, "moved").error_code is KioError.none
    client.close()


def test_follower_leaves_a_partition_alone_once_its_quota_is_used_up(harness):
    client = follower_out_of_sync(harness)
    set_configs(harness, "follower", 2, 0)
    brokers = harness.cluster.brokers
    # Before the follower knows how large an answer is, it takes one with at most three batches.
    quota = brokers[2].manager.fetchers.quota
    harness.call(lambda: brokers[2].manager.fetchers.pause(False))
    fetcher = brokers[2].manager.fetchers._by_leader[1]

    def is_paused() -> bool:
        return any(f.resume is not None for f in fetcher.session._partitions.values())

    eventually(lambda: harness.call(is_paused), "the partition is left alone")
    assert quota.is_limited
    harness.call(lambda: harness.cluster.controller.commit(set_rate("follower", 2, 1 << 30)))
    eventually(lambda: is_in_sync(harness), "the follower has caught up")
    client.close()
