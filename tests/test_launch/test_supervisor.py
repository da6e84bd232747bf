"""The supervisor's own bookkeeping, over processes that do nothing."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kvorum.launch.cluster.cluster_file import NodeEntry, read_cluster_file, write_cluster_file
from kvorum.launch.cluster.plan import NodePlan
from kvorum.launch.cluster.this_machine import plan_cluster
from kvorum.launch.dev.control import NotReady, request_restart, wait_restarted
from kvorum.launch.dev.forking import READY, Child
from kvorum.launch.dev.supervisor import Supervisor
from kvorum.runtime.errors import ConfigError
from tests.polling import eventually


class Sleepers:
    """Replaces `spawn`: children that sleep, and whose READY the test sends."""

    def __init__(self) -> None:
        self.writers: dict[str, int] = {}
        self.fds: dict[str, int] = {}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.started: list[subprocess.Popen[bytes]] = []
        self.last_words: dict[str, tuple[str, str]] = {}
        """The line that a node writes to its log file when it is started."""

    def spawn(self, node: NodePlan, *, close_fds: tuple[int, ...] = ()) -> Child:
        self.fds[node.name], self.writers[node.name] = os.pipe()
        if node.name in self.last_words:
            path, words = self.last_words[node.name]
            with open(path, "a", encoding="utf-8") as log:
                log.write(words)
        self.processes[node.name] = process = subprocess.Popen(["sleep", "600"])
        self.started.append(process)
        return Child(process.pid, self.fds[node.name])

    def close(self) -> None:
        for writer in self.writers.values():
            os.close(writer)
        for process in self.started:
            if process.poll() is None:
                process.kill()
                process.wait()


@contextlib.contextmanager
def supervising(
    directory: Path, monkeypatch: pytest.MonkeyPatch, *, brokers: int, port: int
) -> Iterator[tuple[Supervisor, Sleepers, list[str]]]:
    """A supervisor of one controller and some brokers, all of them sleepers, and the lines that it
    prints."""
    sleepers = Sleepers()
    monkeypatch.setattr("kvorum.launch.dev.supervisor.spawn", sleepers.spawn)
    plan = plan_cluster(controllers=1, brokers=brokers, data_dir=str(directory), port=port)
    said: list[str] = []
    supervisor = Supervisor(plan, print_line=said.append)
    try:
        yield supervisor, sleepers, said
    finally:
        sleepers.close()
        supervisor._selector.close()


def turn_until(supervisor: Supervisor, condition: Callable[[], bool], what: str) -> None:
    def is_so() -> bool:
        supervisor._turn(0.01)
        return condition()

    eventually(is_so, what)


def test_the_death_of_a_node_leaves_the_start_of_another_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The supervisor closes the pipe of a ready node, and the system reuses its descriptor for the
    next node's pipe."""
    with supervising(tmp_path, monkeypatch, brokers=2, port=31_100) as (supervisor, sleepers, _):
        first, second = (supervisor._processes[f"broker-{i}"] for i in (101, 102))
        supervisor._spawn(first)
        os.write(sleepers.writers["broker-101"], READY)
        turn_until(supervisor, lambda: first.is_ready, "the first is ready")
        supervisor._spawn(second)
        assert sleepers.fds["broker-102"] == sleepers.fds["broker-101"]
        sleepers.processes["broker-101"].kill()
        turn_until(supervisor, lambda: first.child is None, "the first is dead")
        os.write(sleepers.writers["broker-102"], READY)
        turn_until(supervisor, lambda: second.is_ready, "the second is ready")


def test_a_restart_ends_when_the_node_is_ready_or_has_died_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def entry(name: str) -> NodeEntry:
        cluster = read_cluster_file(str(tmp_path))
        found = cluster and cluster.node(name)
        assert found is not None
        return found

    names = [f"broker-{i}" for i in (101, 102, 103)]
    with supervising(tmp_path, monkeypatch, brokers=3, port=31_200) as (supervisor, sleepers, _):
        requests = asked_to_restart(tmp_path, *names)
        for name, words in (
            (
                "broker-101",
                "09:00:00.000 CRITICAL kvorum.broker the node exits: no\nkvorum: no disk\n",
            ),
            (
                "broker-102",
                "09:00:00.000 CRITICAL kvorum.broker the node failed and exits\nTrace\n",
            ),
        ):
            log_file = Path(supervisor._processes[name].node.log_file)
            log_file.parent.mkdir(parents=True, exist_ok=True)
            log_file.write_text("kvorum: of the run before\n")
            sleepers.last_words[name] = (str(log_file), f"09:00:00.000 {words}")
        turn_until(supervisor, lambda: len(sleepers.processes) == 3, "all are started")
        assert not entry("broker-101").is_ready
        with pytest.raises(NotReady, match=r"broker-103 runs \(pid \d+\) and is not ready yet"):
            wait_restarted(str(tmp_path), "broker-103", deadline_ms=0)
        os.write(sleepers.writers["broker-103"], READY)
        for name in names[:2]:
            sleepers.processes[name].kill()
        turn_until(supervisor, lambda: not list(requests.iterdir()), "all requests are dealt with")
        assert wait_restarted(str(tmp_path), "broker-103", deadline_ms=0).is_ready
        for name, why in (
            ("broker-101", "broker-101 died again: no disk$"),
            ("broker-102", "died again: kvorum.broker the node failed and exits; see .*log$"),
        ):
            with pytest.raises(NotReady, match=why):
                wait_restarted(str(tmp_path), name, deadline_ms=0)


def asked_to_restart(directory: Path, *names: str) -> Path:
    """The folder of requests, with one for each of these."""
    requests = directory / "requests"
    requests.mkdir()
    for name in names:
        (requests / f"restart-{name}").touch()
    return requests


def is_full(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_does_not_end_the_launcher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = write_cluster_file
    with supervising(tmp_path, monkeypatch, brokers=1, port=31_300) as (supervisor, sleepers, said):
        asked_to_restart(tmp_path, "broker-101")
        turn_until(supervisor, lambda: bool(sleepers.processes), "it is started")
        monkeypatch.setattr("kvorum.launch.dev.supervisor.write_cluster_file", is_full)
        sleepers.processes["broker-101"].kill()
        turn_until(
            supervisor, lambda: supervisor._is_cluster_file_stale, "the file could not be written"
        )
        supervisor._turn(0.01)
        assert [line for line in said if "cannot write cluster.json" in line] == said[-1:]
        monkeypatch.setattr("kvorum.launch.dev.supervisor.write_cluster_file", write)
        turn_until(
            supervisor, lambda: not supervisor._is_cluster_file_stale, "it was written later"
        )
        cluster = read_cluster_file(str(tmp_path))
        entry = cluster and cluster.node("broker-101")
        assert entry is not None and entry.state == "dead"


def test_a_node_that_is_gone_is_no_running_one_whatever_a_stale_file_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with supervising(tmp_path, monkeypatch, brokers=1, port=31_500) as (supervisor, sleepers, _):
        asked_to_restart(tmp_path, "broker-101")
        turn_until(supervisor, lambda: bool(sleepers.processes), "it is started")
        monkeypatch.setattr("kvorum.launch.dev.control.is_locked", lambda directory: True)
        monkeypatch.setattr("kvorum.launch.dev.control.DEATH_NOTICE_MS", 0)
        with pytest.raises(ConfigError, match=r"broker-101 is running \(pid \d+\)"):
            request_restart(str(tmp_path), ["broker-101"])
        # No parent has waited for it: the dead process is a zombie.
        sleepers.processes["broker-101"].kill()
        signals: list[int] = []
        kill = os.kill
        monkeypatch.setattr(os, "kill", lambda pid, n: signals.append(n) if n else kill(pid, n))
        eventually(lambda: is_zombie(sleepers.processes["broker-101"].pid), "it has ended")
        (asked,) = request_restart(str(tmp_path), ["broker-101"])
        assert (asked.state, asked.starts, signals) == ("running", 1, [signal.SIGUSR1])
        # An entry whose pid now belongs to a foreign process.
        stranger = dataclasses.replace(asked, pid=1)
        rewrite(tmp_path, stranger)
        assert request_restart(str(tmp_path), ["broker-101"]) == [stranger]


def is_zombie(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def rewrite(directory: Path, entry: NodeEntry) -> None:
    """Write the cluster file with this entry of the node."""
    cluster = read_cluster_file(str(directory))
    assert cluster is not None
    nodes = tuple(entry if node.name == entry.name else node for node in cluster.nodes)
    write_cluster_file(str(directory), dataclasses.replace(cluster, nodes=nodes))


def test_why_a_node_died_before_is_not_said_of_its_next_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = write_cluster_file
    with supervising(tmp_path, monkeypatch, brokers=1, port=31_600) as (supervisor, sleepers, _):
        requests = asked_to_restart(tmp_path, "broker-101")
        turn_until(supervisor, lambda: bool(sleepers.processes), "it is started")
        sleepers.processes["broker-101"].kill()
        turn_until(supervisor, lambda: not list(requests.iterdir()), "it is dead")
        before = read_cluster_file(str(tmp_path))
        asked = before and before.node("broker-101")
        assert asked is not None and "SIGKILL" in asked.reason
        monkeypatch.setattr("kvorum.launch.dev.supervisor.write_cluster_file", is_full)
        (requests / "restart-broker-101").touch()
        turn_until(supervisor, lambda: len(sleepers.started) == 2, "it is started again")
        sleepers.processes["broker-101"].terminate()
        turn_until(supervisor, lambda: not list(requests.iterdir()), "it is dead again")
        told = {"deadline_ms": 0, "starts_before": asked.starts}
        with pytest.raises(NotReady, match=r"cannot write cluster\.json \(is the disk full\?\)"):
            wait_restarted(str(tmp_path), "broker-101", **told)
        monkeypatch.setattr("kvorum.launch.dev.supervisor.write_cluster_file", write)
        turn_until(
            supervisor, lambda: not supervisor._is_cluster_file_stale, "it was written later"
        )
        with pytest.raises(NotReady, match="broker-101 died again: signal SIGTERM"):
            wait_restarted(str(tmp_path), "broker-101", **told)


def test_the_cluster_file_says_ready_before_the_launcher_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with supervising(tmp_path, monkeypatch, brokers=1, port=31_700) as (supervisor, sleepers, _):
        supervisor.start()
        for writer in sleepers.writers.values():
            os.write(writer, READY)
        supervisor.wait_ready()
        cluster = read_cluster_file(str(tmp_path))
        assert cluster is not None and all(node.is_ready for node in cluster.nodes)
        supervisor.stop()


def test_a_launcher_stops_all_nodes_though_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with supervising(tmp_path, monkeypatch, brokers=1, port=31_400) as (supervisor, sleepers, said):
        supervisor.start()
        monkeypatch.setattr("kvorum.launch.dev.supervisor.write_cluster_file", is_full)
        supervisor.stop()
        assert all(process.poll() is not None for process in sleepers.processes.values())
        assert "cannot write to cluster.json that the cluster has stopped" in said[-1]
