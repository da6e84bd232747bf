"""The processes of a lab, a cluster of `kvorum dev`: their states, and the faults that a user of
the console causes. Blocks.

Signals go only to processes that the lab's launcher started. Links are cut in a toxiproxy server
whose proxies are named `source.destination`, as those of experiments are.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from typing import Protocol

from kvorum.console.core.patch import Document
from kvorum.launch.cluster.cluster_file import ClusterFile, read_cluster_file
from kvorum.launch.dev.control import (
    process_state,
    request_restart,
    signal_node,
    wait_restarted,
)
from kvorum.runtime.errors import ConfigError

RESTART_TIMEOUT_MS = 30_000
SIGNALS = {"kill": signal.SIGKILL, "pause": signal.SIGSTOP, "resume": signal.SIGCONT}
ACTIONS = (*SIGNALS, "restart", "cut", "heal")


class Links(Protocol):
    """The links between a lab's nodes."""

    def cut_nodes(self) -> frozenset[str]:
        """Names of the nodes whose links are cut. Raises KvorumError."""

    def cut(self, node: str) -> None:
        """Bytes to and from this node vanish; connections stay open. Raises KvorumError."""

    def heal(self, node: str) -> None:
        """Undo `cut`. Raises KvorumError."""


class Lab:
    """data_dir: of `kvorum dev`.
    links: None if the nodes' links pass no proxy that is known.
    """

    def __init__(self, data_dir: str, links: Links | None) -> None:
        self.data_dir = os.path.abspath(data_dir)
        self.links = links

    def cluster(self) -> ClusterFile:
        """The cluster file. Raises ConfigError if there is none, or it is damaged."""
        cluster = read_cluster_file(self.data_dir)
        if cluster is None:
            raise ConfigError(
                f"there is no cluster in {self.data_dir}; start one with `kvorum dev --data-dir "
                f"{self.data_dir}`"
            )
        return cluster

    def processes(self) -> Mapping[int, Document]:
        """By node id: name, is_broker, state, pid, and reason, that of a death. state: running,
        starting, paused, stopped or dead. is_cut: its links are cut; None if no links are known."""
        cluster = self.cluster()
        cut = self.links.cut_nodes() if self.links is not None else None
        rows = {}
        for entry in cluster.nodes:
            state = entry.state
            if state == "running":
                state = process_state(entry.pid, cluster.launcher_pid)
                if state == "running" and not entry.is_ready:
                    state = "starting"
            rows[entry.id] = {
                "name": entry.name,
                "is_broker": "broker" in entry.roles,
                "state": state,
                "pid": entry.pid,
                "reason": entry.reason or None,
                "is_cut": None if cut is None else entry.name in cut,
            }
        return rows

    def act(self, action: str, name: str) -> str:
        """Carry out one of ACTIONS on a node; returns a sentence. Raises KvorumError with the
        reason if it cannot be done."""
        entry = self.cluster().node(name)
        if entry is None:
            known = ", ".join(node.name for node in self.cluster().nodes)
            raise ConfigError(f"the lab has no node {name!r}; it has {known}")
        if action in SIGNALS:
            signal_node(self.data_dir, entry.name, SIGNALS[action])
            return f"{entry.name} is {_PAST[action]}"
        if action == "restart":
            (asked,) = request_restart(self.data_dir, [entry.name])
            deadline_ms = int(time.monotonic() * 1000) + RESTART_TIMEOUT_MS
            wait_restarted(
                self.data_dir, entry.name, deadline_ms=deadline_ms, starts_before=asked.starts
            )
            return f"{entry.name} runs again"
        if self.links is None:
            raise ConfigError(NO_LINKS)
        if action == "cut":
            self.links.cut(entry.name)
        else:
            self.links.heal(entry.name)
        return f"the links of {entry.name} are {_PAST[action]}"


NO_LINKS = (
    "links cannot be cut: no toxiproxy server is known; start the nodes with `kvorum dev --links` "
    "behind one, and the console with --toxiproxy HOST:PORT"
)

_PAST = {
    "kill": "killed",
    "pause": "paused",
    "resume": "resumed",
    "cut": "cut",
    "heal": "healed",
}
