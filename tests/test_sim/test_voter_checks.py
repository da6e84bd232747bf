"""Every check of voter sets and of changes to them is fed a bad history and fires."""

from __future__ import annotations

import pytest

from kvorum.chaos.sim.quorum.model.linearizability import Outcome
from kvorum.chaos.sim.quorum.model.mirror import Mirror
from kvorum.chaos.sim.quorum.model.state import Change, ChangeKind, voters_value
from kvorum.raft.model.effects import AppendVoters, LeaderChanged
from kvorum.raft.model.values import VoteState
from tests.test_sim.fakes import A, disk_of, fires, key, keys, voter_set, world

ADD, REMOVE = ChangeKind.ADD, ChangeKind.REMOVE
OK, FAILED, UNKNOWN = Outcome


def entry(*node_ids, epoch=1):
    """A VotersRecord."""
    return epoch, voters_value(voter_set(*node_ids))


def changed(*sets):
    """Checks over two nodes that have committed these voter sets, one after the other."""
    log = [entry(*node_ids) for node_ids in sets]
    checks = world(log, log)
    for node in checks.nodes:
        node.core_voters = voter_set(*(sets[-1] if sets else (1, 2)))
    checks.committed.append(*A)
    for item in log:
        checks.committed.append(*item)
    return checks


def change(kind, node_id, outcome, letter="a"):
    return Change(
        kind=kind, node_id=node_id, directory_id=disk_of(node_id, letter), outcome=outcome
    )


def test_node_that_goes_by_other_voters_than_its_log_fires():
    checks = changed((1, 2, 3))
    node = checks.nodes[0]
    checks.after_event(node)
    node.mirror.truncate(0)
    with fires("VotersInForce", r"goes by the voters \(1, 2, 3\), its log ends with 1/.*, 2/"):
        checks.after_event(node)
    node.core_voters = voter_set(1, 2)
    checks.after_event(node)


def test_removed_leader_that_leads_on_once_that_is_committed_fires():
    checks = changed((2,))
    node = checks.nodes[0]
    node.is_leader = True
    checks.after_event(node)
    node.high_watermark = 1
    with fires("RemovedLeads"):
        checks.after_event(node)


@pytest.mark.parametrize("after", [(1, 2, 3, 4), (3,), (1, 3)])
def test_two_sets_in_a_row_that_differ_by_more_than_one_voter_fire(after):
    checks = changed(after)
    with fires("VotersDifferByOne", "log of node 1 goes from the voters"):
        checks.on_log_changed(checks.nodes[0])


def test_sets_that_differ_by_one_voter_are_fine_and_so_is_the_first_one_known():
    checks = changed((1, 2, 3), (1, 3), (1, 3))
    checks.on_log_changed(checks.nodes[0])
    checks.nodes[1].mirror = Mirror([entry(4, 5, 6)])
    checks.voters.on_log_changed(checks.nodes[1])


@pytest.mark.parametrize(
    ("votes", "is_enough"),
    [
        (((1, "a"), (2, "a")), True),
        (((1, "a"), (2, "b")), False),
        (((1, "a"), (4, "a")), False),
        (((2, "a"), (3, "a")), True),
        ((), False),
    ],
    ids=["two of three", "a wiped disk", "no voter", "without its own", "nobody"],
)
def test_leader_without_the_votes_of_a_majority_fires(votes, is_enough):
    checks = world([A], [A], [A], [A], voters=(1, 2, 3))
    for node_id, letter in votes:
        node = checks.nodes[node_id - 1]
        node.letter = letter
        vote = VoteState(epoch=2, voted_id=1, voted_directory_id=disk_of(1))
        checks.on_vote_state(node, vote)
        node.letter = "a"
    if is_enough:
        checks.on_leader_changed(checks.nodes[0], LeaderChanged(2, 1, 1))
        return
    with fires("ElectedByMajority", "node 1 leads epoch 2 by the votes of"):
        checks.on_leader_changed(checks.nodes[0], LeaderChanged(2, 1, 1))


def test_votes_are_counted_by_the_set_before_the_leaders_own_records():
    checks = changed((1, 2, 3))
    checks.on_vote_state(
        checks.nodes[0], VoteState(epoch=2, voted_id=1, voted_directory_id=disk_of(1))
    )
    checks.nodes[0].mirror = Mirror([entry(1, 2)], voters=keys(1))
    checks.voters.on_leader(checks.nodes[0], LeaderChanged(2, 1, 0), checks.votes[2])
    with fires("ElectedByMajority"):
        checks.voters.on_leader(checks.nodes[0], LeaderChanged(2, 1, 1), checks.votes[2])


def test_sets_that_may_be_in_force_are_the_committed_one_and_those_behind():
    checks = changed((1, 2, 3))
    voters = checks.voters
    voters.appended |= {(1, keys(7)), (2, keys(1, 3))}
    assert sorted(voters.possible_sets(), key=len) == [keys(1, 3), keys(1, 2, 3)]
    checks.committed.append(*A)
    assert voters.possible_sets() == [keys(1, 2, 3)]


def test_change_while_the_one_before_is_not_committed_fires():
    checks = changed((1, 2, 3))
    node = checks.nodes[0]
    node.mirror = Mirror([A, entry(1, 2, 3)], voters=keys(1, 2))
    checks.committed_in[1] = 2
    checks.on_changing_voters(node, AppendVoters(2, 1, voter_set(1, 3)))
    assert keys(1, 3) in checks.voters.possible_sets()
    node.mirror.append(*entry(1, 3))
    with fires("OneChangeAtATime", "changes the voters at 3 while those at 2 are not committed"):
        checks.on_changing_voters(node, AppendVoters(3, 1, voter_set(3)))


def test_change_before_a_commit_in_the_leaders_own_epoch_fires():
    checks = changed((1, 2, 3))
    checks.committed_in[1] = 2
    with fires("ChangeAfterOwnCommit", "in epoch 2, in which nothing is committed"):
        checks.on_changing_voters(checks.nodes[0], AppendVoters(2, 2, voter_set(1, 3)))


def test_change_that_is_reported_done_and_not_committed_fires():
    checks = changed((1, 2, 3))
    checks.voters.on_change_done(change(ADD, 3, UNKNOWN), voter_set(1, 2, 3))
    for wrong, voters in (
        (change(ADD, 4, UNKNOWN), voter_set(1, 2, 3)),
        (change(REMOVE, 3, UNKNOWN), voter_set(1, 2, 3)),
        (change(REMOVE, 3, UNKNOWN), voter_set(1, 2)),
    ):
        with fires("ChangeAcknowledged", "is reported done"):
            checks.voters.on_change_done(wrong, voters)


@pytest.mark.parametrize(
    "changes",
    [
        [change(ADD, 3, OK), change(REMOVE, 2, OK)],
        [change(ADD, 3, UNKNOWN), change(REMOVE, 2, UNKNOWN), change(REMOVE, 2, UNKNOWN)],
        [change(ADD, 3, OK), change(REMOVE, 2, OK), change(ADD, 2, FAILED)],
    ],
)
def test_changes_that_were_asked_for_are_explained(changes):
    changed((1, 2, 3), (1, 3)).voters.check_changes(changes)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ([change(ADD, 3, OK)], "voter 2: 1 changes are committed, 0 were reported done, 0"),
        ([change(ADD, 3, OK), change(REMOVE, 2, FAILED)], "voter 2: 1 changes"),
        ([change(ADD, 3, OK, "b"), change(REMOVE, 2, OK)], "voter .*: 1 changes are .*, 0 asked"),
        (
            [change(ADD, 3, OK), change(REMOVE, 2, OK), change(ADD, 2, OK)],
            "voter .*: 0 changes are committed, 1 were reported done",
        ),
        (
            [change(ADD, 3, OK), change(REMOVE, 2, OK), change(REMOVE, 2, OK)],
            "voter 2: 1 changes are committed, 2 were reported done",
        ),
    ],
    ids=["unasked", "refused", "another disk", "added again", "removed twice"],
)
def test_change_that_nobody_asked_for_or_that_did_not_happen_fires(changes, match):
    with fires("ChangesExplained", match):
        changed((1, 2, 3), (1, 3)).voters.check_changes(changes)


def test_voter_whose_disk_is_gone_after_healing_fires():
    checks = changed((1, 2, 3), (1, 2))
    checks.voters.converged(checks.nodes)
    checks.nodes[1].letter = "b"
    with fires("Convergence", "voters 2/.* are in force and no more"):
        checks.voters.converged(checks.nodes)
    assert key(2, "b") not in checks.committed.voters
