"""Apache Kafka under test: one JVM for each controller and broker, every link through a proxy."""

from __future__ import annotations

import base64
import random
import shutil
import signal
import socket
import subprocess
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kvorum.chaos.live.host.links import LinkPlan
from kvorum.chaos.live.host.processes import (
    ProcessFailed,
    start_process,
    stop_process,
    wait_until,
)
from kvorum.chaos.live.systems.boards import FOLDER
from kvorum.chaos.live.systems.kafka_jars import (
    SERVER,
    format_storage,
    java_command,
    library_version,
    properties_text,
)
from kvorum.chaos.live.systems.kafka_plan import (
    KafkaNode,
    hosts_file,
    plan_kafka_links,
    plan_nodes,
    properties_of,
)
from kvorum.chaos.live.systems.own_cluster import OwnCluster
from kvorum.chaos.live.systems.protocol import (
    DEAD,
    RUNNING,
    Capability,
    ClusterShape,
    Node,
    QuorumStatus,
    active_controller,
)
from kvorum.chaos.live.systems.quorum_requests import ask_controller
from kvorum.chaos.live.systems.shim import shim_environment
from kvorum.runtime.errors import KvorumError, required

#: Six JVMs must fit on two cores: a small heap, one collector thread, and C1 alone.
_JVM_FLAGS = (
    "-Xms128m",
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    "-Djava.awt.headless=true",
    "-Djava.net.preferIPv4Stack=true",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
    "-Dlog4j2.level=INFO",
)
_STATUS_TIMEOUT_S = 5.0
_METADATA_TIMEOUT_S = 2.0
_STOP_NODE_TIMEOUT_MS = 60_000
_KILL_TIMEOUT_MS = 5_000
_LOG_TAIL_BYTES = 2_000
_METADATA_FOLDER = "__cluster_metadata-0"


class KafkaSystem(OwnCluster):
    """The JVMs of one run. Implements `systems.protocol.System`.

    library: the folder with the jars.
    directory: of data and configuration.
    log_dir: one log file for each node. Ports: `kafka_plan.port_count` in a row from first_port.
    shim: the library that gives a JVM's disk and clock faults; None for a cluster without them.
    capabilities: those of Kafka without what this machine denies it.
    """

    name = "kafka"

    def __init__(
        self,
        *,
        shape: ClusterShape,
        library: Path,
        directory: Path,
        log_dir: Path,
        first_port: int,
        rng: random.Random,
        capabilities: frozenset[Capability],
        shim: Path | None = None,
    ) -> None:
        super().__init__()
        self.capabilities = capabilities
        controllers, brokers = shape.controllers, shape.brokers
        self._nodes = plan_nodes(controllers, brokers, first_port=first_port)
        proxies = first_port + controllers + 2 * brokers
        self.plan: LinkPlan = plan_kafka_links(self._nodes, first_proxy_port=proxies)
        self._shape = shape
        self._library = library
        self._directory = directory
        self._log_dir = log_dir
        self._rng = rng
        self._cluster_id = _uuid_text(rng)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._shim = shim
        # On Linux a child gets its death signal when the THREAD that started it ends, so one thread
        # starts all of them and lives until `stop`.
        self._starter = ThreadPoolExecutor(max_workers=1, thread_name_prefix="kafka-starter")

    @property
    def version(self) -> str:
        return library_version(self._library)

    def start(self) -> None:
        self._log_dir.mkdir(parents=True, exist_ok=True)
        settings = dict(self._shape.settings)
        for node in self._nodes:
            folder = self._folder(node)
            folder.mkdir(parents=True, exist_ok=True)
            properties = properties_of(
                node,
                self._nodes,
                self.plan,
                data_dir=str(folder / "data"),
                settings=settings,
                is_dynamic=self._shape.voters > 0,
            )
            self._properties_file(node).write_text(properties_text(properties), encoding="utf-8")
            hosts = hosts_file(self._nodes, node, machine=socket.gethostname())
            (folder / "hosts").write_text(hosts, encoding="utf-8")
        self._format_all()
        if self._shim:
            self._boards.make(self._directory.parent / FOLDER, [n.name for n in self._nodes])
        for node in self._nodes:
            self._launch(node)
        wait_until(
            self._is_ready, timeout_ms=self._shape.start_timeout_ms, what="every broker serves"
        )

    def stop(self) -> None:
        """SIGKILL for all: their data is not needed again, and a paused JVM ends by nothing
        else."""
        self._boards.close()
        processes, self._processes = self._processes, {}
        for process in processes.values():
            process.kill()
        for process in processes.values():
            stop_process(process, timeout_ms=_KILL_TIMEOUT_MS)
        self._starter.shutdown()

    def is_running(self) -> bool:
        return bool(self._processes)

    def nodes(self) -> list[Node]:
        return [self._describe(node) for node in self._nodes]

    def bootstrap(self) -> str:
        return self.plan.bootstrap()

    def kill(self, name: str) -> None:
        super().kill(name)
        self._processes[name].wait()

    def restart(self, name: str) -> None:
        node = self._ended(name, "be started")
        self._launch(node)
        self._killed.discard(name)

    def wipe(self, name: str) -> None:
        """Remove the node's data directory and format an empty one with a new directory id."""
        node = self._ended(name, "be wiped")
        shutil.rmtree(self._folder(node) / "data")
        self._format(node)

    def _dead(self) -> list[str]:
        # A node without a process was not started yet, or the cluster is stopped.
        return [name for name in super()._dead() if name in self._processes]

    def log_tail(self, name: str = "") -> str:
        chosen = [node for node in self._nodes if name in ("", node.name)]
        tails = []
        for node in chosen:
            log_file = self._log_file(node)
            if log_file.exists():
                text = log_file.read_text(encoding="utf-8", errors="replace")
                tails.append(f"[{node.name}] {text[-_LOG_TAIL_BYTES // len(chosen) :]}")
        return "\n".join(tails)

    def quorum_status(self, name: str) -> QuorumStatus:
        node = self._node(name)
        return ask_controller(node.listener, node.node_id, timeout_s=_STATUS_TIMEOUT_S)

    def controller_listener(self, name: str) -> tuple[str, int]:
        """By the node's name, which each JVM's hosts file leads to a proxy."""
        node = self._node(name)
        return node.name, node.port

    def export_metadata(self, directory: str, *, timeout_s: float) -> str:
        """Kafka's own files of the active controller: log segments and snapshots, undecoded."""
        name = active_controller(self)
        source = self._folder(self._node(name)) / "data" / _METADATA_FOLDER
        shutil.copytree(source, Path(directory) / _METADATA_FOLDER)
        return f"the metadata log of {name}, Kafka's files as they are; Parquet is made of Kvorum's"

    def _describe(self, node: KafkaNode) -> Node:
        process = self._processes.get(node.name)
        is_alive = process is not None and process.poll() is None
        return Node(
            name=node.name,
            node_id=node.node_id,
            is_controller=node.is_controller,
            pid=process.pid if process is not None and is_alive else None,
            state=RUNNING if is_alive else DEAD,
            listener=node.listener,
            log_file=str(self._log_file(node)),
        )

    def _is_ready(self) -> bool:
        dead = self.died_unasked()
        if dead:
            raise ProcessFailed(f"{', '.join(dead)} ended while starting: {self.log_tail(dead[0])}")
        return _live_brokers(self.bootstrap()) == self._shape.brokers

    def _launch(self, node: KafkaNode) -> None:
        folder = self._folder(node)
        flags = (*_JVM_FLAGS, f"-Djdk.net.hosts.file={folder / 'hosts'}")
        command = java_command(self._library, SERVER, str(self._properties_file(node)), flags=flags)
        environment: Mapping[str, str] = {}
        if self._shim:
            board = self._boards.path_of(node.name)
            environment = shim_environment(self._shim, board=board, directory=folder / "data")
        # SIGTERM would not end a broker without controllers: it waits for a controlled shutdown.
        started = self._starter.submit(
            start_process,
            command,
            log_file=str(self._log_file(node)),
            environment=environment,
            death_signal=signal.SIGKILL,
        )
        self._processes[node.name] = started.result()

    def _format_all(self) -> None:
        """Run kafka-storage once; the other nodes get the same files under their own ids.

        With a voter set that can change, only the first voters have the checkpoint that names it.
        With one that cannot, every node has the checkpoint, which names the feature levels: whoever
        leads first writes them.
        """
        first, *others = self._nodes
        voters = self._nodes[: self._shape.voters]
        ids = {node.name: _uuid_text(self._rng) for node in voters}
        shutil.rmtree(self._folder(first) / "data", ignore_errors=True)
        format_storage(
            self._library,
            self._cluster_id,
            str(self._properties_file(first)),
            voters=",".join(f"{n.node_id}@{n.name}:{n.port}:{ids[n.name]}" for n in voters),
        )
        template = self._template()
        shutil.rmtree(template, ignore_errors=True)
        shutil.copytree(self._folder(first) / "data", template)
        for node in others:
            shutil.rmtree(self._folder(node) / "data", ignore_errors=True)
            if node in voters:
                self._copy_format(node, directory_id=ids[node.name])
        for checkpoint in (template / _METADATA_FOLDER).glob("*.checkpoint") if voters else ():
            checkpoint.unlink()
        for node in others:
            if node not in voters:
                self._format(node)

    def _format(self, node: KafkaNode) -> None:
        """Format an empty disk with a new directory id, which is no voter's."""
        self._copy_format(node, directory_id=_uuid_text(self._rng))

    def _copy_format(self, node: KafkaNode, *, directory_id: str) -> None:
        data = self._folder(node) / "data"
        shutil.copytree(self._template(), data)
        identity = {
            "version": "1",
            "cluster.id": self._cluster_id,
            "node.id": str(node.node_id),
            "directory.id": directory_id,
        }
        (data / "meta.properties").write_text(properties_text(identity), encoding="utf-8")

    def _template(self) -> Path:
        return self._directory / "formatted"

    def _node(self, name: str) -> KafkaNode:
        found = [node for node in self._nodes if node.name == name]
        if not found:
            known = ", ".join(node.name for node in self._nodes)
            raise KvorumError(f"no node is named {name!r} (nodes: {known})")
        return found[0]

    def _pid(self, name: str, what: str) -> int:
        process = self._processes.get(self._node(name).name)
        if process is None or process.poll() is not None:
            raise KvorumError(f"{name} is not running, it cannot {what}")
        return process.pid

    def _await_stop(self, name: str) -> None:
        process = self._processes[name]
        wait_until(
            lambda: process.poll() is not None,
            timeout_ms=_STOP_NODE_TIMEOUT_MS,
            what=f"{name} has shut down",
        )

    def _ended(self, name: str, what: str) -> KafkaNode:
        node = self._node(name)
        process = required(self._processes.get(name), "`start` has started every node")
        if process.poll() is None:
            raise KvorumError(f"{name} is running (pid {process.pid}), it cannot {what}")
        return node

    def _folder(self, node: KafkaNode) -> Path:
        return self._directory / node.name

    def _properties_file(self, node: KafkaNode) -> Path:
        return self._folder(node) / "server.properties"

    def _log_file(self, node: KafkaNode) -> Path:
        return self._log_dir / f"{node.name}.log"


def _live_brokers(bootstrap: str) -> int:
    """The number of brokers in a client's metadata, 0 if no broker answers."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    try:
        return len(admin.list_topics(timeout=_METADATA_TIMEOUT_S).brokers)
    except KafkaException:
        return 0


def _uuid_text(rng: random.Random) -> str:
    """A uuid as Kafka writes it: URL-safe base64 of 16 bytes. Kafka refuses a leading dash."""
    while True:
        text = base64.urlsafe_b64encode(rng.randbytes(16)).decode("ascii").rstrip("=")
        if not text.startswith("-"):
            return text
