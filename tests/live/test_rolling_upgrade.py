"""Six nodes of an older build become nodes of this one, by `kvorum cluster roll` under load."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.clients import Load, Topics, assert_nothing_lost
from tests.live.cluster import Ports, run_kvorum
from tests.live.switch_build import start, stop
from tests.polling import DEADLINE_S, eventually
from tests.tree import ROOT

pytestmark = [pytest.mark.live, pytest.mark.timeout(240)]

OLDEST_FILE = "kvorum/metadata/image/persistent_map.py"
"""The upgrade starts from the first build with this file: earlier ones need a package that today's
set-up does not install. The last release takes its place once there is one."""

NODES = ["controller-1", "controller-2", "controller-3", "broker-101", "broker-102", "broker-103"]


@pytest.fixture(scope="module")
def older_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tree = tmp_path_factory.mktemp("older")
    log = ["git", "log", "--reverse", "--diff-filter=A", "--format=%H", "--", OLDEST_FILE]
    found = subprocess.run(log, cwd=ROOT, capture_output=True, text=True, check=False)
    builds = found.stdout.split()
    if not builds:
        pytest.skip(f"the history of this checkout does not say when {OLDEST_FILE} was added")
    archive = subprocess.run(
        ["git", "archive", builds[0]], cwd=ROOT, capture_output=True, check=True
    )
    subprocess.run(["tar", "x", "-C", str(tree)], input=archive.stdout, check=True)
    return tree


@pytest.fixture
def ports() -> Iterator[Ports]:
    ports = Ports()
    yield ports
    ports.close()


def test_a_rolling_upgrade_loses_no_record(tmp_path: Path, ports: Ports, older_tree: Path) -> None:
    # The older build writes the files, because it refuses properties that were added later.
    command = [sys.executable, "-m", "kvorum", "init", str(tmp_path / "conf")]
    command += ["--port", str(ports.broker), "--controller-port", str(ports.controller)]
    environment = {**os.environ, "PYTHONPATH": str(older_tree)}
    subprocess.run(command, cwd=older_tree, env=environment, check=True, capture_output=True)
    bootstrap = f"127.0.0.1:{ports.broker},127.0.0.1:{ports.broker + 1}"
    load, older = None, list[subprocess.Popen[bytes]]()
    try:
        older += [start(tmp_path, node, str(older_tree)) for node in NODES]
        eventually(lambda: run_kvorum("health", "-b", bootstrap).returncode == 0, "it is healthy")
        Topics(bootstrap).create("orders", partitions=6, min_insync_replicas=2)
        load = Load(bootstrap, "orders", partitions=6)
        load.wait_more()
        template = f"{sys.executable} -m tests.live.switch_build {tmp_path} {{node}}"
        done = run_kvorum(
            "cluster", "roll", "-b", bootstrap, "--restart-command", template,
            timeout_s=2 * DEADLINE_S,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        load.wait_more()
        load.finish()
        assert_nothing_lost(load, bootstrap)
    finally:
        if load is not None:
            load.abandon()
        for node in reversed(NODES):
            stop(tmp_path, node, signal.SIGKILL)
        for process in older:
            process.wait(DEADLINE_S)
