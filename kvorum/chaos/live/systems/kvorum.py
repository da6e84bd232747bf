"""Kvorum under test: `kvorum dev` starts it, cluster.json describes it, signals inject faults."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import grpc

from kvorum.chaos.addresses import secured
from kvorum.chaos.live.host.links import LinkPlan
from kvorum.chaos.live.host.processes import (
    ProcessFailed,
    is_alive,
    start_process,
    stop_process,
    wait_until,
)
from kvorum.chaos.live.systems.boards import FOLDER
from kvorum.chaos.live.systems.capabilities import KVORUM_CAPABILITIES, OF_LINKS
from kvorum.chaos.live.systems.own_cluster import OwnCluster
from kvorum.chaos.live.systems.protocol import (
    DEAD,
    RUNNING,
    Capability,
    ClusterShape,
    Node,
    NotObservable,
    QuorumStatus,
    active_controller,
    node_named,
)
from kvorum.client.security import NONE, read_properties, security_of
from kvorum.launch.cluster.secure_plan import admin_file
from kvorum.launch.directories.identity import claim_directory
from kvorum.metadata.configs.secrets import is_password
from kvorum.metadata.inspect.export import export_history
from kvorum.metadata.inspect.history import history_of
from kvorum.metadata.rpc.metadata_log_reader import read_copy
from kvorum.rpc import admin_pb2, admin_pb2_grpc
from kvorum.runtime.config import dump_properties
from kvorum.runtime.disk import OsDisk
from kvorum.runtime.errors import KvorumError
from kvorum.runtime.private_files import private_files
from kvorum.runtime.python_module import module_command

#: Time for a clean stop of every node, with snapshots and clean-shutdown markers.
_STOP_TIMEOUT_MS = 20_000
_SIGNAL_TIMEOUT_MS = 5_000
_RESTART_TIMEOUT_MS = 30_000
_STATUS_TIMEOUT_S = 5.0
_LOG_TAIL_BYTES = 2_000
#: Files of a node's folder that are not on its "disk": the launcher holds both open.
_KEPT_BY_WIPE = (".lock", "logs")


class KvorumSystem(OwnCluster):
    """The processes of one run. Implements `systems.protocol.System`."""

    name = "kvorum"

    def __init__(
        self,
        *,
        shape: ClusterShape,
        plan: LinkPlan,
        data_dir: str,
        log_file: str,
        client_port: int,
        controller_port: int,
        metrics_port: int | None = None,
    ) -> None:
        super().__init__()
        self.plan = plan
        self.data_dir = data_dir
        self._shape = shape
        self._log_file = log_file
        self._client_port = client_port
        self._controller_port = controller_port
        names = plan.controllers + plan.brokers if metrics_port is not None else ()
        #: Node -> host:port of its Prometheus page.
        self.metrics_addresses = {
            name: f"127.0.0.1:{(metrics_port or 0) + at}" for at, name in enumerate(names)
        }
        self._process: subprocess.Popen[bytes] | None = None
        #: Credentials of the cluster's first user, a super user; known once the cluster runs.
        self._security = NONE

    @property
    def version(self) -> str:
        return kvorum_version()

    @property
    def capabilities(self) -> frozenset[Capability]:
        return KVORUM_CAPABILITIES if self.plan.links else KVORUM_CAPABILITIES - OF_LINKS

    def command(self, links_file: str) -> list[str]:
        """The command line that starts the cluster."""
        command = module_command("kvorum", "dev")
        command += ["--controllers", str(self._shape.controllers)]
        command += ["--brokers", str(self._shape.brokers)]
        if self._shape.is_secure:
            command += ["--secure"]
        if self._shape.voters:
            command += ["--voters", str(self._shape.voters)]
        command += ["--data-dir", self.data_dir]
        command += ["--port", str(self._client_port)]
        command += ["--controller-port", str(self._controller_port)]
        for key, value in self._shape.settings:
            if not is_password(key):
                command += ["--set", f"{key}={value}"]
        if self._passwords():
            command += ["--config", self._secrets_file]
        return [*command, "--links", links_file]

    def _passwords(self) -> dict[str, str]:
        """The settings that no command line may show."""
        return {key: value for key, value in self._shape.settings if is_password(key)}

    @property
    def _secrets_file(self) -> str:
        return str(Path(self.data_dir).parent / "secrets.toml")

    def roll_command(self) -> list[str]:
        """`kvorum cluster roll` on this cluster, through the addresses that its clients have."""
        command = module_command("kvorum", "cluster", "roll")
        command += ["--data-dir", self.data_dir, "-b", self.bootstrap()]
        if self._shape.is_secure:
            command += ["--command-config", admin_file(self.data_dir)]
        return command

    @property
    def roll_log(self) -> str:
        return str(Path(self._log_file).with_name("roll.log"))

    def start(self) -> None:
        Path(self.data_dir).mkdir(parents=True, exist_ok=True)
        links_file = str(Path(self.data_dir).parent / "links.json")
        document = self.plan.document()
        for name, address in self.metrics_addresses.items():
            document[name]["metrics"] = address
        self._boards.make(Path(self.data_dir).parent / FOLDER, document)
        for name, node in document.items():
            node["fault_board"] = self._boards.path_of(name)
        Path(links_file).write_text(json.dumps(document, indent=1), encoding="utf-8")
        if passwords := self._passwords():
            with private_files():
                Path(self._secrets_file).write_text(dump_properties(passwords), encoding="utf-8")
        process = self._process = start_process(self.command(links_file), log_file=self._log_file)

        def is_ready() -> bool:
            if process.poll() is not None:
                raise ProcessFailed(
                    f"the cluster ended with {process.returncode} while starting: {self.log_tail()}"
                )
            return any(line.startswith("bootstrap:") for line in self._log().splitlines())

        wait_until(is_ready, timeout_ms=self._shape.start_timeout_ms, what="the cluster is ready")
        if self._shape.is_secure:
            path = admin_file(self.data_dir)
            self._security = security_of(read_properties(path), path)

    def stop(self) -> None:
        process = self._process
        if process is None:
            return
        self._boards.close()
        nodes = self._nodes_if_any()
        for node in nodes:
            # SIGTERM stays pending while a process is stopped by SIGSTOP.
            _send(node.pid, signal.SIGCONT)
        stop_process(process, timeout_ms=_STOP_TIMEOUT_MS)
        for node in nodes + self._nodes_if_any():
            if node.state == RUNNING and node.pid is not None and is_alive(node.pid):
                _send(node.pid, signal.SIGKILL)
        self._process = None

    def is_running(self) -> bool:
        """True if the launcher runs."""
        return self._process is not None and self._process.poll() is None

    def nodes(self) -> list[Node]:
        """Every node, from cluster.json."""
        document = self._document()
        return [
            Node(
                name=entry["name"],
                node_id=entry["id"],
                is_controller="controller" in entry["roles"],
                pid=entry["pid"],
                state=entry["state"],
                listener=secured(entry["listener"], self._security),
                log_file=entry["log_file"],
            )
            for entry in document["nodes"]
        ]

    def bootstrap(self) -> str:
        direct = ",".join(node.listener for node in self.nodes() if not node.is_controller)
        return secured(self.plan.bootstrap() or direct, self._security)

    def await_death(self, name: str) -> None:
        """Return when the launcher has noticed that the node is dead."""
        self._await_death(name, timeout_ms=_SIGNAL_TIMEOUT_MS)

    def restart(self, name: str) -> None:
        from kvorum.launch.dev.control import request_restart

        self.await_death(name)
        request_restart(self.data_dir, [name])
        wait_until(
            lambda: node_named(self, name).state == RUNNING,
            timeout_ms=_RESTART_TIMEOUT_MS,
            what=f"{name} runs again",
        )
        self._killed.discard(name)

    def wipe(self, name: str) -> None:
        """Remove everything in the node's data directory; its log files for people stay.

        A controller whose voters can change gets a new identity, as by `kvorum init --again`: it
        does not start on an empty directory.
        """
        if name not in self._killed:
            raise KvorumError(f"{name} was not killed or stopped, its disk cannot be wiped")
        self.await_death(name)
        for path in (Path(self.data_dir) / name).iterdir():
            if path.name in _KEPT_BY_WIPE:
                continue
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        if self._shape.voters and name in self.plan.controllers:
            claim_directory(
                OsDisk(),
                str(Path(self.data_dir) / name),
                node_id=node_named(self, name).node_id,
                cluster_id=self._document()["cluster_id"],
                rng=random.SystemRandom(),
            )

    def log_tail(self, name: str = "") -> str:
        text = self._log()
        if name:
            log_file = Path(node_named(self, name).log_file)
            text = log_file.read_text(encoding="utf-8", errors="replace")
        return text[-_LOG_TAIL_BYTES:]

    def quorum_status(self, name: str) -> QuorumStatus:
        listener = node_named(self, name).listener
        with self._security.channels().open_blocking(listener) as channel:
            try:
                answer = admin_pb2_grpc.AdminStub(channel).DescribeQuorum(
                    admin_pb2.DescribeQuorumRequest(), timeout=_STATUS_TIMEOUT_S
                )
            except grpc.RpcError as error:
                reason = f"{error.code().name}: {error.details()}"
                raise NotObservable(f"{name} at {listener} gave no status: {reason}") from error
        return QuorumStatus(
            leader_id=answer.leader_id,
            leader_epoch=answer.leader_epoch,
            high_watermark=answer.high_watermark,
        )

    def controller_listener(self, name: str) -> tuple[str, int]:
        host, _, port = node_named(self, name).listener.rpartition(":")
        return host, int(port)

    def export_metadata(self, directory: str, *, timeout_s: float) -> str:
        """Everything that the quorum's leader has committed, as Parquet, for the Spark job."""
        name = active_controller(self)
        listener = node_named(self, name).listener
        with self._security.channels().open_blocking(listener) as channel:
            try:
                copy = read_copy(channel, timeout_s=timeout_s)
            except grpc.RpcError as error:
                raise NotObservable(f"{name} at {listener} sent no metadata: {error}") from error
        export_history(history_of(copy, name=name), directory)
        return f"the metadata log of {name}, as Parquet"

    def _await_stop(self, name: str) -> None:
        self._await_death(name, timeout_ms=_STOP_TIMEOUT_MS)

    def _await_death(self, name: str, *, timeout_ms: int) -> None:
        wait_until(
            lambda: node_named(self, name).state == DEAD,
            timeout_ms=timeout_ms,
            what=f"{name} is known to be dead",
        )

    def _pid(self, name: str, what: str) -> int:
        node = node_named(self, name)
        if node.pid is None or not is_alive(node.pid):
            raise KvorumError(f"{name} is not running, it cannot {what}")
        return node.pid

    def _log(self) -> str:
        return Path(self._log_file).read_text(encoding="utf-8", errors="replace")

    def _document(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self._cluster_file().read_text(encoding="utf-8"))
        return document

    def _cluster_file(self) -> Path:
        return Path(self.data_dir) / "cluster.json"

    def _nodes_if_any(self) -> list[Node]:
        return self.nodes() if self._cluster_file().exists() else []


def kvorum_version() -> str:
    """The version of the installed package, "not installed" in a bare checkout."""
    from importlib import metadata

    try:
        return metadata.version("kvorum")
    except metadata.PackageNotFoundError:
        return "not installed"


def _send(pid: int | None, number: signal.Signals) -> None:
    if pid is None:
        return
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
