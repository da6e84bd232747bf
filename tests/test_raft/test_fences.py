"""Messages that a node ignores, votes that it does not count, files that it does not keep."""

from __future__ import annotations

import pytest

from kvorum.raft.model.effects import AppendFetched, TimelineEntry
from kvorum.raft.model.events import SnapshotTaken
from kvorum.raft.model.log_tail import LogTail
from kvorum.raft.model.values import BatchSpan, OffsetAndEpoch
from kvorum.runtime.errors import ErrorCode, InvariantViolated
from tests.test_raft.driver import Driven, replies


def test_a_leader_of_an_older_epoch_makes_itself_known_in_vain():
    node = Driven(1).follow(leader=2, epoch=5)
    node.take()
    node.begin_epoch(4, 3)
    (reply,) = replies(node.effects)
    assert reply.response.error is ErrorCode.FENCED_LEADER_EPOCH
    assert (reply.response.epoch, reply.response.leader_id) == (5, 2)
    assert (node.core.epoch, node.core.leader_id) == (5, 2)


def test_a_follower_gives_no_vote_in_the_epoch_of_its_leader():
    node = Driven(1).follow(leader=2, epoch=5)
    response = node.vote_request(epoch=5, candidate=3, end_offset=10, last_epoch=4)
    assert not response.is_granted
    assert node.core.voted_id == -1


def test_what_was_truncated_is_not_vouched_for():
    log = LogTail()
    for offset in range(10):
        log.append(BatchSpan(offset, offset, 1))
    assert log.flushed(10, log.generation)
    log.truncate(4)
    assert log.flushed_end_offset == 4
    log.append(BatchSpan(4, 9, 2))
    assert log.flushed_end_offset == 4


def test_a_snapshot_above_the_high_watermark_is_a_bug():
    node = Driven(1, epochs=[1, 1, 1]).follow(epoch=1)
    node.fetched(hw=2)
    assert node.core.high_watermark == 2
    with pytest.raises(InvariantViolated, match="above the high watermark 2"):
        node.step(SnapshotTaken(OffsetAndEpoch(3, 1)))


@pytest.mark.parametrize(
    "spans",
    [
        [BatchSpan(4, 5, 1)],
        [BatchSpan(2, 4, 1)],
        [BatchSpan(3, 2, 1)],
        [BatchSpan(3, 3, 0)],
        [BatchSpan(3, 3, 9)],
        [BatchSpan(3, 4, 1), BatchSpan(6, 6, 1)],
    ],
    ids=["gap", "overlap", "backwards", "older-epoch", "epoch-of-the-future", "gap-between"],
)
def test_records_that_do_not_continue_the_log_are_left_and_asked_for_again(spans):
    node = Driven(1, epochs=[1, 1, 1]).follow(epoch=1)
    node.take()
    node.fetched(spans=spans)
    assert not any(isinstance(effect, AppendFetched) for effect in node.effects)
    assert any("do not fit here" in e.text for e in node.effects if isinstance(e, TimelineEntry))
    assert node.core.log.end_offset == 3
    node.pass_deadline()
    assert node.role == "Follower"
    assert node.core.role.correlation_id >= 0
