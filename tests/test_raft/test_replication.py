"""Rules of replication and commitment (Raft paper 5.3 and 5.4.2, KIP-595), one a test."""

import dataclasses

import pytest

from kvorum.raft.core.leader import LOST_LOG_FETCHES
from kvorum.raft.core.leadership import TURN_FETCHES, TURN_MS
from kvorum.raft.model.effects import (
    AppendFetched,
    AppendProposed,
    FlushLog,
    HighWatermarkAdvanced,
    QuorumAlert,
    Reply,
    ReplyWithRecords,
    SendRequest,
    TruncateLog,
)
from kvorum.raft.model.events import CallerGone, LogFlushed, Propose, ResponseReceived
from kvorum.raft.model.messages import FetchRequest, FetchResponse
from kvorum.raft.model.values import BatchSpan, OffsetAndEpoch
from kvorum.runtime.errors import ErrorCode, InvariantViolated
from tests.test_raft.driver import Driven, sent


def test_followers_are_answered_before_the_leaders_own_fsync():
    node = Driven().become_leader()
    node.fetch_request(2, 1, 1)
    node.take()
    node.propose()
    kinds = [type(e).__name__ for e in node.take()]
    assert kinds == ["AppendProposed", "ReplyWithRecords", "FlushLog"]


def test_leader_counts_itself_only_after_its_flush():
    node = Driven().become_leader()
    node.fetch_request(2, 1, 1)
    assert node.core.high_watermark == -1
    node.flush()
    assert node.core.high_watermark == 1


def test_a_follower_counts_for_what_it_asks_beyond():
    node = Driven().become_leader()
    node.propose(4)
    node.flush()
    node.fetch_request(2, 3, 1)
    assert node.core.high_watermark == 3


def test_two_followers_commit_without_the_leaders_own_disk():
    node = Driven().become_leader()
    node.fetch_request(2, 1, 1)
    node.fetch_request(3, 1, 1)
    assert node.core.high_watermark == 1
    assert node.core.log.flushed_end_offset == 0


def test_nothing_commits_before_an_entry_of_the_own_epoch_is_on_a_majority():
    # Raft paper, figure 8: three entries of epoch 1 on a majority are not yet committed.
    node = Driven(epochs=[1, 1, 1]).become_leader()
    node.flush()
    node.fetch_request(2, 3, 1)
    assert node.core.high_watermark == -1
    node.fetch_request(2, 4, node.core.epoch)
    assert node.core.high_watermark == 4


def test_the_high_watermark_never_falls():
    node = Driven().become_leader()
    node.propose(4)
    node.flush()
    node.fetch_request(2, 5, 1)
    assert node.core.high_watermark == 5
    node.fetch_request(2, 1, 1)
    assert node.core.high_watermark == 5


def test_an_observer_does_not_count():
    node = Driven().become_leader()
    node.flush()
    node.fetch_request(9, 1, 1)
    assert node.core.high_watermark == -1


def test_an_observer_is_sent_only_what_is_committed():
    node = Driven().become_leader()
    node.propose(4)
    node.fetch_request(9, 0, 0)
    assert node.take(ReplyWithRecords) == []
    node.flush()
    node.fetch_request(2, 3, 1)
    (reply,) = [e for e in node.take(ReplyWithRecords) if e.fetch_offset == 0]
    assert reply.end_offset == 3


def with_observers(count):
    """A leader of one committed record, which `count` observers have, and wait for the next one."""
    node = Driven().become_leader()
    node.flush()
    node.fetch_request(2, 1, 1)
    node.now_ms += TURN_MS
    for observer in range(100, 100 + count):
        node.fetch_request(observer, 1, 1)
    assert node.core.high_watermark == 1
    node.take()
    return node


def tokens(node):
    return [e.token for e in node.take(ReplyWithRecords)]


def test_few_observers_are_answered_at_the_commit():
    node = with_observers(TURN_FETCHES)
    node.propose()
    node.flush()
    node.take()
    node.fetch_request(2, 2, 1)
    assert len(tokens(node)) == TURN_FETCHES


def test_many_observers_are_answered_in_turn_and_voters_in_between():
    node = with_observers(3 * TURN_FETCHES)
    node.propose()
    node.flush()
    node.take()
    node.fetch_request(2, 2, 1)
    answered = tokens(node)
    assert len(answered) == TURN_FETCHES
    assert node.core.next_deadline_ms() == node.now_ms + TURN_MS
    # An observer that lags is behind those that wait, and a voter before them.
    node.fetch_request(99, 1, 1)
    late = node.tokens
    node.propose()
    assert tokens(node) == [1 + 1 + 3 * TURN_FETCHES], "the voter's fetch"
    while node.core.role.due:
        node.pass_deadline()
        turn = tokens(node)
        assert 0 < len(turn) <= TURN_FETCHES
        answered += turn
    assert answered == sorted(answered)
    assert answered[-1] == late
    assert len(answered) == 3 * TURN_FETCHES + 1


def test_observers_whose_time_is_over_are_answered_in_turn():
    node = with_observers(3 * TURN_FETCHES)
    node.now_ms += node.config.fetch_wait_max_ms
    sizes = []
    for _ in range(3):
        node.pass_deadline()
        sizes.append(len(tokens(node)))
    assert sizes == [TURN_FETCHES + 1, TURN_FETCHES, TURN_FETCHES], "the voter's with the first"


def test_a_fetch_that_waits_for_its_turn_is_refused_when_the_leader_resigns():
    node = with_observers(2 * TURN_FETCHES)
    node.propose()
    node.flush()
    node.fetch_request(2, 2, 1)
    node.take()
    node.begin_epoch(2, 3)
    refused = [
        reply
        for reply in node.take(Reply)
        if isinstance(reply.response, FetchResponse)
        and reply.response.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    ]
    assert len(refused) == TURN_FETCHES + 1, "those of the next turn, and the voter's"


def test_a_caller_that_hangs_up_loses_its_turn():
    node = with_observers(2 * TURN_FETCHES)
    node.propose()
    node.flush()
    node.fetch_request(2, 2, 1)
    node.take()
    gone = next(iter(node.core.role.due.values())).token
    node.step(CallerGone(gone))
    node.pass_deadline()
    assert gone not in tokens(node)


def test_a_fetch_with_nothing_to_return_waits_until_its_time_is_over():
    node = Driven().become_leader()
    node.fetch_request(2, 1, 1)
    assert node.take(ReplyWithRecords) == []
    node.wait(node.config.fetch_wait_max_ms)
    (reply,) = node.take(ReplyWithRecords)
    assert reply.end_offset == reply.fetch_offset == 1


def test_a_new_fetch_of_the_same_replica_replaces_the_parked_one():
    node = Driven().become_leader()
    node.fetch_request(2, 1, 1)
    node.take()
    node.fetch_request(2, 1, 1)
    (reply,) = node.take(Reply)
    assert reply.response.error is ErrorCode.REQUEST_TIMED_OUT


@pytest.mark.parametrize(
    ("epoch", "error"),
    [(0, ErrorCode.FENCED_LEADER_EPOCH), (2, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
def test_a_fetch_of_another_epoch_is_refused(epoch, error):
    node = Driven().become_leader()
    node.fetch_request(2, 0, 0, epoch=epoch)
    (reply,) = node.take(Reply)
    assert reply.response.error is error
    assert reply.response.leader_id == 1


def test_a_diverging_fetch_is_answered_with_the_end_of_the_common_epoch_and_counts_nothing():
    node = Driven(epochs=[1, 1, 3]).become_leader()
    node.flush()
    node.fetch_request(2, 4, 2)
    (reply,) = node.take(Reply)
    assert reply.response.diverging == OffsetAndEpoch(2, 1)
    assert node.core.role.voters[2].end_offset == -1


def test_a_follower_truncates_as_told_and_asks_again():
    node = Driven(epochs=[1, 2, 2]).follow(leader=2, epoch=3)
    node.take()
    effects = node.fetched(diverging=OffsetAndEpoch(1, 1))
    assert [e for e in effects if isinstance(e, TruncateLog)] == [TruncateLog(1)]
    (fetch,) = sent(effects, FetchRequest)
    assert (fetch.request.fetch_offset, fetch.request.last_fetched_epoch) == (1, 1)


def test_a_leader_that_lacks_committed_records_is_refused():
    node = Driven(epochs=[1, 1, 1]).follow(leader=2, epoch=1)
    node.fetched(hw=3)
    effects = node.fetched(diverging=OffsetAndEpoch(1, 1))
    (refused,) = [e for e in effects if isinstance(e, QuorumAlert)]
    assert "asks to truncate to 1, but the records up to 3 are committed" in refused.text
    assert node.core.refused_leader == refused.text
    assert not any(isinstance(e, TruncateLog) for e in effects)
    assert sent(effects, FetchRequest) == [], "it asks again later, not in a busy loop"
    node.wait(node.config.fetch_timeout_ms)
    # A leader that has the records is obeyed.
    node.fetched(hw=3)
    assert node.core.refused_leader == ""


@pytest.mark.parametrize(
    "answer",
    [{"diverging": OffsetAndEpoch(2, 1)}, {"snapshot": OffsetAndEpoch(9, 1)}],
    ids=["truncation", "snapshot"],
)
def test_a_refusal_ends_with_an_answer_that_is_obeyed(answer):
    node = Driven(epochs=[1, 1, 1]).follow(leader=2, epoch=1)
    node.fetched(hw=2)
    node.fetched(diverging=OffsetAndEpoch(1, 1))
    assert node.core.refused_leader != ""
    node.wait(node.config.fetch_timeout_ms)
    node.fetched(**answer)
    assert node.core.refused_leader == ""


def test_a_voter_that_comes_back_without_its_log_is_turned_away():
    """Its directory was put back from a copy of its first days; what it voted is forgotten."""
    node = Driven(is_dynamic=True).become_leader()
    end_offset = node.core.log.end_offset
    node.fetch_request(2, end_offset, 1)
    # One that was sent before the voter found this leader may come late.
    late = node.fetch_request(2, 0, 0)
    assert not any(isinstance(e, QuorumAlert) for e in late)
    node.fetch_request(2, end_offset, 1)
    for _ in range(LOST_LOG_FETCHES):
        effects = node.fetch_request(2, 0, 0)
    (alert,) = [e for e in effects if isinstance(e, QuorumAlert)]
    assert f"of which it had acknowledged {end_offset}" in alert.text
    assert "remove-voter" in alert.text
    (reply,) = [e for e in effects if isinstance(e, Reply)]
    assert reply.response.error is ErrorCode.INVALID_VOTER_KEY
    assert node.core.role.voters[2].end_offset == end_offset
    assert not [e for e in node.fetch_request(2, 0, 0) if isinstance(e, QuorumAlert)]
    # An observer may begin anew: it votes on nothing.
    node.fetch_request(9, end_offset, 1)
    assert not [e for e in node.fetch_request(9, 0, 0) if isinstance(e, QuorumAlert)]


def test_a_voter_of_a_static_quorum_may_come_back_empty():
    node = Driven().become_leader()
    node.fetch_request(2, node.core.log.end_offset, 1)
    assert not [e for e in node.fetch_request(2, 0, 0) if isinstance(e, QuorumAlert)]


def test_what_was_committed_before_a_restart_is_not_truncated():
    node = Driven(epochs=[1, 1, 1])
    node.core.config = dataclasses.replace(node.config, committed_offset=2)
    node.follow(leader=2, epoch=1)
    node.fetched(diverging=OffsetAndEpoch(1, 1))
    assert "the records up to 2 are committed" in node.core.refused_leader
    node.wait(node.config.fetch_timeout_ms)
    effects = node.fetched(diverging=OffsetAndEpoch(2, 1))
    assert any(isinstance(e, TruncateLog) for e in effects), "the rest may be truncated"


def test_an_observer_never_truncates():
    node = Driven(node_id=9, voters=(1, 2, 3), epochs=[1, 1, 1]).follow(leader=2, epoch=1)
    effects = node.fetched(diverging=OffsetAndEpoch(1, 1))
    assert "the records up to 3 are committed" in node.core.refused_leader
    assert not any(isinstance(e, TruncateLog) for e in effects)


def test_a_follower_asks_on_only_after_its_fsync():
    node = Driven().follow(leader=2)
    node.take()
    effects = node.fetched(spans=[BatchSpan(0, 4, 1)])
    assert sent(effects, FetchRequest) == []
    kinds = [type(e) for e in effects]
    assert kinds.index(AppendFetched) < kinds.index(FlushLog)
    (fetch,) = sent(node.flush(), FetchRequest)
    assert fetch.request.fetch_offset == 5


def test_a_former_leader_flushes_before_its_first_fetch_vouches_for_its_log():
    node = Driven().become_leader()
    node.propose(3)
    node.take()
    node.begin_epoch(2, 3)
    assert sent(node.take(), FetchRequest) == []
    (fetch,) = sent(node.flush(), FetchRequest)
    assert fetch.request.fetch_offset == 4


def test_a_stale_flush_does_not_let_a_follower_vouch():
    node = Driven(epochs=[1]).become_leader()
    node.propose(3)
    stale = node.core.log.generation
    node.begin_epoch(node.core.epoch + 1, 3)
    node.flush()
    node.fetched(leader=3, diverging=OffsetAndEpoch(1, 1))
    node.fetched(leader=3, spans=[BatchSpan(1, 6, node.core.epoch)])
    node.take()
    node.step(LogFlushed(7, stale))
    assert sent(node.take(), FetchRequest) == []


def test_an_observer_asks_on_without_waiting_for_a_disk():
    node = Driven(node_id=9).follow(leader=2)
    node.take()
    effects = node.fetched(spans=[BatchSpan(0, 4, 1)])
    assert sent(effects, FetchRequest) != []
    assert [e for e in effects if isinstance(e, FlushLog)] == []


def test_a_follower_takes_the_lesser_of_the_leaders_high_watermark_and_its_own_end():
    node = Driven().follow(leader=2)
    node.fetched(spans=[BatchSpan(0, 4, 1)], hw=9)
    assert node.core.high_watermark == 5
    node.flush()
    effects = node.fetched(hw=3)
    assert node.core.high_watermark == 5
    assert [e for e in effects if isinstance(e, HighWatermarkAdvanced)] == []


def test_an_answer_to_a_fetch_given_up_is_not_appended():
    node = Driven().follow(leader=2)
    first = node.core.role.correlation_id
    node.wait(node.config.request_timeout_ms)
    assert node.core.role.correlation_id != first

    late = FetchResponse(
        epoch=1, leader_id=2, high_watermark=0, spans=(BatchSpan(0, 0, 1),), records=b"x"
    )
    effects = node.step(ResponseReceived(2, first, late))
    assert [e for e in effects if isinstance(e, AppendFetched)] == []


def test_exactly_one_fetch_is_in_flight():
    node = Driven().follow(leader=2)
    for _ in range(3):
        node.wait(10)
    assert len(sent(node.take(SendRequest), FetchRequest)) == 1


def test_only_a_leader_appends():
    with pytest.raises(InvariantViolated, match="only a leader"):
        Driven().step(Propose((b"batch",), (1,)))


def test_batches_of_one_turn_are_one_append_and_one_flush():
    node = Driven().become_leader()
    effects = node.step(Propose((b"a", b"b", b"c"), (1, 2, 3)))
    assert [type(e) for e in effects] == [AppendProposed, FlushLog]
    assert node.core.log.end_offset == 7


def test_the_deadline_of_a_replaced_fetch_does_not_come_again_and_again():
    # Found by simulation, seed 42: a tick that answers nobody must leave a later deadline.
    node = Driven().become_leader()
    node.fetch_request(2, 1, 1)
    node.wait(100)
    node.fetch_request(2, 1, 1)
    node.wait(node.config.fetch_wait_max_ms - 100)
    assert node.core.next_deadline_ms() > node.now_ms
