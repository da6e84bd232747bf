"""Seeds of the controller's world: safe, live, the same in every process, and rough enough."""

from __future__ import annotations

import dataclasses
import itertools
import os
import random
import subprocess
import sys

import pytest

from kvorum.chaos.faults import MEANS, OPERATIONS, StrikeOperation
from kvorum.chaos.sim.controller.scenario import ControllerScenario, controller_scenario_of
from kvorum.chaos.sim.controller.world import ControllerWorld
from kvorum.chaos.sim.kernel.fault_draws import CONTROLLER_DRAWS
from kvorum.chaos.sim.kernel.schedule import ScheduledFault, draw_schedule
from kvorum.chaos.sim.quorum.scenario import to_json
from kvorum.chaos.sim.worlds import from_json, run_scenario, run_seed
from kvorum.runtime.errors import ConfigError

SEEDS = range(50)
STRIKE_SEEDS_MAX = 24

STRIKES = tuple(
    (operation, moment, means)
    for operation, moment, means in itertools.product(OPERATIONS, ("decided", "committed"), MEANS)
    # A controller's own decisions have no reply.
    if (operation, moment) != ("fence", "committed")
)


@pytest.mark.parametrize("seed", SEEDS)
def test_seed_is_safe_and_converges(seed):
    outcome = run_seed(seed, "controller")
    assert outcome.seed == seed
    assert outcome.acknowledged > 0


def test_seeds_differ_in_kind_and_bring_every_fault():
    scenarios = [controller_scenario_of(seed) for seed in range(100)]
    assert {s.observers for s in scenarios} == {2, 3, 4, 5}
    assert {s.voters for s in scenarios} == {1, 3, 5}
    assert {s.is_dynamic for s in scenarios} == {False, True}
    assert {s.is_unclean for s in scenarios} == {False, True}
    drawn = {item.kind for scenario in scenarios for item in scenario.faults}
    assert set(CONTROLLER_DRAWS) <= drawn


def striking(seed, wanted):
    """A schedule of strikes at operations, every 300 ms, in which those of `wanted` come first."""
    rng = random.Random(seed)
    chosen = rng.sample(sorted(wanted), min(60, len(wanted)))
    faults = [
        ScheduledFault(
            at_ms=500 + 300 * number,
            fault=StrikeOperation(
                operation=operation, moment=moment, means=means, duration_ms=rng.choice((100, 700))
            ),
        )
        for number, (operation, moment, means) in enumerate(chosen)
    ]
    scenario = ControllerScenario(
        seed=seed, observers=4, propose_interval_ms=40, isr_interval_ms=100, snapshot_every=60
    )
    faults += draw_schedule(
        rng,
        node_ids=scenario.node_ids,
        kinds=("crash-broker", "stop-broker", "crash"),
        duration_ms=scenario.duration_ms,
        interval_ms=700,
    )
    faults.sort(key=lambda item: item.at_ms)
    return dataclasses.replace(scenario, faults=tuple(faults))


def test_every_operation_is_hit_between_decision_commit_and_reply_by_every_means():
    wanted = set(STRIKES)
    for seed in range(STRIKE_SEEDS_MAX):
        world = ControllerWorld(striking(seed, wanted))
        world.run()
        wanted -= set(world.strikes.hits)
        if not wanted:
            break
    assert not wanted


def test_the_same_seed_is_the_same_run_in_every_process():
    script = (
        "from kvorum.chaos.sim.worlds import run_seed\n"
        "for seed in (1, 4): print(run_seed(seed, 'controller'))"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": str(number)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for number in range(2)
    ]
    assert runs[0] == runs[1] != ""


def test_a_scenario_is_one_line_and_back():
    scenario = controller_scenario_of(11)
    text = to_json(scenario)
    assert "\n" not in text
    assert from_json(text) == scenario
    with pytest.raises(ConfigError, match="no world 'moon'"):
        from_json(text.replace('"controller"', '"moon"', 1))


def test_a_cluster_without_brokers_or_faults_is_bearable():
    # The end of shrinking.
    assert run_scenario(ControllerScenario(seed=1, observers=0, duration_ms=2_000)).committed > 0
    assert run_scenario(ControllerScenario(seed=1, duration_ms=2_000)).acknowledged > 0


def test_voters_change_while_controllers_apply_the_log():
    # The way to the bug of test_quorum_controller: claims that come late, beside voter changes.
    kinds = ("add-voter", "remove-voter", "two-changes", "hand-over", "hand-over", "crash")
    for seed in (2, 26):
        scenario = ControllerScenario(
            seed=seed, candidates=2, is_dynamic=True, duration_ms=8_000, chunk_bytes=1,
            turn_ms_max=100, snapshot_every=30, propose_interval_ms=60,
        )  # fmt: skip
        schedule = draw_schedule(
            random.Random(seed),
            node_ids=scenario.node_ids,
            kinds=kinds,
            duration_ms=scenario.duration_ms,
            interval_ms=150,
        )
        run_scenario(dataclasses.replace(scenario, faults=schedule))
