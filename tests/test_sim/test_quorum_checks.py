"""Every check of the simulator is fed a bad history and fires."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from chaos.sim.checks import CheckFailed
from chaos.sim.mirror import Mirror
from chaos.sim.quorum_checks import QuorumChecks
from raft.effects import LeaderChanged
from raft.model import VoteState
from runtime.ids import NO_NODE


@dataclass
class FakeNode:
    """What the checks look at of a node."""

    node_id: int = 1
    mirror: Mirror = field(default_factory=Mirror)
    durable_end_offset: int = 0
    incarnation: int = 1
    is_leader: bool = False
    is_removed: bool = False
    epoch: int = 0
    applied_end_offset: int = 0
    applied_digest: int = 0
    saved_vote: VoteState = field(default_factory=VoteState)
    saving_vote: VoteState | None = None

    @property
    def core(self):
        return SimpleNamespace(epoch=self.epoch)

    def summary(self):
        return f"node={self.node_id} epoch={self.epoch}"


def world(*logs, durable=True, voters=None):
    """Checks over one fake voter for each log."""
    ids = voters or range(1, len(logs) + 1)
    checks = QuorumChecks(lambda _: ids)
    checks.nodes = [
        FakeNode(
            node_id=i,
            mirror=Mirror(log),
            durable_end_offset=len(log) if durable else 0,
        )
        for i, log in enumerate(logs, 1)
    ]
    return checks


def fires(name, match=""):
    """The next check that fires is this one."""
    return pytest.raises(CheckFailed, match=f"^{name}: .*{match}")


A, B, C = (1, b"va"), (1, b"vb"), (2, b"vc")


def test_falling_epoch_fires():
    checks = world([])
    node = checks.nodes[0]
    node.epoch = 4
    checks.after_event(node)
    node.epoch = 3
    with fires("MonotonicEpoch", "epoch fell from 4"):
        checks.after_event(node)
    checks.forget(node)
    checks.after_event(node)


def test_second_vote_in_an_epoch_fires():
    checks = world([])
    node = checks.nodes[0]
    checks.on_vote_state(node, VoteState(epoch=2, voted_id=1))
    checks.on_vote_state(node, VoteState(epoch=2, voted_id=1))
    checks.on_vote_state(node, VoteState(epoch=2, voted_id=NO_NODE))
    with fires("VotedOnce", "voted twice in epoch 2: 1, 3"):
        checks.on_vote_state(node, VoteState(epoch=2, voted_id=3))


def test_persisted_epoch_below_a_known_one_fires():
    checks = world([])
    node = checks.nodes[0]
    node.epoch = 5
    checks.after_event(node)
    with fires("MonotonicEpoch", "persisted epoch"):
        checks.on_vote_state(node, VoteState(epoch=4))


@pytest.mark.parametrize("found", [[], [A], [A, C]])
def test_fsynced_records_that_a_restart_lost_fire(found):
    checks = world([A, B])
    node = checks.nodes[0]
    checks.on_recovered(node, Mirror([A, B, C]), VoteState())
    with fires("DurableSurvives", "had fsynced 2 records and came back with"):
        checks.on_recovered(node, Mirror(found), VoteState())
    node.durable_end_offset = 0
    checks.on_recovered(node, Mirror(found), VoteState())


def test_saved_vote_that_a_restart_lost_fires_and_one_being_saved_may_be_either():
    checks = world([])
    node = checks.nodes[0]
    node.saved_vote, node.saving_vote = VoteState(epoch=2), VoteState(epoch=3, voted_id=1)
    checks.on_recovered(node, Mirror(), VoteState(epoch=2))
    checks.on_recovered(node, Mirror(), VoteState(epoch=3, voted_id=1))
    with fires("DurableSurvives", "came back with VoteState"):
        checks.on_recovered(node, Mirror(), VoteState(epoch=3))


def test_two_leaders_of_an_epoch_fire():
    checks = world([], [], [])
    first, second, third = checks.nodes
    checks.on_leader_changed(first, LeaderChanged(3, 1))
    checks.on_leader_changed(second, LeaderChanged(3, NO_NODE))
    checks.on_leader_changed(third, LeaderChanged(3, 1))
    with fires("ElectionSafety", "two leaders in epoch 3: 1 and 2"):
        checks.on_leader_changed(second, LeaderChanged(3, 2))


@pytest.mark.parametrize("held", [[], [A], [A, C]])
def test_leader_without_a_committed_entry_fires(held):
    checks = world([A, B], [A, B], held)
    checks.on_committed(checks.nodes[0], 2)
    with fires("LeaderCompleteness", "leader 3 of epoch 2 lacks committed entries"):
        checks.on_leader_changed(checks.nodes[2], LeaderChanged(2, 3))


def test_leader_of_an_epoch_that_is_over_may_lack_what_was_committed_since():
    # As a run showed: a candidate stands still while the votes for epoch 1 lie at its door and
    # epoch 2 commits; then it leads epoch 1 for a moment.
    checks = world([A, C], [A, C], [A])
    checks.on_committed(checks.nodes[0], 2)
    checks.on_leader_changed(checks.nodes[2], LeaderChanged(1, 3))
    with fires("LeaderCompleteness", "leader 3 of epoch 3"):
        checks.on_leader_changed(checks.nodes[2], LeaderChanged(3, 3))


def test_falling_high_watermark_fires_and_a_new_process_may_begin_low():
    checks = world([A, B], [A, B], [])
    node = checks.nodes[0]
    checks.on_committed(node, 2)
    with fires("MonotonicHighWatermark", "high watermark fell from 2 to 1"):
        checks.on_committed(node, 1)
    node.incarnation += 1
    checks.on_committed(node, 1)


def test_commit_beyond_the_log_fires():
    checks = world([A], [A], [A])
    with fires("StateMachineSafety", "node 1 commits 2 beyond its log"):
        checks.on_committed(checks.nodes[0], 2)


def test_other_entry_at_a_committed_offset_fires():
    checks = world([A, B], [A, B], [A, C])
    checks.on_committed(checks.nodes[0], 2)
    with fires("StateMachineSafety", "offset 1 was committed as"):
        checks.on_committed(checks.nodes[2], 2)


@pytest.mark.parametrize(
    "logs", [([A], [], []), ([A], [C], []), ([A], [A], [], [], [])], ids=["alone", "other", "two"]
)
def test_commit_without_a_majority_fires(logs):
    checks = world(*logs)
    with fires("MajorityReachedHighWatermark", "offset 0 is committed, but only"):
        checks.on_committed(checks.nodes[0], 1)


def test_commit_that_only_memory_holds_fires():
    checks = world([A], [A], [A], durable=False)
    with fires("MajorityReachedHighWatermark", r"only \[\] hold it on disk"):
        checks.on_committed(checks.nodes[0], 1)


def test_only_the_voters_in_force_count_for_a_majority():
    checks = world([A], [A], [], voters=(1, 3))
    with fires("MajorityReachedHighWatermark", r"only \[1\] hold it"):
        checks.on_committed(checks.nodes[0], 1)


def test_leader_that_commits_with_an_older_epoch_on_top_fires():
    checks = world([A, B], [A, B], [])
    node = checks.nodes[0]
    node.is_leader, node.epoch = True, 3
    with fires("CommitInOwnEpoch", "leads epoch 3 and commits up to a record of epoch 1"):
        checks.on_committed(node, 2)


def test_state_machine_that_read_something_else_fires():
    checks = world([A, B], [A, B])
    node = checks.nodes[0]
    checks.on_committed(node, 2)
    node.applied_end_offset, node.applied_digest = 2, checks.committed.digest_at(2)
    checks.on_applied(node)
    node.applied_end_offset = 1
    with fires("StateMachinesAgree", "state of node 1 at 1"):
        checks.on_applied(node)


@pytest.mark.parametrize(("offset", "value"), [(0, b"vb"), (1, b"va"), (7, b"va")])
def test_acknowledged_value_that_is_not_committed_there_fires(offset, value):
    checks = world([A], [A], [A])
    checks.on_committed(checks.nodes[0], 1)
    checks.acknowledge(0, b"va")
    with fires("Durability", "which is not committed"):
        checks.acknowledge(offset, value)


def test_acknowledged_value_that_is_committed_no_more_fires():
    checks = world([A], [A], [A])
    checks.on_committed(checks.nodes[0], 1)
    checks.acknowledged[0] = b"vb"
    with fires("Durability", "lost b'vb', acknowledged at 0"):
        checks.converged()


def test_logs_that_differ_below_an_equal_epoch_fire():
    for logs in ([A, C], [A, C], [A]), ([A, B], [A, C]), ([], [A]):
        checks = world(*logs)
        for node in checks.nodes:
            checks.on_log_changed(node)
    checks = world([A, C], [B, C])
    with fires("LogMatching", "logs of 1 and 2 differ below 2, .* at 0"):
        checks.on_log_changed(checks.nodes[1])


@pytest.mark.parametrize("log", [[], [B]])
def test_node_that_lacks_what_is_committed_after_healing_fires(log):
    checks = world([A], [A], log)
    checks.on_committed(checks.nodes[0], 1)
    with fires("Convergence", "node 3 does not hold what is committed"):
        checks.converged()
    checks.nodes[2].is_removed = True
    checks.converged()
