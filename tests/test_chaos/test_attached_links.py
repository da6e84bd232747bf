"""A whole experiment on an attached cluster behind somebody's toxiproxy, by the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kvorum import Cluster
from kvorum.chaos.experiment.history import FAULT_BEGIN, FAULT_END, details_of, read_history
from kvorum.chaos.live.links import Stream
from kvorum.chaos.live.toxiproxy import Toxic

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]

ROOT = Path(__file__).resolve().parents[2]
EXPERIMENT = """\
title: links of a cluster that runs already
configuration:
  topic: {partitions: 2, replication_factor: 2, min_insync_replicas: 1}
  workload: {records_per_second: 200}
  warm_up_ms: 300
  cool_down_ms: 300
steady-state-hypothesis:
  title: whole
  probes:
  - active_controllers: 1
  - under_replicated_partitions: 0
method:
- cut: {source: clients, destination: "leader:orders/0", duration_ms: 1000}
- latency: {source: "leader:orders/1", destination: "follower:orders/1", latency_ms: 50,
    duration_ms: 1000}
# Every leader stays, and broker-103 is the preferred replica of both partitions.
- reassign: {replicas: [broker-103, broker-102, broker-101], duration_ms: 20000}
- elect_leaders:
"""
PREFIX = "chaos-"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(
        controllers=1,
        brokers=3,
        directory=tmp_path_factory.mktemp("theirs"),
        proxies=True,
        metrics=False,
    ) as cluster:
        yield cluster


def description(cluster: Cluster) -> str:
    """The cluster's file: no command, since no node is taken down, and every proxy as a link."""
    toxiproxy, plan = cluster._injecting()._toxiproxy, cluster._running().plan
    lines = [f'bootstrap = "{cluster.bootstrap_servers}"', f'topic_prefix = "{PREFIX}"']
    lines += ["max_nodes_down = 1"]
    for node in cluster.nodes():
        lines += ["[[node]]", f'name = "{node.name}"', f"id = {node.node_id}"]
        lines += [f'role = "{node.name.split("-")[0]}"', f'address = "{node.listener}"']
    lines += ["[toxiproxy]", f'address = "{toxiproxy._host}:{toxiproxy._port}"']
    for link in plan.links:
        lines += ["[[link]]", f'source = "{link.source}"', f'destination = "{link.destination}"']
        lines += [f'proxy = "{link.name}"']
    return "\n".join(lines)


def toxics(cluster: Cluster) -> dict[str, object]:
    toxiproxy, plan = cluster._injecting()._toxiproxy, cluster._running().plan
    found = {link.name: toxiproxy.toxics(link) for link in plan.links}
    return {name: there for name, there in found.items() if there}


def topics(cluster: Cluster) -> set[str]:
    return {name for name, _ in cluster.state().partitions if name.startswith(PREFIX)}


def chaos_run(folder: Path, cluster: Cluster) -> subprocess.CompletedProcess[str]:
    (folder / "x.yaml").write_text(EXPERIMENT)
    (folder / "cluster.toml").write_text(description(cluster))
    command = [sys.executable, "-m", "kvorum", "chaos", "run", str(folder / "x.yaml")]
    command += ["--system", str(folder / "cluster.toml"), "--i-own-this-cluster"]
    command += ["--out", str(folder / "run")]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)


def test_a_run_cuts_slows_and_moves_and_leaves_neither_toxic_nor_topic(cluster, tmp_path):
    cluster.create_topic("of-others")
    done = chaos_run(tmp_path, cluster)
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert "verdict: passed" in done.stdout
    assert toxics(cluster) == {}
    assert topics(cluster) == set()
    assert ("of-others", 0) in cluster.state().partitions
    events = list(read_history(str(tmp_path / "run" / "history.jsonl")))
    begun = {details_of(e)["fault"]: details_of(e) for e in events if e.f == FAULT_BEGIN}
    assert list(begun) == ["cut", "latency", "reassign", "elect_leaders"]
    assert len(begun["cut"]["links"]) == 1 and len(begun["latency"]["links"]) == 2
    ended = {details_of(e)["fault"]: details_of(e) for e in events if e.f == FAULT_END}
    assert len(ended["reassign"]["reassigned"]) == 2
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert report["cluster"] == "attached"


def test_a_proxy_that_has_a_toxic_already_is_refused_and_keeps_it(cluster, tmp_path):
    toxiproxy, link = cluster._injecting()._toxiproxy, cluster._running().plan.links[0]
    toxic = Toxic(name="theirs", kind="latency", stream=Stream.UPSTREAM, attributes={"latency": 1})
    toxiproxy.add_toxic(link, toxic)
    try:
        done = chaos_run(tmp_path, cluster)
        assert done.returncode == 2, (done.stdout, done.stderr)
        assert f"the proxy {link.name} has toxics already (theirs)" in done.stderr
        assert toxics(cluster) == {link.name: {"theirs": "latency"}}
        assert topics(cluster) == set()
    finally:
        toxiproxy.remove_toxic(link, "theirs")
