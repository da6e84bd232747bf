"""librdkafka's consumers in groups, against real processes."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.clients.groups import (
    QUICK_GROUPS,
    RECORDS_PER_PARTITION,
    Reader,
    committed_offsets,
    consumer,
    fill,
    is_shared,
    together,
)
from tests.live.clients import settings
from tests.live.cluster import Cluster, broker_name
from tests.polling import eventually

pytestmark = [pytest.mark.live, pytest.mark.timeout(240)]

ALL = 4 * RECORDS_PER_PARTITION


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("groups"), settings=QUICK_GROUPS) as cluster:
        yield cluster


def test_two_consumers_share_a_topic_and_one_takes_over(cluster):
    fill(cluster.bootstrap, "shared")
    first = Reader(cluster.bootstrap, "sharing", "shared")
    together([first], lambda: first.owned == [0, 1, 2, 3], "one consumer has it all")
    second = Reader(cluster.bootstrap, "sharing", "shared")
    both = [first, second]
    together(both, lambda: is_shared(both), "each has a part")
    together(both, lambda: len({*first.seen, *second.seen}) == ALL, "all records are read")
    second.close()
    together([first], lambda: first.owned == [0, 1, 2, 3], "what the other had is taken over")
    first.close()


def test_a_restarted_consumer_goes_on_from_its_commit(cluster):
    fill(cluster.bootstrap, "resumed")
    reader = Reader(cluster.bootstrap, "resuming", "resumed")
    together([reader], lambda: len(reader.seen) >= 10, "some records are read")
    rows = reader.commit()
    assert all(row.error is None for row in rows)
    reader.close()
    again = Reader(cluster.bootstrap, "resuming", "resumed")
    together([again], lambda: len(reader.seen) + len(again.seen) >= ALL, "the rest is read")
    assert not {*reader.seen} & {*again.seen}
    assert {*reader.seen} | {*again.seen} == {(p, o) for p in range(4) for o in range(30)}
    again.close()


def test_asynchronous_and_automatic_commits_arrive(cluster):
    fill(cluster.bootstrap, "committed")
    reader = Reader(
        cluster.bootstrap, "auto", "committed", enable_auto_commit=True,
        auto_commit_interval_ms=100,
    )  # fmt: skip
    together([reader], lambda: len(reader.seen) == ALL, "all records are read")
    together(
        [reader],
        lambda: committed_offsets(cluster.bootstrap, "auto", "committed") == [30] * 4,
        "all offsets are committed",
    )
    reader.close()
    reader = Reader(cluster.bootstrap, "asynchronous", "committed")
    together([reader], lambda: len(reader.seen) == ALL, "all records are read")
    reader.client.commit(asynchronous=True)
    together(
        [reader],
        lambda: committed_offsets(cluster.bootstrap, "asynchronous", "committed") == [30] * 4,
        "all offsets are committed",
    )
    reader.close()


def test_cooperative_consumers_keep_what_they_need_not_give_up(cluster):
    fill(cluster.bootstrap, "cooperative")
    strategy = {"partition_assignment_strategy": "cooperative-sticky"}
    first = Reader(cluster.bootstrap, "cooperating", "cooperative", **strategy)
    together([first], lambda: first.owned == [0, 1, 2, 3], "one consumer has it all")
    second = Reader(cluster.bootstrap, "cooperating", "cooperative", **strategy)
    both = [first, second]
    together(both, lambda: is_shared(both), "each has a part")
    assert len(first.owned) == 2
    # An eager rebalance would have revoked all partitions at once.
    assert sorted(row for rows in first.revoked for row in rows) == second.owned
    for reader in both:
        reader.close()


def test_a_static_member_comes_back_without_a_rebalance(cluster):
    fill(cluster.bootstrap, "static")
    group = (cluster.bootstrap, "of-statics", "static")
    first = Reader(*group, group_instance_id="one")
    second = Reader(*group, group_instance_id="two")
    both = [first, second]
    together(both, lambda: is_shared(both), "each has a part")
    had, generations = second.owned, len(first.assigned)
    # A static member that closes does not leave.
    second.close()
    second = Reader(*group, group_instance_id="two")
    together([first, second], lambda: second.owned == had, "it has what it had")
    assert len(first.assigned) == generations
    twin = Reader(*group, group_instance_id="two")
    fenced = eventually(lambda: fatal_error_of(second, twin), "the older of two is fenced")
    assert "fenced" in fenced
    for reader in (first, second, twin):
        reader.close()


def fatal_error_of(reader: Reader, other: Reader) -> str | None:
    other.poll()
    try:
        message = reader.client.poll(0.05)
    except KafkaException as error:
        return error.args[0].str()
    if message is not None and message.error() is not None:
        return message.error().str()
    return None


def test_a_consumer_without_a_group_commits_and_reads_back(cluster):
    fill(cluster.bootstrap, "simple")
    client = consumer(cluster.bootstrap, "no-members")
    client.commit(offsets=[TopicPartition("simple", 2, 17)], asynchronous=False)
    assert committed_offsets(cluster.bootstrap, "no-members", "simple") == [-1001, -1001, 17, -1001]
    client.close()


def test_no_commit_is_lost_when_the_coordinator_is_killed(cluster):
    fill(cluster.bootstrap, "survives")
    reader = Reader(cluster.bootstrap, "surviving", "survives")
    together([reader], lambda: len(reader.owned) == 4, "it has it all")
    acknowledged = 0
    for round_number in range(3):
        for _ in range(5):
            together([reader], lambda: len(reader.seen) % ALL >= 0 and reader.owned, "assigned")
            acknowledged += 1
            commit_until_taken(reader, acknowledged)
        victim = broker_name(coordinator_of(cluster, "surviving"))
        cluster.kill(victim)
        found = committed_offsets(cluster.bootstrap, "surviving", "survives")
        assert found == [acknowledged] * 4, f"after the death number {round_number}"
        together([reader], lambda: len(reader.owned) == 4, "it has it all again")
        cluster.restart(victim)
    reader.close()


def commit_until_taken(reader: Reader, offset: int) -> None:
    rows = [TopicPartition("survives", partition, offset) for partition in range(4)]

    def is_taken() -> bool:
        reader.poll()
        try:
            done = reader.client.commit(offsets=rows, asynchronous=False)
        except KafkaException:
            return False
        return all(row.error is None for row in done)

    eventually(is_taken, f"offset {offset} is committed")


def coordinator_of(cluster: Cluster, group_id: str) -> int:
    from confluent_kafka.admin import AdminClient

    admin = AdminClient(settings(cluster.bootstrap))
    described = admin.describe_consumer_groups([group_id])[group_id].result(30)
    return int(described.coordinator.id)


def test_the_admin_client_lists_describes_alters_and_deletes(cluster):
    from confluent_kafka import ConsumerGroupTopicPartitions
    from confluent_kafka.admin import AdminClient

    fill(cluster.bootstrap, "administered")
    reader = Reader(cluster.bootstrap, "administered", "administered")
    together([reader], lambda: len(reader.seen) == ALL, "all records are read")
    reader.commit()
    admin = AdminClient(settings(cluster.bootstrap))
    listed = admin.list_consumer_groups().result(30)
    assert not listed.errors
    row = next(row for row in listed.valid if row.group_id == "administered")
    assert (row.state.name, row.type.name, row.is_simple_consumer_group) == (
        "STABLE",
        "CLASSIC",
        False,
    )
    described = admin.describe_consumer_groups(["administered"])["administered"].result(30)
    (member,) = described.members
    assert sorted(p.partition for p in member.assignment.topic_partitions) == [0, 1, 2, 3]
    with pytest.raises(KafkaException, match="not empty"):
        admin.delete_consumer_groups(["administered"])["administered"].result(30)
    reader.close()
    wanted = ConsumerGroupTopicPartitions("administered", [TopicPartition("administered", 1, 5)])
    admin.alter_consumer_group_offsets([wanted])["administered"].result(30)
    asked = ConsumerGroupTopicPartitions("administered")
    found = admin.list_consumer_group_offsets([asked])["administered"].result(30)
    offsets = {row.partition: row.offset for row in found.topic_partitions}
    assert offsets == {0: 30, 1: 5, 2: 30, 3: 30}
    admin.delete_consumer_groups(["administered"])["administered"].result(30)
    listed = admin.list_consumer_groups().result(30)
    assert "administered" not in [row.group_id for row in listed.valid]


def test_a_consumer_of_another_assignor_is_refused(cluster):
    fill(cluster.bootstrap, "voted")
    reader = Reader(
        cluster.bootstrap, "voting", "voted", partition_assignment_strategy="roundrobin"
    )
    together([reader], lambda: len(reader.owned) == 4, "it has it all")
    errors = []
    stranger = Consumer(
        settings(cluster.bootstrap, group_id="voting", partition_assignment_strategy="range")
        | {"error_cb": errors.append}
    )
    stranger.subscribe(["voted"])

    def is_refused() -> bool:
        reader.poll()
        message = stranger.poll(0.05)
        if message is not None and message.error() is not None:
            errors.append(message.error())
        return any(e.name() == "INCONSISTENT_GROUP_PROTOCOL" for e in errors)

    eventually(is_refused, "it hears INCONSISTENT_GROUP_PROTOCOL")
    stranger.close()
    assert reader.owned == [0, 1, 2, 3]
    reader.close()
