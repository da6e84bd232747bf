"""Every check of the simulator is fed a bad history and fires."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from chaos.sim.quorum import run_seed
from chaos.sim.quorum_checks import QuorumChecks
from raft.effects import LeaderChanged
from raft.model import VoteState
from raft.quorum import majority
from runtime.errors import InvariantViolated
from runtime.ids import NO_NODE


@dataclass
class FakeNode:
    """What the checks look at of a node."""

    node_id: int = 1
    entries: list = field(default_factory=list)
    durable_end_offset: int = 0
    incarnation: int = 1
    is_up: bool = True
    is_voter: bool = True
    epoch: int = 0

    @property
    def core(self):
        return SimpleNamespace(epoch=self.epoch)

    @property
    def config(self):
        return SimpleNamespace(is_voter=self.is_voter)

    def summary(self):
        return f"node={self.node_id} epoch={self.epoch}"


def world(*logs, durable=True):
    """Checks over one fake voter for each log."""
    checks = QuorumChecks(len(logs))
    checks.nodes = [
        FakeNode(node_id=i, entries=list(log), durable_end_offset=len(log) if durable else 0)
        for i, log in enumerate(logs, 1)
    ]
    return checks


A, B, C = (1, b"a"), (1, b"b"), (2, b"c")


def test_falling_epoch_fires():
    checks = world([])
    node = checks.nodes[0]
    node.epoch = 4
    checks.after_event(node)
    node.epoch = 3
    with pytest.raises(InvariantViolated, match="epoch fell from 4"):
        checks.after_event(node)
    node.is_up = False
    checks.after_event(node)


def test_second_vote_in_an_epoch_fires():
    checks = world([])
    node = checks.nodes[0]
    checks.on_vote_state(node, VoteState(epoch=2, voted_id=1))
    checks.on_vote_state(node, VoteState(epoch=2, voted_id=1))
    checks.on_vote_state(node, VoteState(epoch=2, voted_id=NO_NODE))
    with pytest.raises(InvariantViolated, match="voted twice in epoch 2: 1, 3"):
        checks.on_vote_state(node, VoteState(epoch=2, voted_id=3))


def test_persisted_epoch_below_a_known_one_fires():
    checks = world([])
    node = checks.nodes[0]
    node.epoch = 5
    checks.after_event(node)
    with pytest.raises(InvariantViolated, match="persisted epoch"):
        checks.on_vote_state(node, VoteState(epoch=4))


def test_two_leaders_of_an_epoch_fire():
    checks = world([], [], [])
    first, second, third = checks.nodes
    checks.on_leader_changed(first, LeaderChanged(3, 1))
    checks.on_leader_changed(second, LeaderChanged(3, NO_NODE))
    checks.on_leader_changed(third, LeaderChanged(3, 1))
    with pytest.raises(InvariantViolated, match="two leaders in epoch 3: 1 and 2"):
        checks.on_leader_changed(second, LeaderChanged(3, 2))


@pytest.mark.parametrize("held", [[], [A], [A, C]])
def test_leader_without_a_committed_entry_fires(held):
    checks = world([A, B], [A, B], held)
    checks.on_committed(checks.nodes[0], 2)
    with pytest.raises(InvariantViolated, match="leader 3 of epoch 2 lacks committed entries"):
        checks.on_leader_changed(checks.nodes[2], LeaderChanged(2, 3))


def test_falling_high_watermark_fires_and_a_new_process_may_begin_low():
    checks = world([A, B], [A, B], [])
    node = checks.nodes[0]
    checks.on_committed(node, 2)
    with pytest.raises(InvariantViolated, match="high watermark fell from 2"):
        checks.on_committed(node, 1)
    node.incarnation += 1
    checks.on_committed(node, 1)


def test_commit_beyond_the_log_fires():
    checks = world([A], [A], [A])
    with pytest.raises(InvariantViolated, match="node 1 commits 2 beyond its log"):
        checks.on_committed(checks.nodes[0], 2)


def test_other_entry_at_a_committed_offset_fires():
    checks = world([A, B], [A, B], [A, C])
    checks.on_committed(checks.nodes[0], 2)
    with pytest.raises(InvariantViolated, match="offset 1 was committed as"):
        checks.on_committed(checks.nodes[2], 2)


@pytest.mark.parametrize(
    "logs", [([A], [], []), ([A], [C], []), ([A], [A], [], [], [])], ids=["alone", "other", "two"]
)
def test_commit_without_a_majority_fires(logs):
    checks = world(*logs)
    with pytest.raises(InvariantViolated, match="offset 0 is committed, but only"):
        checks.on_committed(checks.nodes[0], 1)


def test_commit_that_only_memory_holds_fires():
    checks = world([A], [A], [A], durable=False)
    with pytest.raises(InvariantViolated, match=r"only \[\] hold it on disk"):
        checks.on_committed(checks.nodes[0], 1)


def test_observers_do_not_count_for_a_majority():
    checks = world([A], [A], [])
    checks.nodes[1].is_voter = False
    with pytest.raises(InvariantViolated, match=r"only \[1\] hold it"):
        checks.on_committed(checks.nodes[0], 1)


@pytest.mark.parametrize(("offset", "value"), [(0, b"b"), (1, b"a"), (7, b"a")])
def test_acknowledged_value_that_is_not_committed_there_fires(offset, value):
    checks = world([A], [A], [A])
    checks.on_committed(checks.nodes[0], 1)
    checks.acknowledge(0, b"a")
    with pytest.raises(InvariantViolated, match="which is not committed"):
        checks.acknowledge(offset, value)


def test_logs_that_differ_below_an_equal_epoch_fire():
    world([A, C], [A, C], [A]).log_matching()
    world([A, B], [A, C]).log_matching()
    with pytest.raises(InvariantViolated, match="logs of 1 and 2 differ below 2"):
        world([A, C], [B, C]).log_matching()


@pytest.mark.parametrize("log", [[], [B]])
def test_acknowledged_value_missing_after_healing_fires(log):
    checks = world([A], [A], log)
    checks.on_committed(checks.nodes[0], 1)
    checks.acknowledge(0, b"a")
    with pytest.raises(InvariantViolated, match="node 3 lost b'a', acknowledged at 0"):
        checks.converged()


FAST_SEEDS = (2, 25, 28, 33, 50, 53, 58, 1, 13, 14, 0, 17, 44, 42, 49, 5)


def first_failure() -> str:
    for seed in FAST_SEEDS:
        try:
            run_seed(seed)
        except InvariantViolated as error:
            return str(error)
    return ""


def test_simulator_finds_a_core_that_commits_with_one_voter_too_few(monkeypatch):
    monkeypatch.setattr(
        "raft.roles.leader.committed_offset",
        lambda offsets: sorted(offsets, reverse=True)[max(len(offsets) // 2 - 1, 0)],
    )
    failure = first_failure()
    assert "is committed, but only" in failure
    assert "rerun: kvorum chaos sim --seed " in failure


def test_simulator_finds_a_core_that_leads_with_one_vote_too_few(monkeypatch):
    monkeypatch.setattr("raft.roles.election.majority", lambda voters: max(majority(voters) - 1, 1))
    assert "two leaders in epoch" in first_failure()


def test_simulator_finds_a_node_that_forgets_its_votes(monkeypatch):
    monkeypatch.setattr("raft.vote_store.VoteStore.load", lambda _: VoteState())
    assert "rerun: kvorum chaos sim --seed " in first_failure()
