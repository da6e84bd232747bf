"""`kvorum dev --background`, `status`, `stop` and `logs`: one cluster for the module."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.cluster import Command, Ports, is_alive, run_kvorum
from tests.polling import eventually

pytestmark = [pytest.mark.live, pytest.mark.timeout(180)]


class Background:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = ("--data-dir", str(folder / "data"))
        self.ports = Ports()
        self.arguments = [
            "dev", "--background", *self.data, "--port", str(self.ports.broker),
            "--controller-port", str(self.ports.controller), "--racks", "2",
        ]  # fmt: skip
        self.bootstrap = ",".join(f"127.0.0.1:{self.ports.broker + i}" for i in range(3))

    def dev(self, *arguments: str):
        return run_kvorum("dev", *arguments, *self.data)

    def status(self) -> dict:
        return json.loads(self.dev("status", "-o", "json").stdout)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Background]:
    made = Background(tmp_path_factory.mktemp("background"))
    try:
        done = run_kvorum(*made.arguments)
        assert (done.returncode, done.stdout) == (0, f"bootstrap: {made.bootstrap}\n"), done.stderr
        yield made
    finally:
        made.dev("stop")
        made.ports.close()


def test_the_cluster_runs_on_and_is_usable_when_the_command_has_ended(made: Background) -> None:
    done = run_kvorum("health", "-b", made.bootstrap)
    assert done.returncode == 0, done.stdout
    create = ("topics", "create", "t", "--replication-factor", "3", "-b", made.bootstrap)
    assert run_kvorum(*create).returncode == 0


def test_status_shows_every_node(made: Background) -> None:
    found = made.status()
    assert is_alive(found["launcher_pid"])
    assert [node["name"] for node in found["nodes"]] == [
        *(f"controller-{i}" for i in (1, 2, 3)), *(f"broker-{i}" for i in (101, 102, 103)),
    ]  # fmt: skip
    assert all(node["is_ready"] and node["state"] == "running" for node in found["nodes"])
    assert made.dev("status").returncode == 0


def test_brokers_are_dealt_to_the_racks(made: Background) -> None:
    done = run_kvorum("brokers", "list", "-b", made.bootstrap, "-o", "json")
    assert [row["rack"] for row in json.loads(done.stdout)] == ["rack-1", "rack-2", "rack-1"]


def test_a_second_launcher_is_refused_and_the_first_goes_on(made: Background) -> None:
    pid = made.status()["launcher_pid"]
    done = run_kvorum(*made.arguments)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert made.status()["launcher_pid"] == pid


def test_a_dead_node_is_told_with_exit_code_4(made: Background) -> None:
    nodes = {node["name"]: node for node in made.status()["nodes"]}
    os.kill(nodes["broker-103"]["pid"], signal.SIGKILL)
    eventually(lambda: made.dev("status").returncode == 4, "status tells it")
    done = made.dev("status")
    assert "not ready: broker-103" in done.stderr
    assert made.dev("restart", "broker-103").returncode == 0
    assert made.dev("status").returncode == 0


def test_logs_are_those_of_the_nodes_asked_for(made: Background) -> None:
    one = made.dev("logs", "101", "-n", "3").stdout.splitlines()
    assert len(one) == 3
    log = Path(made.status()["nodes"][3]["log_file"]).read_text()
    assert all(line in log for line in one)
    every = made.dev("logs", "-n", "1").stdout.splitlines()
    assert [line.partition(":")[0] for line in every] == [
        *(f"controller-{i}" for i in (1, 2, 3)), *(f"broker-{i}" for i in (101, 102, 103)),
        "launcher",
    ]  # fmt: skip
    unknown = made.dev("logs", "104")
    assert (unknown.returncode, "has no node '104'; it has" in unknown.stderr) == (2, True)


def test_logs_follow_a_node(made: Background, tmp_path: Path) -> None:
    following = Command(
        "dev", "logs", "-f", "-n", "0", "broker-102", *made.data, error_file=tmp_path / "err"
    )
    try:
        # A line of its own; the file may be begun anew meanwhile, too.
        log = Path(made.status()["nodes"][4]["log_file"])
        said = eventually(lambda: _appended(log, following), "the line is followed")
        assert said
    finally:
        following.close()


def _appended(log: Path, following: Command) -> bool:
    with open(log, "a", encoding="utf-8") as file:
        file.write("a line of the test\n")
    return any("a line of the test" in line for line in following.lines)


def test_stop_ends_every_node_and_keeps_the_data(made: Background) -> None:
    before = made.status()
    done = made.dev("stop")
    assert (done.returncode, done.stdout.startswith("stopped 6 nodes")) == (0, True), done.stderr
    pids = [before["launcher_pid"], *(node["pid"] for node in before["nodes"])]
    assert [pid for pid in pids[1:] if is_alive(pid)] == []
    # The launcher gives up its lock, which `stop` waits for, a moment before it ends.
    eventually(lambda: not is_alive(pids[0]), "the launcher has ended")
    assert made.dev("status").returncode == 3
    again = made.dev("stop")
    assert (again.returncode, "no cluster runs in" in again.stdout) == (0, True)
    assert run_kvorum(*made.arguments).returncode == 0
    topics = run_kvorum("topics", "list", "-b", made.bootstrap)
    assert " 1 " in topics.stdout and "t" in topics.stdout.split()


def test_a_secure_cluster_tells_where_the_properties_of_its_clients_are(tmp_path: Path) -> None:
    made = Background(tmp_path)
    try:
        done = run_kvorum(*made.arguments, "--secure", "--controllers", "1", "--brokers", "1")
        assert done.returncode == 0, done.stderr
        line = done.stdout.splitlines()[1]
        file = line.removeprefix("client properties: ").removesuffix(" (--command-config)")
        listed = run_kvorum(
            "topics", "list", "-b", made.bootstrap.split(",")[0], "--command-config", file
        )
        assert listed.returncode == 0, (line, listed.stderr)
        assert made.dev("stop").returncode == 0
        # As it was made: secure, with one controller and one broker.
        again = run_kvorum(*made.arguments)
        assert (again.returncode, again.stdout) == (0, done.stdout), again.stderr
    finally:
        made.dev("stop")
        made.ports.close()


def test_a_start_that_fails_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    data = ("--data-dir", str(tmp_path / "d"))
    done = run_kvorum("dev", "--background", *data, "--set", "log.dirz=x")
    assert (done.returncode, "unknown property 'log.dirz'" in done.stderr) == (2, True)
    assert not (tmp_path / "d").exists()
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        done = run_kvorum("dev", "--brokers", "1", *data, "--port", port)
    assert (done.returncode, "cannot listen on" in done.stderr) == (2, True), done.stderr
    assert not (tmp_path / "d").exists()
    none = run_kvorum("dev", "stop", *data)
    assert (none.returncode, "there is no cluster in" in none.stderr) == (2, True)
