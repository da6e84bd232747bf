"""Streams groups in the partitions' world: tasks are worked on by one member, and bugs of brokers
are found."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from kvorum.broker.groups.steps.member_sessions import MemberSessions
from kvorum.broker.groups.streams import loading
from kvorum.broker.groups.streams.reconciliation import _HeldByOthers
from kvorum.broker.groups.streams.tasks import NOTHING_ASSIGNED
from kvorum.chaos.sim.partitions.scenario import PartitionScenario, partition_scenario_of
from kvorum.chaos.sim.worlds import run_scenario, run_seed
from tests.test_sim_partitions.finding import first_failure

SEEDS = [seed for seed in range(150) if partition_scenario_of(seed).streams_groups]


def test_without_faults_every_task_is_worked_on():
    scenario = PartitionScenario(
        seed=1, observers=3, duration_ms=4_000, streams_groups=2, partitions=2
    )
    assert run_scenario(scenario).tally["tasks opened"] >= 4


def test_runs_see_what_they_are_for():
    seen: Counter[str] = Counter()
    for seed in SEEDS[:6]:
        seen.update(run_seed(seed, "partitions").tally)
    assert seen["tasks opened"] > 30


original_extend = MemberSessions.extend
original_with_assignment = loading._with_assignment


def hold_nothing(self, task):
    return False


def never_end(self, member_id, timeout_ms, step):
    """Sessions of members that die do not end."""
    original_extend(self, member_id, 1_000_000, step)


def forget_assignments(member, has):
    """A coordinator that loads a group does not know what its members work on."""
    return replace(original_with_assignment(member, has), assigned=NOTHING_ASSIGNED)


@pytest.mark.parametrize(
    ("owner", "name", "bug", "checks"),
    [
        (_HeldByOthers, "active", hold_nothing, {"OneMemberForATask"}),
        (MemberSessions, "extend", never_end, {"Convergence"}),
        (
            loading,
            "_with_assignment",
            forget_assignments,
            {"OneMemberForATask", "Convergence"},
        ),
    ],
)
def test_a_bug_is_found(monkeypatch, owner, name, bug, checks):
    monkeypatch.setattr(owner, name, bug)
    assert first_failure(SEEDS) in checks
