"""What an operator does with brokers."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live.by_hand import HandMade
from tests.live.cluster import eventually, run_kvorum

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[HandMade]:
    made = HandMade(tmp_path, controllers=1, brokers=2)
    made.start("controller-1", "broker-101", "broker-102")
    eventually(lambda: fenced(made) == {101: False, 102: False}, "both brokers are active")
    yield made
    made.close()


def fenced(cluster: HandMade) -> dict[int, bool]:
    done = run_kvorum("brokers", "list", "-b", cluster.bootstrap, "-o", "json")
    if done.returncode != 0:
        return {}
    return {row["broker_id"]: row["is_fenced"] for row in json.loads(done.stdout)}


def unregister(cluster: HandMade, broker_id: int, *how: str) -> Any:
    return run_kvorum("brokers", "unregister", str(broker_id), *how)


def test_a_dead_broker_is_unregistered_and_comes_back_under_its_id(cluster: HandMade) -> None:
    alive = unregister(cluster, 102, "-b", cluster.bootstrap)
    assert alive.returncode == 1
    assert (
        alive.stderr == "kvorum: broker 102: INVALID_REQUEST: broker 102 is alive: stop it first\n"
    )
    cluster.kill("broker-102")
    eventually(lambda: fenced(cluster).get(102) is True, "the dead broker is fenced")
    done = unregister(cluster, 102, "-b", cluster.bootstrap, "-o", "json")
    assert json.loads(done.stdout) == {"broker_id": 102, "unregistered": True}
    assert fenced(cluster) == {101: False}
    again = unregister(cluster, 102, "--bootstrap-controller", cluster.bootstrap_controller)
    assert again.returncode == 1
    assert "BROKER_ID_NOT_REGISTERED: broker 102 is not registered" in again.stderr
    cluster.start("broker-102")
    eventually(lambda: fenced(cluster) == {101: False, 102: False}, "it has a place again")


def test_an_unregistered_process_that_only_hung_registers_anew(cluster: HandMade) -> None:
    hung = cluster.running["broker-102"]
    hung.send(signal.SIGSTOP)
    eventually(lambda: fenced(cluster).get(102) is True, "the hung broker is fenced")
    assert unregister(cluster, 102, "-b", cluster.bootstrap).returncode == 0
    assert fenced(cluster) == {101: False}
    hung.send(signal.SIGCONT)
    eventually(lambda: fenced(cluster) == {101: False, 102: False}, "it has a place again")
