"""Moves between data directories in the partitions' world: they end, and bugs of brokers are
found."""

from __future__ import annotations

import pytest

from kvorum.broker.manager.directory_move import DirectoryMove
from kvorum.broker.manager.directory_moves import DirectoryMoves
from kvorum.broker.partition.future_replica import FutureReplica
from kvorum.chaos.sim.partitions.scenario import PartitionScenario, partition_scenario_of
from kvorum.chaos.sim.worlds import run_scenario
from tests.test_sim_partitions.finding import first_failure

SEEDS = [seed for seed in range(300) if partition_scenario_of(seed).move_interval_ms]

original_retire = DirectoryMoves._retire


def test_replicas_move_while_producers_write(monkeypatch):
    moved = []

    def retire(self, replica, log_dir, log):
        moved.append(replica.core.topic)
        original_retire(self, replica, log_dir, log)

    monkeypatch.setattr(DirectoryMoves, "_retire", retire)
    run_scenario(
        PartitionScenario(
            seed=1, observers=3, duration_ms=4_000, directories=2, move_interval_ms=100
        )
    )
    assert len(moved) >= 2


def copy_no_rest(self):
    """The last records are left behind."""


def note_no_cut(self, offset):
    """The future log keeps what the current one has truncated."""


@pytest.mark.parametrize(
    ("owner", "name", "bug"),
    [(DirectoryMove, "_copy_rest", copy_no_rest), (FutureReplica, "note_cut", note_no_cut)],
)
def test_a_bug_is_found(monkeypatch, owner, name, bug):
    monkeypatch.setattr(owner, name, bug)
    assert first_failure(SEEDS) is not None
