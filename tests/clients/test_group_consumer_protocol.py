"""Consumers of the consumer protocol (KIP-848): librdkafka's, through rebalances and fail-overs."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient

from tests.clients.groups import (
    RECORDS_PER_PARTITION,
    Reader,
    committed_offsets,
    fill,
    is_shared,
    together,
)
from tests.live.clients import settings
from tests.live.cluster import Cluster

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]

QUICK = (
    "group.consumer.session.timeout.ms=6000",
    "group.consumer.heartbeat.interval.ms=300",
    "offsets.topic.num.partitions=5",
)
ALL = 4 * RECORDS_PER_PARTITION


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("consumer-protocol"), settings=QUICK) as cluster:
        yield cluster


def reader(cluster, group_id, topic, **more):
    """librdkafka refuses what the coordinator decides in this protocol."""
    unset = {"session_timeout_ms": None, "heartbeat_interval_ms": None}
    return Reader(cluster.bootstrap, group_id, topic, group_protocol="consumer", **(unset | more))


def coordinator_of(cluster, group_id):
    admin = AdminClient(settings(cluster.bootstrap))
    described = admin.describe_consumer_groups([group_id])[group_id].result(timeout=20)
    return described.coordinator.id


def test_two_members_share_and_give_back(cluster):
    fill(cluster.bootstrap, "shared")
    first = reader(cluster, "sharing", "shared")
    together([first], lambda: len(first.seen) == ALL, "one member reads all")
    assert first.owned == [0, 1, 2, 3]
    first.commit()
    second = reader(cluster, "sharing", "shared")
    together([first, second], lambda: is_shared([first, second]), "both have some")
    assert sorted(first.owned + second.owned) == [0, 1, 2, 3]
    assert len(first.owned) == 2
    # What stays is not taken away meanwhile.
    assert [row for rows in first.revoked for row in rows] == second.owned
    assert second.seen == []
    first.close()
    together([second], lambda: second.owned == [0, 1, 2, 3], "the other takes over")
    assert committed_offsets(cluster.bootstrap, "sharing", "shared") == [RECORDS_PER_PARTITION] * 4
    second.close()
