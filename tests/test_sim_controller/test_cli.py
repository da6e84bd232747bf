"""`kvorum chaos sim --world controller`: seeds, failures, and how to run a failing seed again."""

from __future__ import annotations

import json

import pytest

from kvorum.chaos.sim.controller.scenario import ControllerScenario
from kvorum.chaos.sim.kernel.checks import SeedFailed
from kvorum.chaos.sim.many import run_many
from kvorum.chaos.sim.quorum.scenario import to_json
from kvorum.chaos.sim.shrink import shrink
from kvorum.chaos.sim.worlds import run_seed, scenario_of
from kvorum.metadata.controller.core.controller import Controller
from tests.command import kvorum


def test_seeds_of_the_controllers_world_are_summed_up():
    arguments = ("chaos", "sim", "--world", "controller", "--seed", 0, "--count", 2, "--jobs", 1)
    code, out, _ = kvorum(*arguments)
    assert code == 0
    assert out.startswith("seeds      2 in ")
    assert "changes of leadership" in out


def broken(monkeypatch):
    """A bug: no broker is fenced any more."""
    monkeypatch.setattr(Controller, "fence_next", lambda self, now_ms: None)


def test_a_failing_seed_says_how_to_run_it_again(monkeypatch):
    broken(monkeypatch)
    arguments = ("chaos", "sim", "--world", "controller", "--seed", 1)
    code, out, err = kvorum(*arguments)
    assert (code, out) == (6, "")
    assert "rerun: kvorum chaos sim --world controller --seed 1\n" in err
    assert "shrink: kvorum chaos sim --world controller --seed 1 --shrink\n" in err


def test_fail_fast_stops_at_the_first_seed_that_fails(monkeypatch):
    broken(monkeypatch)
    summary = run_many(
        range(1, 100),
        jobs=1,
        on_result=lambda result: None,
        world="controller",
        stops_at_failure=True,
    )
    assert summary.seeds < 10
    assert len(summary.failures) == 1


def test_several_processes_run_the_controllers_world():
    summary = run_many(range(2), jobs=2, on_result=lambda result: None, world="controller")
    assert summary.seeds == 2
    assert not summary.failures


def test_many_seeds_do_not_show_what_their_nodes_log(capfd):
    # Some lose a disk, which the broker logs as an error.
    seeds = range(8)
    summary = run_many(seeds, jobs=2, on_result=lambda result: None, world="partitions")
    assert summary.faults["fail-broker-disk"]
    assert capfd.readouterr().err == ""


def test_a_scenario_of_a_file_is_run_in_its_world(tmp_path):
    path = tmp_path / "scenario.json"
    path.write_text(to_json(ControllerScenario(seed=3, duration_ms=2_000)))
    code, out, _ = kvorum("chaos", "sim", "--scenario", path)
    assert code == 0
    assert out.startswith("seed 3")


def test_a_failure_shrinks_to_a_small_scenario_of_the_same_world(monkeypatch):
    broken(monkeypatch)
    with pytest.raises(SeedFailed) as failed:
        run_seed(1, "controller")
    monkeypatch.setattr("kvorum.chaos.sim.shrink.RUNS_MAX", 5)
    shrunk = shrink(scenario_of(1, "controller"), lambda line: None)
    assert shrunk.failure.name == failed.value.name
    assert json.loads(to_json(shrunk.scenario))["world"] == "controller"
    assert len(shrunk.scenario.faults) < len(scenario_of(1, "controller").faults)
