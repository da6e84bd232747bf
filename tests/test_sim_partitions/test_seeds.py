"""Seeds of the partitions' world: safe, live, the same in every process, and rough enough."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import pytest

from kvorum.chaos.sim.kernel.fault_draws import PARTITION_DRAWS
from kvorum.chaos.sim.partitions.scenario import PartitionScenario, partition_scenario_of
from kvorum.chaos.sim.quorum.scenario import to_json
from kvorum.chaos.sim.worlds import from_json, run_scenario, run_seed

SEEDS = range(44)

FOUND = (
    52, 58, 73, 82, 227, 300, 339, 377, 589, 671, 782, 1127, 200908, 201247, 250927, 271406, 281047,
    341097, 350826, 1423,
)  # fmt: skip
"""Seeds that failed once: docs/protocol/simulation.md tells what most of them found."""


@pytest.mark.parametrize("seed", sorted({*SEEDS, *FOUND}))
def test_seed_is_safe_and_converges(seed):
    outcome = run_seed(seed, "partitions")
    assert outcome.seed == seed
    assert outcome.tally["batches acknowledged"] > 0


def test_seeds_differ_in_kind_and_bring_every_fault():
    scenarios = [partition_scenario_of(seed) for seed in range(100)]
    assert {s.observers for s in scenarios} == {2, 3, 4}
    assert {s.min_isr for s in scenarios} == {1, 2}
    assert {s.is_compacting for s in scenarios} == {False, True}
    assert {s.is_unclean for s in scenarios} == {False, True}
    assert {s.directories for s in scenarios} == {1, 2}
    assert 0 in {s.delete_interval_ms for s in scenarios} != {0}
    drawn = {item.kind for scenario in scenarios for item in scenario.faults}
    assert set(PARTITION_DRAWS) <= drawn


def test_runs_see_what_they_are_for():
    seen = Counter()
    for seed in range(8):
        seen.update(run_seed(seed, "partitions").tally)
    for name in (
        "batches acknowledged",
        "batches read",
        "clean stops",
        "delete records none",
        "losses that may be",
        "produce not_enough_replicas",
        "produce not_leader_or_follower",
        "starts after a failed disk",
    ):
        assert seen[name] > 0, name


def test_a_broker_with_two_directories_goes_on_with_one():
    outcome = run_seed(46, "partitions")
    assert outcome.tally["data directories lost"] > 0


def test_the_same_seed_is_the_same_run_in_every_process():
    script = (
        "from kvorum.chaos.sim.worlds import run_seed\n"
        "for seed in (1, 24, 55): print(run_seed(seed, 'partitions'))"
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
    scenario = partition_scenario_of(11)
    assert from_json(to_json(scenario)) == scenario


def test_a_cluster_without_faults_loses_nothing():
    outcome = run_scenario(PartitionScenario(seed=1, observers=3, duration_ms=4_000))
    assert outcome.tally["batches acknowledged"] > 20
    assert outcome.tally["losses that may be"] == 0
