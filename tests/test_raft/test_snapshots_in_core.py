"""Snapshots as the core sees them (KIP-630): taking, trimming, serving, fetching; a rule a test."""

import dataclasses

import pytest

from kvorum.raft.model.effects import (
    DropSnapshots,
    FinishSnapshot,
    HighWatermarkAdvanced,
    ReplaceLog,
    Reply,
    ReplyWithSnapshot,
    SendRequest,
    WriteSnapshotChunk,
)
from kvorum.raft.model.events import (
    RequestFailed,
    ResponseReceived,
    SnapshotChunkWritten,
    SnapshotReceived,
    SnapshotsExpired,
    SnapshotTaken,
)
from kvorum.raft.model.messages import FetchRequest, FetchSnapshotRequest, FetchSnapshotResponse
from kvorum.raft.model.values import BatchSpan, OffsetAndEpoch
from kvorum.runtime.errors import ErrorCode, InvariantViolated
from tests.test_raft.driver import CLUSTER, Driven, sent, voter_set

SNAPSHOT = OffsetAndEpoch(10, 1)


def leading(records=20, snapshots=()):
    """Node 1 leads epoch 2 over entries of epoch 1, all committed."""
    count = records - (snapshots[0].offset if snapshots else 0)
    node = Driven(epochs=[1] * count, snapshots=snapshots).become_leader()
    node.flush()
    node.fetch_request(2, records + 1, 2)
    assert node.core.high_watermark == records + 1
    node.take()
    return node


def fetching(is_dynamic=False):
    """Node 1 follows leader 2 with one record and has been offered a snapshot."""
    node = Driven(epochs=[1], is_dynamic=is_dynamic).follow()
    node.take()
    node.fetched(snapshot=SNAPSHOT)
    return node


def ask_piece(node, snapshot=SNAPSHOT, *, position=0, epoch=None, bytes_max=100):
    return node.ask(
        FetchSnapshotRequest(
            cluster_id=CLUSTER,
            epoch=node.core.epoch if epoch is None else epoch,
            replica_id=2,
            snapshot=snapshot,
            position=position,
            bytes_max=bytes_max,
        )
    )


def piece(node, data=b"12345678", *, position=0, size=16, error=ErrorCode.NONE, leader=2):
    """Answer the request for a piece in flight."""
    response = FetchSnapshotResponse(
        epoch=node.core.epoch,
        leader_id=leader,
        error=error,
        position=position,
        size=size,
        data=data,
    )
    return node.step(ResponseReceived(leader, node.core.role.correlation_id, response))


def written(node, end_position):
    return node.step(SnapshotChunkWritten(SNAPSHOT, end_position))


def all_pieces(node):
    """Both pieces come and are written; the check begins."""
    piece(node)
    written(node, 8)
    piece(node, position=8)
    return written(node, 16)


# Taking and trimming.


def test_the_first_snapshot_trims_the_log_and_later_ones_wait_for_retention():
    node = leading()
    effects = node.step(SnapshotTaken(SNAPSHOT))
    assert [e for e in effects if isinstance(e, DropSnapshots)] == [DropSnapshots((), 10)]
    assert node.core.log.start_offset == 10
    assert node.step(SnapshotTaken(OffsetAndEpoch(15, 1))) == []
    assert node.core.log.start_offset == 10


def test_retention_drops_the_oldest_and_never_the_newest():
    node = leading()
    for offset in (10, 15, 18):
        node.step(SnapshotTaken(OffsetAndEpoch(offset, 1)))
    effects = node.step(SnapshotsExpired(1))
    assert effects == [DropSnapshots((SNAPSHOT,), 15)]
    effects = node.step(SnapshotsExpired(9))
    assert effects == [DropSnapshots((OffsetAndEpoch(15, 1),), 18)]
    assert node.step(SnapshotsExpired(1)) == []


def test_a_snapshot_above_the_high_watermark_is_a_bug():
    node = leading()
    with pytest.raises(InvariantViolated):
        node.step(SnapshotTaken(OffsetAndEpoch(22, 2)))


def test_a_snapshot_with_an_epoch_that_the_log_does_not_have_there_is_a_bug():
    node = leading()
    with pytest.raises(InvariantViolated):
        node.step(SnapshotTaken(OffsetAndEpoch(10, 2)))


def test_an_own_snapshot_older_than_the_one_that_came_meanwhile_is_ignored():
    node = Driven(epochs=[1] * 12, snapshots=(SNAPSHOT,))
    assert node.step(SnapshotTaken(OffsetAndEpoch(7, 1))) == []
    assert node.core.log.snapshots == [SNAPSHOT]


def test_what_a_snapshot_holds_is_committed_after_a_restart():
    assert Driven(epochs=[1, 1], snapshots=(SNAPSHOT,)).core.high_watermark == 10


# Serving.


@pytest.mark.parametrize(
    ("offset", "epoch", "is_behind"),
    [(0, 0, True), (9, 1, True), (15, 0, True), (10, 1, False), (15, 1, False)],
)
def test_a_fetch_of_what_was_trimmed_is_answered_with_the_newest_snapshot(offset, epoch, is_behind):
    node = leading(snapshots=(SNAPSHOT, OffsetAndEpoch(12, 1)))
    node.fetch_request(3, offset, epoch)
    answers = [e.response.snapshot for e in node.take(Reply)]
    assert answers == ([OffsetAndEpoch(12, 1)] if is_behind else [])


def test_a_fetch_that_is_behind_tells_nothing_of_what_the_replica_has():
    node = leading(snapshots=(SNAPSHOT,))
    node.fetch_request(3, 15, 0)
    assert node.core.role.voters[3].end_offset == -1


def test_a_piece_is_cut_to_the_leaders_limit():
    node = leading(snapshots=(SNAPSHOT,))
    effects = ask_piece(node, position=5, bytes_max=1 << 40)
    assert effects[-1] == ReplyWithSnapshot(
        effects[-1].token, 2, 1, SNAPSHOT, 5, node.config.snapshot_chunk_bytes
    )


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"snapshot": OffsetAndEpoch(10, 2)}, ErrorCode.SNAPSHOT_NOT_FOUND),
        ({"position": -1}, ErrorCode.INVALID_REQUEST),
        ({"bytes_max": 0}, ErrorCode.INVALID_REQUEST),
        ({"epoch": 1}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"epoch": 3}, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_a_piece_is_refused(fields, error):
    effects = ask_piece(leading(snapshots=(SNAPSHOT,)), **fields)
    assert [e.response.error for e in effects if isinstance(e, Reply)] == [error]


def test_a_follower_serves_no_piece():
    effects = ask_piece(Driven(epochs=[1], snapshots=(SNAPSHOT,)).follow())
    assert effects[-1].response.error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_voter_that_fetches_a_snapshot_keeps_the_quorum_alive():
    node = leading(snapshots=(SNAPSHOT,))
    for _ in range(5):
        node.now_ms += node.config.check_quorum_timeout_ms // 2
        ask_piece(node)
        node.wait(0)
    assert node.role == "Leader"


# Fetching.


def test_an_offered_snapshot_is_asked_for_from_its_beginning():
    request = sent(fetching().effects, FetchSnapshotRequest)[-1].request
    assert (request.snapshot, request.position) == (SNAPSHOT, 0)


def test_the_next_piece_is_asked_for_once_the_last_is_written():
    node = fetching()
    node.take()
    effects = piece(node)
    assert [e for e in effects if isinstance(e, WriteSnapshotChunk | SendRequest)] == [
        WriteSnapshotChunk(SNAPSHOT, 0, b"12345678")
    ]
    effects = written(node, 8)
    assert sent(effects, FetchSnapshotRequest)[0].request.position == 8


def test_a_piece_counts_as_word_from_the_leader():
    node = fetching()
    node.now_ms += node.config.fetch_timeout_ms // 2
    piece(node)
    assert node.core.role.fetch_deadline_ms >= node.now_ms + node.config.fetch_timeout_ms


def test_the_last_piece_is_followed_by_the_check_and_no_request():
    effects = all_pieces(fetching())
    assert effects == [FinishSnapshot(SNAPSHOT)]


def test_a_good_snapshot_replaces_the_log_and_the_fetch_goes_on_behind_it():
    node = fetching()
    all_pieces(node)
    effects = node.step(SnapshotReceived(SNAPSHOT, True))
    kinds = [e for e in effects if isinstance(e, ReplaceLog | HighWatermarkAdvanced)]
    assert kinds == [ReplaceLog(SNAPSHOT), HighWatermarkAdvanced(10)]
    request = sent(effects, FetchRequest)[0].request
    assert (request.fetch_offset, request.last_fetched_epoch) == (10, 1)
    assert (node.core.log.start_offset, node.core.log.end_offset) == (10, 10)


def test_a_damaged_snapshot_leaves_the_log_alone_and_is_fetched_anew_after_a_pause():
    node = fetching()
    all_pieces(node)
    effects = node.step(SnapshotReceived(SNAPSHOT, False))
    assert sent(effects, FetchRequest) == []
    node.now_ms += node.config.election_timeout_ms
    assert sent(node.wait(0), FetchRequest)[0].request.fetch_offset == 1
    node.fetched(snapshot=SNAPSHOT)
    assert sent(node.effects, FetchSnapshotRequest)[-1].request.position == 0


def test_the_voters_of_a_snapshot_are_in_force():
    node = fetching(is_dynamic=True)
    all_pieces(node)
    node.step(SnapshotReceived(SNAPSHOT, True, voter_set(1, 2)))
    assert node.core.voter_set == voter_set(1, 2)
    assert node.core.log.voters.entries == [(9, voter_set(1, 2))]


def test_a_lost_connection_goes_on_where_it_was():
    node = fetching()
    piece(node)
    written(node, 8)
    node.step(RequestFailed(2, node.core.role.correlation_id))
    node.now_ms = node.core.role.retry_at_ms
    node.wait(0)
    node.fetched(snapshot=SNAPSHOT)
    assert sent(node.effects, FetchSnapshotRequest)[-1].request.position == 8


def test_another_leader_goes_on_where_the_last_was():
    node = fetching()
    piece(node)
    written(node, 8)
    node.begin_epoch(2, 3)
    node.fetched(leader=3, snapshot=SNAPSHOT)
    send = sent(node.effects, FetchSnapshotRequest)[-1]
    assert (send.receiver_id, send.request.epoch, send.request.position) == (3, 2, 8)


def test_a_transfer_goes_on_although_a_newer_snapshot_is_offered():
    node = fetching()
    piece(node)
    written(node, 8)
    node.begin_epoch(2, 3)
    node.fetched(leader=3, snapshot=OffsetAndEpoch(12, 1))
    assert sent(node.effects, FetchSnapshotRequest)[-1].request.snapshot == SNAPSHOT


@pytest.mark.parametrize("error", [ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE])
def test_a_snapshot_that_is_gone_is_given_up_and_the_leader_asked_again(error):
    node = fetching()
    effects = piece(node, b"", size=0, error=error)
    assert sent(effects, FetchRequest) == []
    assert node.core.snapshot_fetch is None
    node.now_ms = node.core.role.retry_at_ms
    assert sent(node.wait(0), FetchRequest)[0].request.fetch_offset == 1


def test_a_log_that_can_be_continued_after_all_ends_the_transfer():
    node = fetching()
    piece(node)
    written(node, 8)
    node.begin_epoch(2, 3)
    node.fetched(leader=3, spans=[BatchSpan(1, 4, 1)])
    assert node.core.snapshot_fetch is None
    assert node.core.log.end_offset == 5


@pytest.mark.parametrize(
    ("position", "data"), [(8, b"12345678"), (0, b""), (3, b"x")], ids=["late", "empty", "other"]
)
def test_a_piece_that_is_not_the_next_is_not_written(position, data):
    node = fetching()
    effects = piece(node, data, position=position)
    assert not any(isinstance(e, WriteSnapshotChunk) for e in effects)
    assert node.core.role.retry_at_ms == node.now_ms + node.config.retry_backoff_ms


def test_an_answer_to_a_request_given_up_is_not_written():
    node = fetching()
    stale = FetchSnapshotResponse(epoch=1, leader_id=2, position=0, size=16, data=b"12345678")
    effects = node.step(ResponseReceived(2, node.core.role.correlation_id - 1, stale))
    assert effects == []


def test_a_disk_that_is_slow_is_not_given_a_second_piece():
    node = fetching()
    piece(node)
    node.take()
    node.now_ms += node.config.request_timeout_ms
    node.wait(0)
    assert node.take(SendRequest) == []
    assert sent(written(node, 8), FetchSnapshotRequest)


def test_word_of_a_piece_of_a_transfer_given_up_is_ignored():
    node = fetching()
    piece(node)
    node.begin_epoch(2, 3)
    node.fetched(leader=3, spans=[BatchSpan(1, 4, 1)])
    node.take()
    assert written(node, 8) == []
    # The log does not know it: retention would count it in place of a good older one.
    assert node.step(SnapshotReceived(SNAPSHOT, True)) == [DropSnapshots((SNAPSHOT,), 0)]
    assert node.core.log.end_offset == 5


def test_a_leader_gives_up_its_transfer():
    node = fetching()
    piece(node)
    node.core.role.stand_at_ms = node.now_ms
    node.wait(0)
    node.answer_votes(2, 3)
    node.answer_votes(2, 3)
    assert node.role == "Leader"
    assert node.core.snapshot_fetch is None
    # The log does not know it: retention would count it in place of a good older one.
    assert node.step(SnapshotReceived(SNAPSHOT, True)) == [DropSnapshots((SNAPSHOT,), 0)]


def test_an_offer_below_what_is_committed_is_not_taken():
    node = Driven(epochs=[1] * 12, snapshots=(SNAPSHOT,)).follow()
    node.take()
    node.fetched(snapshot=SNAPSHOT)
    assert sent(node.effects, FetchSnapshotRequest) == []
    assert "records up to 10 are committed" in node.core.refused_leader
    assert node.core.role.retry_at_ms == node.now_ms + node.config.fetch_timeout_ms


def test_an_offer_below_what_was_committed_before_the_start_is_not_taken():
    node = Driven(epochs=[1] * 12).follow()
    node.core.config = dataclasses.replace(node.config, committed_offset=11)
    node.take()
    node.fetched(snapshot=OffsetAndEpoch(10, 1))
    assert sent(node.effects, FetchSnapshotRequest) == []
    assert "records up to 11 are committed" in node.core.refused_leader


@pytest.mark.parametrize(("position", "size"), [(0, 7), (0, 0)], ids=["too long", "no size"])
def test_a_piece_that_reaches_beyond_the_file_is_not_written(position, size):
    node = fetching()
    effects = piece(node, position=position, size=size)
    assert not any(isinstance(e, WriteSnapshotChunk) for e in effects)


# Found in review.


def checked_while_a_fetch_was_in_flight():
    """1. All pieces are written, and the check is under way. 2. Leader 3 of a new epoch is asked
    for the records after offset 1. 3. The check ends, and the log begins again at 10. Returns the
    fetch of step 2."""
    node = fetching()
    all_pieces(node)
    node.begin_epoch(2, 3)
    stale = node.core.role.correlation_id
    assert stale > 0
    node.take()
    node.step(SnapshotReceived(SNAPSHOT, True))
    return node, stale


def test_a_fetch_of_the_old_log_is_not_waited_for():
    node, stale = checked_while_a_fetch_was_in_flight()
    fetch = sent(node.take(), FetchRequest)[-1]
    assert fetch.request.fetch_offset == 10
    assert node.core.role.correlation_id == fetch.correlation_id != stale


@pytest.mark.parametrize(
    "answer",
    [
        {"spans": [BatchSpan(1, 12, 1)]},
        {"diverging": OffsetAndEpoch(0, 0)},
        {"snapshot": SNAPSHOT},
    ],
    ids=lambda answer: next(iter(answer)),
)
def test_no_answer_to_a_fetch_of_the_old_log_is_taken(answer):
    node, stale = checked_while_a_fetch_was_in_flight()
    node.take()
    node.fetched(leader=3, correlation_id=stale, **answer)
    assert node.effects == []
    assert node.core.log.end_offset == 10


def test_the_same_leader_may_be_asked_while_a_slow_disk_checks():
    # The check outlasts the fetch timeout. 1. The node asks for pre-votes. 2. The other voters have
    # their leader and refuse. 3. The node goes back to the leader and fetches. 4. The check ends.
    # 5. The leader's answer offers the same snapshot.
    node = fetching()
    all_pieces(node)
    node.take()
    node.now_ms = node.core.role.fetch_deadline_ms
    node.wait(0)
    assert node.role == "Prospective"
    node.answer_votes(reason="leader alive")
    node.wait(0)
    assert node.role == "Follower"
    stale = node.core.role.correlation_id
    node.step(SnapshotReceived(SNAPSHOT, True))
    assert sent(node.take(), FetchRequest)[-1].request.fetch_offset == 10
    node.fetched(snapshot=SNAPSHOT, correlation_id=stale)
    assert node.effects == []


def test_a_candidate_whose_log_begins_anew_gives_up_its_round():
    node = fetching()
    all_pieces(node)
    node.now_ms = node.core.role.fetch_deadline_ms
    node.wait(0)
    node.answer_votes(2)
    assert node.role == "Candidate"
    node.step(SnapshotReceived(SNAPSHOT, True))
    assert node.role == "Unattached"
    assert (node.core.epoch, node.core.voted_id) == (2, 1)


def test_a_round_given_up_for_a_snapshot_does_not_forget_the_leader_of_the_epoch():
    # KIP-595: transitions within an epoch never lose the vote or the leader.
    node = fetching()
    all_pieces(node)
    node.now_ms = node.core.role.fetch_deadline_ms
    node.wait(0)
    node.step(SnapshotReceived(SNAPSHOT, True))
    assert (node.core.epoch, node.core.persisted_leader_id) == (1, 2)


def test_a_truncation_that_gains_nothing_is_refused():
    # No sound leader can lack the epoch of a committed snapshot. If one did, this node would fetch
    # and truncate in a busy loop instead of reporting it.
    node = Driven(snapshots=(OffsetAndEpoch(10, 3),)).follow(epoch=4)
    node.take()
    effects = node.fetched(diverging=OffsetAndEpoch(5, 1))
    assert "lacks an epoch of this node's base" in node.core.refused_leader
    assert sent(effects, FetchRequest) == []
