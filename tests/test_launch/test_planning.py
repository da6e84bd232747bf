"""Layout of a cluster, addresses, cluster.json, identity, requests to a launcher."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys

import pytest

from kvorum.launch.cluster.cluster_file import read_cluster_file, write_cluster_file
from kvorum.launch.cluster.plan import ProxyLinks
from kvorum.launch.cluster.this_machine import check_ports, plan_cluster, reserve_ports
from kvorum.launch.config.listeners import parse_address
from kvorum.launch.config.properties import broker_config, controller_config
from kvorum.launch.dev.control import finish_restart, request_restart, take_restart_requests
from kvorum.launch.dev.supervisor import Supervisor
from kvorum.launch.directories.identity import check_owner, claim_directory, is_locked
from kvorum.launch.nodes.broker_process import BrokerProcess
from kvorum.metadata.image.image import EMPTY_IMAGE
from kvorum.runtime.disk import OsDisk
from kvorum.runtime.errors import ConfigError
from kvorum.runtime.ids import new_uuid, uuid_text
from tests.test_launch.node_folders import known_cluster

CLUSTER_ID = "H8cXxonAvNgrLxjJFXJs9g"
BROKER = {
    "node.id": 101,
    "cluster.id": CLUSTER_ID,
    "listeners": "PLAINTEXT://127.0.0.1:9092",
    "controller.quorum.voters": "1@h:1,2@h:2,3@[::1]:3",
    "log.dirs": "/nowhere",
}


def test_plan_gives_ids_ports_and_checked_properties(tmp_path):
    plan = plan_cluster(
        controllers=3, brokers=2, data_dir=str(tmp_path), port=9092, rng=random.Random(1)
    )
    assert [(n.name, n.node_id, n.role, n.port) for n in plan.nodes] == [
        ("controller-1", 1, "controller", 9192),
        ("controller-2", 2, "controller", 9193),
        ("controller-3", 3, "controller", 9194),
        ("broker-101", 101, "broker", 9092),
        ("broker-102", 102, "broker", 9093),
    ]
    assert plan.is_new and plan.bootstrap == "127.0.0.1:9092,127.0.0.1:9093"
    config, _ = broker_config(plan.nodes[-1].properties)
    assert config.controllers == {i: ("127.0.0.1", 9191 + i) for i in (1, 2, 3)}
    assert config.directory == str(tmp_path / "broker-102")
    assert controller_config(plan.nodes[0].properties)[0].listen == ("127.0.0.1", 9192)


def test_free_ports_go_to_the_nodes_without_one_and_are_nobody_elses(tmp_path):
    shape = {"controllers": 2, "brokers": 1, "port": 0, "controller_port": None}
    first, second = reserve_ports(**shape), reserve_ports(**shape)
    try:
        ports = [guard.getsockname()[1] for guard in (*first, *second)]
        assert len(set(ports)) == 6
        plan = plan_cluster(**shape, data_dir=str(tmp_path), free_ports=ports[:3])
        assert [node.port for node in plan.nodes] == ports[:3]
        assert plan.bootstrap == f"127.0.0.1:{ports[2]}"
        assert plan.bootstrap_controller == f"127.0.0.1:{ports[0]},127.0.0.1:{ports[1]}"
        check_ports(plan)  # the nodes can listen there
        config, _ = broker_config(plan.nodes[-1].properties)
        assert [config.controllers[i][1] for i in (1, 2)] == ports[:2]
    finally:
        for guard in (*first, *second):
            guard.close()


@pytest.mark.parametrize(
    ("port", "controller_port", "count"), [(0, None, 5), (0, 7, 3), (7, 0, 2), (7, None, 0)]
)
def test_ports_are_reserved_for_the_roles_that_are_given_none(port, controller_port, count):
    guards = reserve_ports(controllers=2, brokers=3, port=port, controller_port=controller_port)
    for guard in guards:
        guard.close()
    assert len(guards) == count


@pytest.mark.parametrize(("brokers", "factor"), [(1, "1"), (2, "2"), (3, "3"), (5, "3")])
def test_a_topic_that_a_client_makes_has_as_many_replicas_as_offsets_have(
    tmp_path, brokers, factor
):
    plan = plan_cluster(controllers=1, brokers=brokers, data_dir=str(tmp_path), port=9092)
    for node in plan.nodes:
        assert node.properties["default.replication.factor"] == factor
        assert node.properties.get("offsets.topic.replication.factor", factor) == factor
    plan = plan_cluster(
        controllers=1,
        brokers=brokers,
        data_dir=str(tmp_path),
        port=9092,
        settings={"default.replication.factor": "1"},
    )
    assert plan.nodes[-1].properties["default.replication.factor"] == "1"


def test_each_node_has_a_page_of_metrics_from_the_given_port_on(tmp_path):
    plan = plan_cluster(
        controllers=1, brokers=2, data_dir=str(tmp_path), port=31_000, metrics_port=31_200
    )
    assert [node.metrics for node in plan.nodes] == [f"127.0.0.1:{31_200 + at}" for at in range(3)]
    assert controller_config(plan.nodes[0].properties)[0].metrics == ("127.0.0.1", 31_200)
    assert broker_config(plan.nodes[2].properties)[0].metrics == ("127.0.0.1", 31_202)
    check_ports(plan)
    plain = plan_cluster(controllers=1, brokers=2, data_dir=str(tmp_path), port=31_000)
    assert [node.metrics for node in plain.nodes] == ["", "", ""]


def test_pages_of_metrics_may_have_free_ports_and_links_go_before(tmp_path):
    shape = {"controllers": 1, "brokers": 1, "port": 31_000, "controller_port": None}
    guards = reserve_ports(**shape, metrics_port=0)
    ports = [guard.getsockname()[1] for guard in guards]
    for guard in guards:
        guard.close()
    links = ProxyLinks(advertised={}, peers={}, metrics={"broker-101": "127.0.0.1:31300"})
    plan = plan_cluster(
        **shape, metrics_port=0, data_dir=str(tmp_path), free_ports=ports, links=links
    )
    assert [node.metrics for node in plan.nodes] == [f"127.0.0.1:{ports[0]}", "127.0.0.1:31300"]


def test_a_page_of_metrics_may_not_have_the_port_of_a_listener(tmp_path):
    plan = plan_cluster(
        controllers=1, brokers=1, data_dir=str(tmp_path), port=31_000, metrics_port=30_999
    )
    words = "broker-101 and the page of metrics of broker-101 would both get port 31000"
    with pytest.raises(ConfigError, match=f"{words}; move --metrics-port"):
        check_ports(plan)
    with pytest.raises(ConfigError, match="give --metrics-port or --set"):
        plan_cluster(
            controllers=1, brokers=1, data_dir=str(tmp_path), port=31_000, metrics_port=31_200,
            settings={"metrics.listener": "HTTP://127.0.0.1:31300"},
        )  # fmt: skip


def test_settings_reach_only_the_nodes_that_know_them(tmp_path):
    plan = plan_cluster(
        controllers=1,
        brokers=1,
        data_dir=str(tmp_path),
        port=9092,
        settings={"log.segment.bytes": "7", "broker.stream.grace.ms": "9"},
    )
    controller, broker = (node.properties for node in plan.nodes)
    assert "log.segment.bytes" not in controller and broker["log.segment.bytes"] == "7"
    assert controller["broker.stream.grace.ms"] == "9"
    assert "broker.stream.grace.ms" not in broker


def test_links_replace_what_is_advertised_and_where_peers_are_found(tmp_path):
    links = ProxyLinks(
        advertised={"broker-101": "127.0.0.1:7000"},
        peers={"broker-101": {"controller-1": "127.0.0.1:7001"}},
        metrics={"broker-101": "127.0.0.1:7002"},
    )
    plan = plan_cluster(controllers=1, brokers=1, data_dir=str(tmp_path), port=9092, links=links)
    assert plan.bootstrap == "127.0.0.1:7000"
    config, _ = broker_config(plan.nodes[1].properties)
    assert config.advertised == ("127.0.0.1", 7000) and config.listen == ("127.0.0.1", 9092)
    assert config.controllers == {1: ("127.0.0.1", 7001)}
    assert config.metrics == ("127.0.0.1", 7002)
    assert config.voter_addresses == {1: ("127.0.0.1", 9192)}


def test_known_cluster_keeps_its_id_and_may_gain_brokers(tmp_path):
    cluster_id = known_cluster(tmp_path)
    plan = plan_cluster(controllers=3, brokers=4, data_dir=str(tmp_path), port=9092)
    assert (plan.cluster_id, plan.is_new) == (cluster_id, False)


@pytest.mark.parametrize("again", [None, 2])
def test_a_cluster_whose_voters_can_change_starts_again_with_the_option_and_without(
    tmp_path, again
):
    shape = {"controllers": 3, "brokers": 1, "data_dir": str(tmp_path), "port": 31_300}
    first = plan_cluster(**shape, voters=2)
    supervisor = Supervisor(first, print_line=lambda _: None)
    supervisor._write_cluster_file()
    supervisor.stop()
    second = plan_cluster(**shape, voters=again)
    assert (second.voters, second.is_new) == (2, False)
    assert [node.properties for node in second.nodes] == [node.properties for node in first.nodes]
    config, _ = controller_config(second.nodes[0].properties)
    assert config.raft.is_dynamic


@pytest.mark.parametrize(
    ("made", "asked", "words"),
    [
        (2, 3, "was made with --voters 2, not with --voters 3; start it without --voters"),
        (2, 0, "with --voters 2, not with --voters 0 (a voter set that cannot change); start it"),
        (0, 2, "with --voters 0 (a voter set that cannot change), not with --voters 2; start it"),
    ],
)
def test_other_voters_than_those_a_cluster_was_made_with_are_refused(tmp_path, made, asked, words):
    known_cluster(tmp_path, voters=made)
    with pytest.raises(ConfigError) as refused:
        plan_cluster(controllers=3, brokers=3, data_dir=str(tmp_path), port=9092, voters=asked)
    assert words in str(refused.value)


@pytest.mark.parametrize("voters", [0, 2])
def test_another_number_of_controllers_is_refused_with_the_way_out(tmp_path, voters):
    known_cluster(tmp_path, voters=voters)
    with pytest.raises(ConfigError, match="3 controllers, not 4; start it with --controllers 3"):
        plan_cluster(controllers=4, brokers=3, data_dir=str(tmp_path), port=9092)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"listeners": "SSL://h:1"}, "the listener SSL needs a certificate"),
        ({"listeners": "PLAINTEXT://h:1,PLAINTEXT://h:2"}, "names PLAINTEXT twice"),
        ({"listeners": "PLAINTEXT://h:70000"}, "'h:70000' is not host:port"),
        ({"listeners": "PLAINTEXT://h..svc:1"}, "'h..svc:1' has a host that is no name"),
        ({"controller.quorum.voters": "h:1"}, "must be of the form id@host:port"),
        ({"controller.quorum.voters": "1@h:1,1@h:2"}, "names node 1 twice"),
        ({"peer.address.overrides": "x=h:1"}, "must be of the form id=host:port"),
        ({"controller.quorum.fetch.timeout.ms": 100}, "must hold, got 400, 800, 100"),
        ({"cluster.id": "kvorum"}, "not a uuid: 'kvorum'"),
        ({"group.consumer.migration.policy": "both"}, "one of bidirectional, upgrade, downgrade"),
        ({"node.id": 1 << 31}, "node.id='2147483648' must lie between 0 and 2147483647"),
        ({"node.id": -1}, "node.id='-1' must lie between 0 and"),
        ({"min.insync.replicas": 0}, "min.insync.replicas='0' must lie between 1 and"),
        ({"message.max.bytes": -1}, "message.max.bytes='-1' must lie between 0 and"),
        ({"log.segment.bytes": 4000}, "log.segment.bytes='4000' must lie between 1048576 and"),
        ({"log.cleanup.policy": "foo"}, "must be empty or a list of compact, delete"),
        ({"broker.heartbeat.interval.ms": 0}, "must lie between 1 and"),
        ({"num.partitions": 0, "request.timeout.ms": 0}, "and 2147483647; request.timeout.ms="),
        ({"metadata.version.max": 25}, "metadata.version.max=25 must lie in 26 to 33"),
        ({"metadata.version.max": 34}, "must lie in 26 to 33, which this build knows"),
    ],
)
def test_broker_properties_that_cannot_work_are_refused(change, words):
    with pytest.raises(ConfigError, match=r".*") as error:
        broker_config({**BROKER, **change})
    assert words in str(error.value)


def test_addresses_may_be_of_ipv6():
    assert parse_address("x", "[::1]:9092") == ("::1", 9092)
    assert broker_config(BROKER)[0].controllers[3] == ("::1", 3)


def test_cluster_file_round_trips_and_finds_nodes_by_name_or_id(tmp_path):
    assert read_cluster_file(str(tmp_path)) is None
    known_cluster(tmp_path)
    cluster = read_cluster_file(str(tmp_path))
    assert cluster is not None
    write_cluster_file(str(tmp_path), cluster)
    assert read_cluster_file(str(tmp_path)) == cluster
    assert cluster.node("broker-101") is cluster.node("101")
    assert cluster.node("broker-104") is None


def test_claimed_directory_keeps_its_id_and_knows_its_owner(tmp_path):
    disk, directory = OsDisk(), str(tmp_path / "node")
    identity = {"node_id": 1, "cluster_id": CLUSTER_ID}
    assert check_owner(disk, directory, **identity) is None
    claimed = claim_directory(disk, directory, **identity, rng=random.Random(1))
    assert claim_directory(disk, directory, **identity, rng=random.Random(2)) == claimed
    assert check_owner(disk, directory, **identity) == claimed
    for other in ({"node_id": 2}, {"cluster_id": uuid_text(new_uuid(random.Random(3)))}):
        with pytest.raises(ConfigError, match="belongs to"):
            check_owner(disk, directory, **{**identity, **other})


def test_lock_of_another_process_is_seen_until_it_dies(tmp_path):
    assert not is_locked(str(tmp_path))
    script = (
        "import sys; from kvorum.launch.directories.identity import DirectoryLock;"
        "lock = DirectoryLock(sys.argv[1]);"
        "print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        assert is_locked(str(tmp_path))
        holder.kill()
        holder.wait()
        assert not is_locked(str(tmp_path))


def test_restart_requests_are_files_that_stay_until_dealt_with(tmp_path):
    assert take_restart_requests(str(tmp_path)) == {}
    (tmp_path / "requests").mkdir()
    for name in ("restart-broker-102", "restart-broker-101", "other"):
        (tmp_path / "requests" / name).touch()
    assert take_restart_requests(str(tmp_path)) == {"broker-101": False, "broker-102": False}
    finish_restart(str(tmp_path), "broker-101")
    assert take_restart_requests(str(tmp_path)) == {"broker-102": False}


def test_restart_without_a_launcher_signals_nobody(tmp_path, monkeypatch):
    known_cluster(tmp_path)
    monkeypatch.setattr("os.kill", lambda *_: pytest.fail("a signal was sent"))
    with pytest.raises(ConfigError, match="no launcher is running"):
        request_restart(str(tmp_path), ["broker-101"])


def test_image_that_changes_while_logs_close_opens_none_again(tmp_path):
    """Bad sequence: 1. a broker stops and a thread closes its logs, 2. another broker is fenced,
    3. the image is published, and the manager opens logs that are being closed.
    """

    async def stop() -> list[str]:
        config, broker = broker_config({**BROKER, "log.dirs": str(tmp_path)})
        process = BrokerProcess(config, broker, on_failure=pytest.fail)
        happened: list[str] = []

        class Replicas:
            def publish(self, delta: object, image: object) -> None:
                happened.append("published")

            async def stop(self) -> None:
                process._publish(None, EMPTY_IMAGE)
                happened.append("closed")

        process._replicas = Replicas()
        process._is_publishing = True
        process._publish(None, EMPTY_IMAGE)
        await process._close_replicas()
        await process._client.close()
        return happened

    assert asyncio.run(stop()) == ["published", "closed"]
