"""The faults of disks and clocks: what they need, what they do to fault boards, and their end."""

from __future__ import annotations

import errno
import random

import pytest

from kvorum.chaos.experiment_file.faults import build_fault
from kvorum.chaos.experiment_file.possible_targets import (
    PossibleTargets,
    impossible_targets,
    node_names,
)
from kvorum.chaos.faults import (
    FailDisk,
    FillDisk,
    HealLinks,
    KillNode,
    RestartNode,
    SlowDisk,
    StepClock,
)
from kvorum.chaos.history import FAULT_END, HistoryWriter, details_of, read_history
from kvorum.chaos.live.faults import conditions
from kvorum.chaos.live.faults.conditions import conditions_of
from kvorum.chaos.live.faults.injector import Injector
from kvorum.chaos.live.systems.boards import NodeBoards
from kvorum.chaos.live.systems.capabilities import (
    KVORUM_CAPABILITIES,
    OF_FAULT_BOARDS,
    needs_of,
)
from kvorum.chaos.live.systems.limits import lacking
from kvorum.chaos.live.systems.opening import SystemChoice
from kvorum.chaos.live.systems.protocol import DEAD, RUNNING, Capability, Node
from kvorum.chaos.targets import TargetView, UnresolvableTarget, parse_target
from kvorum.runtime.fault_board import HEALTHY, Conditions, FaultBoard, Hits, Word

BROKER = parse_target("broker-101")
FULL = FillDisk(target=BROKER, duration_ms=500)
SLOW = SlowDisk(target=BROKER, sync_delay_ms=200, duration_ms=500)
FAILING = FailDisk(target=BROKER, duration_ms=500)
STEP = StepClock(target=BROKER, step_ms=-60_000)


class BoardedSystem:
    """A controller and two brokers that consist of their fault boards alone."""

    max_nodes_down = None

    def __init__(self, folder) -> None:
        self.boards = NodeBoards()
        self.boards.make(folder, ["controller-1", "broker-101", "broker-102"])
        self.fault_boards = self.boards.by_node
        self.dead: set[str] = set()
        self.asked: set[str] = set()
        self.started: list[str] = []

    @property
    def killed(self) -> frozenset[str]:
        return frozenset(self.asked | (self.dead & self.boards.may_die))

    paused: frozenset[str] = frozenset()

    def died_unasked(self) -> set[str]:
        return self.dead - self.killed

    def may_die(self, name: str) -> None:
        self.boards.allow_death(name, is_allowed=True)

    def must_live(self, name: str) -> None:
        self.boards.allow_death(name, is_allowed=False)

    def die(self, name: str) -> None:
        """Make a node end as one does after a failed disk call."""
        self.fault_boards[name].words[Word.FAILED_CALLS] += 1
        self.dead.add(name)

    def kill(self, name: str) -> None:
        self.asked.add(name)
        self.dead.add(name)

    def restart(self, name: str) -> None:
        self.dead.discard(name)
        self.asked.discard(name)
        self.started.append(name)

    def nodes(self) -> list[Node]:
        return [
            Node(
                name=name,
                node_id=1,
                is_controller=False,
                pid=None,
                state=DEAD if name in self.dead else RUNNING,
                listener="",
                log_file="",
            )
            for name in self.fault_boards
        ]

    def view(self) -> TargetView:
        return TargetView(
            controllers=("controller-1",),
            brokers=("broker-101", "broker-102"),
            killed=self.killed.union(self.died_unasked()),
        )


@pytest.fixture
def system(tmp_path):
    system = BoardedSystem(tmp_path / "boards")
    yield system
    system.boards.close()


@pytest.fixture
def history_file(tmp_path):
    return str(tmp_path / "h.jsonl")


@pytest.fixture
def injector(system, history_file):
    with HistoryWriter(history_file, run_id="1", system="kvorum") as history:
        yield Injector(
            system=system, toxiproxy=None, history=history, view=system.view, rng=random.Random(1)
        )


def shown(system: BoardedSystem, node: str = "broker-101") -> Conditions:
    return system.fault_boards[node].conditions()


@pytest.mark.parametrize(
    ("faults", "expected"),
    [
        ([], HEALTHY),
        ([FULL], Conditions(room_bytes=0)),
        ([SLOW], Conditions(sync_delay_us=200_000)),
        ([FAILING], Conditions(sync_errno=errno.EIO)),
        (
            [FailDisk(target=BROKER, operation="write", error="EROFS", duration_ms=1)],
            Conditions(write_errno=errno.EROFS),
        ),
        ([STEP, StepClock(target=BROKER, step_ms=70_000)], Conditions(clock_offset_ms=10_000)),
        (
            [SLOW, SlowDisk(target=BROKER, sync_delay_ms=20, duration_ms=1), FULL,
             FillDisk(target=BROKER, room_bytes=70, duration_ms=1)],
            Conditions(sync_delay_us=200_000, room_bytes=0),
        ),
    ],
)  # fmt: skip
def test_a_board_shows_the_sum_of_the_faults(faults, expected):
    assert conditions_of(faults) == expected


@pytest.mark.parametrize("fault", [FULL, SLOW, FAILING, STEP])
def test_a_fault_stands_on_the_boards_of_its_targets_until_it_ends(system, injector, fault):
    injected = injector.inject("x", fault)
    assert injected.nodes == ("broker-101",) and not injected.is_of_links
    assert shown(system) == conditions_of([fault])
    assert shown(system, "broker-102") == shown(system, "controller-1") == HEALTHY
    injector.inject("heal", HealLinks())
    assert shown(system) != HEALTHY
    injector.end(injected)
    assert shown(system) == HEALTHY
    assert system.started == [] and system.boards.may_die == frozenset()
    assert set(injected.hits) == (set() if fault is STEP else {"broker-101"})


def test_faults_that_overlap_end_one_by_one(system, injector):
    first = injector.inject("x", SLOW)
    second = injector.inject("y", SlowDisk(target=BROKER, sync_delay_ms=900, duration_ms=1))
    third = injector.inject("z", STEP)
    assert shown(system) == Conditions(sync_delay_us=900_000, clock_offset_ms=-60_000)
    injector.end(second)
    assert shown(system) == Conditions(sync_delay_us=200_000, clock_offset_ms=-60_000)
    injector.end(first)
    injector.end(third)
    assert shown(system) == HEALTHY


def test_a_fault_counts_no_call_that_a_fault_of_another_kind_has_hit(system, injector):
    slow, full = injector.inject("x", SLOW), injector.inject("y", FULL)
    words = system.fault_boards["broker-101"].words
    words[Word.DELAYED_SYNCS] += 2
    words[Word.FAILED_CALLS] += 1
    injector.end(full)
    injector.end(slow)
    assert full.hits["broker-101"] == Hits(delayed_syncs=0, failed_calls=1)
    assert slow.hits["broker-101"] == Hits(delayed_syncs=2, failed_calls=0)


@pytest.mark.parametrize("fault", [FULL, FAILING])
def test_a_node_that_dies_of_its_disk_is_no_unasked_death_and_is_started_at_the_end(
    system, injector, history_file, fault
):
    injected = injector.inject("x", fault)
    system.die("broker-101")
    assert system.died_unasked() == set()
    assert system.view().killed == {"broker-101"}
    injector.end(injected)
    assert system.started == ["broker-101"]
    assert system.died_unasked() == set()
    system.dead.add("broker-101")
    assert system.died_unasked() == {"broker-101"}
    injector._history.flush()
    (ended,) = (e for e in read_history(history_file) if e.f == FAULT_END)
    assert details_of(ended)["hits"] == {"broker-101": {"delayed_syncs": 0, "failed_calls": 1}}


@pytest.mark.parametrize("fault", [SLOW, STEP])
def test_a_death_under_a_slow_disk_or_a_stepped_clock_was_not_asked_for(system, injector, fault):
    injector.inject("x", fault)
    system.dead.add("broker-101")
    assert system.died_unasked() == {"broker-101"}


def test_a_node_that_a_kill_has_taken_down_is_left_to_the_kill(system, injector):
    full = injector.inject("x", FULL)
    kill = injector.inject("k", KillNode(target=BROKER))
    injector.end(full)
    assert system.started == []
    injector.end(kill)
    assert system.started == ["broker-101"]


def test_a_node_is_started_by_the_last_of_two_faults_that_it_may_die_of(system, injector):
    full = injector.inject("x", FULL)
    failing = injector.inject("y", FAILING)
    system.die("broker-101")
    injector.end(full)
    assert system.started == [] and system.died_unasked() == set()
    injector.end(failing)
    assert system.started == ["broker-101"]


def test_restart_leaves_a_node_that_died_of_its_disk_to_the_fault(system, injector):
    injector.inject("x", FULL)
    system.die("broker-101")
    injector.inject("r", RestartNode())
    assert system.started == []
    injector.end_all()
    assert system.started == ["broker-101"]


def test_a_node_that_ends_only_after_its_fault_is_started_all_the_same(
    system, injector, monkeypatch
):
    """1. A write of the node fails. 2. The fault ends. 3. The node ends because of that write."""

    def end_while_waiting(condition, **_):
        assert not condition()
        system.dead.add("broker-101")
        assert condition()

    monkeypatch.setattr(conditions, "wait_until", end_while_waiting)
    injected = injector.inject("x", FULL)
    system.fault_boards["broker-101"].words[Word.FAILED_CALLS] += 1
    injector.end(injected)
    assert system.started == ["broker-101"]


def test_a_node_that_does_not_run_gets_no_fault(system, injector):
    injector.inject("k", KillNode(target=BROKER))
    with pytest.raises(UnresolvableTarget, match="broker-101 does not run"):
        injector.inject("x", SLOW)
    both = injector.inject(
        "y", SlowDisk(target=parse_target("all"), sync_delay_ms=1, duration_ms=1)
    )
    assert both.nodes == ("controller-1", "broker-102")


def test_the_boards_of_a_stopped_cluster_are_healthy(system, injector):
    path = system.boards.path_of("broker-101")
    injector.inject("x", SLOW)
    system.boards.close()
    board = FaultBoard(path)
    assert board.conditions() == HEALTHY
    board.close()


def test_each_fault_has_its_capability_and_a_deadly_one_needs_a_start():
    assert needs_of(FULL) == {Capability.FILL_DISK, Capability.RESTART}
    assert needs_of(FAILING) == {Capability.FAIL_DISK, Capability.RESTART}
    assert needs_of(SLOW) == {Capability.SLOW_DISK}
    assert needs_of(STEP) == {Capability.CLOCK}


def test_an_attached_cluster_refuses_them_with_the_systems_that_can():
    choice = SystemChoice(
        name="attached", version="1", capabilities=frozenset({Capability.RESTART}), option=""
    )
    faults = (FULL, SLOW, FAILING, STEP)
    assert [problem for fault in faults for problem in lacking(fault, choice)] == [
        f"{needs}, which the system attached does not have; use kvorum or kafka"
        for needs in (
            "'fill_disk broker-101' needs a full disk",
            "'slow_disk broker-101 sync_delay_ms=200' needs a slow disk",
            "'fail_disk broker-101 operation=sync error=EIO' needs a disk whose calls fail",
            "'step_clock broker-101 step_ms=-60000' needs steps of a node's clock",
        )
    ]


def test_a_machine_without_the_means_says_why():
    choice = SystemChoice(
        name="kafka",
        version="4",
        capabilities=KVORUM_CAPABILITIES - OF_FAULT_BOARDS,
        option="",
        lacks={Capability.SLOW_DISK: "no C compiler is on PATH; install one"},
    )
    (problem,) = lacking(SLOW, choice)
    assert problem == (
        "'slow_disk broker-101 sync_delay_ms=200' needs a slow disk, which the system kafka does "
        "not have here: no C compiler is on PATH; install one"
    )


def test_targets_that_cannot_be_are_refused_when_the_file_is_read():
    possible = PossibleTargets(
        nodes=node_names(1, 1), topic="orders", partitions=1, replication_factor=1
    )
    for target, words in (("clients", "clients are no node"), ("broker-105", "no node is named")):
        slow = SlowDisk(target=parse_target(target), sync_delay_ms=1, duration_ms=1)
        (problem,) = impossible_targets(slow, possible)
        assert words in problem.message


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("fail_disk", {"operation": "read"}, "operation must be one of sync, write, got 'read'"),
        ("fail_disk", {"error": "EPERM"}, "error must be one of EIO, ENOSPC, EROFS, got 'EPERM'"),
        ("fail_disk", {"error": ["EIO"]}, "error must be one of"),
        ("step_clock", {"step_ms": 0}, "step_ms must not be 0"),
        ("step_clock", {"step_ms": -86_400_001}, "step_ms must lie between -86400000 and 86400000"),
        ("slow_disk", {"sync_delay_ms": 0}, "sync_delay_ms must lie between 1"),
        ("fill_disk", {"room_bytes": -1}, "room_bytes must lie between 0"),
    ],
)
def test_bad_arguments_are_refused(name, arguments, message):
    given = {"target": "one", "duration_ms": 5, **arguments}
    problems = build_fault(name, given)
    assert isinstance(problems, list)
    assert [message in problem.message for problem in problems] == [True], problems


def test_a_folder_that_cannot_hold_boards_is_an_error(tmp_path):
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(NotADirectoryError):
        NodeBoards().make(file / "boards", ["broker-101"])
