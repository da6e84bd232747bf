"""The fault `wipe` empties disks, and refuses to where the quorum needs them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from kvorum import Cluster
from kvorum.chaos.experiment_file.faults import build_fault
from kvorum.chaos.experiment_file.possible_targets import (
    PossibleTargets,
    impossible_targets,
    node_names,
)
from kvorum.chaos.faults import PauseNode, RestartNode, WipeDisk
from kvorum.chaos.history import HistoryWriter
from kvorum.chaos.live.faults.injector import Injector
from kvorum.chaos.live.faults.wipe_rules import why_not_wipe
from kvorum.chaos.live.systems.capabilities import needs_of
from kvorum.chaos.live.systems.protocol import Capability, newest_status
from kvorum.chaos.targets import TargetView, UnresolvableTarget, parse_target
from kvorum.runtime.errors import KvorumError
from tests.polling import eventually

RECORDS = 200


def wipe(target: str) -> WipeDisk:
    return WipeDisk(target=parse_target(target), duration_ms=500)


class RecordedSystem:
    """Three controllers and a broker; notes what the injector does to them."""

    max_nodes_down = None

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.killed: frozenset[str] = frozenset()
        self.paused: frozenset[str] = frozenset()
        self.has_stuck_disk = False

    def kill(self, name: str) -> None:
        self.calls.append(("kill", name))
        self.killed |= {name}

    def wipe(self, name: str) -> None:
        if self.has_stuck_disk:
            raise KvorumError(f"the disk of {name} cannot be emptied")
        self.calls.append(("wipe", name))

    def restart(self, name: str) -> None:
        self.calls.append(("restart", name))
        self.killed -= {name}

    def pause(self, name: str) -> None:
        self.paused |= {name}

    def resume(self, name: str) -> None:
        self.paused -= {name}

    def view(self) -> TargetView:
        return TargetView(
            controllers=("controller-1", "controller-2", "controller-3"),
            brokers=("broker-101",),
            killed=self.killed,
            paused=self.paused,
            active_controller="controller-1",
        )


@pytest.fixture
def system():
    return RecordedSystem()


@pytest.fixture
def injector(system, tmp_path):
    with HistoryWriter(str(tmp_path / "h.jsonl"), run_id="1", system="kvorum") as history:
        yield Injector(
            system=system, toxiproxy=None, history=history, view=system.view, rng=random.Random(1)
        )


def test_a_wiped_node_is_killed_before_and_started_when_the_fault_ends(system, injector):
    injected = injector.inject("wipe it", wipe("broker-101"))
    assert not injected.is_of_links
    assert system.calls == [("kill", "broker-101"), ("wipe", "broker-101")]
    injector.end(injected)
    assert system.calls[2:] == [("restart", "broker-101")]


def test_restart_also_starts_a_wiped_node(system, injector):
    injector.inject("wipe it", wipe("broker-101"))
    injector.inject("start it", RestartNode())
    assert system.calls[-1] == ("restart", "broker-101")
    assert injector.active() == []


def test_a_node_whose_disk_cannot_be_emptied_is_started_again(system, injector):
    system.has_stuck_disk = True
    with pytest.raises(KvorumError, match="cannot be emptied"):
        injector.inject("wipe it", wipe("broker-101"))
    assert system.calls == [("kill", "broker-101"), ("restart", "broker-101")]
    assert injector.active() == []


def test_a_controller_is_not_wiped_while_the_others_are_no_majority(system, injector):
    pause = injector.inject("hang", PauseNode(target=parse_target("controller-2")))
    with pytest.raises(UnresolvableTarget, match=r"not wiped \(controller-3\) are no majority of"):
        injector.inject("wipe it", wipe("controller-1"))
    assert system.calls == []
    injector.end(pause)
    assert injector.inject("wipe it", wipe("controller-1")).nodes == ("controller-1",)


def test_a_second_controller_is_not_wiped_after_a_first_one_came_back(system, injector):
    injector.end(injector.inject("first", wipe("controller-1")))
    with pytest.raises(UnresolvableTarget, match="the disk of controller-2 must stay"):
        injector.inject("second", wipe("controller-2"))
    injector.end(injector.inject("the first again", wipe("controller-1")))


@pytest.mark.parametrize(("count", "struck", "is_refused"), [(1, 1, True), (3, 1, False),
    (3, 2, True), (4, 1, False), (4, 2, True), (5, 2, False), (5, 3, True)])  # fmt: skip
def test_the_disks_of_a_majority_of_the_controllers_stay(count, struck, is_refused):
    names = tuple(f"controller-{number}" for number in range(count))
    view = TargetView(controllers=names, brokers=("broker-101",))
    assert (why_not_wipe(names[:struck], view, wiped=()) is not None) is is_refused
    assert why_not_wipe(("broker-101",), view, wiped=names) is None


@pytest.mark.parametrize(
    ("controllers", "target", "is_refused"),
    [
        (1, "controller-1", True),
        (1, "all", True),
        (1, "active-controller", True),
        (2, "one:controllers", True),
        (3, "standby-controllers", True),
        (3, "majority:controllers", True),
        (3, "standby-controller", False),
        (3, "minority:controllers", False),
        (1, "brokers", False),
    ],
)
def test_a_wipe_that_no_quorum_survives_is_refused_when_the_file_is_read(
    controllers, target, is_refused
):
    possible = PossibleTargets(
        nodes=node_names(controllers, 3), topic="orders", partitions=6, replication_factor=3
    )
    problems = impossible_targets(wipe(target), possible)
    assert [problem.key for problem in problems] == (["target"] if is_refused else [])
    assert all("with their disks, and the quorum needs" in one.message for one in problems)


def test_wipe_needs_a_system_that_can_kill_wipe_and_start_nodes():
    assert needs_of(wipe("one")) == {Capability.KILL, Capability.WIPE, Capability.RESTART}
    assert build_fault("wipe", {"target": "one", "duration_ms": 500}) == wipe("one")


def identity_of(node_dir: Path) -> str:
    """The directory id in meta.properties; empty if there is none."""
    path = node_dir / "meta.properties"
    lines = path.read_text().splitlines() if path.exists() else []
    return next((line for line in lines if line.startswith("directory.id=")), "")


def consumed(cluster: Cluster, topic: str) -> set[bytes]:
    """The values of all partitions, from the start to their ends."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "wiped"})
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(2)])
        values: set[bytes] = set()

        def read() -> bool:
            for message in consumer.consume(500, timeout=0.2):
                assert message.error() is None, message.error()
                values.add(message.value())
            return len(values) >= RECORDS

        cluster.wait_until(read, what=f"all {RECORDS} records are read")
        return values
    finally:
        consumer.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wiped")
    with Cluster(brokers=2, directory=folder, proxies=False, metrics=False) as cluster:
        cluster.folder = folder / "cluster"
        yield cluster


@pytest.mark.live
@pytest.mark.timeout(120)
def test_a_wiped_broker_gets_a_new_disk_and_all_records_back_from_the_other_replicas(cluster):
    from confluent_kafka import Producer

    topic = cluster.create_topic("orders", partitions=2, replication_factor=2)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
    values = {f"record {number}".encode() for number in range(RECORDS)}
    for number, value in enumerate(sorted(values)):
        producer.produce(topic, value, partition=number % 2)
    assert producer.flush(20) == 0
    folder = cluster.folder / "broker-102"
    first = identity_of(folder)
    assert first and list(folder.rglob(f"{topic}-*/*.log"))

    def members() -> set[str]:
        return {name for view in cluster.state().partitions_of(topic) for name in view.isr}

    with cluster.fault("wipe", target="broker-102", duration_ms=1):
        assert not identity_of(folder) and not list(folder.rglob("*.log"))
        cluster.wait_until(lambda: members() == {"broker-101"}, what="the ISRs shrink")
    cluster.wait_until("isr-full")
    assert identity_of(folder) not in ("", first)
    # From now on only the disk that was empty can serve the records.
    with cluster.fault("kill", target="broker-101"):
        cluster.wait_until("all-led")
        assert consumed(cluster, topic) == values
    cluster.wait_until("all-alive")


@pytest.mark.live
@pytest.mark.timeout(120)
def test_a_wiped_controller_gets_a_new_disk_and_the_metadata_log_back(cluster):
    with cluster.fault("wipe", target="standby-controller", duration_ms=1) as injected:
        (name,) = injected.nodes
        folder = cluster.folder / name
        assert not identity_of(folder)
    system = cluster._running()
    committed = newest_status(system).high_watermark
    assert committed > 0

    def is_caught_up() -> bool:
        try:
            return system.quorum_status(name).high_watermark >= committed
        except KvorumError:
            return False

    eventually(is_caught_up, "the empty controller has what was committed")
    assert identity_of(folder)
    with pytest.raises(UnresolvableTarget, match="must stay"):
        cluster.inject("wipe", target="standby-controllers", duration_ms=1)
