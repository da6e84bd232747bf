"""`kvorum dev` from its first line to its last: one cluster for the module, restarted in place."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.live.clients import Topics, read_all, settings
from tests.live.cluster import Cluster, Command, is_alive, run_kvorum
from tests.polling import eventually

pytestmark = [pytest.mark.live, pytest.mark.timeout(240)]

CONTROLLERS = ["controller-1", "controller-2", "controller-3"]
BROKERS = ["broker-101", "broker-102", "broker-103"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("dev")


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Iterator[Cluster]:
    with Cluster(folder, settings=["log.segment.bytes=1048576"]) as cluster:
        first_produce(cluster, "first")
        yield cluster


def first_produce(cluster: Cluster, topic: str) -> None:
    """The bootstrap line promises that a first produce needs no retry and reaches all three
    replicas.
    """
    Topics(cluster.bootstrap).create(topic, partitions=3, min_insync_replicas=3)
    producer = Producer(settings(cluster.bootstrap, acks="all", retries=0))
    outcomes: list[object] = []
    for partition in range(3):
        producer.produce(
            topic, b"x", partition=partition, on_delivery=lambda error, _: outcomes.append(error)
        )
    assert producer.flush(30) == 0
    assert outcomes == [None, None, None]


def test_first_produce_after_the_bootstrap_line_reaches_all_three_replicas(
    cluster: Cluster,
) -> None:
    # The fixture produced the record right after the bootstrap line; this test reads it.
    assert read_all(cluster.bootstrap, "first", 3) == [[b"x"], [b"x"], [b"x"]]


def test_a_line_per_node_comes_before_the_bootstrap_line(cluster: Cluster) -> None:
    lines = cluster.launcher.lines
    ready = lines[: lines.index(f"bootstrap: {cluster.bootstrap}")]
    nodes = cluster.nodes()
    for name in [*CONTROLLERS, *BROKERS]:
        assert [line for line in ready if line.startswith(f"{name} ready on ")], name
        assert nodes[name]["listener"] in "\n".join(ready)


def test_cluster_file_shows_every_node(cluster: Cluster) -> None:
    document = cluster.document()
    assert document["version"] == 1
    assert document["launcher_pid"] == cluster.launcher.pid
    assert document["bootstrap"] == cluster.bootstrap
    assert len(document["cluster_id"]) == 22
    nodes = document["nodes"]
    assert [node["name"] for node in nodes] == [*CONTROLLERS, *BROKERS]
    assert [node["id"] for node in nodes] == [1, 2, 3, 101, 102, 103]
    assert [node["roles"] for node in nodes] == [["controller"]] * 3 + [["broker"]] * 3
    base, controller_base = cluster.ports.broker, cluster.ports.controller
    ports = [controller_base, controller_base + 1, controller_base + 2, base, base + 1, base + 2]
    for node, port in zip(nodes, ports, strict=True):
        assert node["state"] == "running"
        assert is_alive(node["pid"])
        assert node["listener"] == node["advertised"] == f"127.0.0.1:{port}"
        assert Path(node["directory"]) == cluster.data_dir / node["name"]
        assert Path(node["log_file"]).is_file()


def test_second_launcher_on_the_same_directory_is_refused(cluster: Cluster) -> None:
    before = cluster.document()
    done = run_kvorum("dev", "--data-dir", str(cluster.data_dir), "--port", "29990")
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert "already running" in done.stderr and str(cluster.launcher.pid) in done.stderr
    assert cluster.document() == before


def test_ports_in_use_are_refused_before_anything_starts(cluster: Cluster, tmp_path: Path) -> None:
    other = tmp_path / "other"
    done = run_kvorum("dev", "--data-dir", str(other), "--port", str(cluster.ports.broker))
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    for port, name in enumerate(BROKERS, cluster.ports.broker):
        assert f"127.0.0.1:{port} for {name}" in done.stderr
    assert not other.exists()


def test_dead_node_is_left_dead_and_shown_until_restarted(cluster: Cluster) -> None:
    topics = Topics(cluster.bootstrap)
    topics.create("outlives", min_insync_replicas=1)
    old_pid = cluster.pid("broker-103")
    cluster.kill("broker-103")
    cluster.launcher.wait_line("broker-103 died (signal SIGKILL); it is left dead")
    entry = cluster.nodes()["broker-103"]
    assert (entry["state"], entry["pid"]) == ("dead", None)
    topics.wait_isr("outlives", {101, 102})
    # By then a launcher that revives nodes would have done so.
    assert cluster.nodes()["broker-103"]["state"] == "dead"

    cluster.restart("103")
    entry = cluster.nodes()["broker-103"]
    assert entry["state"] == "running" and entry["pid"] not in (None, old_pid)
    topics.wait_isr("outlives", {101, 102, 103})


def test_restart_refuses_running_and_unknown_nodes(cluster: Cluster) -> None:
    for name, words in (("broker-101", "is running (pid "), ("broker-9", "has no node 'broker-9'")):
        done = run_kvorum("dev", "restart", name, "--data-dir", str(cluster.data_dir))
        assert done.returncode == 2
        assert words in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stop_is_clean_and_the_data_comes_back(cluster: Cluster, number: signal.Signals) -> None:
    topic = f"kept-{number.name}"
    first_produce(cluster, topic)
    cluster_id = cluster.document()["cluster_id"]
    assert cluster.stop(number) == 0
    assert cluster.launcher.lines[-1] == "stopped"
    assert cluster.processes_left() == []
    for name in BROKERS:
        assert (cluster.data_dir / name / ".kafka_cleanshutdown").is_file()
    document = cluster.document()
    assert document["launcher_pid"] is None
    assert {(node["state"], node["pid"]) for node in document["nodes"]} == {("stopped", None)}
    refused = run_kvorum("dev", "restart", "broker-101", "--data-dir", str(cluster.data_dir))
    assert refused.returncode == 2 and "no launcher is running" in refused.stderr

    cluster.start()
    assert cluster.document()["cluster_id"] == cluster_id
    assert read_all(cluster.bootstrap, topic, 3) == [[b"x"], [b"x"], [b"x"]]
    assert not (cluster.data_dir / "broker-101" / ".kafka_cleanshutdown").exists()
    first_produce(cluster, f"{topic}-again")


def test_stop_ends_paused_nodes_too(folder: Path, tmp_path: Path) -> None:
    with Cluster(tmp_path, controllers=1, brokers=1) as small:
        small.signal("broker-101", signal.SIGSTOP)
        small.signal("controller-1", signal.SIGSTOP)
        assert small.stop() == 0
        assert small.processes_left() == []


def test_killed_launcher_leaves_no_node_behind(tmp_path: Path) -> None:
    with Cluster(tmp_path, controllers=1, brokers=1) as small:
        pids = [node["pid"] for node in small.nodes().values()]
        small.launcher.send(signal.SIGKILL)
        small.launcher.wait()
        eventually(lambda: not any(is_alive(pid) for pid in pids), "the nodes ended")
        # cluster.json still names the dead launcher; that keeps nobody out.
        small.start()


def test_clusters_on_free_ports_run_side_by_side_and_say_where(tmp_path: Path) -> None:
    arguments = ["--controllers", "1", "--brokers", "1", "--port", "0", "-o", "json"]
    launchers: list[Command] = []
    try:
        for name in ("a", "b", "a"):
            ready = tmp_path / f"{name}.ready"
            if name == "a" and launchers:
                # Start again on the same directory, with other ports.
                launchers[0].send(signal.SIGTERM)
                assert launchers[0].wait() == 0
                assert not ready.exists()
            launcher = Command(
                "dev", *arguments, "--data-dir", str(tmp_path / name), "--ready-file", str(ready),
                error_file=tmp_path / f"{name}.err",
            )  # fmt: skip
            launchers.append(launcher)
            said = json.loads(launcher.wait_line("bootstrap"))
            assert len(launcher.lines) == 1
            eventually(ready.exists, "the file is there")
            assert ready.read_text() == f"{said['bootstrap']}\n"
            assert said["data_dir"] == str(tmp_path / name)
            options = {"-b": "bootstrap", "--bootstrap-controller": "bootstrap_controller"}
            for option, key in options.items():
                done = run_kvorum("brokers", "list", option, said[key])
                assert "101" in done.stdout, done.stderr
    finally:
        for launcher in launchers:
            launcher.close()
