"""The plan of a cluster on this machine: its directory, free ports, and files. The rules are in
`plan`."""

from __future__ import annotations

import json
import os
import random
import socket
from collections.abc import Mapping
from typing import Any

from kvorum.launch.cluster.cluster_file import FILE_NAME, ClusterFile, read_cluster_file
from kvorum.launch.cluster.plan import (
    HOST,
    PORT_MAX,
    ClusterPlan,
    ProxyLinks,
    check_counts,
    check_request,
    first_controller_port,
    lay_out,
)
from kvorum.launch.config.properties import broker_config, controller_config
from kvorum.launch.directories.identity import LOCK_NAME, check_owner, is_locked
from kvorum.runtime.disk import OsDisk
from kvorum.runtime.errors import ConfigError
from kvorum.runtime.fault_board import FaultBoard
from kvorum.runtime.ids import new_uuid, uuid_text


def plan_cluster(
    *,
    controllers: int,
    brokers: int,
    data_dir: str,
    voters: int | None = None,
    racks: int = 0,
    metrics_port: int | None = None,
    settings: Mapping[str, str] | None = None,
    rng: random.Random | None = None,
    **more: Any,
) -> ClusterPlan:
    """Plan a new cluster in data_dir, or the one that exists there. For the arguments see
    `plan.lay_out`. Raises ConfigError for invalid input."""
    settings = dict(settings or {})
    check_request(
        controllers,
        brokers,
        voters=voters,
        settings=settings,
        racks=racks,
        metrics_port=metrics_port,
    )
    data_dir = os.path.abspath(data_dir)
    return lay_out(
        controllers=controllers,
        brokers=brokers,
        data_dir=data_dir,
        known=check_directory(data_dir),
        new_id=uuid_text(new_uuid(rng or random.SystemRandom())),
        voters=voters,
        racks=racks,
        metrics_port=metrics_port,
        settings=settings,
        **more,
    )


def reserve_ports(
    *,
    controllers: int,
    brokers: int,
    port: int,
    controller_port: int | None,
    metrics_port: int | None = None,
    is_secure: bool = False,
) -> list[socket.socket]:
    """A bound socket for each listener without a fixed port, for `plan_cluster`.

    No other process gets these ports until the sockets are closed. The sockets do not listen, so
    the nodes can. Raises ConfigError for invalid counts.
    """
    check_counts(controllers, brokers)
    listeners = 2 if is_secure else 1
    count = listeners * brokers if port == 0 else 0
    count += controllers if first_controller_port(port, controller_port) == 0 else 0
    count += controllers + brokers if metrics_port == 0 else 0
    reserved = []
    for _ in range(count):
        guard = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        guard.bind((HOST, 0))
        # Set this after bind: the kernel may give one port to two sockets that both had it before.
        guard.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.append(guard)
    return reserved


def read_links(path: str) -> ProxyLinks:
    """The links file: {node name: {"advertised": address, "peers": {peer name: address},
    "metrics": address, "fault_board": path}}; each part may be missing."""
    try:
        with open(path, encoding="utf-8") as file:
            fields = json.load(file)
        return ProxyLinks(
            advertised={n: f["advertised"] for n, f in fields.items() if "advertised" in f},
            peers={n: dict(f.get("peers", {})) for n, f in fields.items()},
            metrics={n: f["metrics"] for n, f in fields.items() if "metrics" in f},
            fault_boards={n: f["fault_board"] for n, f in fields.items() if "fault_board" in f},
        )
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise ConfigError(f"{path} is not a links file: {error}") from error


def check_ports(plan: ClusterPlan) -> None:
    """Raise ConfigError for a port above PORT_MAX, for one that two nodes would get, or with every
    port that cannot be bound now."""
    taken = []
    users: dict[int, str] = {}
    listeners = [
        (node.name, port, "--controller-port")
        for node in plan.nodes
        for port in (node.port, node.nodes_port)
        if port
    ]
    for node in plan.nodes:
        host, _, port_text = node.metrics.rpartition(":")
        if host == HOST:
            what = f"the page of metrics of {node.name}"
            listeners.append((what, int(port_text), "--metrics-port"))
    for name, port, option in listeners:
        if port > PORT_MAX:
            raise ConfigError(
                f"{name} would get port {port}, above {PORT_MAX}; choose a lower --port or {option}"
            )
        other = users.setdefault(port, name)
        if other != name:
            raise ConfigError(f"{other} and {name} would both get port {port}; move {option}")
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
                probe.listen(1)
            except OSError as error:
                taken.append(f"{HOST}:{port} for {name} ({error.strerror})")
    if taken:
        raise ConfigError("cannot listen on " + ", ".join(taken) + "; choose others with --port")


def check_directory(data_dir: str) -> ClusterFile | None:
    """The cluster in data_dir; None if the directory is empty.

    Raises ConfigError if the directory has other content, cannot be written, or is in use.
    """
    try:
        os.makedirs(data_dir, exist_ok=True)
        names = os.listdir(data_dir)
    except OSError as error:
        raise ConfigError(
            f"cannot use data directory {data_dir}: {error.strerror}; name another with --data-dir"
        ) from error
    if not os.access(data_dir, os.W_OK | os.X_OK):
        raise ConfigError(f"cannot write to data directory {data_dir}: permission denied")
    known = read_cluster_file(data_dir)
    # The lock decides, and not the pid in the file, which another process may have by now.
    if is_locked(data_dir):
        holder = f" (launcher pid {known.launcher_pid})" if known is not None else ""
        raise ConfigError(
            f"a cluster is already running in {data_dir}{holder}; "
            "stop it or choose another directory"
        )
    if known is None:
        names = [name for name in names if name != LOCK_NAME]
        if names:
            raise ConfigError(
                f"{data_dir} is not empty and holds no {FILE_NAME} (it holds "
                f"{sorted(names)[0]!r}): it is not a Kvorum data directory; choose an empty one"
            )
        return None
    return known


def check_nodes(plan: ClusterPlan) -> None:
    """Raise ConfigError for a node that would refuse to start, for its properties, its fault board
    or its directory."""
    disk = OsDisk()
    for node in plan.nodes:
        check = controller_config if node.role == "controller" else broker_config
        check(node.properties)
        if node.fault_board:
            FaultBoard(node.fault_board).close()
        check_owner(disk, node.directory, node_id=node.node_id, cluster_id=plan.cluster_id)
