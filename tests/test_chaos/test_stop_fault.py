"""The fault `stop` shuts nodes down cleanly, and starts them again when it ends."""

from __future__ import annotations

import random

import pytest

from kvorum.chaos.faults import RestartNode, StopNode
from kvorum.chaos.history import FAULT_BEGIN, HistoryWriter, details_of, read_history
from kvorum.chaos.live.faults.injector import Injector
from kvorum.chaos.live.systems.capabilities import needs_of
from kvorum.chaos.live.systems.protocol import Capability
from kvorum.chaos.targets import TargetView, UnresolvableTarget, parse_target

STOP = StopNode(target=parse_target("broker-101"), duration_ms=1_000)


class RecordedSystem:
    """A system that notes what the injector does to its nodes."""

    max_nodes_down = None

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.killed: frozenset[str] = frozenset()
        self.paused: frozenset[str] = frozenset()

    def stop_node(self, name: str) -> None:
        self.calls.append(("stop", name))
        self.killed |= {name}

    def restart(self, name: str) -> None:
        self.calls.append(("restart", name))
        self.killed -= {name}

    def view(self) -> TargetView:
        return TargetView(
            controllers=("controller-1",),
            brokers=("broker-101", "broker-102"),
            killed=self.killed,
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


def test_a_stopped_node_is_started_when_the_fault_ends(system, injector, tmp_path):
    injected = injector.inject("restart it", STOP)
    assert injected.nodes == ("broker-101",)
    assert not injected.is_of_links
    assert system.calls == [("stop", "broker-101")]
    injector.end(injected)
    assert system.calls == [("stop", "broker-101"), ("restart", "broker-101")]
    injector._history.flush()
    (begun,) = (e for e in read_history(str(tmp_path / "h.jsonl")) if e.f == FAULT_BEGIN)
    assert details_of(begun)["description"] == "stop broker-101"


def test_restart_also_starts_a_stopped_node(system, injector):
    injector.inject("stop it", STOP)
    injector.inject("start it", RestartNode())
    assert system.calls[-1] == ("restart", "broker-101")
    assert injector.active() == []


def test_a_stopped_node_cannot_be_stopped_again(injector):
    injector.inject("stop it", STOP)
    with pytest.raises(UnresolvableTarget, match="already killed or paused"):
        injector.inject("stop it again", STOP)


def test_stop_needs_a_system_that_can_stop_and_start_nodes():
    assert needs_of(STOP) == {Capability.STOP, Capability.RESTART}
