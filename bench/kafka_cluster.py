"""Apache Kafka's side: its own jars, KRaft with three separate controllers and three brokers.

Settings are Kafka's defaults, except addresses, ids and the replication factors of internal topics
(3, as on the other side). The JVM's flags are those of Kafka's own start script, with -Xmx512m.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench import encryption
from bench.cluster import BROKERS, CONTROLLERS, HOST, BenchFailed
from bench.figures import KAFKA
from bench.processes import BROKER, CONTROLLER, ClusterProcess
from kvorum.chaos.live.host.processes import start_process, stop_process
from kvorum.chaos.live.systems.kafka_jars import (
    SERVER,
    VERSION,
    format_storage,
    java_command,
    properties_text,
)

HEAP = "-Xmx512m"
_BROKER_ID_BASE = 100
#: bin/kafka-run-class.sh, KAFKA_JVM_PERFORMANCE_OPTS.
_JVM_FLAGS = (
    "-server",
    HEAP,
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
    # Log lines that are never read would cost only one of the two sides.
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dlog4j2.StatusLogger.level=OFF",
)
_MAVEN_TIMEOUT_S = 900.0
_STOP_TIMEOUT_MS = 5_000
_LAST_WORDS_BYTES = 1_500
_CLUSTER_ID = "Yk3vR2p1S9ORbV1xWqLz0g"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Node:
    name: str
    role: str
    node_id: int
    port: int


class KafkaCluster:
    """Implements `bench.cluster.BenchCluster`.

    library: the folder with the jars; settings: broker properties in addition to the usual ones.
    """

    side = KAFKA

    def __init__(
        self,
        *,
        directory: Path,
        port: int,
        library: Path,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._settings = dict(settings or {})
        self._directory = directory
        self._library = library
        self._nodes = [
            _Node(name=f"controller-{i + 1}", role=CONTROLLER, node_id=i + 1, port=port + 10 + i)
            for i in range(CONTROLLERS)
        ]
        self._nodes += [
            _Node(
                name=f"broker-{_BROKER_ID_BASE + i + 1}",
                role=BROKER,
                node_id=_BROKER_ID_BASE + i + 1,
                port=port + i,
            )
            for i in range(BROKERS)
        ]
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def brokers(self) -> tuple[str, ...]:
        return tuple(f"{HOST}:{node.port}" for node in self._nodes if node.role == BROKER)

    def prepare(self) -> None:
        fetch_jars(self._library)
        for node in self._nodes:
            folder = self._directory / node.name
            folder.mkdir(parents=True, exist_ok=True)
            self._properties_file(node).write_text(self._properties(node), encoding="utf-8")
            self._format(node)

    def launch(self) -> None:
        for node in self._nodes:
            self._start(node)

    def processes(self) -> list[ClusterProcess]:
        return [
            ClusterProcess(
                name=node.name,
                role=node.role,
                node_id=node.node_id,
                pid=self._running[node.name].pid,
            )
            for node in self._nodes
            if node.name in self._running and self._running[node.name].poll() is None
        ]

    def restart(self, process: ClusterProcess) -> None:
        for node in self._nodes:
            if node.name == process.name:
                self._running[node.name].wait()
                self._start(node)

    def stop(self) -> None:
        running, self._running = self._running, {}
        # The data on these disks is not needed again, and a clean shutdown of six JVMs takes long.
        for process in running.values():
            process.kill()
        for process in running.values():
            stop_process(process, timeout_ms=_STOP_TIMEOUT_MS)

    def last_words(self) -> str:
        words = []
        for node in self._nodes:
            log_file = self._log_file(node)
            if log_file.exists():
                text = log_file.read_text(encoding="utf-8", errors="replace")
                words.append(f"[{node.name}] {text[-_LAST_WORDS_BYTES:]}")
        return "\n".join(words)

    def _start(self, node: _Node) -> None:
        command = java_command(
            self._library, SERVER, str(self._properties_file(node)), flags=_JVM_FLAGS
        )
        self._running[node.name] = start_process(command, log_file=str(self._log_file(node)))

    def _format(self, node: _Node) -> None:
        """Run StorageTool once for each node; later rounds start from a copy of its files.

        It takes most of the time that a round's preparation needs, and its files are the same each
        time.
        """
        data = self._directory / node.name / "data"
        template = self._directory / "formatted" / node.name
        shutil.rmtree(data, ignore_errors=True)
        if not template.exists():
            format_storage(self._library, _CLUSTER_ID, str(self._properties_file(node)))
            shutil.copytree(data, template)
            return
        shutil.copytree(template, data)

    def _properties_file(self, node: _Node) -> Path:
        return self._directory / node.name / "server.properties"

    def _log_file(self, node: _Node) -> Path:
        return self._directory / node.name / "server.log"

    def _properties(self, node: _Node) -> str:
        voters = ",".join(
            f"{n.node_id}@{HOST}:{n.port}" for n in self._nodes if n.role == CONTROLLER
        )
        listener = "CONTROLLER" if node.role == CONTROLLER else "PLAINTEXT"
        lines = {
            "process.roles": node.role,
            "node.id": str(node.node_id),
            "controller.quorum.voters": voters,
            "controller.listener.names": "CONTROLLER",
            "listeners": f"{listener}://{HOST}:{node.port}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": str(self._directory / node.name / "data"),
            "offsets.topic.replication.factor": "3",
            "transaction.state.log.replication.factor": "3",
            "transaction.state.log.min.isr": "2",
            "share.coordinator.state.topic.replication.factor": "3",
            "share.coordinator.state.topic.min.isr": "2",
            **(encryption.broker_properties() if node.role == BROKER else {}),
            **self._settings,
        }
        return properties_text(lines)


def fetch_jars(library: Path) -> None:
    """Download Apache Kafka's jars with Maven into `library`, once. Raises BenchFailed."""
    if (library / f"kafka_2.13-{VERSION}.jar").exists():
        return
    pom = Path(__file__).with_name("pom.xml")
    command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
    command += [f"-DoutputDirectory={library.resolve()}"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_MAVEN_TIMEOUT_S
        )
    except FileNotFoundError as error:
        raise BenchFailed("Maven (mvn) is needed to fetch Apache Kafka's jars") from error
    if done.returncode != 0:
        raise BenchFailed(f"Maven could not fetch Apache Kafka's jars: {done.stdout[-2000:]}")
