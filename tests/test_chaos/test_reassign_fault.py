"""The fault `reassign` moves partitions, and takes back what does not arrive in time."""

from __future__ import annotations

import random
from collections.abc import Mapping
from itertools import permutations
from types import SimpleNamespace
from typing import Any

import pytest

from kvorum import Cluster
from kvorum.chaos.experiment_file.faults import build_fault
from kvorum.chaos.experiment_file.operator_faults import impossible_requests
from kvorum.chaos.experiment_file.possible_targets import (
    PossibleTargets,
    impossible_targets,
    node_names,
)
from kvorum.chaos.experiment_file.steps import Action
from kvorum.chaos.faults import PauseNode, Reassign
from kvorum.chaos.history import FAULT_BEGIN, FAULT_END, details_of, read_history
from kvorum.chaos.live.faults import operator_calls, reassignments
from kvorum.chaos.live.faults.injector import Injected
from kvorum.chaos.live.faults.reassignments import RunningReassignment, plan_moves, why_no_move
from kvorum.chaos.live.faults.throttles import Throttle
from kvorum.chaos.live.host.node_requests import Call, NodeRequests
from kvorum.chaos.live.nemesis import Nemesis
from kvorum.chaos.live.systems.capabilities import needs_of
from kvorum.chaos.live.systems.protocol import RUNNING, Capability, Node, NotObservable
from kvorum.chaos.targets import PartitionView, TargetView, UnresolvableTarget, parse_target
from kvorum.runtime.errors import ErrorCode

BROKERS = ("broker-101", "broker-102", "broker-103", "broker-104")
FIRST, SECOND, THIRD, FOURTH = BROKERS


def view_of(*, brokers=BROKERS, killed=(), factor=2) -> TargetView:
    replicas = tuple(brokers[:factor])
    partition = PartitionView(leader=FIRST, replicas=replicas, isr=replicas)
    return TargetView(
        controllers=("controller-1",),
        brokers=brokers,
        killed=frozenset(killed),
        partitions={("orders", number): partition for number in range(3)},
    )


def moves_of(fault: Reassign, view: TargetView, seed: int = 1):
    present = {key: one.replicas for key, one in view.partitions.items()}
    return plan_moves(fault, present, view, random.Random(seed))


def test_a_drawn_move_has_a_new_broker_as_many_replicas_and_is_decided_by_the_seed():
    fault = Reassign(duration_ms=1)
    for seed in range(50):
        moves = moves_of(fault, view_of(), seed)
        assert [move.key[1] for move in moves] == [0, 1, 2]
        for move in moves:
            assert len(set(move.after)) == 2 and set(move.after) - set(move.before)
        assert moves == moves_of(fault, view_of(), seed)
    assert len({moves_of(fault, view_of(), seed)[0].after for seed in range(50)}) > 3


def test_a_dead_broker_gets_no_replica():
    for seed in range(50):
        moves = moves_of(Reassign(duration_ms=1), view_of(killed=[FOURTH]), seed)
        assert all(FOURTH not in move.after for move in moves)


@pytest.mark.parametrize("killed", [[THIRD, FOURTH], [FIRST, SECOND], [SECOND, THIRD]])
def test_too_few_brokers_that_run_lower_no_replication_factor(killed):
    view = view_of(killed=killed, factor=3)
    fault = Reassign(duration_ms=1)
    for seed in range(50):
        for move in moves_of(fault, view, seed):
            assert len(set(move.after)) == 3
            assert not (set(move.after) - set(move.before)) & set(killed)
            assert move.after[0] not in killed


def test_partitions_with_too_few_brokers_that_run_are_left_out_with_the_reason():
    view = view_of(killed=[SECOND, THIRD], factor=3)
    fault = Reassign(duration_ms=1)
    assert moves_of(fault, view) == []
    present = {key: one.replicas for key, one in view.partitions.items()}
    assert why_no_move(fault, present, view) == (
        "the brokers that run (broker-101, broker-104) are too few for other replicas of "
        "partitions that have 3; restart or resume brokers first"
    )
    given = Reassign(duration_ms=1, replicas=(FIRST, SECOND, THIRD))
    assert moves_of(given, view) == []
    assert why_no_move(given, present, view) == "every partition has these replicas already"


def test_without_another_broker_another_replica_becomes_the_preferred_one():
    moves = moves_of(Reassign(duration_ms=1), view_of(brokers=BROKERS[:2]))
    assert {move.after for move in moves} == {(SECOND, FIRST)}


def test_given_partitions_and_replicas_are_taken_as_they_are():
    fault = Reassign(duration_ms=1, partitions=(2,), replicas=(FOURTH, FIRST))
    (move,) = moves_of(fault, view_of())
    assert (move.key, move.after) == (("orders", 2), (FOURTH, FIRST))
    assert moves_of(Reassign(duration_ms=1, replicas=(FIRST, SECOND)), view_of()) == []


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({}, ""),
        ({"topic": "copies"}, ""),
        ({"topic": "__consumer_offsets", "partitions": [49]}, ""),
        ({"topic": "order"}, "no load writes to 'order'"),
        ({"partitions": [6]}, "orders has the partitions 0 to 5, not 6"),
        ({"replicas": ["broker-109"]}, "no broker is named 'broker-109'"),
    ],
)
def test_a_reassignment_that_cannot_be_is_refused_when_the_file_is_read(arguments, reason):
    fault = build_fault("reassign", {"duration_ms": 1, **arguments})
    possible = PossibleTargets(
        nodes=node_names(1, 4),
        topic="orders",
        partitions=6,
        replication_factor=2,
        other_topics=("copies",),
    )
    said = "; ".join(
        problem.message
        for problem in (impossible_targets(fault, possible) or impossible_requests(fault, possible))
    )
    assert reason in said if reason else not said


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"partitions": []}, "must be a list of at least one"),
        ({"partitions": [0, 0]}, "names one of them twice"),
        ({"replicas": [101]}, "replicas must be a text, got 101"),
        ({"throttle": 0}, "throttle must lie between 1"),
    ],
)
def test_bad_arguments_are_refused_by_name(arguments, reason):
    (problem,) = build_fault("reassign", {"duration_ms": 1, **arguments})
    assert reason in problem.message


def test_any_system_that_speaks_the_kafka_protocol_can_reassign():
    assert needs_of(Reassign(duration_ms=1)) == {Capability.REASSIGN}


class OneMove:
    """Brokers that move a partition, orders/0, until its move is cancelled."""

    def __init__(self) -> None:
        self.replicas = [101, 102]
        self.target: list[int] | None = None
        self.lost_answers = 0

    def nodes(self):
        return [
            Node(
                name=name, node_id=int(name[-3:]), is_controller=False, pid=None, state=RUNNING,
                listener=f"{name}:1", log_file="",
            )
            for name in BROKERS
        ]  # fmt: skip

    topic_prefix = ""
    plan = SimpleNamespace(brokers=BROKERS)
    paused: frozenset[str] = frozenset()

    def ask(self, system: object, call: Call, values: Mapping[str, Any], **_: object) -> object:
        match call.name:
            case "metadata":
                row = SimpleNamespace(partition_index=0, replica_nodes=self.replicas)
                return SimpleNamespace(topics=[SimpleNamespace(name="orders", partitions=[row])])
            case "list_partition_reassignments":
                row = SimpleNamespace(partition_index=0, replicas=self.target, removing_replicas=[])
                rows = [] if self.target is None else [row]
                topics = [SimpleNamespace(name="orders", partitions=rows)]
                return SimpleNamespace(error_code=0, topics=topics)
            case _:
                ((wanted,),) = (topic["partitions"] for topic in values["topics"])
                is_over = self.target is None and wanted["replicas"] is None
                self.target = wanted["replicas"]
                if self.lost_answers:
                    self.lost_answers -= 1
                    raise NotObservable("the answer is lost")
                code = int(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS) if is_over else 0
                row = SimpleNamespace(partition_index=0, error_code=code)
                topics = [SimpleNamespace(name="orders", partitions=[row])]
                return SimpleNamespace(error_code=0, responses=topics)


@pytest.mark.parametrize("lost_answers", [0, 1])
def test_a_cancellation_counts_although_its_answer_is_lost(monkeypatch, lost_answers):
    brokers = OneMove()
    monkeypatch.setattr(reassignments, "ask_any_broker", brokers.ask)
    fault = Reassign(duration_ms=1, topic="orders", replicas=(THIRD, FOURTH))
    moving = RunningReassignment(fault, brokers, view_of(), random.Random(1))
    moving.start()
    brokers.lost_answers = lost_answers
    moving.finish()
    assert moving.outcome == {"reassigned": [], "cancelled": ["orders/0"], "superseded": []}


def test_a_move_that_ended_before_its_cancellation_is_not_cancelled(monkeypatch):
    brokers = OneMove()
    monkeypatch.setattr(reassignments, "ask_any_broker", brokers.ask)
    fault = Reassign(duration_ms=1, topic="orders", replicas=(THIRD, FOURTH))
    moving = RunningReassignment(fault, brokers, view_of(), random.Random(1))
    moving.start()
    listed = set(moving._asked)
    brokers.replicas, brokers.target = [103, 104], None
    monkeypatch.setattr(moving, "_ongoing", lambda _: listed)
    moving.finish()
    assert moving.outcome == {"reassigned": ["orders/0"], "cancelled": [], "superseded": []}


class Rates:
    """A throttle that cannot be removed from broker 104 by the first `calls_down` calls of `clear`,
    as if that broker were down. left: the brokers that still have it."""

    def __init__(self, calls_down: int) -> None:
        self.calls_down = calls_down
        self.left: tuple[int, ...] = (103, 104)

    def clear(self) -> None:
        self.left = (104,) if self.calls_down else ()
        self.calls_down -= 1


@pytest.mark.parametrize("calls_down", [0, 2])
def test_the_throttle_of_a_broker_that_comes_back_is_taken_off(monkeypatch, calls_down):
    moving = finished_with(monkeypatch, Rates(calls_down))
    assert moving._throttle.left == ()
    assert "throttled" not in moving.outcome


def test_a_throttle_that_stays_on_a_dead_broker_is_named(monkeypatch):
    monkeypatch.setattr(reassignments, "_RETURN_WITHIN_MS", 0)
    moving = finished_with(monkeypatch, Rates(1_000))
    assert moving.outcome["throttled"] == [FOURTH]


def test_a_throttled_move_is_not_over_while_its_throttle_cannot_be_taken_off(monkeypatch):
    brokers = OneMove()
    monkeypatch.setattr(reassignments, "ask_any_broker", brokers.ask)
    monkeypatch.setattr(
        reassignments, "ask_broker", lambda broker, call, values, **_: brokers.ask(None, call, {})
    )
    fault = Reassign(duration_ms=1, topic="orders", replicas=(THIRD, FOURTH))
    moving = RunningReassignment(fault, brokers, view_of(), random.Random(1))
    moving.start()
    brokers.replicas, brokers.target = [103, 104], None
    moving._throttle = Throttle(brokers, 1_000)
    moving._throttle._brokers |= {103, 104}
    running, brokers.nodes = brokers.nodes(), lambda: running[:3]
    assert not moving.is_over()
    brokers.nodes = lambda: running
    assert moving.is_over()


def finished_with(monkeypatch, throttle: Rates) -> RunningReassignment:
    brokers = OneMove()
    monkeypatch.setattr(reassignments, "ask_any_broker", brokers.ask)
    fault = Reassign(duration_ms=1, topic="orders", replicas=(THIRD, FOURTH))
    moving = RunningReassignment(fault, brokers, view_of(), random.Random(1))
    moving.start()
    moving._throttle = throttle
    moving.finish()
    return moving


def test_a_look_at_a_move_asks_one_broker_and_the_next_look_another(monkeypatch):
    brokers = OneMove()
    fault = Reassign(duration_ms=1, topic="orders", replicas=(THIRD, FOURTH))
    with monkeypatch.context() as patched:
        patched.setattr(reassignments, "ask_any_broker", brokers.ask)
        moving = RunningReassignment(fault, brokers, view_of(), random.Random(1))
        moving.start()
    asked: list[tuple[str, int]] = []

    class HungBroker(NodeRequests):
        def ask(self, call: Call, values: Mapping[str, Any]) -> Any:
            asked.append((f"{self._place[0]}", round(self._timeout_s * 1000)))
            raise TimeoutError("timed out")

    monkeypatch.setattr(operator_calls, "NodeRequests", HungBroker)
    for count in (1, 2):
        assert not moving.is_over()
        assert len({name for name, _ in asked}) == len(asked) == count
    assert {timeout_ms for _, timeout_ms in asked} == {500}


def test_a_fault_that_is_due_ends_before_a_look_that_may_take_long():
    seen: list[str] = []
    injected = Injected(fault_id=1, name="move", fault=Reassign(duration_ms=60_000), nodes=())
    injected.is_over = lambda: bool(seen.append("look"))
    pause = PauseNode(target=parse_target("broker-101"), duration_ms=0)

    class Faults:
        def __init__(self) -> None:
            self.in_force = [injected]

        def active(self) -> list[Injected]:
            return list(self.in_force)

        def inject(self, name: str, fault: PauseNode) -> Injected:
            self.in_force.append(Injected(fault_id=2, name=name, fault=fault, nodes=()))
            return self.in_force[-1]

        def end(self, one: Injected) -> None:
            self.in_force.remove(one)
            seen.append(f"end of {one.name}")

    nemesis = Nemesis(injector=Faults(), probes=None, progress=lambda _: None, check=lambda: None)
    nemesis.begin(Action(name="pause", fault=pause))
    nemesis.wait(0)
    assert seen == ["end of pause", "look"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reassigned")
    with Cluster(
        controllers=1, brokers=4, directory=folder, proxies=False, metrics=False
    ) as cluster:
        cluster.history = folder / "history.jsonl"
        yield cluster


def nemesis_of(cluster: Cluster) -> Nemesis:
    return Nemesis(
        injector=cluster._injecting(),
        probes=None,
        progress=lambda _: None,
        check=lambda: None,
    )


def replicas(cluster: Cluster, topic: str) -> list[tuple[str, ...]]:
    return [view.replicas for view in cluster.state().partitions_of(topic)]


def spans(cluster: Cluster) -> list[dict[str, object]]:
    """The last reassignment in the history: its begin, and its end."""
    cluster._injecting()._history.flush()
    events = list(read_history(str(cluster.history)))
    kinds = (FAULT_BEGIN, FAULT_END)
    found = [details_of(event) for event in events if event.f in kinds]
    return [details for details in found if details["fault"] == "reassign"][-2:]


@pytest.mark.live
@pytest.mark.timeout(120)
def test_partitions_get_the_replicas_asked_for_and_the_fault_ends_with_the_move(cluster):
    from confluent_kafka.admin import ConfigResource, ResourceType

    topic = cluster.create_topic("orders", partitions=2, replication_factor=2)
    there = [set(pair) for pair in replicas(cluster, topic)]
    wanted = next(pair for pair in permutations(BROKERS, 2) if set(pair) not in there)
    fault = Reassign(duration_ms=60_000, topic=topic, replicas=wanted, throttle=10_000_000)
    nemesis = nemesis_of(cluster)
    cluster._call(lambda: nemesis.run([Action(name="move", fault=fault)]))
    assert replicas(cluster, topic) == [wanted, wanted]
    assert cluster._injecting().active() == []
    begun, ended = spans(cluster)
    assert begun["description"].startswith(f"reassign topic={topic}")
    assert ended["reassigned"] == [f"{topic}/0", f"{topic}/1"]
    assert ended["cancelled"] == ended["superseded"] == []
    resource = ConfigResource(ResourceType.TOPIC, topic)
    values = cluster.admin().describe_configs([resource])[resource].result()
    assert values["leader.replication.throttled.replicas"].value in (None, "")


@pytest.mark.live
@pytest.mark.timeout(120)
def test_a_move_to_a_dead_broker_is_cancelled_after_its_time(cluster):
    topic = cluster.create_topic("stuck", partitions=1, replication_factor=2)
    (before,) = replicas(cluster, topic)
    dead = next(name for name in BROKERS if name not in before)
    with cluster.fault("kill", target=dead):
        cluster.wait_until(lambda: dead not in cluster.state().live_brokers, what="it is fenced")
        injected = cluster.inject("reassign", topic=topic, replicas=[dead], duration_ms=60_000)
        cluster.wait_until(
            lambda: dead in replicas(cluster, topic)[0], what="the reassignment goes on"
        )
        assert not injected.is_over()
        cluster.end(injected)
        assert spans(cluster)[1]["cancelled"] == [f"{topic}/0"]
        cluster.wait_until(lambda: replicas(cluster, topic) == [before], what="it is taken back")


@pytest.mark.live
@pytest.mark.timeout(120)
def test_a_move_that_a_later_one_supersedes_is_neither_done_nor_cancels_the_other(cluster):
    topic = cluster.create_topic("twice", partitions=1, replication_factor=2)
    (before,) = replicas(cluster, topic)
    dead, *_ = (name for name in BROKERS if name not in before)
    with cluster.fault("kill", target=dead):
        first = cluster.inject("reassign", topic=topic, replicas=[dead], duration_ms=60_000)
        later = cluster.inject(
            "reassign", topic=topic, replicas=[dead, before[0]], duration_ms=60_000
        )
        cluster.end(first)
        assert spans(cluster)[1]["superseded"] == [f"{topic}/0"]
        assert not later.is_over()
    cluster.wait_until(later.is_over, what="the later one is done")
    cluster.end(later)
    assert replicas(cluster, topic) == [(dead, before[0])]


@pytest.mark.live
@pytest.mark.timeout(120)
def test_a_reassignment_without_an_effect_is_refused_and_leaves_nothing(cluster):
    topic = cluster.create_topic("there", partitions=1, replication_factor=2)
    (now,) = replicas(cluster, topic)
    with pytest.raises(UnresolvableTarget, match="every partition has these replicas already"):
        cluster.inject("reassign", topic=topic, replicas=list(now), duration_ms=1)
    with pytest.raises(UnresolvableTarget, match=r"no broker is named 'broker-109' \(brokers: "):
        cluster.inject("reassign", topic=topic, replicas=["broker-109"], duration_ms=1)
    with pytest.raises(UnresolvableTarget, match="no broker is named 'controller-1'"):
        cluster.inject("reassign", topic=topic, replicas=["controller-1"], duration_ms=1)
    with pytest.raises(UnresolvableTarget, match="there has the partitions 0 to 0, not 1"):
        cluster.inject("reassign", topic=topic, partitions=[1], duration_ms=1)
    with pytest.raises(UnresolvableTarget, match="the cluster has no partition to move"):
        cluster.inject("reassign", topic="nowhere", duration_ms=1)
    assert cluster._injecting().active() == []
