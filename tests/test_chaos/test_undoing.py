"""The end of faults when a step of it fails: every other step is taken, and the error is told."""

from __future__ import annotations

import random
import subprocess

import pytest

from kvorum.chaos.faults import FillDisk, KillNode, PacketLoss, PauseNode
from kvorum.chaos.history import FAULT_END, HistoryWriter, details_of, read_history
from kvorum.chaos.live.faults.injector import Injector
from kvorum.chaos.live.host import packet_filter
from kvorum.chaos.live.host.links import Link, ProxyStream, plan_links
from kvorum.chaos.live.host.packet_filter import PacketFilter, PacketFilterFailed
from kvorum.chaos.live.host.processes import NotReached
from kvorum.chaos.live.systems.boards import NodeBoards
from kvorum.chaos.live.systems.protocol import DEAD, RUNNING, Node
from kvorum.chaos.targets import TargetView, UnresolvableTarget, parse_target
from kvorum.runtime.errors import KvorumError
from kvorum.runtime.fault_board import HEALTHY, Word

BROKERS = ("broker-101", "broker-102")
KILL = KillNode(target=parse_target("brokers"))
LOSS = PacketLoss(
    source=parse_target("clients"), destination=parse_target("broker-101"), loss_percent=5
)


class StubbornSystem:
    """Nodes that are brought back, except those for which `trouble` has an error."""

    max_nodes_down = None
    plan = plan_links(1, 2, client_port=1, controller_port=3, proxy_port=10)

    def __init__(self, folder) -> None:
        self.boards = NodeBoards()
        self.boards.make(folder, BROKERS)
        self.fault_boards = self.boards.by_node
        self.may_die, self.must_live = (lambda name: None), (lambda name: None)
        self.down: set[str] = set()
        self.tried: list[str] = []
        self.trouble: dict[str, BaseException] = {}
        self.paused: frozenset[str] = frozenset()

    @property
    def killed(self) -> frozenset[str]:
        return frozenset(self.down)

    def kill(self, name: str) -> None:
        if f"kill {name}" in self.trouble:
            raise self.trouble[f"kill {name}"]
        self.down.add(name)

    def restart(self, name: str) -> None:
        self.tried.append(name)
        if name in self.trouble:
            raise self.trouble[name]
        self.down.discard(name)

    pause, resume = kill, restart

    def nodes(self) -> list[Node]:
        return [
            Node(
                name=name, node_id=1, is_controller=False, pid=None, listener="", log_file="",
                state=DEAD if name in self.down else RUNNING,
            )
            for name in BROKERS
        ]  # fmt: skip

    def view(self) -> TargetView:
        return TargetView(controllers=("controller-1",), brokers=BROKERS, killed=self.killed)


class StubbornFilter:
    """A packet filter that cannot tell what it has lost."""

    stopped: tuple[str, ...] = ()

    def lose(self, name, streams, *, loss_percent) -> None:
        """Does nothing."""

    def lost(self, name) -> int:
        raise PacketFilterFailed(f"the rules of {name} are gone")

    def stop(self, name) -> None:
        self.stopped += (name,)


class RecordedProxies:
    resets = 0

    def reset(self) -> None:
        self.resets += 1


@pytest.fixture
def system(tmp_path):
    system = StubbornSystem(tmp_path / "boards")
    yield system
    system.boards.close()


@pytest.fixture
def packets():
    return StubbornFilter()


@pytest.fixture
def proxies():
    return RecordedProxies()


@pytest.fixture
def injector(system, packets, proxies, tmp_path):
    with HistoryWriter(str(tmp_path / "h.jsonl"), run_id="1", system="kvorum") as history:
        yield Injector(
            system=system, toxiproxy=proxies, packets=packets, history=history, view=system.view,
            rng=random.Random(1),
        )  # fmt: skip


@pytest.fixture
def ends(injector, tmp_path):
    """The faults' ends in the history."""

    def read() -> list[dict[str, object]]:
        injector._history.flush()
        events = read_history(str(tmp_path / "h.jsonl"))
        return [details_of(event) for event in events if event.f == FAULT_END]

    return read


def test_a_node_that_does_not_come_back_keeps_no_other_from_it(system, injector, ends):
    injected = injector.inject("kill all", KILL)
    system.trouble["broker-101"] = NotReached("broker-101 runs again: not so within 30 s")
    with pytest.raises(NotReached, match="broker-101 runs again"):
        injector.end(injected)
    assert system.tried == ["broker-101", "broker-102"] and system.down == {"broker-101"}
    assert injector.active() == []
    (ended,) = ends()
    assert ended["problem"] == "broker-101 runs again: not so within 30 s"


def test_a_fault_that_cannot_be_undone_leaves_none_of_the_others_in_force(
    system, injector, proxies, ends
):
    injector.inject("first", KillNode(target=parse_target("broker-101")))
    injector.inject("second", PauseNode(target=parse_target("broker-102")))
    system.trouble["broker-101"] = ProcessLookupError("no such process")
    with pytest.raises(ProcessLookupError):
        injector.end_all()
    assert system.tried == ["broker-101", "broker-102"]
    assert injector.active() == [] and len(ends()) == 2
    assert proxies.resets == 1


def test_lost_packets_that_cannot_be_counted_are_lost_no_longer(injector, packets, ends):
    injected = injector.inject("lossy", LOSS)
    with pytest.raises(PacketFilterFailed, match="the rules of fault_0 are gone"):
        injector.end(injected)
    assert packets.stopped == ("fault_0",)
    assert "lost_packets" not in ends()[0]


def test_the_hits_of_a_disk_are_known_although_its_node_does_not_start(system, injector, ends):
    injected = injector.inject("full", FillDisk(target=parse_target("broker-101"), duration_ms=1))
    system.fault_boards["broker-101"].words[Word.FAILED_CALLS] += 3
    system.down.add("broker-101")
    system.trouble["broker-101"] = NotReached("broker-101 runs again: not so")
    with pytest.raises(NotReached):
        injector.end(injected)
    assert system.fault_boards["broker-101"].conditions() == HEALTHY
    assert ends()[0]["hits"] == {"broker-101": {"delayed_syncs": 0, "failed_calls": 3}}


def test_a_step_that_a_signal_interrupts_is_taken_again(system, injector, ends):
    injected = injector.inject("kill all", KILL)
    system.trouble["broker-101"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        injector.end(injected)
    assert injector.active() == [injected] and ends() == []
    del system.trouble["broker-101"]
    injector.end_all()
    assert system.tried == ["broker-101", "broker-101", "broker-102"]
    assert system.down == set() and len(ends()) == 1


def test_a_fault_that_fails_half_way_and_cannot_be_taken_back_gives_both_reasons(
    system, injector, ends
):
    system.trouble = {
        "kill broker-102": UnresolvableTarget("broker-102 is not running"),
        "broker-101": NotReached("broker-101 runs again: not so"),
    }
    both = "broker-102 is not running; a part of it may be in force: broker-101 runs again: not so"
    with pytest.raises(KvorumError, match=both) as refused:
        injector.inject("kill all", KILL)
    assert not isinstance(refused.value, UnresolvableTarget)
    assert injector.active() == [] and ends() == []


def test_a_hanging_nft_is_an_error_of_the_filter(monkeypatch):
    def hang(command, **_):
        raise subprocess.TimeoutExpired(command, 10)

    monkeypatch.setattr(packet_filter.subprocess, "run", hang)
    with pytest.raises(PacketFilterFailed, match=r"the rules of x cannot be listed: .* timed out"):
        PacketFilter().lost("x")


def test_an_nft_that_cannot_be_run_is_an_error_of_the_filter(monkeypatch):
    monkeypatch.setattr(packet_filter, "_nft", lambda: "/nowhere/nft")
    link = Link(source="a", destination="b", listen="127.0.0.1:9", upstream="127.0.0.1:1")
    with pytest.raises(PacketFilterFailed, match="/nowhere/nft cannot be run: "):
        PacketFilter().lose("x", [(link, ProxyStream.UPSTREAM)], loss_percent=1)
