"""Six nodes across six loopback addresses, from docs/deploying.md and the units alone."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from kvorum.launch.config.node_file import load_node_file
from tests.live.by_hand import HandMade
from tests.live.cluster import run_kvorum
from tests.live.units import NODES, Service, skip_if_taken
from tests.polling import DEADLINE_S, eventually
from tests.shell import shell_block
from tests.tree import ROOT

pytestmark = [pytest.mark.live, pytest.mark.timeout(240)]

DOCUMENT = "docs/deploying.md"


def commands(mark: str) -> list[list[str]]:
    """The commands of the document's block behind `<!-- mark -->`, each without its `kvorum`."""
    lines = shell_block(DOCUMENT, mark).replace("\\\n", " ").splitlines()
    found = [shlex.split(line, comments=True) for line in lines]
    assert all(words[0] == "kvorum" for words in found)
    return [words[1:] for words in found]


@pytest.fixture(scope="module")
def services() -> Iterator[dict[str, Service]]:
    # A socket's path has at most 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="kv-"))
    (init,) = commands("init")
    skip_if_taken({word.partition("@")[2] for word in init if "@" in word}, 9092, 9192)
    made = run_kvorum(*[str(folder / "cluster") if word == "./cluster" else word for word in init])
    assert made.returncode == 0, made.stderr
    running = {node: Service(node, folder, folder / "cluster") for node in NODES}
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
        load_node_file(service.file)["listeners"].partition("://")[2].partition(":")[0]
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
