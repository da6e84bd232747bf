"""Six nodes across six loopback addresses, from docs/deploying.md and the units alone.

The test acts as the service manager, because systemd may not run here. It runs each unit's
ExecStart, waits for READY=1, restarts a node by SIGTERM, and hears the watchdog.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from kvorum.launch.node_file import load_node_file
from tests.live.by_hand import HandMade
from tests.live.cluster import is_alive, run_kvorum
from tests.polling import DEADLINE_S, eventually
from tests.tree import ROOT

pytestmark = [pytest.mark.live, pytest.mark.timeout(240)]

DOCUMENT = ROOT / "docs" / "deploying.md"
NODES = ["controller-1", "controller-2", "controller-3", "broker-101", "broker-102", "broker-103"]


def commands(mark: str) -> list[list[str]]:
    """The commands of the document's block behind `<!-- mark -->`, each without its `kvorum`."""
    text = DOCUMENT.read_text(encoding="utf-8")
    block = re.search(rf"<!-- {mark} -->\n```sh\n(.*?)```", text, re.DOTALL)
    assert block is not None, f"docs/deploying.md has no block {mark}"
    lines = block[1].replace("\\\n", " ").splitlines()
    found = [shlex.split(line, comments=True) for line in lines]
    assert all(words[0] == "kvorum" for words in found)
    return [words[1:] for words in found]


class Service:
    """One unit, run as systemd would."""

    def __init__(self, node: str, folder: Path) -> None:
        role, node_id = node.split("-")
        self.name, self._folder = node, folder
        text = (ROOT / "deploy" / "systemd" / f"kvorum-{role}@.service").read_text(encoding="utf-8")
        directives = dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))
        start = directives["ExecStart"].replace("%i", node_id)
        program, *self._arguments = shlex.split(start)
        assert program == "/usr/bin/kvorum"
        self._arguments = [
            word.replace("/etc/kvorum", str(folder / "cluster")) for word in self._arguments
        ]
        self.watchdog_s = int(directives["WatchdogSec"].removesuffix("s"))
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(folder / f"{node}.notify"))
        self._socket.settimeout(DEADLINE_S)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *, watchdog_s: float | None = None) -> None:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("KVORUM_")}
        environment["NOTIFY_SOCKET"] = str(self._folder / f"{self.name}.notify")
        environment["WATCHDOG_USEC"] = str(int((watchdog_s or self.watchdog_s) * 1_000_000))
        with open(self._folder / f"{self.name}.log", "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "kvorum", *self._arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )

    def wait_for(self, state: str) -> None:
        while self._socket.recv(4096).decode() != state:
            pass

    def stop(self) -> int:
        process = self._process
        assert process is not None
        process.send_signal(signal.SIGTERM)
        self.wait_for("STOPPING=1")
        return process.wait(DEADLINE_S)

    def close(self) -> None:
        if self._process is not None and is_alive(self._process.pid):
            self._process.kill()
            self._process.wait(DEADLINE_S)
        self._socket.close()

    def log(self) -> str:
        return (self._folder / f"{self.name}.log").read_text()


@pytest.fixture(scope="module")
def services() -> Iterator[dict[str, Service]]:
    # A socket's path has at most 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="kv-"))
    (init,) = commands("init")
    for host in {word.partition("@")[2] for word in init if "@" in word}:
        for port in (9092, 9192):
            probe = socket.socket()
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with probe:
                try:
                    probe.bind((host, port))
                except OSError as error:
                    pytest.skip(f"{host}:{port}, which docs/deploying.md names, is taken: {error}")
    made = run_kvorum(*[str(folder / "cluster") if word == "./cluster" else word for word in init])
    assert made.returncode == 0, made.stderr
    running = {node: Service(node, folder) for node in NODES}
    try:
        for service in running.values():
            service.start()
        for service in running.values():
            service.wait_for("READY=1")
        yield running
    finally:
        for service in reversed(running.values()):
            service.close()
        shutil.rmtree(folder)


def test_the_documents_commands_work_on_the_running_units(services: dict[str, Service]) -> None:
    for words in commands("use"):
        done = run_kvorum(*words, timeout_s=2 * DEADLINE_S)
        assert done.returncode == 0, (words, done.stdout, done.stderr)


def test_each_node_is_at_its_own_address(services: dict[str, Service]) -> None:
    hosts = [
        load_node_file(service._arguments[-1])["listeners"].partition("://")[2].partition(":")[0]
        for service in services.values()
    ]
    assert hosts == [f"127.0.0.{last}" for last in range(11, 17)]


def test_a_unit_is_stopped_in_good_order_and_started_again(services: dict[str, Service]) -> None:
    broker = services["broker-102"]
    assert broker.stop() == 0
    assert "leadership is handed over" in broker.log()
    broker.start(watchdog_s=0.5)
    broker.wait_for("READY=1")
    # A node sends WATCHDOG=1 at least twice in the watchdog's time.
    broker.wait_for("WATCHDOG=1")
    broker.wait_for("WATCHDOG=1")
    back = ("health", "--wait", "60", "-b", "127.0.0.14:9092")
    assert run_kvorum(*back, timeout_s=2 * DEADLINE_S).returncode == 0
    eventually(lambda: "unfenced" in broker.log(), "the log says so")


def test_the_probe_of_the_compose_file_passes_once_a_broker_serves(tmp_path: Path) -> None:
    compose = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text(encoding="utf-8"))
    kind, program, *arguments = compose["services"]["broker-101"]["healthcheck"]["test"]
    assert (kind, program) == ("CMD", "python")
    made = HandMade(tmp_path, controllers=1)
    port = made.ports.broker + 7
    probe = [sys.executable, *(word.replace(":9404", f":{port}") for word in arguments)]

    def is_ready() -> bool:
        return subprocess.run(probe, capture_output=True, check=False).returncode == 0

    try:
        made.change("broker-101", metrics_listener=f"HTTP://127.0.0.1:{port}")
        made.start("broker-101")
        assert not is_ready()
        made.start("controller-1")
        eventually(is_ready, "the broker is ready")
        made.kill("controller-1")
        eventually(lambda: not is_ready(), "a broker without a quorum is not ready")
    finally:
        made.close()
