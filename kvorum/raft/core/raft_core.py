"""One node of the quorum, as a function: `step(event, now_ms) -> effects`.

Decides elections, replication and commitment; never waits, reads a clock or touches a disk. Effects
must be carried out in order. `raft.node.raft_node` does so on real parts, `chaos.sim` in virtual
time. Facts: ../docs/protocol/election.md, KIP-595, KIP-996.
"""

from __future__ import annotations

from kvorum.raft.core import election, follower, leader, leadership, snapshots, voter_changes
from kvorum.raft.core.state import LOST_DISKS_ADVICE, RaftState
from kvorum.raft.core.states import (
    NEVER_MS,
    Candidate,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Unattached,
)
from kvorum.raft.core.transitions import become_follower, become_unattached
from kvorum.raft.model.effects import Effect, QuorumAlert, Reply, TimelineEntry
from kvorum.raft.model.events import (
    CallerGone,
    Event,
    LogFlushed,
    Propose,
    RequestFailed,
    RequestReceived,
    Resign,
    ResponseReceived,
    SnapshotChunkWritten,
    SnapshotReceived,
    SnapshotsExpired,
    SnapshotTaken,
    Tick,
)
from kvorum.raft.model.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    QuorumEpochResponse,
    Request,
    Response,
    VoterChangeRequest,
    VoterChangeResponse,
    VoteRequest,
    VoteResponse,
)
from kvorum.runtime.errors import ErrorCode, invariant
from kvorum.runtime.ids import NO_NODE


class RaftCore(RaftState):
    """The state of one node of the quorum, and the transition that each event makes on it."""

    @property
    def is_leader(self) -> bool:
        return isinstance(self.role, Leader)

    def next_deadline_ms(self) -> int | None:
        """The time at which a Tick is due if no other event comes first; None if none is due."""
        deadline_ms = self.role.deadline_ms
        return None if deadline_ms >= NEVER_MS else deadline_ms

    def summary(self) -> str:
        """One line for logs, tests and tools."""
        return (
            f"node={self.config.node_id} role={type(self.role).__name__.lower()} "
            f"epoch={self.epoch} leader={self.leader_id} voted={self.voted_id} "
            f"end={self.log.end_offset} flushed={self.log.flushed_end_offset} "
            f"hw={self.high_watermark}"
        )

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        """Take in one event at now_ms and return its effects, in the order to carry them out."""
        invariant(not self._effects, "step is not re-entrant")
        match event:
            case RequestReceived(request, token):
                self._on_request(request, token, now_ms)
            case ResponseReceived(sender_id, correlation_id, response):
                self._on_response(sender_id, correlation_id, response, now_ms)
            case LogFlushed(end_offset, generation):
                self._on_log_flushed(end_offset, generation, now_ms)
            case SnapshotTaken():
                snapshots.on_taken(self, event)
            case SnapshotsExpired(count):
                snapshots.on_expired(self, count)
            case SnapshotChunkWritten(snapshot, end_position):
                snapshots.on_chunk_written(self, snapshot, end_position, now_ms)
            case SnapshotReceived():
                snapshots.on_received(self, event, now_ms)
            case Propose():
                invariant(isinstance(self.role, Leader), "only a leader appends")
                if isinstance(self.role, Leader):
                    leader.on_propose(self, self.role, event)
            case RequestFailed(_, correlation_id):
                self._on_request_failed(correlation_id, now_ms)
            case CallerGone(token):
                if isinstance(self.role, Leader):
                    leader.on_caller_gone(self.role, token)
            case Resign():
                if isinstance(self.role, Leader):
                    leadership.resign(self, now_ms, "asked to")
            case Tick():
                pass
        if now_ms >= self.role.deadline_ms:
            self._on_tick(now_ms)
        effects, self._effects = self._effects, []
        return effects

    def _hasten_election(self, now_ms: int) -> None:
        """Draw the short start-up deadline: a pre-vote disturbs no leader, so there is no need to
        wait."""
        if isinstance(self.role, Unattached) and self.is_electable:
            self.role.election_deadline_ms = self.random_startup_deadline_ms(now_ms)

    def _on_tick(self, now_ms: int) -> None:
        match self.role:
            case Leader() as role:
                leader.on_tick(self, role, now_ms)
            case Follower() as role:
                follower.on_tick(self, role, now_ms)
            case Prospective() | Candidate() as role:
                election.on_tick(self, role, now_ms)
            case Unattached() as role:
                if now_ms >= role.discover_at_ms:
                    follower.discover(self, role, now_ms)
                if now_ms >= role.election_deadline_ms:
                    election.stand(self, now_ms, "no leader within the election timeout")
            case Resigned():
                become_unattached(self, self.epoch + 1, now_ms)
                self._hasten_election(now_ms)

    def _on_request(self, request: Request, token: int, now_ms: int) -> None:
        if request.cluster_id != self.config.cluster_id:
            self._answer(request, token, ErrorCode.INCONSISTENT_CLUSTER_ID)
            return
        match request:
            case FetchRequest():
                if isinstance(self.role, Leader):
                    leader.on_fetch(self, self.role, request, token, now_ms)
                else:
                    self._answer(request, token, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            case VoteRequest():
                election.on_vote_request(self, request, token, now_ms)
            case BeginQuorumEpochRequest():
                self._on_begin_quorum_epoch(request, token, now_ms)
            case EndQuorumEpochRequest():
                self._on_end_quorum_epoch(request, token, now_ms)
            case FetchSnapshotRequest():
                if isinstance(self.role, Leader):
                    leader.on_fetch_snapshot(self, self.role, request, token, now_ms)
                else:
                    self._answer(request, token, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            case _:
                if isinstance(self.role, Leader):
                    voter_changes.on_request(self, self.role, request, token, now_ms)
                else:
                    self._answer(request, token, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _answer(self, request: Request, token: int, error: ErrorCode) -> None:
        epoch, leader_id = self.epoch, self.role.leader_id
        if isinstance(self.role, Resigned):
            leader_id = NO_NODE
        response: Response
        if isinstance(request, FetchRequest):
            response = FetchResponse(epoch=epoch, leader_id=leader_id, error=error)
        elif isinstance(request, FetchSnapshotRequest):
            response = FetchSnapshotResponse(epoch=epoch, leader_id=leader_id, error=error)
        elif isinstance(request, VoteRequest):
            response = VoteResponse(epoch=epoch, error=error, reason=error.name.lower())
        elif isinstance(request, VoterChangeRequest):
            message = f"node {self.config.node_id} does not lead the quorum"
            if error is ErrorCode.INCONSISTENT_CLUSTER_ID:
                message = f"this is cluster {self.config.cluster_id}, not {request.cluster_id!r}"
            response = VoterChangeResponse(
                epoch=epoch,
                leader_id=leader_id,
                error=error,
                message=message,
                voters=self.voter_set,
            )
        else:
            response = QuorumEpochResponse(epoch=epoch, leader_id=leader_id, error=error)
        self.emit(Reply(token, response))

    def _on_begin_quorum_epoch(
        self, request: BeginQuorumEpochRequest, token: int, now_ms: int
    ) -> None:
        if not self.is_addressed_to_self(request.voter_id, request.voter_directory_id):
            self._answer(request, token, ErrorCode.INVALID_VOTER_KEY)
        elif request.epoch < self.epoch:
            self._answer(request, token, ErrorCode.FENCED_LEADER_EPOCH)
        elif not self._learn_leader(request.epoch, request.leader_id, now_ms):
            self._answer(request, token, ErrorCode.INVALID_REQUEST)
        else:
            if isinstance(self.role, Follower) and not self.role.is_leader_lost:
                self.role.fetch_deadline_ms = self.random_fetch_deadline_ms(now_ms)
            self._answer(request, token, ErrorCode.NONE)

    def _on_end_quorum_epoch(self, request: EndQuorumEpochRequest, token: int, now_ms: int) -> None:
        if request.epoch < self.epoch:
            self._answer(request, token, ErrorCode.FENCED_LEADER_EPOCH)
            return
        if not self._learn_leader(request.epoch, request.leader_id, now_ms):
            self._answer(request, token, ErrorCode.INVALID_REQUEST)
            return
        role = self.role
        if isinstance(role, Follower) and self.is_electable:
            # The leader announced its resignation. The first preferred successor stands for
            # election at once, the others after 1, 3, 7, ... times the grace (KIP-595,
            # EndQuorumEpoch). A voter that is not in the list waits for its election timeout.
            role.is_leader_lost = True
            successors = request.preferred_successors
            if self.config.node_id in successors:
                position = successors.index(self.config.node_id)
                wait_ms = self.config.leader_loss_grace_ms * ((1 << position) - 1)
            else:
                wait_ms = self.config.election_timeout_ms
            role.stand_at_ms = min(role.stand_at_ms, now_ms + wait_ms)
            role.stand_reason = "the leader has handed over"
        self._answer(request, token, ErrorCode.NONE)

    def _learn_leader(self, epoch: int, leader_id: int, now_ms: int) -> bool:
        """Take over the leader that a peer names for an epoch that is not below this node's. False
        if this node knows another leader of that epoch: one of the two is wrong."""
        if leader_id != NO_NODE:
            self.note_leader()
        if epoch > self.epoch:
            if leader_id not in (NO_NODE, self.config.node_id):
                become_follower(self, epoch, leader_id, now_ms)
            else:
                become_unattached(self, epoch, now_ms)
            return True
        if leader_id == NO_NODE or isinstance(self.role, Resigned):
            return True
        known = self.role.leader_id
        if known not in (NO_NODE, leader_id):
            if epoch != self._contradicted_epoch:
                self._contradicted_epoch = epoch
                text = f"two leaders in epoch {epoch}: {known} and {leader_id}"
                if isinstance(self.role, Leader):
                    self.emit(QuorumAlert(text))
                else:
                    # A fetch that `known` answers as it should ends this refusal.
                    self.refuse_leader(f"{text}. {LOST_DISKS_ADVICE}")
            return False
        if isinstance(self.role, Unattached) and self._is_distrusted(self.role, leader_id, now_ms):
            return True
        if leader_id != self.config.node_id and isinstance(
            self.role, Unattached | Prospective | Candidate
        ):
            if isinstance(self.role, Prospective) and known != NO_NODE:
                return True  # a prospective has just lost this leader; the pre-vote must go on
            become_follower(self, epoch, leader_id, now_ms)
        return True

    def _is_distrusted(self, role: Unattached, leader_id: int, now_ms: int) -> bool:
        return leader_id == role.lost_leader_id and now_ms < role.distrusted_until_ms

    def _on_response(
        self, sender_id: int, correlation_id: int, response: Response, now_ms: int
    ) -> None:
        if response.error is ErrorCode.INCONSISTENT_CLUSTER_ID:
            self._note_foreign_peer(sender_id)
            self._on_request_failed(correlation_id, now_ms)
            if isinstance(self.role, Unattached):
                # The peer belongs to another cluster, which will not change soon: discover later.
                self.role.discover_at_ms = now_ms + self.config.fetch_timeout_ms
            return
        if response.epoch < self.epoch:
            # A response of an older epoch is ignored, but the peer can take the next request.
            if sender_id == response.leader_id and not isinstance(self.role, Leader):
                self.note_older_leader(sender_id, response.epoch, now_ms)
            self._on_request_failed(correlation_id, now_ms, is_lost=False)
            return
        epoch_before = self.epoch
        if not self._learn_leader(response.epoch, response.leader_id, now_ms):
            self._on_request_failed(correlation_id, now_ms, is_lost=False)
            return
        if self.epoch != epoch_before:
            return
        match response, self.role:
            case VoteResponse(), (Prospective() | Candidate()) as role:
                election.on_vote_response(self, role, correlation_id, response, now_ms)
            case FetchResponse(), Follower() as role:
                follower.on_fetch_response(self, role, correlation_id, response, now_ms)
            case FetchSnapshotResponse(), Follower() as role:
                snapshots.on_response(self, role, correlation_id, response, now_ms)
            case VoterChangeResponse(), Follower():
                follower.on_update_response(self, response)
            case FetchResponse(), Unattached() as role if role.correlation_id == correlation_id:
                follower.on_discovery_response(self, role, sender_id, response, now_ms)
            case _:
                pass  # the role that sent the request has ended

    def _note_foreign_peer(self, sender_id: int) -> None:
        if sender_id in self._foreign_peers:
            return
        self._foreign_peers.add(sender_id)
        who = f"peer={sender_id}"
        if sender_id in self.config.bootstrap_ids:
            at = self.config.bootstrap_ids.index(sender_id) + 1
            who = f"number {at} of controller.quorum.bootstrap.servers"
        self.emit(TimelineEntry(f"{who} belongs to another cluster than {self.config.cluster_id}"))

    def _on_request_failed(self, correlation_id: int, now_ms: int, *, is_lost: bool = True) -> None:
        match self.role:
            case Follower() as role if is_lost:
                follower.on_request_failed(self, role, correlation_id, now_ms)
            case Follower() as role if role.correlation_id == correlation_id:
                role.correlation_id = -1
                role.retry_at_ms = now_ms + self.config.retry_backoff_ms
            case Prospective() | Candidate() as role:
                election.on_request_failed(self, role, correlation_id, now_ms)
            case Unattached() as role if role.correlation_id == correlation_id:
                follower.on_discovery_failed(self, role, now_ms)
            case _:
                pass  # a resend is due anyway, or the role that sent the request has ended

    def _on_log_flushed(self, end_offset: int, generation: int, now_ms: int) -> None:
        if not self.log.flushed(end_offset, generation):
            return
        match self.role:
            case Leader() as role:
                leader.on_log_flushed(self, role, now_ms)
            case Follower() as role:
                follower.on_log_flushed(self, role, now_ms)
            case _:
                pass
