"""Share groups in the partitions' world: members get records, and bugs of brokers are found."""

from __future__ import annotations

from collections import Counter

import pytest

from kvorum.broker.share.core.share_partition import SharePartition
from kvorum.broker.share.led_share_partition import LedSharePartition
from kvorum.broker.share_state.batches import DeliveryState
from kvorum.chaos.sim.partitions.scenario import PartitionScenario, partition_scenario_of
from kvorum.chaos.sim.worlds import run_scenario, run_seed
from kvorum.runtime.errors import ErrorCode
from tests.test_sim_partitions.finding import first_failure

SEEDS = [seed for seed in range(150) if partition_scenario_of(seed).share_groups]


def test_without_faults_members_settle_every_record():
    scenario = PartitionScenario(seed=1, observers=3, duration_ms=4_000, share_groups=2)
    tally = run_scenario(scenario).tally
    assert tally["records delivered to members"] > 50
    assert tally["records acknowledged by members"] > 50


def test_runs_see_what_they_are_for():
    seen: Counter[str] = Counter()
    for seed in SEEDS[:6]:
        seen.update(run_seed(seed, "partitions").tally)
    assert seen["records delivered to members"] > 100
    assert seen["records acknowledged by members"] > 100


original_acknowledge = LedSharePartition.acknowledge
original_settle = SharePartition._settle


def tell_at_once(self, member_id, batches, settled):
    """Answer members before the share coordinator has their acknowledgements."""
    refused = original_acknowledge(self, member_id, batches, lambda error: None)
    if refused is None:
        settled(ErrorCode.NONE)
    return refused


def keep_what_was_rejected(self, run, state):
    is_rejected = state is DeliveryState.ARCHIVED and run.delivery_count == 1
    original_settle(self, run, DeliveryState.AVAILABLE if is_rejected else state)


def release_for_ever(self, run, limits):
    original_settle(self, run, DeliveryState.AVAILABLE)


@pytest.mark.parametrize(
    ("owner", "name", "bug", "check"),
    [
        (LedSharePartition, "acknowledge", tell_at_once, "accepted-again"),
        (SharePartition, "_settle", keep_what_was_rejected, "rejected-delivered"),
        (SharePartition, "_release", release_for_ever, "too-many-deliveries"),
    ],
)
def test_a_bug_is_found(monkeypatch, owner, name, bug, check):
    monkeypatch.setattr(owner, name, bug)
    assert first_failure(SEEDS) == check
