"""A cluster under test: `kvorum dev` starts it, cluster.json describes it, signals inject
faults."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kvorum.chaos.experiment.scenario import Configuration
from kvorum.chaos.live.links import LinkPlan
from kvorum.chaos.live.processes import (
    ProcessFailed,
    is_alive,
    start_process,
    stop_process,
    wait_until,
)
from kvorum.runtime.errors import KvorumError

#: Time for a clean stop of every node, with snapshots and clean-shutdown markers.
_STOP_TIMEOUT_MS = 20_000
_SIGNAL_TIMEOUT_MS = 5_000
_RESTART_TIMEOUT_MS = 30_000
_LOG_TAIL_BYTES = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node as cluster.json describes it. `pid` is None while it is not running."""

    name: str
    node_id: int
    is_controller: bool
    pid: int | None
    state: str
    listener: str
    log_file: str


class LiveCluster:
    """The processes of one run. `start` and `stop` are called by the runner only."""

    def __init__(
        self,
        *,
        configuration: Configuration,
        plan: LinkPlan,
        data_dir: str,
        log_file: str,
        client_port: int,
        controller_port: int,
    ) -> None:
        self.plan = plan
        self.data_dir = data_dir
        self._configuration = configuration
        self._log_file = log_file
        self._client_port = client_port
        self._controller_port = controller_port
        self._process: subprocess.Popen[bytes] | None = None
        self.paused: set[str] = set()
        self.killed: set[str] = set()

    def command(self, links_file: str) -> list[str]:
        """The command line that starts the cluster."""
        configuration = self._configuration
        command = [sys.executable, "-m", "kvorum", "dev"]
        command += ["--controllers", str(configuration.controllers)]
        command += ["--brokers", str(configuration.brokers)]
        command += ["--data-dir", self.data_dir]
        command += ["--port", str(self._client_port)]
        command += ["--controller-port", str(self._controller_port)]
        for key, value in configuration.settings:
            command += ["--set", f"{key}={value}"]
        return [*command, "--links", links_file]

    def start(self) -> None:
        """Return when an acks=all write would succeed. Raises ProcessFailed or NotReached."""
        Path(self.data_dir).mkdir(parents=True, exist_ok=True)
        links_file = str(Path(self.data_dir).parent / "links.json")
        Path(links_file).write_text(json.dumps(self.plan.document(), indent=1), encoding="utf-8")
        process = self._process = start_process(self.command(links_file), log_file=self._log_file)

        def is_ready() -> bool:
            if process.poll() is not None:
                raise ProcessFailed(
                    f"the cluster ended with {process.returncode} while starting: {self.log_tail()}"
                )
            return any(line.startswith("bootstrap:") for line in self._log().splitlines())

        timeout_ms = self._configuration.start_timeout_ms
        wait_until(is_ready, timeout_ms=timeout_ms, what="the cluster is ready")

    def stop(self) -> None:
        """Stop all nodes; when this returns no process of the cluster is left."""
        process = self._process
        if process is None:
            return
        nodes = self._nodes_if_any()
        for node in nodes:
            # SIGTERM stays pending while a process is stopped by SIGSTOP.
            _send(node.pid, signal.SIGCONT)
        stop_process(process, timeout_ms=_STOP_TIMEOUT_MS)
        for node in nodes + self._nodes_if_any():
            if node.state == "running" and node.pid is not None and is_alive(node.pid):
                _send(node.pid, signal.SIGKILL)
        self._process = None

    def is_running(self) -> bool:
        """True if the launcher runs; nodes may be dead."""
        return self._process is not None and self._process.poll() is None

    def nodes(self) -> list[Node]:
        """Every node, from cluster.json."""
        document = json.loads(self._cluster_file().read_text(encoding="utf-8"))
        return [
            Node(
                name=entry["name"],
                node_id=entry["id"],
                is_controller="controller" in entry["roles"],
                pid=entry["pid"],
                state=entry["state"],
                listener=entry["listener"],
                log_file=entry["log_file"],
            )
            for entry in document["nodes"]
        ]

    def node(self, name: str) -> Node:
        for node in self.nodes():
            if node.name == name:
                return node
        raise KvorumError(f"no node is named {name!r}")

    def name_of(self, node_id: int) -> str | None:
        """The name of the node with that id."""
        for node in self.nodes():
            if node.node_id == node_id:
                return node.name
        return None

    def died_unasked(self) -> list[str]:
        """Nodes that died although no fault killed them."""
        return [
            node.name
            for node in self.nodes()
            if node.state == "dead" and node.name not in self.killed
        ]

    def kill(self, name: str) -> None:
        """SIGKILL; returns at once, see await_death."""
        node = self.node(name)
        if node.pid is None or not is_alive(node.pid):
            raise KvorumError(f"{name} is not running, it cannot be killed")
        self.killed.add(name)
        self.paused.discard(name)
        os.kill(node.pid, signal.SIGKILL)

    def await_death(self, name: str) -> None:
        """Return when the launcher has noticed that the node is dead."""
        wait_until(
            lambda: self.node(name).state == "dead",
            timeout_ms=_SIGNAL_TIMEOUT_MS,
            what=f"{name} is known to be dead",
        )

    def restart(self, name: str) -> None:
        """Start a dead node again on its old disk; returns when its process runs."""
        from kvorum.launch.control import request_restart

        self.await_death(name)
        request_restart(self.data_dir, [name])
        wait_until(
            lambda: self.node(name).state == "running",
            timeout_ms=_RESTART_TIMEOUT_MS,
            what=f"{name} runs again",
        )
        self.killed.discard(name)

    def pause(self, name: str) -> None:
        """SIGSTOP."""
        self._signal(name, signal.SIGSTOP)
        self.paused.add(name)

    def resume(self, name: str) -> None:
        """SIGCONT."""
        self.paused.discard(name)
        self._signal(name, signal.SIGCONT)

    def log_tail(self) -> str:
        return self._log()[-_LOG_TAIL_BYTES:]

    def controller_listeners(self) -> Sequence[str]:
        """host:port of each running controller, unproxied."""
        return [
            node.listener
            for node in self.nodes()
            if node.is_controller and node.state == "running" and node.name not in self.paused
        ]

    def _signal(self, name: str, number: signal.Signals) -> None:
        node = self.node(name)
        if node.pid is None or not is_alive(node.pid):
            raise KvorumError(f"{name} is not running, it cannot get {number.name}")
        os.kill(node.pid, number)

    def _log(self) -> str:
        return Path(self._log_file).read_text(encoding="utf-8", errors="replace")

    def _cluster_file(self) -> Path:
        return Path(self.data_dir) / "cluster.json"

    def _nodes_if_any(self) -> list[Node]:
        return self.nodes() if self._cluster_file().exists() else []


def _send(pid: int | None, number: signal.Signals) -> None:
    if pid is None:
        return
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
