"""A cluster of six nodes with metrics, and a real Prometheus that scrapes it."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import yaml

from tests.live.by_hand import HandMade
from tests.live.cluster import Ports
from tests.live.http import get
from tests.polling import eventually
from tests.tree import ROOT

MONITORING = ROOT / "deploy" / "monitoring"
UNPACKED = ROOT / ".tools" / "prometheus" / "usr" / "bin"


def program(name: str) -> str | None:
    """Path of prometheus or promtool: unpacked by deploy/setup.sh, or the system's."""
    unpacked = UNPACKED / name
    return str(unpacked) if unpacked.exists() else shutil.which(name)


class ObservedCluster:
    """Three controllers and three brokers of `kvorum init`; ports: of each node's metrics."""

    def __init__(self, folder: Path, *, names: str = "kvorum") -> None:
        self.made = HandMade(folder, controllers=3, brokers=3)
        self.block = Ports()
        nodes = [f"controller-{i}" for i in (1, 2, 3)] + [f"broker-{i}" for i in (101, 102, 103)]
        self.ports = {node: self.block.broker + at for at, node in enumerate(nodes)}
        for node, port in self.ports.items():
            listener = f"HTTP://127.0.0.1:{port}"
            self.made.change(node, metrics_listener=listener, metrics_names=names)
        self.made.start(*nodes)

    @property
    def prometheus_port(self) -> int:
        return self.block.broker + len(self.ports)

    def status(self, node: str, path: str = "/readyz") -> int:
        """The status of an answer; 0 if the node gives none."""
        try:
            return get(self.ports[node], path)[0]
        except OSError:
            return 0

    def wait_ready(self) -> None:
        for node in self.ports:
            eventually(lambda node=node: self.status(node) == 200, f"{node} is ready")

    def close(self) -> None:
        self.made.close()
        self.block.close()


class Prometheus:
    """Debian's Prometheus with a shipped configuration, whose targets are a cluster's nodes."""

    def __init__(
        self, folder: Path, cluster: ObservedCluster, config: str, *, shift: int = 0
    ) -> None:
        """shift: of the port, if a cluster has several."""
        folder.mkdir()
        port = cluster.prometheus_port + shift
        settings = yaml.safe_load((MONITORING / config).read_text(encoding="utf-8"))
        settings["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        settings["rule_files"] = [str(MONITORING / name) for name in settings.get("rule_files", [])]
        for group in settings["scrape_configs"][0]["static_configs"]:
            group["targets"] = [f"127.0.0.1:{cluster.ports[group['labels']['node']]}"]
        file = folder / "prometheus.yml"
        file.write_text(yaml.safe_dump(settings), encoding="utf-8")
        self._url = f"http://127.0.0.1:{port}"
        with (folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    program("prometheus"), f"--config.file={file}",
                    f"--storage.tsdb.path={folder / 'data'}",
                    f"--web.listen-address=127.0.0.1:{port}",
                ],
                stdout=log, stderr=log,
            )  # fmt: skip

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series of an instant query."""
        return self._get("query", query=expression)["result"]

    def query_range(self, expression: str, start_s: int, end_s: int) -> list[dict[str, Any]]:
        """The series of a query with a value for each second, both ends included."""
        answer = self._get("query_range", query=expression, start=start_s, end=end_s, step=1)
        return answer["result"]

    def version(self) -> str:
        return self._get("status/buildinfo")["version"]

    def _get(self, path: str, **parameters: object) -> dict[str, Any]:
        text = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"{self._url}/api/v1/{path}?{text}") as answer:
            return json.load(answer)["data"]

    def is_up(self, targets: int) -> bool:
        try:
            return len(self.query("up == 1")) == targets
        except OSError:
            return False

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()
