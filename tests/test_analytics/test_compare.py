"""Regressions and duels, computed by the driver."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kvorum.analytics import lake
from kvorum.analytics.tables import failover, history, starts
from kvorum.analytics.tables.compare import duels, latest_sides, regressions, side
from kvorum.chaos.lake import tables
from kvorum.chaos.outages import blame, outages, timeline, waits
from kvorum.chaos.outages import recovery as chaos_recovery


def test_the_job_has_the_rules_of_a_run_s_report():
    """analytics imports no other package, so the rules exist twice."""
    assert history.SILENCE_MS_MIN == waits.SPAN_MS_MIN
    assert failover.JOINED_MS == waits.JOINED_MS
    assert failover.AFTERMATH_MS == chaos_recovery.AFTERMATH_MS
    assert failover.SKEW_MS == blame.SKEW_MS
    assert starts.START_MS == outages.START_MS
    assert set(history.ANSWERS) == timeline.ADMIN_ANSWERS
    assert lake.LAKE_VERSION == tables.LAKE_VERSION and lake.LAKE_FILE == tables.LAKE_FILE


def run(run_id: str, **columns: Any) -> dict[str, Any]:
    return {
        "run_id": run_id, "kind": "chaos", "experiment": "e", "system": "kvorum",
        "version": "1", "seed": 1, "verdict": "passed", **columns,
    }  # fmt: skip


def recovery(
    run_id: str,
    fault_id: int,
    unavailable_ms: float,
    role: str = "led",
    continued_ms: float = 0.0,
) -> dict[str, Any]:
    return {
        "run_id": run_id, "fault_id": fault_id, "fault": "kill", "role": role,
        "unavailable_ms": unavailable_ms, "continued_ms": continued_ms,
    }  # fmt: skip


def compared(before: list[float], after: list[float], **options: Any) -> dict[str, Any]:
    runs = [run("a"), run("b", version="2")]
    rows = [recovery("a", n, value) for n, value in enumerate(before)]
    rows += [recovery("b", n, value) for n, value in enumerate(after)]
    sides = (side("version=1"), side("version=2"))
    (row,) = regressions(runs, [], rows, sides, ratio_max=1.2, **options)
    return row


def test_a_release_that_is_twice_as_slow_is_a_regression():
    rng = random.Random(1)
    before = [rng.gauss(200, 20) for _ in range(30)]
    row = compared(before, [2 * value for value in before])
    assert row["is_regression"] and row["ratio_low"] > 1.7
    assert row["figure"] == "unavailable after kill, ms"


def test_noise_is_no_regression():
    rng = random.Random(2)
    for _ in range(20):
        before, after = ([rng.gauss(200, 60) for _ in range(12)] for _ in range(2))
        assert not compared(before, after)["is_regression"]


def test_a_small_difference_is_no_regression_however_sure_it_is():
    row = compared([10.0] * 20, [20.0] * 20)
    assert row["ratio"] == 2.0 and not row["is_regression"]


@pytest.mark.parametrize(
    ("before", "after"), [([1.0, 2.0], [900.0, 901.0]), ([0.0] * 5, [900.0] * 5)]
)
def test_nothing_is_claimed_of_two_values_or_a_baseline_of_zero(before, after):
    row = compared(before, after)
    assert (row["ratio_low"], row["is_regression"]) == (None, False)


def test_the_worst_led_partition_of_a_fault_counts():
    runs = [run("a"), run("b", version="2")]
    rows = [recovery("a", 0, 100), recovery("a", 0, 300), recovery("a", 0, 999, role="other")]
    rows += [recovery("b", 0, 50)]
    sides = (side("version=1"), side("version=2"))
    (row,) = regressions(runs, [], rows, sides, ratio_max=1.2)
    assert (row["baseline_p50"], row["baseline_samples"]) == (300, 1)


def test_a_partition_that_was_away_already_is_no_sample():
    runs = [run("a"), run("b", version="2")]
    rows = [recovery("a", 0, 100), recovery("a", 1, 0, continued_ms=900)]
    rows += [recovery("b", 0, 50, continued_ms=10)]
    sides = (side("version=1"), side("version=2"))
    (row,) = regressions(runs, [], rows, sides, ratio_max=1.2)
    assert (row["baseline_samples"], row["baseline_p50"], row["candidate_p50"]) == (1, 100, 50)


def test_two_systems_are_compared_over_the_experiments_that_both_ran():
    runs = [run("a"), run("k", system="kafka"), run("b", experiment="f")]
    rows = [recovery("a", 0, 100), recovery("k", 0, 9_000), recovery("b", 0, 5)]
    sides = (side("system=kvorum"), side("system=kafka"))
    (row,) = regressions(runs, [], rows, sides, ratio_max=1.2)
    assert (row["system"], row["experiment"]) == ("kvorum / kafka", "e")
    assert (row["baseline_p50"], row["candidate_p50"]) == (100, 9_000)


def test_the_newest_two_versions_of_kvorum_are_compared():
    runs = [
        run("a", version="1"), run("b", version="2"), run("k", system="kafka", version="4.2"),
        run("l", system="kafka", version="4.3"), run("c", version="3"),
    ]  # fmt: skip
    before, after = latest_sides(runs)
    assert (before.text(), after.text()) == ("version=2", "version=3")


def test_two_runs_of_one_version_are_compared_with_each_other():
    before, after = latest_sides([run("a"), run("x", experiment="f"), run("b"), run("c")])
    assert (before.text(), after.text()) == ("run=b", "run=c")
    assert latest_sides([run("a")]) is None and latest_sides([]) is None


def test_a_duel_sets_the_last_run_of_each_system_side_by_side():
    runs = [run("a"), run("b"), run("k", system="kafka", verdict="failed"), run("z", seed=2)]
    outcomes = [
        {"run_id": name, "acknowledged": n, "p50_ms": 1.0 * n, "p99_ms": 2.0 * n}
        for n, name in enumerate("abkz", 1)
    ]
    silent = [
        {"run_id": "b", "partition": 0, "longest_ms": 150.0, "unavailable_ms": 0.0},
        {"run_id": "b", "partition": 1, "longest_ms": None, "unavailable_ms": 0.0},
        {"run_id": "k", "partition": -1, "longest_ms": 9_000.0, "unavailable_ms": 9_000.0},
        {"run_id": "k", "partition": 0, "longest_ms": 7_000.0, "unavailable_ms": 8_000.0},
    ]
    (row,) = duels(runs, outcomes, silent)
    assert (row["first_run_id"], row["second_run_id"]) == ("b", "k")
    assert (row["first_longest_silence_ms"], row["second_longest_silence_ms"]) == (150, 7_000)
    assert (row["second_verdict"], row["second_unavailable_ms"]) == ("failed", 8_000)


def test_each_version_of_a_system_has_a_duel_of_its_own():
    runs = [
        run("a"),
        run("k", system="kafka", version="4.3"),
        run("l", system="kafka", version="4.4"),
    ]
    rows = duels(runs, [], [])
    assert [(row["first_run_id"], row["second_version"], row["second_run_id"]) for row in rows] == [
        ("a", "4.3", "k"), ("a", "4.4", "l"),
    ]  # fmt: skip
