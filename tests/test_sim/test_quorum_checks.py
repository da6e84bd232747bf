"""Every check of the simulator is fed a bad history and fires."""

from __future__ import annotations

import dataclasses

import pytest

from kvorum.chaos.sim.quorum.checks.reply_checks import check_reply
from kvorum.chaos.sim.quorum.model.mirror import Mirror
from kvorum.chaos.sim.quorum.model.state import ListState
from kvorum.raft.core.states import Follower
from kvorum.raft.model.effects import LeaderChanged
from kvorum.raft.model.messages import FetchRequest, FetchResponse, VoteRequest, VoteResponse
from kvorum.raft.model.values import BatchSpan, VoteState
from kvorum.runtime.ids import NO_NODE, UUID_ZERO
from tests.test_sim.fakes import A, B, C, disk_of, fires, world


def elect(checks, epoch, leader_id):
    """Let all vote for a leader."""
    vote = VoteState(epoch=epoch, voted_id=leader_id, voted_directory_id=disk_of(leader_id))
    for node in checks.nodes:
        checks.on_vote_state(node, vote)


def test_node_that_follows_itself_fires():
    checks = world([])
    checks.nodes[0].role = Follower(leader_id=2, fetch_deadline_ms=0)
    checks.after_event(checks.nodes[0])
    checks.nodes[0].role = Follower(leader_id=1, fetch_deadline_ms=0)
    with fires("FollowsItself"):
        checks.after_event(checks.nodes[0])


def test_granted_vote_that_is_not_on_disk_fires():
    checks = world([])
    node = checks.nodes[0]
    request = VoteRequest(
        cluster_id="c", epoch=2, candidate_id=3, candidate_directory_id=disk_of(3), voter_id=1,
        last_epoch=0, end_offset=0, is_pre_vote=False,
    )  # fmt: skip
    granted = VoteResponse(epoch=2, is_granted=True)
    check_reply(checks, node, request, VoteResponse(epoch=2))
    check_reply(checks, node, dataclasses.replace(request, is_pre_vote=True), granted)
    with fires("VoteOnDisk", "grants a vote to 3 in epoch 2"):
        check_reply(checks, node, request, granted)
    node.saved_vote = VoteState(epoch=2, voted_id=3, voted_directory_id=disk_of(3))
    checks.on_vote_state(node, node.saved_vote)
    check_reply(checks, node, request, granted)


def test_record_that_an_observer_is_sent_before_it_is_committed_fires():
    checks = world([A, B], [A, B], [])
    leader = checks.nodes[0]
    checks.on_committed(leader, 1)
    request = FetchRequest(
        cluster_id="c", epoch=1, replica_id=9, replica_directory_id=disk_of(9), fetch_offset=0,
        last_fetched_epoch=0, high_watermark=-1,
    )  # fmt: skip
    one, two = (FetchResponse(epoch=1, spans=(BatchSpan(0, last, 1),)) for last in (0, 1))
    check_reply(checks, leader, request, one)
    voter = dataclasses.replace(request, replica_id=2, replica_directory_id=disk_of(2))
    check_reply(checks, leader, voter, two)
    with fires("ObserverSeesCommitted", "sends 9, which does not vote, records up to 2 of 1"):
        check_reply(checks, leader, request, two)


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
    node.letter = "b"  # another disk is another voter
    checks.on_vote_state(node, VoteState(epoch=2, voted_id=3))


def test_vote_for_another_disk_of_the_same_candidate_fires():
    checks = world([])
    node = checks.nodes[0]
    vote = VoteState(epoch=2, voted_id=1, voted_directory_id=disk_of(1))
    checks.on_vote_state(node, vote)
    # A vote file of static voters does not name the disk.
    checks.on_vote_state(node, dataclasses.replace(vote, voted_directory_id=UUID_ZERO))
    with fires("VotedOnce"):
        checks.on_vote_state(node, dataclasses.replace(vote, voted_directory_id=disk_of(1, "b")))


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
    elect(checks, 3, 1)
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
    # Found in a run: a candidate is paused while the votes for epoch 1 wait in its sockets, and
    # epoch 2 commits. Then it leads epoch 1 for a moment.
    checks = world([A, C], [A, C], [A])
    checks.on_committed(checks.nodes[0], 2)
    elect(checks, 1, 3)
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


def test_disk_that_is_no_voter_does_not_count_and_one_lost_since_does():
    checks = world([A], [A], [])
    wiped = checks.nodes[1]
    wiped.letter = "b"
    with fires("MajorityReachedHighWatermark", r"only \[1\] hold it"):
        checks.on_committed(checks.nodes[0], 1)
    checks = world([A], [A], [])
    wiped = checks.nodes[1]
    checks.forget(wiped)
    wiped.letter, wiped.mirror, wiped.durable_end_offset = "b", Mirror(), 0
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
    node.applied = ListState().after([A, B])
    checks.on_applied(node)
    node.applied = dataclasses.replace(node.applied, end_offset=1)
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


def test_log_behind_a_snapshot_of_something_else_fires():
    for entries, name in (([A, A], "fires"), ([A, B], "is fine")):
        checks = world([A, B, C], [])
        checks.nodes[1].mirror = Mirror([C][: len(entries) - 1], base=ListState().after(entries))
        if name == "fires":
            with fires("LogMatching", "logs of 1 and 2 differ below 3"):
                checks.on_log_changed(checks.nodes[1])
        elif name == "is fine":
            checks.on_log_changed(checks.nodes[1])


@pytest.mark.parametrize("log", [[], [B]])
def test_node_that_lacks_what_is_committed_after_healing_fires(log):
    checks = world([A], [A], log)
    checks.on_committed(checks.nodes[0], 1)
    with fires("Convergence", "node 3 does not hold what is committed"):
        checks.converged()
    checks.nodes[2].is_removed = True
    checks.converged()
