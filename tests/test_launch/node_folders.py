"""Folders of nodes: the file of a known cluster, claimed directories, a broker on them."""

from __future__ import annotations

import random
from pathlib import Path

from kvorum.launch.cluster.cluster_file import ClusterFile, NodeEntry, write_cluster_file
from kvorum.launch.cluster.this_machine import plan_cluster
from kvorum.launch.config.properties import broker_config
from kvorum.launch.directories.log_directories import OwnDirectories, take_directories
from kvorum.launch.nodes.broker_process import BrokerProcess
from kvorum.runtime.disk import OsDisk
from tests.test_runtime.http2_peers import free_port

CLUSTER_ID = "H8cXxonAvNgrLxjJFXJs9g"
TOPIC_ID = b"t" * 16
BROKER = {
    "node.id": "101",
    "cluster.id": CLUSTER_ID,
    "listeners": "PLAINTEXT://127.0.0.1:21001",
    "controller.quorum.voters": "1@127.0.0.1:21002",
}


def known_cluster(
    data_dir: Path, *, controllers: int = 3, brokers: int = 3, voters: int = 0
) -> str:
    """Write the cluster file of a stopped cluster; the cluster id."""
    data_dir.mkdir(exist_ok=True)
    plan = plan_cluster(
        controllers=controllers, brokers=brokers, data_dir=str(data_dir), port=31_000
    )
    entries = tuple(
        NodeEntry(
            name=node.name,
            id=node.node_id,
            roles=(node.role,),
            pid=None,
            state="stopped",
            listener=f"127.0.0.1:{node.port}",
            advertised=node.advertised,
            directory=node.directory,
            log_file=node.log_file,
        )
        for node in plan.nodes
    )
    write_cluster_file(
        str(data_dir),
        ClusterFile(
            cluster_id=plan.cluster_id,
            bootstrap=plan.bootstrap,
            launcher_pid=None,
            nodes=entries,
            voters=voters,
        ),
    )
    return plan.cluster_id


def take(*paths: Path, metadata: Path | None = None, node_id: int = 101) -> OwnDirectories:
    """Directories as the start of a node takes them, marked as its own."""
    return take_directories(
        OsDisk(),
        metadata_directory=str(metadata or paths[0]),
        data_directories=[str(path) for path in paths],
        node_id=node_id,
        cluster_id=CLUSTER_ID,
        rng=random.Random(),
    )


def process_on(*paths: Path) -> BrokerProcess:
    """A broker on these directories, not started, with a port of its own."""
    given = {
        **BROKER,
        "log.dirs": ",".join(map(str, paths)),
        "listeners": f"PLAINTEXT://127.0.0.1:{free_port()}",
    }
    return BrokerProcess(*broker_config(given), on_failure=lambda failure: None)
