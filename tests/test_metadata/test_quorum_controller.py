"""The controller over its log, step by step: the active controller, appended records, answered
requests."""

from __future__ import annotations

import random
from types import SimpleNamespace
from unittest import mock

import pytest

from kvorum.metadata.controller.core import quorum_controller
from kvorum.metadata.controller.core.controller import Controller, ControllerConfig, DecisionFailed
from kvorum.metadata.controller.core.leader_check import CHUNK_PAUSE_MS
from kvorum.metadata.controller.core.quorum_controller import AT_ONCE_MS, QuorumController
from kvorum.metadata.controller.decide import tokens
from kvorum.metadata.image.features import SUPPORTED
from kvorum.metadata.image.records import NO_LEADER, Endpoint
from kvorum.metadata.requests.controller_requests import (
    CreateTopics,
    Heartbeat,
    HeartbeatReply,
    ListReassignments,
    NewTopic,
    RegisterBrokerRequest,
)
from kvorum.metadata.requests.token_requests import CreateDelegationToken
from kvorum.raft.model.effects import LeaderChanged
from kvorum.raft.model.voters import VoterSet
from kvorum.raft.node.control_records import LeaderChange, leader_change_batch
from kvorum.runtime.errors import ErrorCode, InvariantViolated, Rejected
from kvorum.storage.format.batch import build_batch, stamp

EPOCH = 3
CREATE = CreateTopics(topics=(NewTopic(name="t", num_partitions=1, replication_factor=1),))


class Port:
    """A node that appends at once; records are committed only when the test says so."""

    node_id = 1
    leader_id = 1
    voter_ids = (1001, 1002, 1003)
    wall_ms = 0

    def __init__(self):
        self.batches = []  # (base offset, end offset, bytes)
        self.images = []
        self.notes = []

    @property
    def log(self):
        return self

    @property
    def next_offset(self):
        return self.batches[-1][1] if self.batches else 0

    def append(self, batch, count):
        base = self.next_offset
        data = bytearray(batch)
        stamp(data, 0, base_offset=base, leader_epoch=EPOCH)
        self.batches.append((base, base + count, bytes(data)))

    def append_control(self):
        voters = VoterSet.static((1, 2, 3))
        change = LeaderChange(leader_id=1, voters=voters, granting_voters=(1, 2))
        base = self.next_offset
        batch = leader_change_batch(change, base_offset=base, epoch=EPOCH, timestamp_ms=0)
        self.append(batch, 1)

    def propose(self, values):
        self.append(build_batch([(None, v) for v in values], timestamp_ms=0), len(values))

    def read(self, offset, *, bytes_max, end_offset):
        chosen, size = [], 0
        for base, end, data in self.batches:
            if base < offset or end > end_offset or (chosen and size + len(data) > bytes_max):
                continue
            chosen.append(data)
            size += len(data)
        return SimpleNamespace(read=lambda: b"".join(chosen))

    def on_image(self, image):
        self.images.append(image)

    def note(self, text, *, is_warning=False):
        self.notes.append(text)


class Story:
    def __init__(self, *, is_active=True, has_walked=True, **config):
        self.port = Port()
        self.controller = Controller(
            ControllerConfig(**config), cluster_id="c", rng=random.Random(1)
        )
        self.core = QuorumController(self.controller, self.port, chunk_bytes=1)
        self.now_ms = 0
        if is_active:
            self.lead()
            self.commit()
            self.run_turns()
            self.commit()
            if has_walked:
                self.core.on_timer(CHUNK_PAUSE_MS)

    def lead(self, epoch=EPOCH):
        start = self.port.next_offset
        self.port.append_control()
        change = LeaderChanged(leader_id=1, epoch=epoch, epoch_start_offset=start)
        self.core.on_leader_changed(change, self.now_ms)

    def depose(self):
        self.port.leader_id = 2
        change = LeaderChanged(leader_id=2, epoch=EPOCH + 1, epoch_start_offset=0)
        self.core.on_leader_changed(change, self.now_ms)

    def commit(self, end_offset=None):
        end = self.port.next_offset if end_offset is None else end_offset
        self.core.on_committed(end, self.now_ms)

    def run_turns(self):
        while self.core.next_deadline_ms() == AT_ONCE_MS:
            self.core.on_timer(self.now_ms)

    def submit(self, request, timeout_ms=1_000):
        replies = []
        self.core.submit(request, replies.append, timeout_ms=timeout_ms, now_ms=self.now_ms)
        return replies

    def at(self, now_ms):
        self.now_ms = now_ms
        self.core.on_timer(now_ms)

    def join(self, broker_id):
        request = RegisterBrokerRequest(
            broker_id=broker_id,
            cluster_id="c",
            incarnation_id=bytes([broker_id]) * 16,
            endpoints=(Endpoint("PLAINTEXT", "h", 1),),
            features=SUPPORTED,
        )
        replies = self.submit(request)
        self.commit()
        (registered,) = replies
        self.beat(broker_id, registered.broker_epoch)
        self.commit()
        return registered.broker_epoch

    def beat(self, broker_id, epoch):
        beat = Heartbeat(broker_id=broker_id, broker_epoch=epoch, metadata_offset=1 << 40)
        return self.submit(beat)


def code_of(replies):
    (reply,) = replies
    assert isinstance(reply, Rejected)
    return reply.code


def test_a_reply_waits_for_the_commit_of_its_records():
    story = Story()
    story.join(1)
    replies = story.submit(CREATE)
    assert replies == []
    story.commit(story.port.next_offset - 1)
    assert replies == []
    story.commit()
    assert replies[0][0].error is ErrorCode.NONE
    assert story.controller.committed.topic("t") is not None


def test_a_reply_without_records_waits_for_what_was_decided_before_it():
    story = Story()
    story.join(1)
    story.submit(CREATE)
    read = story.submit(ListReassignments())
    assert read == []
    story.commit()
    assert read == [()]
    assert story.submit(ListReassignments()) == [()]  # nothing is open any more


def test_a_reply_does_not_ride_on_what_the_controller_decided_just_before():
    story = Story()
    epoch = story.join(1)
    story.join(2)
    story.core.stream_broke(1, epoch, story.core.stream_began(1, epoch), 10)
    story.at(110)
    fenced_end = story.port.next_offset
    replies = story.submit(CREATE)
    story.commit(fenced_end)
    assert replies == []
    story.commit()
    assert len(replies) == 1


def test_who_is_deposed_answers_nobody_from_what_may_vanish():
    story = Story()
    story.join(1)
    replies = story.submit(CREATE)
    story.depose()
    assert code_of(replies) is ErrorCode.NOT_CONTROLLER
    assert story.controller.speculative is None
    assert code_of(story.submit(CREATE)) is ErrorCode.NOT_CONTROLLER


def test_a_request_that_is_not_committed_in_time_is_told_so_once():
    story = Story()
    story.join(1)
    soon, late = story.submit(CREATE, 50), story.submit(ListReassignments(), 10_000)
    assert story.core.next_deadline_ms() == 50
    story.at(49)
    assert soon == []
    story.at(50)
    assert code_of(soon) is ErrorCode.REQUEST_TIMED_OUT
    assert late == []
    story.commit()
    assert len(soon) == 1
    assert late == [()]
    assert story.controller.committed.topic("t") is not None  # the topic was created nevertheless


def test_answered_requests_leave_no_deadlines_behind():
    story = Story()
    for _ in range(50):
        story.submit(CREATE)
        story.submit(ListReassignments())
        story.commit()
    assert story.core.next_deadline_ms() >= 1_000  # of the periodic check, no request's
    assert story.core._deadlines == []


def test_a_bug_in_a_decision_costs_the_request_and_changes_nothing(monkeypatch):
    """Bad sequence: 1. A request ends the active controller. 2. The next one gets it, and ends as
    well."""
    story = Story()
    story.join(1)
    before = story.controller.speculative

    def raising(*_):
        raise ValueError("digits")

    monkeypatch.setattr("kvorum.metadata.controller.core.controller.create_topics", raising)
    with pytest.raises(DecisionFailed):
        story.submit(CREATE)
    monkeypatch.undo()
    assert story.controller.speculative is before
    assert story.port.next_offset == before.end_offset
    replies = story.submit(CREATE)
    story.commit()
    assert replies[0][0].error == ErrorCode.NONE


def test_a_broken_invariant_and_a_bug_behind_the_decision_end_the_process(monkeypatch):
    story = Story()
    story.join(1)

    def violated(*_):
        raise InvariantViolated("ours")

    def raising(*_):
        raise ValueError("ours")

    monkeypatch.setattr("kvorum.metadata.controller.core.controller.create_topics", violated)
    with pytest.raises(InvariantViolated):
        story.submit(CREATE)
    monkeypatch.undo()
    for where in (
        "kvorum.metadata.controller.core.controller.Delta",
        "kvorum.metadata.controller.core.quorum_controller.encode_records",
    ):
        monkeypatch.setattr(where, raising)
        with pytest.raises(ValueError, match="ours"):
            story.submit(CREATE)
        monkeypatch.undo()


def test_requests_in_flight_are_limited(monkeypatch):
    monkeypatch.setattr(quorum_controller, "PARKED_MAX", 2)
    story = Story()
    story.join(1)
    story.submit(CREATE)
    story.submit(ListReassignments())
    assert code_of(story.submit(ListReassignments())) is ErrorCode.THROTTLING_QUOTA_EXCEEDED


def test_a_leader_claims_once_the_first_record_of_its_epoch_is_committed():
    story = Story(is_active=False)
    story.lead()
    assert not story.controller.is_active
    assert code_of(story.submit(CREATE)) is ErrorCode.NOT_CONTROLLER
    story.commit()
    assert story.controller.is_active
    assert story.port.notes == ["node=1 claims epoch=3"]


def test_a_log_is_applied_chunk_by_chunk_and_claimed_at_its_end():
    story = Story()
    story.join(1)
    story.submit(CREATE)
    story.depose()
    other = Story(is_active=False)
    other.port.batches = list(story.port.batches)
    other.lead(EPOCH + 2)
    other.commit()
    turns = 0
    while other.core.next_deadline_ms() == AT_ONCE_MS:
        assert not other.controller.is_active
        other.core.on_timer(0)
        turns += 1
    assert turns >= 2
    assert other.controller.is_active
    assert other.controller.committed.topic("t") is not None


def test_a_change_of_the_voters_before_the_claim_is_no_obstacle():
    # Bad sequence, found by the simulator: 1. The first record of a leader's epoch is committed. 2.
    # The controller is still applying the log. 3. An operator adds a voter, and the quorum appends
    # its record. 4. The controller has applied all committed records and claims, though the log
    # ends above them.
    story = Story()
    story.join(1)
    other = Story(is_active=False)
    other.port.batches = list(story.port.batches)
    other.lead(EPOCH + 2)
    other.commit()
    assert other.core.next_deadline_ms() == AT_ONCE_MS
    other.port.append_control()
    other.run_turns()
    assert other.controller.is_active
    replies = other.submit(CREATE)
    other.commit()
    assert len(replies) == 1
    assert other.controller.committed.end_offset == other.port.next_offset


def test_nothing_is_applied_or_claimed_while_a_snapshot_is_loaded():
    story = Story()
    story.join(1)
    other = Story(is_active=False)
    other.core.on_loading()
    other.port.batches = list(story.port.batches)
    other.lead(EPOCH + 2)
    other.commit()
    assert other.core.next_deadline_ms() is None
    assert not other.controller.is_active
    other.core.on_loaded(story.controller.committed, 0)
    other.run_turns()
    assert other.controller.is_active
    assert 1 in other.controller.committed.brokers


def test_a_broker_whose_stream_broke_is_fenced_when_its_grace_is_over():
    story = Story()
    epoch = story.join(1)
    serial = story.core.stream_began(1, epoch)
    story.core.stream_broke(1, epoch, serial, 10)
    assert story.core.next_deadline_ms() == 110
    story.at(110)
    story.commit()
    assert story.controller.committed.brokers[1].is_fenced
    assert "broker=1 is fenced: its heartbeat stream broke and did not come back" in (
        story.port.notes
    )


def test_a_timer_that_comes_late_blames_nobody():
    story = Story()
    epoch = story.join(1)
    serial = story.core.stream_began(1, epoch)
    story.core.stream_broke(1, epoch, serial, 10)
    story.at(3_000)  # this process stood still: the heartbeats lie in its sockets
    (reply,) = story.beat(1, epoch)
    assert not story.controller.committed.brokers[1].is_fenced
    assert reply == HeartbeatReply(is_caught_up=True, is_fenced=False)


def test_streams_of_ids_that_nobody_registered_leave_nothing_behind():
    story = Story()
    for broker_id in range(100, 200):
        assert story.core.stream_began(broker_id, 5) == 0
    assert story.controller.sessions._streams == {}


@pytest.mark.parametrize("interval_s", [1, 5])
def test_the_periodic_check_comes_every_interval_while_active(interval_s):
    story = Story(leader_imbalance_check_interval_seconds=interval_s, has_walked=False)
    due_ms = CHUNK_PAUSE_MS
    for _ in range(4):
        assert story.core.next_deadline_ms() == due_ms
        story.at(due_ms)
        due_ms += interval_s * 1_000
    story.depose()
    assert story.core.next_deadline_ms() is None


def test_expired_tokens_are_removed_every_interval_while_active(monkeypatch):
    monkeypatch.setattr(tokens, "REMOVED_AT_ONCE_MAX", 2)
    story = Story(delegation_token_secret_key="key", delegation_token_expiry_check_interval_ms=700)
    asked = CreateDelegationToken(requester="User:a", owner="User:a", max_lifetime_ms=10)
    for _ in range(3):
        story.submit(asked)
    story.commit()

    def left():
        story.commit()
        return len(story.controller.committed.delegation_tokens)

    # The check at the claim is over. All three tokens expire, and are removed in two batches.
    story.port.wall_ms = 11
    story.at(CHUNK_PAUSE_MS + 699)
    assert left() == 3
    assert story.core.next_deadline_ms() == CHUNK_PAUSE_MS + 700
    story.at(CHUNK_PAUSE_MS + 700)
    assert left() == 1
    assert story.core.next_deadline_ms() == 2 * CHUNK_PAUSE_MS + 700
    story.at(2 * CHUNK_PAUSE_MS + 700)
    assert left() == 0
    assert "delegation_tokens_removed=2" in story.port.notes
    story.depose()
    assert story.core.next_deadline_ms() is None


def test_who_takes_over_removes_expired_tokens_at_once():
    story = Story(delegation_token_secret_key="key")
    story.submit(CreateDelegationToken(requester="User:a", owner="User:a", max_lifetime_ms=10))
    story.commit()
    other = led_by_the_next(story, story.port.batches)
    other.port.wall_ms = 11
    other.at(CHUNK_PAUSE_MS)
    other.commit()
    assert not other.controller.committed.delegation_tokens


def led_by_the_next(story, batches):
    other = Story(is_active=False)
    other.port.batches = list(batches)
    other.lead(EPOCH + 2)
    other.commit()
    other.run_turns()
    other.commit()
    return other


def test_who_takes_over_in_the_midst_of_an_unfencing_elects_the_rest_at_once(monkeypatch):
    story = Story()
    epoch = story.join(1)
    story.submit(CREATE)
    story.commit()
    story.at(story.controller.sessions.next_deadline_ms())
    story.commit()
    fenced_at = len(story.port.batches)
    monkeypatch.setattr(quorum_controller, "RECORDS_PER_BATCH_MAX", 1)
    story.beat(1, epoch)
    assert len(story.port.batches) == fenced_at + 2
    other = led_by_the_next(story, story.port.batches[:-1])
    partition = other.controller.committed.topic("t").partitions[0]
    assert other.controller.committed.brokers[1].is_active
    assert partition.leader == NO_LEADER
    other.at(CHUNK_PAUSE_MS)
    other.commit()
    assert other.controller.committed.topic("t").partitions[0].leader == 1


def test_who_takes_over_leaves_the_leaders_that_there_are_for_an_interval(monkeypatch):
    story = Story(has_walked=False)
    asked = mock.Mock(wraps=story.controller.sweep_leaders)
    monkeypatch.setattr(story.controller, "sweep_leaders", asked)
    for _ in range(2):
        story.at(story.core.next_deadline_ms())
    assert asked.mock_calls == [mock.call(None, only_missing=flag) for flag in (True, False)]
