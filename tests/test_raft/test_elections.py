"""Rules of voting (Raft paper 5.2 and 5.4.1, KIP-595, KIP-996), one a test."""

import pytest

from kvorum.raft.core.state import OLDER_LEADER_FETCH_TIMEOUTS
from kvorum.raft.model.effects import (
    LeaderChanged,
    PersistVoteState,
    QuorumAlert,
    Reply,
    SendRequest,
    TimelineEntry,
)
from kvorum.raft.model.events import RequestFailed, Resign, ResponseReceived
from kvorum.raft.model.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    VoteRequest,
    VoteResponse,
)
from kvorum.raft.model.values import VoteState
from kvorum.runtime.errors import ErrorCode, NodeRefused
from tests.test_raft.driver import CLUSTER, Driven, disk_of, persisted, replies, sent


def test_a_pre_vote_writes_nothing_and_raises_no_epoch():
    node = Driven()
    effects = node.pass_deadline()
    assert node.role == "Prospective"
    assert node.core.epoch == 0
    assert persisted(effects) == []
    assert all(send.request.is_pre_vote for send in sent(effects, VoteRequest))


def test_a_majority_of_pre_votes_makes_a_candidate_that_voted_for_itself_on_disk_first():
    node = Driven()
    node.pass_deadline()
    node.answer_votes(2)
    assert node.role == "Candidate"
    effects = node.take(PersistVoteState, SendRequest)
    assert effects[0] == PersistVoteState(VoteState(1, -1, 1))
    assert {e.receiver_id for e in effects[1:]} == {2, 3}


def test_a_majority_of_votes_makes_a_leader_that_opens_its_epoch():
    node = Driven().become_leader()
    assert node.core.epoch == 1
    assert node.core.log.end_offset == 1
    assert node.core.high_watermark == -1


def test_a_single_voter_leads_at_once():
    node = Driven(voters=(1,))
    node.pass_deadline()
    assert node.role == "Leader"


def test_a_lost_pre_vote_sends_a_former_follower_back_to_its_leader():
    node = Driven().follow(leader=2)
    node.now_ms = node.core.role.fetch_deadline_ms
    node.wait(0)
    assert node.role == "Prospective"
    node.answer_votes(reason="leader alive")
    assert node.role == "Follower"
    assert node.core.epoch == 1


def test_a_vote_is_on_disk_before_the_answer_leaves():
    node = Driven()
    node.vote_request(epoch=3, candidate=2)
    effects = node.take(PersistVoteState, Reply)
    assert [type(e).__name__ for e in effects] == ["PersistVoteState", "PersistVoteState", "Reply"]
    assert effects[1].state == VoteState(3, -1, 2)
    assert effects[2].response.is_granted


def test_nobody_votes_twice_in_an_epoch():
    node = Driven()
    assert node.vote_request(epoch=3, candidate=2).is_granted
    answer = node.vote_request(epoch=3, candidate=3)
    assert not answer.is_granted
    assert answer.reason == "voted for 2"


def test_the_same_candidate_may_ask_again():
    node = Driven()
    assert node.vote_request(epoch=3, candidate=2).is_granted
    assert node.vote_request(epoch=3, candidate=2).is_granted


def test_a_vote_survives_a_restart():
    node = Driven(vote=VoteState(3, -1, 2))
    assert not node.vote_request(epoch=3, candidate=3).is_granted


@pytest.mark.parametrize(
    ("last_epoch", "end_offset", "granted"),
    [(2, 3, True), (2, 4, True), (3, 1, True), (2, 2, False), (1, 9, False)],
)
def test_only_a_log_as_good_as_the_own_gets_a_vote(last_epoch, end_offset, granted):
    node = Driven(epochs=[1, 2, 2])
    answer = node.vote_request(epoch=5, last_epoch=last_epoch, end_offset=end_offset)
    assert answer.is_granted is granted


def test_a_stale_epoch_gets_no_vote_and_hears_the_present_one():
    node = Driven(vote=VoteState(5, -1, -1))
    answer = node.vote_request(epoch=4)
    assert answer.error is ErrorCode.FENCED_LEADER_EPOCH
    assert answer.epoch == 5


def test_a_follower_that_hears_its_leader_grants_no_pre_vote():
    node = Driven().follow(leader=2)
    node.fetched()
    answer = node.vote_request(epoch=1, candidate=3, pre_vote=True)
    assert answer.reason == "leader alive"


def test_a_restarted_follower_grants_a_pre_vote_once_it_has_tried_to_reach_its_leader():
    node = Driven(vote=VoteState(1, 2))
    assert node.role == "Follower"
    refused = node.vote_request(epoch=1, candidate=3, pre_vote=True)
    assert (refused.is_granted, refused.reason) == (False, "leader alive")
    node.wait(0)
    node.step(RequestFailed(2, node.core.role.correlation_id))
    assert node.vote_request(epoch=1, candidate=3, pre_vote=True).is_granted


def asked_when_it_stands(node):
    """Let time pass until a follower asks for pre-votes; the correlation ids of its requests by
    voter."""
    while node.role == "Follower":
        node.take()
        node.pass_deadline()
    assert node.role == "Prospective"
    return {e.receiver_id: e.correlation_id for e in sent(node.take(), VoteRequest)}


def standing_without_its_leader(**more):
    """A follower of node 2 whose stream broke, which asks for pre-votes; and the correlation ids of
    its requests by voter."""
    node = Driven(**more).follow(leader=2)
    node.fetched()
    node.step(RequestFailed(2, node.core.role.correlation_id))
    return node, asked_when_it_stands(node)


def test_the_leaders_own_word_ends_a_pre_vote_whoever_else_grants():
    # Another voter lost its stream to the leader too, and grants; but the leader itself answers.
    node, asked = standing_without_its_leader(voters=(1, 2, 3, 4, 5))
    node.step(ResponseReceived(3, asked[3], VoteResponse(epoch=1, leader_id=2, is_granted=True)))
    node.step(ResponseReceived(2, asked[2], VoteResponse(epoch=1, leader_id=2, reason="leads")))
    assert (node.role, node.core.leader_id) == ("Follower", 2)
    node.step(ResponseReceived(4, asked[4], VoteResponse(epoch=1, leader_id=2, is_granted=True)))
    assert (node.role, node.core.epoch) == ("Follower", 1)
    assert not node.vote_request(epoch=1, candidate=3, pre_vote=True).is_granted


def test_the_word_of_a_follower_about_its_leader_is_one_refusal():
    node, asked = standing_without_its_leader(voters=(1, 2, 3, 4, 5))
    node.step(ResponseReceived(3, asked[3], VoteResponse(epoch=1, leader_id=2, reason="alive")))
    assert node.role == "Prospective"


def test_a_refusal_that_its_voters_later_grant_overtook_takes_nothing_back():
    node, first = standing_without_its_leader(voters=(1, 2, 3, 4, 5), epochs=(1,))
    assert not node.vote_request(epoch=1, candidate=3, pre_vote=True).is_granted
    (again,) = sent(node.take(), VoteRequest)
    assert again.receiver_id == 3
    answer = VoteResponse(epoch=1, is_granted=True)
    node.step(ResponseReceived(3, again.correlation_id, answer))
    node.step(ResponseReceived(3, first[3], VoteResponse(epoch=1, reason="leader alive")))
    node.step(ResponseReceived(4, first[4], answer))
    assert node.role == "Candidate"


def test_who_has_granted_is_not_asked_in_turn():
    node, first = standing_without_its_leader(voters=(1, 2, 3, 4, 5), epochs=(1,))
    node.step(ResponseReceived(3, first[3], VoteResponse(epoch=1, is_granted=True)))
    node.take()
    node.vote_request(epoch=1, candidate=3, pre_vote=True)
    assert sent(node.take(), VoteRequest) == []


def test_a_stranger_that_asks_in_vain_is_not_asked_in_turn():
    node, _ = standing_without_its_leader(epochs=(1,))
    node.take()
    assert not node.vote_request(epoch=1, candidate=9, pre_vote=True).is_granted
    assert sent(node.take(), VoteRequest) == []


def test_a_leader_that_resigned_does_not_call_itself_one():
    node = Driven(vote=VoteState(4, 1, 1))
    answer = node.vote_request(epoch=4, candidate=2, last_epoch=3, end_offset=9, pre_vote=True)
    assert (answer.is_granted, answer.leader_id) == (False, -1)


def test_a_follower_that_lost_its_leader_too_grants_a_pre_vote():
    node = Driven().follow(leader=2)
    node.fetched()
    node.step(RequestFailed(2, node.core.role.correlation_id))
    assert node.vote_request(epoch=1, candidate=3, pre_vote=True).is_granted


def test_a_granted_pre_vote_changes_nothing():
    node = Driven()
    node.take()
    assert node.vote_request(epoch=0, candidate=3, pre_vote=True).is_granted
    assert persisted(node.effects) == []
    assert node.core.voted_id == -1


def test_a_leader_grants_no_pre_vote_in_its_epoch():
    node = Driven().become_leader()
    assert node.vote_request(epoch=1, candidate=3, pre_vote=True).reason == "is the leader"


def test_a_broken_stream_starts_a_pre_vote_after_a_grace_long_before_the_fetch_timeout():
    node = Driven().follow(leader=2)
    node.fetched()
    node.step(RequestFailed(2, node.core.role.correlation_id))
    grace_ms = node.config.leader_loss_grace_ms
    node.wait(grace_ms - 1)
    assert node.role == "Follower"
    node.wait(grace_ms + 2)
    assert node.role == "Prospective"
    assert node.now_ms < node.config.fetch_timeout_ms


def test_a_stream_that_comes_back_within_the_grace_starts_nothing():
    node = Driven().follow(leader=2)
    node.fetched()
    node.step(RequestFailed(2, node.core.role.correlation_id))
    node.wait(node.config.retry_backoff_ms)
    node.fetched()
    node.wait(3 * node.config.leader_loss_grace_ms)
    assert node.role == "Follower"
    assert not node.core.role.is_leader_lost


def test_a_node_that_was_leader_restarts_resigned_and_votes_for_nobody_in_that_epoch():
    node = Driven(vote=VoteState(4, 1, 1))
    assert node.role == "Resigned"
    assert not node.vote_request(epoch=4, candidate=2).is_granted
    node.pass_deadline()
    assert node.role == "Unattached"
    assert node.core.epoch == 5


def test_a_higher_epoch_deposes_a_leader_and_turns_its_parked_fetches_away():
    node = Driven().become_leader()
    node.fetch_request(2, 1, 1)
    node.take()
    node.begin_epoch(2, 3)
    assert node.role == "Follower"
    errors = [e.response.error for e in node.take(Reply)]
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER in errors


def test_a_peer_that_names_another_leader_of_the_epoch_is_not_believed():
    node = Driven().follow(leader=2)
    effects = node.begin_epoch(1, 3)
    (reply,) = replies(effects)
    assert reply.response.error is ErrorCode.INVALID_REQUEST
    (alert,) = [e for e in effects if isinstance(e, QuorumAlert)]
    assert alert.text.startswith("two leaders in epoch 1: 2 and 3. Voters of that quorum have lost")
    assert node.core.refused_leader == alert.text
    assert (node.role, node.core.role.leader_id) == ("Follower", 2)
    # Told once, however often the peer says it.
    assert not any(isinstance(e, QuorumAlert) for e in node.begin_epoch(1, 3))
    node.pass_deadline()
    node.fetched()
    assert node.core.refused_leader == "", "the leader that was known has answered"


@pytest.mark.parametrize("node_id", [1, 9], ids=["voter", "observer"])
def test_a_leader_that_goes_on_in_an_older_epoch_is_refused(node_id):
    """Its quorum has lost the disks that knew the later epochs; it never catches up by itself."""
    node = Driven(node_id, epochs=[1, 5], vote=VoteState(6))

    def answered(leader, epoch):
        return [
            effect
            for send in node.take(SendRequest)
            for effect in node.step(
                ResponseReceived(
                    send.receiver_id,
                    send.correlation_id,
                    VoteResponse(epoch=epoch, leader_id=leader, error=ErrorCode.INVALID_VOTER_KEY)
                    if isinstance(send.request, VoteRequest)
                    else FetchResponse(
                        epoch=epoch, leader_id=leader, error=ErrorCode.UNKNOWN_LEADER_EPOCH
                    ),
                )
            )
            if isinstance(effect, QuorumAlert)
        ]

    told, until_ms = [], 4 * node.config.fetch_timeout_ms
    while node.now_ms < until_ms:
        node.pass_deadline()
        told += answered(leader=2, epoch=1)
        if node.now_ms < OLDER_LEADER_FETCH_TIMEOUTS * node.config.fetch_timeout_ms:
            assert told == [], "a leader that was cut off answers so for a while"
    (alert,) = told
    assert alert.text.startswith("leader 2 leads epoch 1, and this node has seen epoch 6. Voters")
    assert node.core.refused_leader == alert.text
    assert (node.core.epoch, node.core.log.end_offset) == (6, 2)
    # A leader of this epoch is followed.
    node.follow(leader=3, epoch=6)
    node.pass_deadline()
    node.fetched(leader=3, epoch=6)
    assert node.core.refused_leader == ""


def test_a_voter_without_a_log_votes_for_nobody_who_has_one_and_does_not_know_its_disk():
    """It may have lost its own: then others know which records it had acknowledged."""
    fresh = Driven(is_dynamic=True)
    for is_pre_vote in (True, False):
        answer = fresh.vote_request(epoch=4, last_epoch=3, end_offset=9, pre_vote=is_pre_vote)
        assert not answer.is_granted
        assert answer.reason.startswith("has no log yet")
    # At the first start of a quorum nobody has one.
    assert Driven(is_dynamic=True).vote_request(epoch=1).is_granted
    # A candidate whose log names this disk knows that it is the same one.
    named = fresh.vote_request(epoch=4, last_epoch=3, end_offset=9, voter_directory_id=disk_of(1))
    assert named.is_granted
    with_log = Driven(epochs=[1], is_dynamic=True)
    assert with_log.vote_request(epoch=4, last_epoch=3, end_offset=9).is_granted


def test_a_leader_that_a_majority_does_not_fetch_from_resigns():
    node = Driven().become_leader()
    node.wait(node.config.check_quorum_timeout_ms)
    assert node.role == "Resigned"


def test_a_leader_that_one_of_two_others_fetches_from_stays():
    node = Driven().become_leader()
    for _ in range(4):
        node.wait(node.config.check_quorum_timeout_ms // 2)
        node.fetch_request(2, 1, 1)
    assert node.role == "Leader"


def test_a_resigning_leader_names_the_voter_that_holds_most_first():
    node = Driven().become_leader()
    node.propose(3)
    node.fetch_request(3, 4, 1)
    node.fetch_request(2, 1, 1)
    node.take()
    ends = sent(node.step(Resign()), EndQuorumEpochRequest)
    assert node.role == "Resigned"
    assert {e.request.preferred_successors for e in ends} == {(3, 2)}


def test_the_best_successor_stands_at_once_and_the_next_one_waits():
    first, second = Driven(node_id=3).follow(leader=1), Driven(node_id=2).follow(leader=1)
    request = EndQuorumEpochRequest(
        cluster_id=CLUSTER, epoch=1, leader_id=1, preferred_successors=(3, 2)
    )
    first.ask(request)
    second.ask(request)
    assert first.role == "Prospective"
    assert second.role == "Follower"
    assert second.vote_request(epoch=1, candidate=3, pre_vote=True).is_granted


def test_voters_that_have_not_fetched_are_told_of_the_epoch_again():
    node = Driven().become_leader()
    node.fetch_request(2, 1, 1)
    node.take()
    effects = node.wait(node.config.fetch_timeout_ms // 2)
    told = {e.receiver_id for e in sent(effects, BeginQuorumEpochRequest)}
    assert 3 in told


def test_a_refused_vote_request_connection_is_tried_again():
    node = Driven()
    node.pass_deadline()
    send = node.take(SendRequest)[0]
    node.step(RequestFailed(send.receiver_id, send.correlation_id))
    effects = node.wait(node.config.retry_backoff_ms)
    assert [e.receiver_id for e in sent(effects, VoteRequest)] == [send.receiver_id]


def test_votes_of_an_earlier_round_do_not_count():
    node = Driven()
    node.pass_deadline()
    stale = node.take(SendRequest)
    node.now_ms = node.core.role.election_deadline_ms
    node.wait(0)
    node.pass_deadline()
    assert node.role == "Prospective"
    response = VoteResponse(epoch=0, is_granted=True)
    node.step(ResponseReceived(2, stale[0].correlation_id, response))
    assert node.role == "Prospective"


def test_another_cluster_is_refused():
    node = Driven()
    effects = node.ask(
        BeginQuorumEpochRequest(cluster_id="other", epoch=1, leader_id=2, voter_id=1)
    )
    assert effects[0].response.error is ErrorCode.INCONSISTENT_CLUSTER_ID


def test_an_observer_asks_voters_until_one_names_the_leader():
    node = Driven(node_id=9)
    effects = node.wait(0)
    (fetch,) = sent(effects, FetchRequest)
    assert fetch.receiver_id in (1, 2, 3)
    node.begin_epoch(1, 2)
    assert node.role == "Follower"
    assert any(isinstance(e, LeaderChanged) and e.leader_id == 2 for e in node.take())


def test_an_observer_never_stands():
    node = Driven(node_id=9).follow(leader=2)
    node.now_ms = node.core.role.fetch_deadline_ms
    node.wait(0)
    assert node.role == "Unattached"


def test_an_observer_does_not_go_back_to_a_leader_it_just_lost_on_others_word():
    # Bad sequence: 1. The leader hangs, and an observer gives it up. 2. The observer asks a voter
    # that has not noticed yet, and goes back to the leader. 3. It waits a whole fetch timeout more.
    node = Driven(node_id=9).follow(leader=2)
    node.now_ms = node.core.role.fetch_deadline_ms
    node.wait(0)
    node.take()
    for _ in range(3):
        node.pass_deadline()
        (fetch,) = sent(node.take(), FetchRequest)
        assert fetch.receiver_id != 2
        node.fetched(leader=2, sender=fetch.receiver_id, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert node.role == "Unattached"


def test_an_observer_believes_again_after_a_while():
    node = Driven(node_id=9).follow(leader=2)
    node.now_ms = node.core.role.fetch_deadline_ms
    node.wait(0)
    node.now_ms += node.config.election_timeout_ms
    node.wait(0)
    node.fetched(leader=2, sender=3, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert node.role == "Follower"


def test_an_observer_follows_a_new_epochs_leader_at_once():
    node = Driven(node_id=9).follow(leader=2)
    node.now_ms = node.core.role.fetch_deadline_ms
    node.wait(0)
    node.pass_deadline()
    node.fetched(leader=3, sender=3, epoch=2, error=ErrorCode.FENCED_LEADER_EPOCH)
    assert (node.role, node.core.role.leader_id) == ("Follower", 3)


def test_a_split_vote_with_the_third_voter_dead_is_tried_again_soon():
    node = Driven()
    node.pass_deadline()
    node.answer_votes(2, 3)
    assert node.role == "Candidate"
    requests = {send.receiver_id: send for send in node.take(SendRequest)}
    node.step(RequestFailed(3, requests[3].correlation_id))
    refusal = VoteResponse(epoch=1, is_granted=False, reason="voted for 2")
    node.step(ResponseReceived(2, requests[2].correlation_id, refusal))
    wait_ms = node.core.role.election_deadline_ms - node.now_ms
    assert wait_ms < 3 * node.config.leader_loss_grace_ms < node.config.election_timeout_ms


def test_a_restarted_follower_names_its_leader_once_that_has_answered():
    # Its vote state names the leader to ask, but not whether that node still leads.
    node = Driven(vote=VoteState(4, 2))
    assert (node.role, node.core.leader_id) == ("Follower", -1)
    node.wait(0)
    assert node.take(LeaderChanged) == []
    node.fetched(epoch=4)
    assert [(e.epoch, e.leader_id) for e in node.take(LeaderChanged)] == [(4, 2)]
    node.fetched(epoch=4)
    assert node.take(LeaderChanged) == []


def test_a_bootstrap_server_of_another_cluster_is_named_once_and_asked_seldom():
    node = Driven(voters=(), is_dynamic=True, bootstrap_ids=(-2, -3))
    noted = []
    for _ in range(3):
        node.take()
        node.pass_deadline()
        (asked,) = sent(node.take(), FetchRequest)
        answer = FetchResponse(epoch=0, error=ErrorCode.INCONSISTENT_CLUSTER_ID)
        node.step(ResponseReceived(-3, asked.correlation_id, answer))
        assert node.core.next_deadline_ms() - node.now_ms == node.config.fetch_timeout_ms
        noted += [e.text for e in node.take(TimelineEntry)]
    assert noted == [
        "number 2 of controller.quorum.bootstrap.servers belongs to another cluster than "
        f"{node.config.cluster_id}"
    ]


def test_an_observer_refuses_a_leader_that_has_its_own_id():
    """A broker was given a controller's node.id; the bootstrap server is that controller."""
    node = Driven(node_id=1, voters=(), is_dynamic=True, bootstrap_ids=(-2,))
    (fetch,) = sent(node.wait(0), FetchRequest)
    answer = FetchResponse(error=ErrorCode.NONE, epoch=0, leader_id=1)
    with pytest.raises(NodeRefused, match=r"node 1 leads the quorum already.* of its own"):
        node.step(ResponseReceived(fetch.receiver_id, fetch.correlation_id, answer))
