"""The supervisor's own bookkeeping, over processes that do nothing."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import launch.supervisor
from launch.forking import READY, Child
from launch.plan import NodePlan, plan_cluster
from launch.supervisor import Supervisor
from tests.test_broker.harness import wait_until


class Sleepers:
    """In place of `spawn`: children that sleep; the test says READY for them."""

    def __init__(self) -> None:
        self.writers: dict[str, int] = {}
        self.fds: dict[str, int] = {}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def spawn(self, node: NodePlan, *, close_fds: tuple[int, ...] = ()) -> Child:
        self.fds[node.name], self.writers[node.name] = os.pipe()
        self.processes[node.name] = process = subprocess.Popen(["sleep", "600"])
        return Child(process.pid, self.fds[node.name])

    def close(self) -> None:
        for writer in self.writers.values():
            os.close(writer)
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
                process.wait()


def turn_until(supervisor: Supervisor, condition: Callable[[], bool], what: str) -> None:
    def is_so() -> bool:
        supervisor._turn(0.01)
        return condition()

    wait_until(is_so, what)


def test_the_death_of_a_node_leaves_the_start_of_another_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pipe of a node that is ready is closed, and its number goes to the next node's pipe."""
    sleepers = Sleepers()
    monkeypatch.setattr(launch.supervisor, "spawn", sleepers.spawn)
    plan = plan_cluster(controllers=1, brokers=2, data_dir=str(tmp_path), port=31_100)
    supervisor = Supervisor(plan, say=lambda _: None)
    first, second = (supervisor._processes[f"broker-{i}"] for i in (101, 102))
    try:
        supervisor._spawn(first)
        os.write(sleepers.writers["broker-101"], READY)
        turn_until(supervisor, lambda: first.is_ready, "the first is ready")
        supervisor._spawn(second)
        assert sleepers.fds["broker-102"] == sleepers.fds["broker-101"]
        sleepers.processes["broker-101"].kill()
        turn_until(supervisor, lambda: first.child is None, "the first is dead")
        os.write(sleepers.writers["broker-102"], READY)
        turn_until(supervisor, lambda: second.is_ready, "the second is ready")
    finally:
        sleepers.close()
        supervisor._selector.close()
