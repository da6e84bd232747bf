"""Sends requests to a running launcher: a request file and a signal.

A file is used and not a socket, so that data directories with long paths work too.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence

from kvorum.launch.cluster_file import FILE_NAME, ClusterFile, NodeEntry, read_cluster_file
from kvorum.launch.identity import is_locked
from kvorum.runtime.errors import ConfigError, KvorumError, required

REQUESTS_FOLDER = "requests"
_RESTART = "restart-"
DEATH_NOTICE_MS = 500
"""Time that the launcher has to notice a dead process and write that to cluster.json."""

_POLL_S = 0.005


class LauncherDidNotAnswer(KvorumError):
    """The launcher did not act on a request within the given time."""


class NotReady(KvorumError):
    """A restarted node died, or does not serve yet."""


def request_restart(data_dir: str, names: Sequence[str]) -> list[NodeEntry]:
    """Have the launcher of data_dir restart dead nodes on their data; returns their entries from
    before.

    Returns at once; `wait_restarted` returns the result for each. Raises ConfigError, and sends no
    request, if a node does not exist or runs already, or if no launcher runs.
    """
    pid: int | None = None
    for name in names:
        cluster, _ = _find(data_dir, name)
        pid = cluster.launcher_pid
        # The lock shows that the launcher runs, and not the pid: another process may have that pid
        # by now and would get a signal. And the file may be out of date if the disk was full.
        if pid is None or not is_locked(data_dir):
            raise ConfigError(
                f"no launcher is running for {data_dir}; start the cluster with `kvorum dev "
                f"--data-dir {data_dir}`"
            )
    entries = [_find_dead(data_dir, name) for name in names]
    os.makedirs(os.path.join(data_dir, REQUESTS_FOLDER), exist_ok=True)
    for entry in entries:
        with open(_request_path(data_dir, entry.name), "w", encoding="ascii"):
            pass
    os.kill(required(pid, "at least one node is named"), signal.SIGUSR1)
    return entries


def wait_restarted(
    data_dir: str, name: str, *, deadline_ms: int, starts_before: int = -1
) -> NodeEntry:
    """Wait until a node that `request_restart` has requested is ready; returns its entry.

    deadline_ms: by `time.monotonic`. starts_before: of the entry that `request_restart` returned.
    Raises NotReady, with the reason, if the node died, or is not ready in time, or if its state is
    unknown. Raises LauncherDidNotAnswer if the node was not started.
    """
    request = _request_path(data_dir, name)
    while os.path.exists(request) and time.monotonic() * 1000 < deadline_ms:
        time.sleep(_POLL_S)
    is_answered = not os.path.exists(request)
    _, entry = _find(data_dir, name)
    if is_answered and entry.starts <= starts_before:
        # The file, and the reason in it, may be older than the node's last death.
        raise NotReady(
            f"{name} was started again, and its launcher cannot write {FILE_NAME} (is the disk "
            f"full?); what became of it is in the launcher's output and in {entry.log_file}"
        )
    if entry.is_ready and entry.starts > starts_before:
        return entry
    if entry.state == "running" and entry.starts > starts_before:
        raise NotReady(f"{name} runs (pid {entry.pid}) and is not ready yet; see {entry.log_file}")
    if is_answered:
        raise NotReady(f"{name} died again: {entry.reason}")
    raise LauncherDidNotAnswer(f"the launcher did not restart {name} in time")


def _request_path(data_dir: str, name: str) -> str:
    return os.path.join(data_dir, REQUESTS_FOLDER, f"{_RESTART}{name}")


def take_restart_requests(data_dir: str) -> list[str]:
    """Names of nodes with restart requests; a request stays until `finish_restart`."""
    try:
        names = os.listdir(os.path.join(data_dir, REQUESTS_FOLDER))
    except FileNotFoundError:
        return []
    return sorted(n.removeprefix(_RESTART) for n in names if n.startswith(_RESTART))


def finish_restart(data_dir: str, name: str) -> None:
    """Remove the request, since the node is ready or dead again; the request's sender watches for
    that."""
    os.unlink(_request_path(data_dir, name))


def _find_dead(data_dir: str, name: str) -> NodeEntry:
    """The node once it is dead; the launcher gets some time to notice a node that was just
    killed."""
    deadline = time.monotonic() + DEATH_NOTICE_MS / 1000
    while True:
        cluster, entry = _find(data_dir, name)
        # The file may be older than the node's death if the disk was full.
        if entry.state != "running" or not _lives(entry.pid, cluster.launcher_pid):
            return entry
        if time.monotonic() > deadline:
            raise ConfigError(f"{entry.name} is running (pid {entry.pid})")
        time.sleep(_POLL_S)


def _lives(pid: int | None, launcher_pid: int | None) -> bool:
    """True if the pid is a living child of the launcher, and not a zombie.

    Another process may have the pid by now. Without /proc (macOS) any process with that pid counts.
    """
    if pid is None:
        return False
    try:
        os.kill(pid, 0)
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            state, parent, *_ = file.read().rpartition(")")[2].split()
    except (ProcessLookupError, PermissionError):
        return False
    except FileNotFoundError:
        return not os.path.exists("/proc/self")
    return state != "Z" and int(parent) == launcher_pid


def _find(data_dir: str, name: str) -> tuple[ClusterFile, NodeEntry]:
    cluster = read_cluster_file(data_dir)
    if cluster is None:
        raise ConfigError(f"there is no cluster in {data_dir}")
    entry = cluster.node(name)
    if entry is None:
        known = ", ".join(node.name for node in cluster.nodes)
        raise ConfigError(f"the cluster in {data_dir} has no node {name!r}; it has {known}")
    return cluster, entry
