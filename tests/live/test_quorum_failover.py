"""The metadata quorum under kill -9: the active controller, two of three, all of them."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from kvorum.client.controllers import BlockingControllerClient
from kvorum.client.failures import CommandFailed
from tests.live.clients import Load, TopicMaker, Topics, assert_nothing_lost, settings
from tests.live.cluster import Cluster, controller_name, run_kvorum
from tests.polling import eventually

pytestmark = [pytest.mark.live, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("quorum")) as cluster:
        yield cluster


def described(cluster: Cluster):  # type: ignore[no-untyped-def]
    """The active controller's description of the quorum, once there is one."""
    addresses = [("127.0.0.1", cluster.ports.controller + i) for i in range(3)]
    client = BlockingControllerClient(addresses, 5.0)

    def ask():  # type: ignore[no-untyped-def]
        try:
            return client.describe()
        except CommandFailed:
            return None

    return eventually(ask, "a controller leads")


def wait_whole(cluster: Cluster) -> None:
    """Return when every voter's log ends where the leader's does."""

    def is_whole() -> bool:
        reply = described(cluster)
        return len(reply.voters) == 3 and all(
            voter.log_end_offset == reply.high_watermark for voter in reply.voters
        )

    eventually(is_whole, "all voters caught up")


def test_killed_active_controller_is_succeeded_and_no_topic_is_lost(cluster: Cluster) -> None:
    before = described(cluster)
    maker = TopicMaker(cluster.bootstrap, "succession")
    maker.wait_more(5)
    cluster.kill(controller_name(before.leader_id))
    maker.wait_more(5)
    after = described(cluster)
    assert after.leader_id != before.leader_id
    assert after.leader_epoch > before.leader_epoch
    made = maker.finish()
    Topics(cluster.bootstrap).wait_names(made)

    cluster.restart(controller_name(before.leader_id))
    wait_whole(cluster)
    Topics(cluster.bootstrap).wait_names(made)


def test_clean_stop_of_the_active_controller_hands_over(cluster: Cluster) -> None:
    wait_whole(cluster)
    before = described(cluster)
    name = controller_name(before.leader_id)
    cluster.signal(name, signal.SIGTERM)
    cluster.wait_dead(name)
    cluster.launcher.wait_line(f"{name} died (exit code 0); it is left dead")
    assert described(cluster).leader_id != before.leader_id
    assert "resigned" in cluster.log_of(name)
    Topics(cluster.bootstrap).create("after-hand-over")
    cluster.restart(name)
    wait_whole(cluster)


def test_paused_active_controller_is_succeeded_and_follows_afterwards(cluster: Cluster) -> None:
    wait_whole(cluster)
    before = described(cluster)
    name = controller_name(before.leader_id)
    others = [
        ("127.0.0.1", cluster.ports.controller + i) for i in range(3) if i + 1 != before.leader_id
    ]
    client = BlockingControllerClient(others, 5.0)

    def successor() -> int:
        try:
            reply = client.describe()
        except CommandFailed:
            return 0
        return reply.leader_id if reply.leader_id != before.leader_id else 0

    cluster.signal(name, signal.SIGSTOP)
    try:
        assert eventually(successor, "another controller leads") != before.leader_id
        Topics(cluster.bootstrap).create("while-paused")
    finally:
        cluster.signal(name, signal.SIGCONT)
    wait_whole(cluster)
    Topics(cluster.bootstrap).wait_names({"while-paused"})


def test_two_of_three_killed_is_no_quorum_until_one_returns(cluster: Cluster) -> None:
    wait_whole(cluster)
    before = described(cluster)
    dead = [before.leader_id, before.leader_id % 3 + 1]
    load_topic = "without-quorum"
    Topics(cluster.bootstrap).create(load_topic)
    cluster.kill(*map(controller_name, dead))
    try:
        check_no_quorum(cluster, before.leader_epoch)
        # Brokers go on serving with the metadata that they have.
        produce_one(cluster, load_topic)
    finally:
        cluster.restart(controller_name(dead[0]))
    assert described(cluster).leader_epoch > before.leader_epoch
    Topics(cluster.bootstrap).create("quorum-again")
    cluster.restart(controller_name(dead[1]))
    wait_whole(cluster)


def check_no_quorum(cluster: Cluster, known_epoch: int) -> None:
    """The words of commands when one of three controllers is left, asked at that controller and
    at a broker."""
    status = run_kvorum("quorum", "status", "--bootstrap-controller", cluster.bootstrap_controller)
    assert status.returncode == 4, status.stderr
    assert status.stdout == ""
    assert status.stderr.startswith("kvorum: no quorum: 1 of 3 voters reachable (")
    assert status.stderr.endswith("; need 2\n")
    epoch = int(status.stderr.partition("epoch ")[2].partition(";")[0])
    assert epoch >= known_epoch

    for command in (["topics", "create", "refused"], ["quorum", "status"]):
        through_broker = cluster.cli(*command, "--timeout", "2")
        assert through_broker.returncode == 4, (command, through_broker.stderr)
        assert len(through_broker.stderr.splitlines()) == 1


def produce_one(cluster: Cluster, topic: str) -> None:
    producer = Producer(settings(cluster.bootstrap, acks="all"))
    outcomes: list[object] = []
    producer.produce(topic, b"v", on_delivery=lambda error, _: outcomes.append(error))
    producer.flush(30)
    assert outcomes == [None]


def test_all_controllers_killed_recover_everything_from_disk(cluster: Cluster) -> None:
    topics = Topics(cluster.bootstrap)
    topics.create("recovered", partitions=2, min_insync_replicas=2)
    known = topics.names()
    before = described(cluster)
    load = Load(cluster.bootstrap, "recovered", partitions=2)
    load.wait_more()
    names = [controller_name(i) for i in (1, 2, 3)]
    cluster.kill(*names)
    load.wait_more()
    cluster.restart(*names)
    after = described(cluster)
    assert after.leader_epoch > before.leader_epoch
    # A new leader knows no high watermark before a record of its own epoch is on a majority.
    eventually(
        lambda: described(cluster).high_watermark > before.high_watermark,
        "the first record of the new epoch is committed",
    )
    load.wait_more()
    load.finish()
    topics.wait_names(known)
    topics.create("after-recovery")
    assert_nothing_lost(load, cluster.bootstrap)
    topics.wait_isr("recovered", {101, 102, 103})
    wait_whole(cluster)
