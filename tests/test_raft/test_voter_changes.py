"""Changing the voter set at the leader (KIP-853, Ongaro's thesis chapter 4), one rule a test."""

import dataclasses

import pytest

from kvorum.raft.model.effects import AppendLeaderChange, AppendVoters, FlushLog, Reply, SendRequest
from kvorum.raft.model.events import ResponseReceived, SnapshotReceived
from kvorum.raft.model.messages import (
    AddVoterRequest,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    RemoveVoterRequest,
    UpdateVoterRequest,
    VoterChangeResponse,
    VoteRequest,
    VoteResponse,
)
from kvorum.raft.model.progress import SnapshotFetch
from kvorum.raft.model.values import BatchSpan, OffsetAndEpoch, VoteState
from kvorum.raft.model.voters import Voter, VoterHistory, VoterSet
from kvorum.runtime.errors import ErrorCode
from kvorum.runtime.ids import UUID_ZERO
from tests.scripts.harness import Harness
from tests.test_raft.driver import CLUSTER, Driven, disk_of, sent, voter, voter_set

#: Long after the start of the clock.
LATER_MS = 1_000_000


def leading(*voters, commit=True, now_ms=LATER_MS):
    """Node 1 leads a dynamic quorum of these voters, with its first records committed."""
    node = Driven(1, voters, is_dynamic=True, now_ms=now_ms).become_leader()
    node.flush()
    for other in voters[1:] if commit else ():
        node.fetch_request(other, 0, 0)
        node.fetch_request(other, 3, 1)
    node.take()
    return node


def follow_up(node, replica, *, letter="a", address=("host", 1)):
    """An observer that has everything."""
    node.fetch_request(replica, 3, 1, letter=letter, address=address)
    node.take()


def change(node, request):
    """Request a change; returns the immediate answer, if any."""
    replies = [e for e in node.ask(request) if isinstance(e, Reply)]
    answers = [e.response for e in replies if isinstance(e.response, VoterChangeResponse)]
    return answers[0] if answers else None


def add(one, **more):
    return AddVoterRequest(cluster_id=CLUSTER, voter=one, **more)


def remove(node_id, **more):
    return RemoveVoterRequest(cluster_id=CLUSTER, node_id=node_id, **more)


def update(one, *, epoch=1):
    return UpdateVoterRequest(cluster_id=CLUSTER, epoch=epoch, voter=one)


def test_the_opening_batch_writes_the_voters_of_the_bootstrap_checkpoint_into_the_log():
    node = Driven(1, (1,), is_dynamic=True)
    effect = next(e for e in node.pass_deadline() if isinstance(e, AppendLeaderChange))
    assert effect.has_voter_set
    assert effect.voters == voter_set(1)
    assert node.core.log.voters.entries == [(-1, voter_set(1)), (2, voter_set(1))]


def test_a_later_leader_does_not_write_them_again():
    node = leading(1)
    again = Driven(1, (1,), is_dynamic=True, vote=VoteState(1, 1, 1))
    for offset in range(2):
        again.core.log.append(BatchSpan(offset, offset, 1))
    again.core.log.append(BatchSpan(2, 2, 1, voter_set(1), 2))
    again.flush()
    while again.role != "Leader":
        again.pass_deadline()
    assert not again.take(AppendLeaderChange)[-1].has_voter_set
    assert again.core.log.voters.last_offset == node.core.log.voters.last_offset == 2


def test_a_change_is_in_force_at_its_append_and_answered_at_its_commit():
    node = leading(1, 2, 3)
    follow_up(node, 4)
    assert change(node, add(voter(4))) is None
    assert node.take(AppendVoters) == [AppendVoters(3, 1, voter_set(1, 2, 3, 4))]
    assert node.core.voter_set == voter_set(1, 2, 3, 4)
    node.flush()
    node.fetch_request(2, 4, 1)
    assert node.core.high_watermark == 3
    node.fetch_request(4, 4, 1)
    assert node.core.high_watermark == 4
    answer = next(e.response for e in node.take(Reply) if hasattr(e.response, "voters"))
    assert (answer.error, answer.voters) == (ErrorCode.NONE, voter_set(1, 2, 3, 4))


def test_a_change_that_need_not_be_committed_is_answered_behind_its_append():
    node = leading(1, 2, 3)
    follow_up(node, 4)
    effects = node.ask(add(voter(4), is_answered_early=True))
    kinds = [type(e) for e in effects]
    answer = next(e.response for e in effects if isinstance(e, Reply))
    assert (answer.error, answer.voters) == (ErrorCode.NONE, voter_set(1, 2, 3, 4))
    assert kinds.index(AppendVoters) < kinds.index(Reply)
    assert change(node, remove(3)).error is ErrorCode.REQUEST_TIMED_OUT
    node.take(Reply)
    node.flush()
    node.fetch_request(2, 4, 1)
    node.fetch_request(4, 4, 1)
    assert node.core.high_watermark == 4
    assert not [e for e in node.take(Reply) if hasattr(e.response, "voters")]


def test_a_change_wakes_the_new_voter_before_the_own_fsync():
    node = leading(1)
    follow_up(node, 2)
    effects = node.ask(add(voter(2)))
    kinds = [type(e).__name__ for e in effects if not hasattr(e, "text")]
    assert kinds == ["AppendVoters", "ReplyWithRecords", "FlushLog"]


def test_static_voters_do_not_change():
    node = Driven().become_leader()
    assert change(node, remove(2)).error is ErrorCode.UNSUPPORTED_VERSION


def test_a_leader_changes_nothing_before_it_has_committed_in_its_own_epoch():
    node = leading(1, 2, 3, commit=False)
    assert change(node, remove(3)).error is ErrorCode.REQUEST_TIMED_OUT
    node.fetch_request(2, 3, 1)
    node.fetch_request(3, 3, 1)
    assert change(node, remove(3)) is None


def test_a_second_change_waits_for_the_commit_of_the_first():
    node = leading(1, 2, 3)
    follow_up(node, 4)
    assert change(node, add(voter(4))) is None
    assert change(node, remove(3)).error is ErrorCode.REQUEST_TIMED_OUT


def test_an_uncommitted_change_of_an_earlier_leader_counts_as_under_way():
    node = leading(1, 2, 3)
    node.core.log.append(BatchSpan(3, 3, 1, voter_set(1, 2), 3))
    assert change(node, remove(2)).error is ErrorCode.REQUEST_TIMED_OUT


@pytest.mark.parametrize("letter", ["a", "b"])
def test_an_id_in_the_set_is_a_duplicate_whatever_its_disk(letter):
    node = leading(1, 2, 3)
    assert change(node, add(voter(2, letter))).error is ErrorCode.DUPLICATE_VOTER


@pytest.mark.parametrize(
    "wrong",
    [
        Voter(4, UUID_ZERO, "host4", 9004),
        Voter(4, disk_of(4), "", 9004),
        Voter(4, disk_of(4), "host4", 0),
        Voter(4, disk_of(4), "host4", 65536),
    ],
)
def test_a_voter_needs_a_disk_and_a_listener(wrong):
    node = leading(1)
    follow_up(node, 4)
    assert change(node, add(wrong)).error is ErrorCode.INVALID_REQUEST


def test_a_replica_that_does_not_fetch_is_not_added():
    node = leading(1)
    assert change(node, add(voter(2))).error is ErrorCode.REQUEST_TIMED_OUT
    follow_up(node, 2)
    node.now_ms += node.config.fetch_timeout_ms + 1
    assert change(node, add(voter(2))).error is ErrorCode.REQUEST_TIMED_OUT


def test_a_broker_is_not_added():
    node = leading(1)
    follow_up(node, 2, address=None)
    assert change(node, add(voter(2))).error is ErrorCode.INVALID_REQUEST


def test_a_replica_that_has_not_caught_up_is_not_added():
    node = leading(1)
    node.fetch_request(2, 0, 0, address=("host2", 9002))
    answer = change(node, add(voter(2)))
    assert answer.error is ErrorCode.REQUEST_TIMED_OUT
    assert "has 0 of 3" in answer.message


def test_a_voter_that_is_not_there_cannot_be_removed():
    node = leading(1, 2, 3)
    assert change(node, remove(9)).error is ErrorCode.VOTER_NOT_FOUND
    other = remove(2, directory_id=disk_of(2, "b"))
    assert change(node, other).error is ErrorCode.VOTER_NOT_FOUND
    assert change(node, remove(2, directory_id=disk_of(2))) is None


def test_the_last_voter_stays():
    assert change(leading(1), remove(1)).error is ErrorCode.INVALID_REQUEST


def test_a_set_whose_majority_is_not_there_is_refused():
    node = leading(1, 2, 3)
    node.now_ms += node.config.check_quorum_timeout_ms - 1
    node.fetch_request(2, 3, 1)
    node.now_ms += 2
    answer = change(node, remove(2))
    assert answer.error is ErrorCode.INVALID_REQUEST
    assert "[3] cannot" in answer.message
    assert change(node, remove(3)) is None


def test_a_dry_run_checks_and_changes_nothing():
    node = leading(1, 2, 3)
    answer = change(node, remove(3, is_dry_run=True))
    assert (answer.error, answer.voters) == (ErrorCode.NONE, voter_set(1, 2))
    assert node.core.voter_set == voter_set(1, 2, 3)
    assert node.core.log.end_offset == 3
    answer = change(node, remove(9, is_dry_run=True))
    assert answer.error is ErrorCode.VOTER_NOT_FOUND


def test_a_removed_follower_counts_no_more_and_follows_on():
    node = leading(1, 2, 3)
    assert change(node, remove(3)) is None
    node.flush()
    node.fetch_request(3, 4, 1)
    assert node.core.high_watermark == 3
    node.fetch_request(2, 4, 1)
    assert node.core.high_watermark == 4
    assert (3, disk_of(3)) in node.core.role.observers


def test_a_removed_leader_counts_itself_no_more_and_resigns_at_the_commit():
    node = leading(1, 2, 3)
    assert change(node, remove(1)) is None
    node.flush()
    node.fetch_request(2, 4, 1)
    assert node.core.high_watermark == 3
    assert node.role == "Leader"
    node.take()
    node.fetch_request(3, 4, 1)
    assert node.core.high_watermark == 4
    assert node.role == "Resigned"
    ends = sent(node.effects, EndQuorumEpochRequest)
    assert [e.request.preferred_successors for e in ends] == [(2, 3), (2, 3)]


def test_a_leader_that_steps_down_says_that_the_outcome_is_not_known():
    node = leading(1, 2, 3)
    assert change(node, remove(3)) is None
    node.take()
    node.vote_request(epoch=5, candidate=2, last_epoch=4, end_offset=9)
    answer = next(e.response for e in node.take(Reply) if hasattr(e.response, "voters"))
    assert answer.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert "may still" in answer.message


def test_an_update_replaces_the_listener_of_the_same_disk():
    node = leading(1, 2, 3)
    assert change(node, update(voter(2, port=7777))) is None
    assert node.core.voter_set.get(2) == voter(2, port=7777)


def test_an_update_that_changes_nothing_is_answered_at_once():
    node = leading(1, 2, 3)
    assert change(node, update(voter(2))).error is ErrorCode.NONE
    assert node.core.log.end_offset == 3


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (update(voter(2, "b")), ErrorCode.VOTER_NOT_FOUND),
        (update(voter(9)), ErrorCode.VOTER_NOT_FOUND),
        (update(voter(2, port=1), epoch=2), ErrorCode.FENCED_LEADER_EPOCH),
    ],
)
def test_an_update_must_come_from_a_voter_of_this_epoch(request_, error):
    assert change(leading(1, 2, 3), request_).error is error


def test_a_voter_that_moved_tells_the_leader_and_repeats_it():
    node = Driven(2, (1, 2, 3), is_dynamic=True)
    moved = voter_set(1, 3).with_voter(voter(2, port=1))
    node.core.log.append(BatchSpan(0, 0, 1, moved, 0))
    node.flush()
    node.begin_epoch(1, 1)
    requests = sent(node.take(), UpdateVoterRequest)
    assert [r.request.voter for r in requests] == [voter(2)]
    node.now_ms += node.config.fetch_timeout_ms // 2
    while not sent(node.effects, UpdateVoterRequest):
        node.now_ms = node.core.role.update_voter_at_ms
        node.core.role.fetch_deadline_ms = node.now_ms + 1
        node.wait(0)
    assert node.now_ms == 3 * node.config.fetch_timeout_ms


def test_a_leader_that_moved_writes_it_into_its_opening_batch():
    node = Driven(1, (1,), is_dynamic=True)
    node.core.log.append(BatchSpan(0, 0, 1, VoterSet.of([voter(1, port=1)]), 0))
    node.flush()
    while node.role != "Leader":
        node.pass_deadline()
    assert node.core.voter_set == voter_set(1)


def test_a_request_for_the_voter_of_another_disk_is_refused_and_changes_nothing():
    node = Driven(2, (1, 2, 3), is_dynamic=True)
    vote = VoteRequest(
        cluster_id=CLUSTER,
        epoch=4,
        candidate_id=1,
        voter_id=2,
        last_epoch=3,
        end_offset=9,
        is_pre_vote=False,
        voter_directory_id=disk_of(2, "b"),
    )
    begin = BeginQuorumEpochRequest(
        cluster_id=CLUSTER,
        epoch=4,
        leader_id=1,
        voter_id=2,
        voter_directory_id=disk_of(2, "b"),
    )
    for request in (vote, begin):
        node.ask(request)
        answer = node.take(Reply)[-1].response
        assert answer.error is ErrorCode.INVALID_VOTER_KEY
        assert (node.core.epoch, node.core.voted_id) == (0, -1)


def test_a_candidate_under_the_same_id_with_another_disk_gets_no_second_vote():
    node = Driven(1, (1, 2, 3), is_dynamic=True)

    def ask(letter):
        node.ask(
            VoteRequest(
                cluster_id=CLUSTER,
                epoch=1,
                candidate_id=2,
                voter_id=1,
                last_epoch=0,
                end_offset=0,
                is_pre_vote=False,
                candidate_directory_id=disk_of(2, letter),
            )
        )
        return node.take(Reply)[-1].response

    assert ask("a").is_granted
    assert not ask("b").is_granted
    assert ask("a").is_granted


def test_a_wiped_disk_under_a_voters_id_is_an_observer():
    node = Driven(2, (1, 2, 3), is_dynamic=True)
    node.core.log.append(BatchSpan(0, 0, 1, voter_set(1, 3).with_voter(voter(2, "b")), 0))
    assert not node.core.is_voter


def test_a_wiped_disks_fetches_do_not_count_for_the_voter():
    node = leading(1, 2, 3, commit=False)
    node.fetch_request(2, 3, 1, letter="b")
    assert node.core.high_watermark == -1
    node.fetch_request(2, 3, 1)
    assert node.core.high_watermark == 3


def test_an_observer_that_could_become_a_voter_syncs_before_it_fetches():
    node = Driven(4, (1, 2, 3), is_dynamic=True)
    assert not node.core.is_voter
    node.begin_epoch(1, 1)
    node.take()
    node.fetched(leader=1, epoch=1, spans=[BatchSpan(0, 0, 1)])
    assert [type(e).__name__ for e in node.take(FlushLog, SendRequest)] == ["FlushLog"]
    node.flush()
    assert node.take(SendRequest)[0].request.fetch_offset == 1


# Found in review.


def test_a_replica_that_never_caught_up_is_refused_also_just_after_the_clock_began():
    node = leading(1, now_ms=0)
    assert node.now_ms < node.config.fetch_timeout_ms
    node.fetch_request(2, 0, 0, address=("host2", 9002))
    assert change(node, add(voter(2))).error is ErrorCode.REQUEST_TIMED_OUT


def test_a_new_leader_that_knows_no_high_watermark_takes_nobody_for_caught_up():
    # Bad sequence: 1. The leader restarts with 1,000 records and knows no high watermark. 2. An
    # empty observer fetches from 0, and holds all that it may see. 3. The leader commits. 4. The
    # observer is added as a voter.
    node = Driven(1, (1, 2, 3), is_dynamic=True, epochs=[1] * 1000, now_ms=LATER_MS)
    node.become_leader()
    node.flush()
    end_offset = node.core.log.end_offset
    node.fetch_request(4, 0, 0, address=("host4", 9004))
    node.fetch_request(2, end_offset, 2)
    assert node.core.high_watermark == end_offset
    assert change(node, add(voter(4))).error is ErrorCode.REQUEST_TIMED_OUT


def test_a_listener_too_long_for_the_record_is_refused():
    node = leading(1)
    follow_up(node, 2)
    long_name = Voter(2, disk_of(2), "h" * 127, 9002)
    assert change(node, add(long_name)).error is ErrorCode.INVALID_REQUEST


def test_a_voter_that_finds_a_wrong_listener_in_the_log_corrects_it():
    node = Driven(2, (1, 2, 3), is_dynamic=True)
    node.begin_epoch(1, 1)
    wrong = voter_set(1, 3).with_voter(voter(2, port=1))
    node.fetched(leader=1, epoch=1, spans=[BatchSpan(0, 0, 1, wrong, 0)])
    node.flush()
    assert node.core.is_voter_entry_stale
    for _ in range(20):
        node.now_ms += node.config.fetch_timeout_ms // 3
        node.fetched(leader=1, epoch=1)
    assert sent(node.effects, UpdateVoterRequest)


def standing_while_a_snapshot_is_checked():
    """Node 1 lost leader 2 while the last piece of a snapshot was on its way to the disk."""
    node = Driven(1, (1, 2, 3), is_dynamic=True).follow(leader=2)
    snapshot = OffsetAndEpoch(10, 1)
    node.core.snapshot_fetch = SnapshotFetch(snapshot, position=8, size=8, is_writing=True)
    node.core.role.stand_at_ms = node.now_ms
    node.wait(0)
    assert node.role == "Prospective"
    return node, snapshot


def grant(node, sender):
    request = next(s for s in sent(node.effects, VoteRequest) if s.receiver_id == sender)
    answer = VoteResponse(epoch=node.core.epoch, is_granted=True)
    node.step(ResponseReceived(sender, request.correlation_id, answer))


def test_votes_of_those_who_are_no_voters_any_more_do_not_elect():
    # Bad sequence: 1. Node 1 is a candidate in {1,2,3}, and node 2 votes for it. 2. A snapshot
    # arrives with voters {1,4,5}, of which 4 and 5 may have elected 4 in the same epoch. 3. The
    # vote of node 2 counts as one of three.
    node, snapshot = standing_while_a_snapshot_is_checked()
    grant(node, 2)
    assert node.role == "Candidate"
    node.step(SnapshotReceived(snapshot, True, voter_set(1, 4, 5)))
    grant_late = [s for s in sent(node.effects, VoteRequest) if s.receiver_id == 2][-1]
    answer = VoteResponse(epoch=node.core.epoch, is_granted=True)
    node.step(ResponseReceived(2, grant_late.correlation_id, answer))
    assert node.role != "Leader"


def test_a_node_that_a_snapshot_takes_out_of_the_set_becomes_no_candidate():
    node, snapshot = standing_while_a_snapshot_is_checked()
    node.step(SnapshotReceived(snapshot, True, voter_set(4, 5, 6)))
    assert not node.core.is_voter
    grant(node, 2)
    assert node.role != "Candidate"


def test_a_removal_of_the_leader_that_only_it_has_does_not_end_the_quorum():
    # 1. Leader 1 of {1,2} removes itself and is cut off before node 2 has the record, 2. node 1
    #    resigns, 3. node 2 needs node 1's vote and does not get it, since its log is shorter.
    #    Thesis 4.2.2, figure 4.6: a node that is not in its own latest voter set must be able to
    #    become candidate until that set is committed.
    harness = Harness()
    for command in ("cluster 2 dynamic", "elect 1", "isolate 1", "remove-voter 1 1", "run 3000"):
        harness.run(command)
    harness.run("heal")
    harness.run("run 10000")
    assert any(node.core.is_leader for node in harness.world.nodes.values())


def test_an_observer_that_is_gone_for_long_is_forgotten():
    node = leading(1)
    follow_up(node, 2)
    node.now_ms += 300_001
    follow_up(node, 3)
    assert (2, disk_of(2)) not in node.core.role.observers


def test_a_leader_names_the_directories_of_first_voters_once_they_fetch():
    """kvorum init does not know them: each host makes its own."""
    node = Driven(is_dynamic=True)
    nameless = VoterSet.of(dataclasses.replace(voter(n), directory_id=UUID_ZERO) for n in (1, 2, 3))
    node.core.log.voters = VoterHistory([(-1, nameless)])
    node.become_leader()
    own = node.core.voter_set.get(1)
    assert own.directory_id == disk_of(1), "its own is in the record that opens the epoch"
    node.flush()
    node.fetch_request(2, node.core.log.end_offset, 1)
    assert node.core.voter_set.get(2).directory_id == disk_of(2)
    assert node.core.voter_set.get(3).directory_id == UUID_ZERO
    # An empty disk under the same id is an observer, also before the set is committed.
    node.fetch_request(2, 0, 0, letter="b")
    assert (2, disk_of(2, "b")) in node.core.role.observers
    node.flush()
    node.fetch_request(2, node.core.log.end_offset, 1)
    node.fetch_request(3, node.core.log.end_offset, 1)
    assert node.core.voter_set == voter_set(1, 2, 3)
    assert {key[0] for key in node.core.role.observers} == {2}, "no voter is left behind as another"


def test_the_first_directory_that_fetches_has_the_place_of_a_nameless_voter():
    node = Driven(is_dynamic=True)
    nameless = VoterSet.of(dataclasses.replace(voter(n), directory_id=UUID_ZERO) for n in (1, 2, 3))
    node.core.log.voters = VoterHistory([(-1, nameless)])
    node.become_leader()
    node.fetch_request(2, 0, 0)
    node.fetch_request(2, 0, 0, letter="b")
    assert node.core.role.voters[2].directory_id == disk_of(2)
