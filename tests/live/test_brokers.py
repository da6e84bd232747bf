"""Brokers in an operator's hands: added, stopped, unregistered."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live.by_hand import HandMade
from tests.live.cluster import run_kvorum
from tests.polling import eventually
from tests.test_broker.raw_client import RawClient

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
    assert alive.stderr == "kvorum: INVALID_REQUEST: broker 102 is alive: stop it first\n"
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


def test_a_lost_broker_that_alone_held_partitions_goes_after_a_question(
    cluster: HandMade,
) -> None:
    def run(*words: str) -> Any:
        return run_kvorum(*words, "-b", cluster.bootstrap)

    for topic, assignment in (("alone", "102,102"), ("both", "102:101"), ("other", "101")):
        made = run("topics", "create", topic, "--replica-assignment", assignment)
        assert made.returncode == 0, made.stderr
    cluster.kill("broker-102")
    eventually(lambda: fenced(cluster).get(102) is True, "the dead broker is fenced")
    for how in ("-b", cluster.bootstrap), ("--bootstrap-controller", cluster.bootstrap_controller):
        # Standard input is at its end: the answer is no.
        asked = unregister(cluster, 102, *how)
        assert asked.returncode == 1
        assert "broker 102 alone is in sync for alone-0, alone-1; what only" in asked.stderr
        assert "3 partitions have a replica on broker 102: under-replicated until" in asked.stderr
        assert "Unregister broker 102 all the same? [y/N]" in asked.stderr
        assert "nothing was changed" in asked.stderr
    assert fenced(cluster) == {101: False, 102: True}
    done = unregister(cluster, 102, "-b", cluster.bootstrap, "--yes")
    assert done.returncode == 0
    assert "broker 102 alone is in sync for alone-0, alone-1" in done.stderr
    assert fenced(cluster) == {101: False}
    described = json.loads(run("topics", "describe", "alone", "-o", "json").stdout)
    for partition in described[0]["partitions"]:
        assert (partition["leader"], partition["isr"]) == (-1, [102])
    health = run("health")
    assert "alone-0" in health.stdout + health.stderr
    assert "both-0" in health.stdout + health.stderr
    # It comes back after all, with its disk: nothing is lost.
    cluster.start("broker-102")
    eventually(lambda: fenced(cluster) == {101: False, 102: False}, "it has a place again")
    eventually(lambda: run("health").returncode == 0, "every partition has its leader again")


def test_an_unregistered_process_that_only_hung_registers_anew(cluster: HandMade) -> None:
    hung = cluster.running["broker-102"]
    hung.send(signal.SIGSTOP)
    eventually(lambda: fenced(cluster).get(102) is True, "the hung broker is fenced")
    assert unregister(cluster, 102, "-b", cluster.bootstrap).returncode == 0
    assert fenced(cluster) == {101: False}
    hung.send(signal.SIGCONT)
    eventually(lambda: fenced(cluster) == {101: False, 102: False}, "it has a place again")


def test_one_bootstrap_server_is_enough_whoever_leads(tmp_path: Path) -> None:
    # Bad sequence: 1. a broker knows one controller only, and its log finds the leader, 2. another
    # controller leads, 3. the heartbeats go on to the one that was named, and the broker is fenced.
    made = HandMade(tmp_path, controllers=3, brokers=1, is_static=True)
    controllers = {number: f"controller-{number}" for number in (1, 2, 3)}
    made.start(*controllers.values())

    def leader() -> int:
        addresses = ",".join(made.address(name) for name in made.running if "controller" in name)
        done = run_kvorum("quorum", "status", "--bootstrap-controller", addresses, "-o", "json")
        return int(json.loads(done.stdout)["leader_id"]) if done.returncode == 0 else -1

    first = eventually(lambda: max(leader(), 0), "a controller leads")
    follower = next(number for number in controllers if number != first)
    made.change(
        "broker-101",
        controller_quorum_voters=None,
        controller_quorum_bootstrap_servers=made.address(controllers[follower]),
    )
    made.start("broker-101")
    eventually(lambda: fenced(made) == {101: False}, "the broker is active")
    made.kill(controllers[first])
    eventually(lambda: leader() not in (-1, first), "another controller leads")

    def created() -> bool:
        words = ("topics", "create", "after", "--replication-factor", "1", "-b", made.bootstrap)
        done = run_kvorum(*words)
        return done.returncode == 0 or "TOPIC_ALREADY_EXISTS" in done.stderr

    eventually(created, "the broker reaches the new leader")
    made.close()


def test_a_client_that_waits_for_the_cluster_to_start_is_told_of_brokers(tmp_path: Path) -> None:
    """librdkafka rests for a second or two when its first metadata names no broker."""
    made = HandMade(tmp_path, controllers=1, brokers=1)
    try:
        made.start("broker-101")
        port = int(made.bootstrap.rpartition(":")[2])
        client = eventually(lambda: connected(port), "the port is taken")
        client.send("metadata", 12, {"topics": None})
        made.start("controller-1")
        answer = client.answer("metadata", 12)
        assert [broker.node_id for broker in answer.brokers] == [101]
        assert answer.controller_id == 101
        client.close()
    finally:
        made.close()


def connected(port: int) -> RawClient | None:
    try:
        return RawClient(port)
    except ConnectionRefusedError:
        return None
