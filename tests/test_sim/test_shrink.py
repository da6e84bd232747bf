"""Shrinking, many seeds at once, and the command that does both."""

from __future__ import annotations

import json
import pickle

import pytest
from click.testing import CliRunner

from kvorum.chaos.sim.kernel.checks import SeedFailed
from kvorum.chaos.sim.many import SeedResult, Summary, run_many
from kvorum.chaos.sim.quorum.scenario import from_json, scenario_of, to_json
from kvorum.chaos.sim.quorum.world import run_scenario, run_seed
from kvorum.chaos.sim.shrink import shrink
from kvorum.cli.chaos import sim
from kvorum.client.failures import CommandFailed


def commit_with_one_voter_too_few(end_offsets):
    return sorted(end_offsets, reverse=True)[max(len(end_offsets) // 2 - 1, 0)]


@pytest.fixture
def bug(monkeypatch):
    monkeypatch.setattr("kvorum.raft.core.leader.committed_offset", commit_with_one_voter_too_few)


def run(*args):
    """Exit code, stdout, stderr of `kvorum chaos sim`, as the command's root would have them."""
    result = CliRunner().invoke(sim, [str(arg) for arg in args], catch_exceptions=True)
    if isinstance(result.exception, CommandFailed):
        return result.exception.exit_code, result.stdout, str(result.exception)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def test_shrunk_scenario_is_smaller_and_fails_in_the_same_way(bug):
    scenario = scenario_of(0)
    steps = []
    shrunk = shrink(scenario, steps.append)
    assert shrunk.failure.name == "MajorityReachedHighWatermark"
    assert len(shrunk.scenario.faults) <= 2 < len(scenario.faults)
    assert shrunk.scenario.duration_ms < scenario.duration_ms
    assert steps and shrunk.runs > len(steps)
    with pytest.raises(SeedFailed) as caught:
        run_scenario(from_json(to_json(shrunk.scenario)))
    assert caught.value.name == shrunk.failure.name


def test_shrinking_keeps_the_one_fault_that_matters(monkeypatch):
    def stop(self, *, is_power_cut):
        raise RuntimeError("a crash is all it takes")

    monkeypatch.setattr("kvorum.chaos.sim.quorum.node.SimNode.stop", stop)
    seed = next(seed for seed in range(50) if fails(seed))
    shrunk = shrink(scenario_of(seed), lambda _: None)
    assert len(shrunk.scenario.faults) == 1
    assert shrunk.scenario.voters <= 3
    assert shrunk.scenario.observers == 0


def fails(seed):
    try:
        run_seed(seed)
    except SeedFailed:
        return True
    return False


def test_scenario_that_does_not_fail_is_not_shrunk():
    assert shrink(scenario_of(0), lambda _: None) is None


def test_failure_keeps_its_name_between_processes():
    failure = pickle.loads(pickle.dumps(SeedFailed("Name", "text")))
    assert (failure.name, str(failure)) == ("Name", "text")


def test_many_seeds_on_two_processors_come_to_the_same_as_one_by_one():
    sums = [run_many(range(4), jobs=jobs, on_result=lambda _: None) for jobs in (1, 2)]
    assert sums[0] == sums[1]
    assert sums[0].seeds == 4 and not sums[0].failures
    assert "seeds      4 in 2.0 s, 2.0 a second" in sums[0].lines(2.0)


def test_summary_names_failing_seeds():
    summary = Summary()
    summary.add(SeedResult(seed=9, failure=SeedFailed("Name", "text")))
    summary.add(SeedResult(seed=4, failure=SeedFailed("Name", "text")))
    assert summary.lines(1.0)[-1] == "failed     4, 9"


def test_command_runs_many_seeds_and_says_a_line_for_each_when_asked():
    code, out, _ = run("--seed", 0, "--count", 2, "--jobs", 1)
    assert code == 0 and "seed 1:" not in out and out.startswith("seeds      2 in")
    code, out, _ = run("--seed", 0, "--count", 2, "--jobs", 1, "-v")
    assert code == 0 and "seed 0:" in out and "seed 1:" in out


def test_command_ends_with_6_and_names_the_seeds_that_failed(bug):
    code, out, error = run("--seed", 0, "--count", 3, "--jobs", 1)
    assert code == 6 and error == "seeds that failed: 0, 1, 2"
    assert "failed     0, 1, 2" in out


def test_command_shrinks_and_replays(bug, tmp_path):
    code, out, error = run("--seed", 0, "--shrink")
    assert code == 6 and "'MajorityReachedHighWatermark' after" in error
    line = out.strip().splitlines()[-1]
    assert json.loads(line)["seed"] == 0
    path = tmp_path / "small.json"
    path.write_text(line, encoding="utf-8")
    code, _, error = run("--scenario", path)
    assert code == 6 and "MajorityReachedHighWatermark" in error


def test_command_replays_a_scenario_that_is_fine_and_shrinks_nothing(tmp_path):
    path = tmp_path / "fine.json"
    path.write_text('{"seed": 1, "duration_ms": 2000}', encoding="utf-8")
    code, out, _ = run("--scenario", path)
    assert code == 0 and out.startswith("seed 1:")
    code, out, error = run("--scenario", path, "--shrink")
    assert (code, out, error) == (0, "", "seed 1 does not fail\n")


@pytest.mark.parametrize(
    "args",
    [(), ("--seed", 1, "--count", 2, "--shrink"), ("--seed", 1, "--scenario", __file__)],
)
def test_command_refuses_what_makes_no_sense(args):
    assert run(*args)[0] == 2


def test_command_refuses_a_file_that_is_no_scenario():
    code, _, error = run("--scenario", __file__)
    assert code == 2 and "not a scenario of the simulator" in error
