"""Requests to a running launcher, by a request file and a signal.

A file is used instead of a socket, because it works in any data directory, however long its path
is.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence

from kvorum.launch.cluster.cluster_file import FILE_NAME, ClusterFile, NodeEntry, cluster_in
from kvorum.launch.directories.identity import is_locked
from kvorum.runtime.errors import ConfigError, KvorumError, required
from kvorum.runtime.private_files import private_files

REQUESTS_FOLDER = "requests"
_RESTART = "restart-"
_PART = ".part"
_STOP = "stop"
DEATH_NOTICE_MS = 500
"""Time for the launcher to notice a dead process and write that to cluster.json."""

_POLL_S = 0.005


class LauncherDidNotAnswer(KvorumError):
    """The launcher did not react to a request in time."""


class NotReady(KvorumError):
    """A restarted node died, or does not serve yet."""


def request_restart(
    data_dir: str, names: Sequence[str], *, stop_running: bool = False
) -> list[NodeEntry]:
    """Ask the launcher of data_dir to restart nodes with their data; return their entries.

    stop_running: a node that runs is stopped first, with its controlled shutdown.

    Returns at once; `wait_restarted` waits for the results. Raises ConfigError, and requests
    nothing, if there is no such node, if one is running already and is not to be stopped, or if no
    launcher is running.
    """
    pid: int | None = None
    for name in names:
        cluster, _ = _find(data_dir, name)
        pid = cluster.launcher_pid
        # The lock, and not the pid, shows that the launcher runs: a reused pid would send the
        # signal to a stranger, and on a full disk the file may be older than the launcher's end.
        if pid is None or not is_locked(data_dir):
            raise ConfigError(
                f"no launcher is running for {data_dir}; start the cluster with `kvorum dev "
                f"--data-dir {data_dir}`"
            )
    find = _find_any if stop_running else _find_dead
    entries = [find(data_dir, name) for name in names]
    with private_files():
        os.makedirs(os.path.join(data_dir, REQUESTS_FOLDER), exist_ok=True)
        for entry in entries:
            path = _request_path(data_dir, entry.name)
            # Renamed, so that the launcher never reads half a request.
            with open(f"{path}{_PART}", "w", encoding="ascii") as file:
                file.write(_STOP if stop_running else "")
            os.replace(f"{path}{_PART}", path)
    os.kill(required(pid, "at least one node is named"), signal.SIGUSR1)
    return entries


def wait_restarted(
    data_dir: str, name: str, *, deadline_ms: int, starts_before: int = -1
) -> NodeEntry:
    """Wait until a node that `request_restart` asked for is ready; return its entry.

    deadline_ms: by `time.monotonic`.
    starts_before: `starts` of the entry from `request_restart`.

    Raises NotReady if the node died (with the reason), if it runs and is not ready by then, or if
    its state is unknown. Raises LauncherDidNotAnswer if it was not started.
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


def signal_node(data_dir: str, name: str, number: int) -> NodeEntry:
    """Send a signal to a node of data_dir's launcher; returns the node's entry.

    Raises ConfigError if there is no such node, or none of the launcher's processes has its pid.
    """
    cluster, entry = _find(data_dir, name)
    if not _lives(entry.pid, cluster.launcher_pid):
        raise ConfigError(f"{entry.name} is not running (state {entry.state})")
    os.kill(required(entry.pid, "a living process has a pid"), number)
    return entry


def process_state(pid: int | None, launcher_pid: int | None) -> str:
    """running, paused (by SIGSTOP) or dead: the state of a launcher's process now. Without /proc a
    paused process counts as running."""
    if not _lives(pid, launcher_pid):
        return "dead"
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            state = file.read().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "dead" if os.path.exists("/proc/self") else "running"
    return "paused" if state in "Tt" else "running"


def _request_path(data_dir: str, name: str) -> str:
    return os.path.join(data_dir, REQUESTS_FOLDER, f"{_RESTART}{name}")


def take_restart_requests(data_dir: str) -> dict[str, bool]:
    """Names of the nodes with a restart request; a request stays until `finish_restart`.

    The value: True if a node that runs is to be stopped first.
    """
    folder = os.path.join(data_dir, REQUESTS_FOLDER)
    try:
        found = os.listdir(folder)
    except FileNotFoundError:
        return {}
    requests = {}
    for name in sorted(found):
        if name.startswith(_RESTART) and not name.endswith(_PART):
            with open(os.path.join(folder, name), encoding="ascii") as file:
                requests[name.removeprefix(_RESTART)] = file.read() == _STOP
    return requests


def finish_restart(data_dir: str, name: str) -> None:
    """Remove a request, because the node is ready or dead again; the requester waits for this."""
    os.unlink(_request_path(data_dir, name))


def _find_any(data_dir: str, name: str) -> NodeEntry:
    return _find(data_dir, name)[1]


def _find_dead(data_dir: str, name: str) -> NodeEntry:
    """The entry of a dead node. A node killed a moment ago may not have been noticed yet."""
    deadline = time.monotonic() + DEATH_NOTICE_MS / 1000
    while True:
        cluster, entry = _find(data_dir, name)
        # On a full disk the file may be older than the node's end.
        if entry.state != "running" or not _lives(entry.pid, cluster.launcher_pid):
            return entry
        if time.monotonic() > deadline:
            raise ConfigError(f"{entry.name} is running (pid {entry.pid})")
        time.sleep(_POLL_S)


def _lives(pid: int | None, launcher_pid: int | None) -> bool:
    """True if this is a living process of the launcher, and not a zombie.

    The pid may belong to another process by now. Without /proc (macOS) any process with the pid
    counts.
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
    cluster = cluster_in(data_dir)
    entry = cluster.node(name)
    if entry is None:
        known = ", ".join(node.name for node in cluster.nodes)
        raise ConfigError(f"the cluster in {data_dir} has no node {name!r}; it has {known}")
    return cluster, entry
