"""`kvorum cluster check` and `roll` on a live cluster: one module, one cluster."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvorum.launch.cluster.cluster_file import read_cluster_file, write_cluster_file
from tests.live.clients import Load, Topics, assert_nothing_lost
from tests.live.cluster import Cluster, run_kvorum
from tests.polling import eventually

pytestmark = [pytest.mark.live, pytest.mark.timeout(180)]

NODES = ["controller-1", "controller-2", "controller-3", "broker-101", "broker-102", "broker-103"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("roll")) as cluster:
        Topics(cluster.bootstrap).create("orders", partitions=6, min_insync_replicas=2)
        yield cluster


def pids(cluster: Cluster) -> dict[str, int]:
    return {name: cluster.pid(name) for name in NODES}


def launcher_of(cluster: Cluster) -> tuple[str, str]:
    return "--data-dir", str(cluster.data_dir)


def test_a_roll_under_load_restarts_every_node_and_loses_nothing(cluster: Cluster) -> None:
    before = pids(cluster)
    leader = cluster.cli_json("quorum", "status")["leader_id"]
    planned = cluster.cli_json("cluster", "roll", "--dry-run")
    assert pids(cluster) == before
    followers = [i for i in (1, 2, 3) if i != leader]
    order = [f"controller-{i}" for i in (*followers, leader)] + NODES[3:]
    assert [row["node"] for row in planned] == order
    load = Load(cluster.bootstrap, "orders", partitions=6)
    try:
        load.wait_more()
        done = cluster.cli("cluster", "roll", *launcher_of(cluster), "-o", "json")
        assert done.returncode == 0, done.stderr
        load.wait_more()
    finally:
        load.finish()
    assert_nothing_lost(load, cluster.bootstrap)
    rows = json.loads(done.stdout)
    assert [(row["node"], row["result"]) for row in rows] == [(n, "restarted") for n in order]
    assert not set(before.values()) & set(pids(cluster).values())


def test_a_launcher_restarts_nodes_of_its_own_cluster_alone(
    cluster: Cluster, tmp_path: Path
) -> None:
    before = pids(cluster)
    elsewhere = {"KVORUM_BOOTSTRAP_SERVER": "127.0.0.1:1"}
    planned = run_kvorum("cluster", "roll", "--dry-run", *launcher_of(cluster), **elsewhere)
    assert planned.returncode == 0 and "broker-103" in planned.stdout, planned.stderr
    known = read_cluster_file(str(cluster.data_dir))
    assert known is not None
    write_cluster_file(str(tmp_path), dataclasses.replace(known, cluster_id="another"))
    wrong = ("--data-dir", str(tmp_path), "-b", cluster.bootstrap)
    done = run_kvorum("cluster", "roll", "101", *wrong)
    assert done.returncode == 2, done.stderr
    assert "--data-dir has the cluster another, and the address given is of " in done.stderr
    assert pids(cluster) == before


def test_any_command_can_restart_the_nodes(cluster: Cluster) -> None:
    before = pids(cluster)
    template = f"{sys.executable} -m kvorum dev restart --stop {{node}} --data-dir "
    template += str(cluster.data_dir)
    done = cluster.cli("cluster", "roll", "broker-103", "2", "--restart-command", template)
    assert done.returncode == 0, done.stderr
    changed = {name for name, pid in pids(cluster).items() if pid != before[name]}
    assert changed == {"controller-2", "broker-103"}


def test_a_roll_that_stalls_names_node_check_and_way_out_and_touches_no_more(
    cluster: Cluster,
) -> None:
    before = pids(cluster)
    arguments = ("--restart-command", "true {node}", "--node-timeout", "1")
    done = cluster.cli("cluster", "roll", "102", "103", *arguments)
    assert done.returncode == 4
    assert done.stderr.splitlines()[-1] == (
        "kvorum: the roll stopped: the command for broker-102 succeeded, but broker-102 has not "
        "registered again within 1 s; see that the command restarts it; not touched: 103; see "
        "kvorum health and the node's log, then run it again for 102 103"
    )
    assert pids(cluster) == before
    # The roll can be run again.
    again = cluster.cli("cluster", "roll", "102", "103", *launcher_of(cluster), "--settle", "0.1")
    assert again.returncode == 0, again.stderr
    pauses = [line for line in again.stderr.splitlines() if "clients" in line]
    assert pauses == ["kvorum: waiting 0.1 s for clients to connect to broker-102 again"]


def test_a_restart_command_that_fails_ends_the_roll_with_its_words(cluster: Cluster) -> None:
    before = pids(cluster)
    template = "sh -c 'echo no such unit: {node}; exit 5'"
    done = cluster.cli("cluster", "roll", "--restart-command", template)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "exit code 5: no such unit: controller-" in line
    assert pids(cluster) == before
    missing = cluster.cli("cluster", "roll", "101", "--restart-command", "no-such-tool {id}")
    assert (missing.returncode, "there is no no-such-tool" in missing.stderr) == (1, True)


def test_with_a_node_down_nothing_else_is_restarted(cluster: Cluster) -> None:
    cluster.kill("broker-103")
    fenced = "2 of 3 active; fenced: broker 103"
    eventually(lambda: fenced in cluster.cli("cluster", "check").stdout, "broker 103 is fenced")
    before = {name: pid for name in NODES[:-1] if (pid := cluster.pid(name))}
    assert cluster.cli("cluster", "check").returncode == 4
    unsafe = cluster.cli("cluster", "check", "--restart-safe", "101")
    assert (unsafe.returncode, "broker 103 is down already" in unsafe.stdout) == (4, True)
    assert cluster.cli("cluster", "check", "--restart-safe", "broker-103").returncode == 0
    done = cluster.cli("cluster", "roll", *launcher_of(cluster), "--node-timeout", "1")
    assert (done.returncode, "was not restarted: brokers: " in done.stderr) == (4, True)
    assert {name: cluster.pid(name) for name in NODES[:-1]} == before
    cluster.restart("broker-103")


def test_a_node_that_does_not_exist_is_named_with_the_others(cluster: Cluster) -> None:
    for arguments in (["check", "--restart-safe", "9"], ["roll", "--dry-run", "9"]):
        done = cluster.cli("cluster", *arguments)
        assert done.returncode == 1
        assert done.stderr == "kvorum: the cluster has no node 9; it has 1, 2, 3, 101, 102, 103\n"


def test_a_running_node_is_stopped_in_order_before_its_restart(cluster: Cluster) -> None:
    refused = cluster.cli("dev", "restart", "broker-101", *launcher_of(cluster))
    assert (refused.returncode, "is running" in refused.stderr) == (2, True)
    log = Path(cluster.nodes()["broker-101"]["log_file"])
    said = log.read_text().count("leadership is handed over")
    done = cluster.cli("dev", "restart", "--stop", "broker-101", *launcher_of(cluster))
    assert done.returncode == 0, done.stderr
    assert log.read_text().count("leadership is handed over") == said + 1
