"""Consumers of the consumer protocol (KIP-848): librdkafka's, through rebalances and fail-overs."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tests.clients.groups import (
    RECORDS_PER_PARTITION,
    Reader,
    committed_offsets,
    fill,
    has_read,
    is_shared,
    produce,
    together,
)
from tests.live.clients import settings
from tests.live.cluster import Cluster, broker_name
from tests.polling import DEADLINE_S

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]

QUICK = (
    "group.consumer.session.timeout.ms=6000",
    "group.consumer.min.session.timeout.ms=6000",
    "group.consumer.heartbeat.interval.ms=300",
    "group.consumer.min.heartbeat.interval.ms=300",
    "offsets.topic.num.partitions=5",
)
ALL = 4 * RECORDS_PER_PARTITION


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("consumer-protocol"), settings=QUICK) as cluster:
        yield cluster


def reader(cluster, group_id, topic, **more):
    """A reader without the two time-outs: the coordinator sets them, and librdkafka refuses them
    here.
    """
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
    # Partitions that a member keeps are not revoked meanwhile.
    assert [row for rows in first.revoked for row in rows] == second.owned
    assert second.seen == []
    first.close()
    together([second], lambda: second.owned == [0, 1, 2, 3], "the other takes over")
    assert committed_offsets(cluster.bootstrap, "sharing", "shared") == [RECORDS_PER_PARTITION] * 4
    second.close()


def test_an_expression_follows_topics_that_come(cluster):
    fill(cluster.bootstrap, "log-a", partitions=2)
    member = reader(cluster, "by-expression", "^log-.*")
    together([member], lambda: len(member.owned) == 2, "the first topic is there")
    fill(cluster.bootstrap, "log-b", partitions=2)
    together([member], lambda: len(member.owned) == 4, "the second comes along")
    member.close()


def test_a_static_member_comes_back_without_a_rebalance(cluster):
    fill(cluster.bootstrap, "static")
    first = reader(cluster, "static", "static", group_instance_id="one")
    second = reader(cluster, "static", "static", group_instance_id="two")
    together([first, second], lambda: is_shared([first, second]), "both have some")
    had = second.owned
    second.close()
    back = reader(cluster, "static", "static", group_instance_id="two")
    together([first, back], lambda: back.owned == had, "it has what it had")
    assert sorted(first.owned + had) == [0, 1, 2, 3]
    first.close()
    back.close()


@pytest.mark.timeout(240)
def test_members_go_on_when_the_coordinator_is_killed(cluster):
    fill(cluster.bootstrap, "survives")
    readers = [reader(cluster, "survivors", "survives") for _ in range(2)]
    together(readers, lambda: is_shared(readers), "both have some")
    together(readers, lambda: has_read(readers, RECORDS_PER_PARTITION), "all is read")
    for one in readers:
        one.commit()
    owned = [one.owned for one in readers]
    broker = broker_name(coordinator_of(cluster, "survivors"))
    cluster.kill(broker)
    produce(cluster.bootstrap, "survives")
    together(readers, lambda: has_read(readers, 2 * RECORDS_PER_PARTITION), "the rest is read")
    assert [one.owned for one in readers] == owned, "nobody was put out"
    for one in readers:
        one.commit()
    offsets = committed_offsets(cluster.bootstrap, "survivors", "survives")
    assert offsets == [2 * RECORDS_PER_PARTITION] * 4
    cluster.restart(broker)
    for one in readers:
        one.close()


def test_kvorum_groups_shows_it(cluster):
    fill(cluster.bootstrap, "shown")
    member = reader(cluster, "shown", "shown", client_id="watcher")
    together([member], lambda: len(member.seen) == ALL, "all is read")
    member.commit()
    (row,) = [r for r in cluster.cli_json("groups", "list") if r["group"] == "shown"]
    assert (row["type"], row["state"]) == ("consumer", "Stable")
    (group,) = cluster.cli_json("groups", "describe", "shown")
    assert (group["type"], group["protocol"]) == ("consumer", "uniform")
    assert [m["partitions"] for m in group["members"]] == [[f"shown-{p}" for p in range(4)]]
    assert {row["lag"] for row in group["offsets"]} == {0}
    assert {row["member_id"] for row in group["offsets"]} == {group["members"][0]["member_id"]}
    member.close()


def test_a_member_commits_in_a_transaction(cluster):
    fill(cluster.bootstrap, "copied")
    member = reader(cluster, "copying", "copied")
    together([member], lambda: len(member.seen) == ALL, "all is read")
    producer = Producer(settings(cluster.bootstrap, transactional_id="copying"))
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    positions = member.client.position(member.client.assignment())
    metadata = member.client.consumer_group_metadata()
    producer.send_offsets_to_transaction(positions, metadata, DEADLINE_S)
    producer.commit_transaction(DEADLINE_S)
    offsets = committed_offsets(cluster.bootstrap, "copying", "copied")
    assert offsets == [RECORDS_PER_PARTITION] * 4
    member.close()
