"""Brokers under kill -9, SIGSTOP and SIGTERM while librdkafka writes with acks=all."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from kvorum.client.controllers import BlockingControllerClient
from kvorum.metadata.inspect.history import image_of
from tests.live.clients import Load, Topics, assert_nothing_lost, read_all, settings
from tests.live.cluster import Cluster, broker_name, is_alive
from tests.polling import eventually

pytestmark = [pytest.mark.live, pytest.mark.timeout(240)]

ALL = {101, 102, 103}
ANSWER_TIMEOUT_S = 20


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("brokers")) as cluster:
        yield cluster


def committed_leader(cluster: Cluster, topic: str) -> int:
    """Leader of partition 0 as the active controller's committed log says."""
    addresses = [("127.0.0.1", cluster.ports.controller + i) for i in range(3)]
    active = BlockingControllerClient(addresses, 5.0).describe().leader_id
    copy = BlockingControllerClient([addresses[active - 1]], 5.0).read_metadata_log()
    found = image_of(copy).topic(topic)
    assert found is not None
    leader: int = found.partitions[0].leader
    return leader


def test_killed_leader_loses_nothing_and_rejoins_the_isr(cluster: Cluster) -> None:
    topics = Topics(cluster.bootstrap)
    topics.create("killed", min_insync_replicas=2)
    old = topics.leader("killed")
    load = Load(cluster.bootstrap, "killed")
    load.wait_more()
    cluster.kill(broker_name(old))
    load.wait_more()
    assert topics.leader("killed") != old
    topics.wait_isr("killed", ALL - {old})
    cluster.restart(broker_name(old))
    topics.wait_isr("killed", ALL)
    load.wait_more()
    load.finish()
    assert_nothing_lost(load, cluster.bootstrap)


def test_an_admin_client_outlives_the_broker_that_it_asks(cluster: Cluster) -> None:
    """librdkafka's AdminClient keeps connecting to the broker that Metadata named as the
    controller."""
    topics = Topics(cluster.bootstrap)
    for broker_id, address in zip(sorted(ALL), cluster.bootstrap.split(","), strict=True):
        admin = AdminClient(settings(address))
        create(admin, f"before-{broker_id}")
        cluster.kill(broker_name(broker_id))
        create(admin, f"after-{broker_id}")
        cluster.restart(broker_name(broker_id))
        topics.create(f"again-{broker_id}")
        topics.wait_isr(f"again-{broker_id}", ALL)


def create(admin: AdminClient, name: str) -> None:
    """Make a topic. The first request may fail, because it left on a connection whose end the
    client had not seen yet; it is sent once more. A second failure fails the test.
    """
    topic = NewTopic(name, num_partitions=1, replication_factor=2)
    try:
        admin.create_topics([topic])[name].result(ANSWER_TIMEOUT_S)
    except KafkaException as error:
        assert error.args[0].code() == KafkaError._TRANSPORT, error
        admin.create_topics([topic])[name].result(ANSWER_TIMEOUT_S)


def test_clean_stop_moves_leadership_before_the_process_ends(cluster: Cluster) -> None:
    topics = Topics(cluster.bootstrap)
    topics.create("moved", min_insync_replicas=2)
    old = topics.leader("moved")
    name = broker_name(old)
    load = Load(cluster.bootstrap, "moved")
    load.wait_more()
    pid = cluster.pid(name)
    cluster.signal(name, signal.SIGTERM)
    eventually(lambda: not is_alive(pid), f"{name} ended")
    # Read at once after the process ended: if leadership had not moved before, the leader would
    # change only when the broker is fenced.
    new = committed_leader(cluster, "moved")
    cluster.launcher.wait_line(f"{name} died (exit code 0); it is left dead")
    cluster.wait_dead(name)
    assert (cluster.data_dir / name / ".kafka_cleanshutdown").is_file()
    load.wait_more()
    cluster.restart(name)
    topics.wait_isr("moved", ALL)
    load.finish()
    assert new not in (old, -1)
    assert_nothing_lost(load, cluster.bootstrap)


def test_paused_follower_is_fenced_out_of_the_isr_and_returns(cluster: Cluster) -> None:
    topics = Topics(cluster.bootstrap)
    topics.create("paused", min_insync_replicas=2)
    topics.wait_isr("paused", ALL)
    leader = topics.leader("paused")
    follower = min(ALL - {leader})
    load = Load(cluster.bootstrap, "paused")
    load.wait_more()
    cluster.signal(broker_name(follower), signal.SIGSTOP)
    try:
        topics.wait_isr("paused", ALL - {follower})
        brokers = {row["broker_id"]: row for row in listed(cluster)}
        assert brokers[follower]["is_fenced"] is True
        assert brokers[leader]["is_fenced"] is False
        load.wait_more()
    finally:
        cluster.signal(broker_name(follower), signal.SIGCONT)
    topics.wait_isr("paused", ALL)
    load.finish()
    assert_nothing_lost(load, cluster.bootstrap)


def listed(cluster: Cluster) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = cluster.cli_json(
        "brokers", "list", "--bootstrap-controller", cluster.bootstrap_controller
    )
    return rows


def test_writes_are_refused_below_min_insync_replicas(cluster: Cluster) -> None:
    topics = Topics(cluster.bootstrap)
    topics.create("guarded", min_insync_replicas=2)
    topics.wait_isr("guarded", ALL)
    assert produced(cluster, "guarded", b"before", acks="all") is None
    leader = topics.leader("guarded")
    dead = [broker_name(i) for i in sorted(ALL - {leader})]
    cluster.kill(*dead)
    topics.wait_isr("guarded", {leader})

    error = produced(cluster, "guarded", b"refused", acks="all", retries=0)
    assert error is not None
    assert error.code() in (
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    )
    # acks=1 needs the leader alone.
    assert produced(cluster, "guarded", b"leader-only", acks="1") is None

    cluster.restart(*dead)
    topics.wait_isr("guarded", ALL)
    assert produced(cluster, "guarded", b"after", acks="all") is None
    assert read_all(cluster.bootstrap, "guarded") == [[b"before", b"leader-only", b"after"]]


def produced(cluster: Cluster, topic: str, value: bytes, **more: object) -> KafkaError | None:
    producer = Producer(settings(cluster.bootstrap, **more))
    outcomes: list[KafkaError | None] = []
    producer.produce(topic, value, on_delivery=lambda error, _: outcomes.append(error))
    producer.flush(30)
    assert len(outcomes) == 1
    return outcomes[0]


def test_last_replica_of_the_isr_leads_again_after_all_brokers_were_killed(
    cluster: Cluster,
) -> None:
    topics = Topics(cluster.bootstrap)
    topics.create("unclean")
    topics.wait_isr("unclean", ALL)
    leader = topics.leader("unclean")
    others = [broker_name(i) for i in sorted(ALL - {leader})]
    cluster.kill(*others)
    topics.wait_isr("unclean", {leader})
    assert produced(cluster, "unclean", b"only here", acks="all") is None
    cluster.kill(broker_name(leader))
    # The replicas that lack the record may not lead, though no other ones are alive.
    cluster.restart(*others)
    assert committed_leader(cluster, "unclean") in (-1, leader)
    cluster.restart(broker_name(leader))
    topics.wait_isr("unclean", ALL)
    assert read_all(cluster.bootstrap, "unclean") == [[b"only here"]]
