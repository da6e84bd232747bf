"""A core under test: effects kept, messages made short."""

from __future__ import annotations

import random

from kvorum.raft.core.raft_core import RaftCore
from kvorum.raft.model.effects import PersistVoteState, Reply, ReplyWithRecords, SendRequest
from kvorum.raft.model.events import LogFlushed, Propose, RequestReceived, ResponseReceived, Tick
from kvorum.raft.model.log_tail import LogTail
from kvorum.raft.model.messages import (
    BeginQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    VoteRequest,
    VoteResponse,
)
from kvorum.raft.model.values import BatchSpan, RaftConfig, VoteState
from kvorum.raft.model.voters import Voter, VoterSet
from kvorum.runtime.ids import UUID_ZERO

CLUSTER = "test"


def disk_of(node_id, letter="a"):
    """Directory id of a node's disk; another letter after it was wiped."""
    return bytes(14) + bytes((node_id, ord(letter)))


def voter(node_id, letter="a", *, port=None):
    port = 9000 + node_id if port is None else port
    return Voter(node_id, disk_of(node_id, letter), f"host{node_id}", port)


def voter_set(*node_ids):
    return VoterSet.of(map(voter, node_ids))


class Driven:
    """One core, its clock, and what it has emitted since `take`.

    is_dynamic: `voters` stand in the log's bootstrap instead of in the configuration.
    """

    def __init__(
        self,
        node_id=1,
        voters=(1, 2, 3),
        *,
        epochs=(),
        vote=None,
        seed=0,
        is_dynamic=False,
        snapshots=(),
        now_ms=0,
        bootstrap_ids=(),
    ):
        start_offset = snapshots[0].offset if snapshots else 0
        log = LogTail(
            end_offset=start_offset,
            snapshots=snapshots,
            voter_sets=[(start_offset - 1, voter_set(*voters))] if is_dynamic else (),
        )
        for offset, epoch in enumerate(epochs, start_offset):
            log.append(BatchSpan(offset, offset, epoch))
        log.flushed_end_offset = log.end_offset
        self.now_ms = now_ms
        own = voter(node_id)
        dynamic = {"directory_id": own.directory_id, "address": (own.host, own.port)}
        self.config = RaftConfig(
            node_id=node_id,
            cluster_id=CLUSTER,
            bootstrap_ids=bootstrap_ids,
            **(dynamic if is_dynamic else {"voters": tuple(voters)}),
        )
        self.core = RaftCore(
            self.config,
            vote_state=vote or VoteState(),
            log=log,
            rng=random.Random(seed),
            now_ms=now_ms,
        )
        self.effects = []
        self.tokens = 0

    @property
    def is_dynamic(self):
        return self.config.is_dynamic

    @property
    def role(self):
        return type(self.core.role).__name__

    def step(self, event):
        new = self.core.step(event, self.now_ms)
        self.effects += new
        return new

    def pass_deadline(self):
        self.now_ms = self.core.next_deadline_ms()
        return self.step(Tick())

    def wait(self, ms):
        self.now_ms += ms
        return self.step(Tick())

    def take(self, *kinds):
        found = [e for e in self.effects if isinstance(e, kinds)] if kinds else self.effects
        self.effects = []
        return found

    def ask(self, request):
        self.tokens += 1
        return self.step(RequestReceived(request, self.tokens))

    def vote_request(
        self,
        *,
        epoch,
        candidate=2,
        last_epoch=0,
        end_offset=0,
        pre_vote=False,
        voter_directory_id=UUID_ZERO,
    ):
        effects = self.ask(
            VoteRequest(
                cluster_id=CLUSTER,
                epoch=epoch,
                candidate_id=candidate,
                voter_id=self.config.node_id,
                last_epoch=last_epoch,
                end_offset=end_offset,
                is_pre_vote=pre_vote,
                voter_directory_id=voter_directory_id,
            )
        )
        return next(e.response for e in effects if isinstance(e, Reply))

    def begin_epoch(self, epoch, leader):
        return self.ask(
            BeginQuorumEpochRequest(
                cluster_id=CLUSTER, epoch=epoch, leader_id=leader, voter_id=self.config.node_id
            )
        )

    def fetch_request(
        self, replica, offset, last_epoch, *, epoch=None, hw=-1, letter="a", address=None
    ):
        return self.ask(
            FetchRequest(
                cluster_id=CLUSTER,
                epoch=self.core.epoch if epoch is None else epoch,
                replica_id=replica,
                fetch_offset=offset,
                last_fetched_epoch=last_epoch,
                high_watermark=hw,
                replica_directory_id=disk_of(replica, letter) if self.is_dynamic else UUID_ZERO,
                address=address,
            )
        )

    def fetched(
        self,
        *,
        leader=2,
        sender=None,
        epoch=None,
        spans=(),
        hw=0,
        correlation_id=None,
        **fields,
    ):
        """Answer the fetch in flight, or the one with that correlation id."""
        return self.step(
            ResponseReceived(
                leader if sender is None else sender,
                self.core.role.correlation_id if correlation_id is None else correlation_id,
                FetchResponse(
                    epoch=self.core.epoch if epoch is None else epoch,
                    leader_id=leader,
                    high_watermark=hw,
                    spans=tuple(spans),
                    records=b"x" if spans else b"",
                    **fields,
                ),
            )
        )

    def flush(self):
        return self.step(LogFlushed(self.core.log.end_offset, self.core.log.generation))

    def propose(self, count=1):
        return self.step(Propose((b"batch",), (count,)))

    def answer_votes(self, *granting, reason="no"):
        """Answer every vote request under way; voters not named refuse."""
        for send in self.take(SendRequest):
            if isinstance(send.request, VoteRequest):
                self.step(
                    ResponseReceived(
                        send.receiver_id,
                        send.correlation_id,
                        VoteResponse(
                            epoch=self.core.epoch,
                            is_granted=send.receiver_id in granting,
                            reason=reason,
                        ),
                    )
                )

    def become_leader(self):
        self.pass_deadline()  # prospective
        granting = [v for v in self.core.voter_set.ids if v != self.config.node_id]
        if granting:
            self.answer_votes(*granting)  # candidate
            self.answer_votes(*granting)  # leader
        assert self.role == "Leader"
        self.take()
        return self

    def follow(self, leader=2, epoch=1):
        self.begin_epoch(epoch, leader)
        assert self.role == "Follower"
        return self


def persisted(effects):
    return [e.state for e in effects if isinstance(e, PersistVoteState)]


def replies(effects):
    return [e for e in effects if isinstance(e, Reply | ReplyWithRecords)]


def sent(effects, kind):
    return [e for e in effects if isinstance(e, SendRequest) and isinstance(e.request, kind)]
