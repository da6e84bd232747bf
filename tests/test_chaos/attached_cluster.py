"""A running cluster that tests attach to: its cluster file, an experiment on it, and checks of what
a run left there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from kvorum import Cluster

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


def chaos_run(folder: Path, cluster: Cluster, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "x.yaml").write_text(EXPERIMENT)
    (folder / "cluster.toml").write_text(description(cluster))
    command = [sys.executable, "-m", "kvorum", "chaos", "run", str(folder / "x.yaml")]
    command += ["--system", str(folder / "cluster.toml"), "--i-own-this-cluster"]
    command += ["--out", str(folder / "run"), *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)
