"""Kvorum's side: one `kvorum dev`, with every setting at its default."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench import encryption
from bench.cluster import BROKERS, CONTROLLERS, HOST, BenchFailed
from bench.figures import KVORUM
from bench.processes import LAUNCHER, ClusterProcess
from kvorum.chaos.live.host.processes import is_alive, start_process, stop_process
from kvorum.runtime.config import dump_properties

_STOP_TIMEOUT_MS = 30_000
_RESTART_TIMEOUT_S = 30.0
_LAST_WORDS_BYTES = 2_000


class KvorumCluster:
    """Implements `bench.cluster.BenchCluster`."""

    side = KVORUM

    def __init__(
        self,
        *,
        directory: Path,
        port: int,
        metrics: Mapping[str, str] | None = None,
        settings: Sequence[str] = (),
        brokers: int = BROKERS,
    ) -> None:
        """metrics: host:port of the metrics page by node name; none by default.
        settings: properties as NAME=VALUE, of all nodes."""
        self._settings = settings
        self._brokers = brokers
        self._metrics = metrics or {}
        self._directory = directory
        self._data_dir = directory / "data"
        self._log_file = directory / "dev.log"
        self._port = port
        self._controller_port = port + 10
        self._launcher: subprocess.Popen[bytes] | None = None

    @property
    def brokers(self) -> tuple[str, ...]:
        return tuple(f"{HOST}:{self._port + i}" for i in range(self._brokers))

    def prepare(self) -> None:
        shutil.rmtree(self._data_dir, ignore_errors=True)
        self._directory.mkdir(parents=True, exist_ok=True)

    def launch(self) -> None:
        command = [sys.executable, "-m", "kvorum", "dev"]
        command += ["--controllers", str(CONTROLLERS), "--brokers", str(self._brokers)]
        command += ["--data-dir", str(self._data_dir), "--port", str(self._port)]
        command += ["--controller-port", str(self._controller_port)]
        for setting in self._settings:
            command += ["--set", setting]
        properties = encryption.broker_properties()
        if properties:
            file = self._directory / "tls.toml"
            file.write_text(dump_properties(properties), encoding="utf-8")
            command += ["--config", str(file)]
        if self._metrics:
            links = self._directory / "links.json"
            pages = {name: {"metrics": address} for name, address in self._metrics.items()}
            links.write_text(json.dumps(pages), encoding="utf-8")
            command += ["--links", str(links)]
        self._launcher = start_process(command, log_file=str(self._log_file))

    def processes(self) -> list[ClusterProcess]:
        launcher = self._launcher
        if launcher is None or launcher.poll() is not None:
            return []
        running = [ClusterProcess(name=LAUNCHER, role=LAUNCHER, node_id=-1, pid=launcher.pid)]
        cluster_file = self._data_dir / "cluster.json"
        if not cluster_file.exists():
            return running
        for entry in json.loads(cluster_file.read_text(encoding="utf-8"))["nodes"]:
            # The file may not show a death yet that the benchmark has just caused.
            if entry["pid"] is not None and is_alive(entry["pid"]):
                running.append(
                    ClusterProcess(
                        name=entry["name"],
                        role=entry["roles"][0],
                        node_id=entry["id"],
                        pid=entry["pid"],
                    )
                )
        return running

    def restart(self, process: ClusterProcess) -> None:
        command = [sys.executable, "-m", "kvorum", "dev", "restart", process.name]
        command += ["--data-dir", str(self._data_dir)]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_RESTART_TIMEOUT_S
        )
        if done.returncode != 0:
            raise BenchFailed(f"{process.name} did not restart: {done.stderr.strip()}")

    def stop(self) -> None:
        launcher = self._launcher
        self._launcher = None
        if launcher is not None:
            stop_process(launcher, timeout_ms=_STOP_TIMEOUT_MS)

    def last_words(self) -> str:
        if not self._log_file.exists():
            return ""
        return self._log_file.read_text(encoding="utf-8", errors="replace")[-_LAST_WORDS_BYTES:]
