"""Asking a running launcher for something: a request file and a signal.

A file and not a socket, so that any data directory works, however long its path.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import time
from typing import Any

from launch.cluster_file import ClusterFile, NodeEntry, read_cluster_file
from launch.identity import is_locked
from runtime.errors import ConfigError, KvorumError

REQUESTS_FOLDER = "requests"
_RESTART = "restart-"
DEATH_NOTICE_MS = 500
"""How long the launcher may take to notice a dead process and say so in cluster.json."""

_POLL_S = 0.005


class LauncherDidNotAnswer(KvorumError):
    """The launcher took no notice of a request in the time given."""


def request_restart(data_dir: str, name: str, timeout_ms: int = 10_000) -> dict[str, Any]:
    """Have the launcher of data_dir start a dead node again, on its data; its new entry.

    Returns once the node's process runs (not yet: once it serves). Raises ConfigError if there is
    no such node, it runs already, or no launcher is there; LauncherDidNotAnswer after timeout_ms.
    """
    cluster, entry = _find_dead(data_dir, name)
    pid = cluster.launcher_pid
    # The lock and not the pid says that it is there: a stranger with that pid would get a signal.
    if pid is None or not is_locked(data_dir):
        raise ConfigError(
            f"no launcher is running for {data_dir}; start the cluster with `kvorum dev "
            f"--data-dir {data_dir}`"
        )
    request = os.path.join(data_dir, REQUESTS_FOLDER, f"{_RESTART}{entry.name}")
    os.makedirs(os.path.dirname(request), exist_ok=True)
    with open(request, "w", encoding="ascii"):
        pass
    os.kill(pid, signal.SIGUSR1)
    deadline = time.monotonic() + timeout_ms / 1000
    while time.monotonic() < deadline:
        if not os.path.exists(request):
            _, now = _find(data_dir, entry.name)
            if now.state == "running" and now.pid != entry.pid:
                return dataclasses.asdict(now)
        time.sleep(_POLL_S)
    raise LauncherDidNotAnswer(f"the launcher did not restart {name} within {timeout_ms} ms")


def take_restart_requests(data_dir: str) -> list[str]:
    """Names of nodes that somebody wants restarted; the requests stay until `finish_restart`."""
    try:
        names = os.listdir(os.path.join(data_dir, REQUESTS_FOLDER))
    except FileNotFoundError:
        return []
    return sorted(n.removeprefix(_RESTART) for n in names if n.startswith(_RESTART))


def finish_restart(data_dir: str, name: str) -> None:
    """The request was dealt with; its sender watches for this."""
    os.unlink(os.path.join(data_dir, REQUESTS_FOLDER, f"{_RESTART}{name}"))


def _find_dead(data_dir: str, name: str) -> tuple[ClusterFile, NodeEntry]:
    """The node once it is dead; one killed a moment ago is given time to be noticed."""
    deadline = time.monotonic() + DEATH_NOTICE_MS / 1000
    while True:
        cluster, entry = _find(data_dir, name)
        if entry.state != "running":
            return cluster, entry
        if time.monotonic() > deadline:
            raise ConfigError(f"{entry.name} is running (pid {entry.pid})")
        time.sleep(_POLL_S)


def _find(data_dir: str, name: str) -> tuple[ClusterFile, NodeEntry]:
    cluster = read_cluster_file(data_dir)
    if cluster is None:
        raise ConfigError(f"there is no cluster in {data_dir}")
    entry = cluster.node(name)
    if entry is None:
        known = ", ".join(node.name for node in cluster.nodes)
        raise ConfigError(f"the cluster in {data_dir} has no node {name!r}; it has {known}")
    return cluster, entry
