"""Leading: append, answer fetches, move the high watermark, mind the quorum."""

from __future__ import annotations

from kvorum.raft.effects import (
    AppendLeaderChange,
    AppendProposed,
    FlushLog,
    LeaderChanged,
    Reply,
    ReplyWithSnapshot,
    SendRequest,
)
from kvorum.raft.events import Propose
from kvorum.raft.messages import (
    BeginQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
)
from kvorum.raft.model import BatchSpan, OffsetAndEpoch
from kvorum.raft.progress import ParkedFetch, ReplicaProgress
from kvorum.raft.quorum import committed_offset
from kvorum.raft.roles import leadership, voter_changes
from kvorum.raft.roles.states import Leader
from kvorum.raft.state import RaftState
from kvorum.raft.transitions import become_leader
from kvorum.runtime.errors import ErrorCode
from kvorum.runtime.ids import UUID_ZERO

#: Observers that have not fetched for so long are forgotten (KRaft: observer session).
OBSERVER_SESSION_MS = 300_000


def begin_epoch(state: RaftState, granting: list[int], now_ms: int) -> None:
    """Open the epoch that was won: its first record names the leader, the voters are told.

    With dynamic voters the opening batch also holds their set if the log does not have it yet, or
    if this node's own listener has moved (KIP-853).
    """
    config = state.config
    state.snapshot_fetch = None
    role = Leader(
        leader_id=config.node_id,
        epoch_start_offset=state.log.end_offset,
        elected_at_ms=now_ms,
        voters={},
        begin_epoch_at_ms=now_ms,
    )
    become_leader(state, role)
    base_offset = state.log.end_offset
    voters = state.voter_set
    has_voter_set = config.is_dynamic and (
        state.log.voters.last_offset < 0 or state.is_voter_entry_stale
    )
    if has_voter_set:
        own = state.own_voter
        voters = voters if own is None else voters.with_voter(own)
        # Records of the batch: LeaderChange, KRaftVersion, Voters.
        span = BatchSpan(base_offset, base_offset + 2, state.epoch, voters, base_offset + 2)
    else:
        span = BatchSpan(base_offset, base_offset, state.epoch)
    state.log.append(span)
    leadership.apply_voter_set(state, role)
    state.emit(
        AppendLeaderChange(
            base_offset, state.epoch, config.node_id, voters, tuple(granting), has_voter_set
        )
    )
    state.emit(FlushLog(state.log.end_offset, state.log.generation))
    _tell_voters(state, role, now_ms)
    leadership.set_check_quorum(state, role, now_ms)
    state.note_leadership(LeaderChanged(state.epoch, config.node_id, role.epoch_start_offset))


def on_tick(state: RaftState, role: Leader, now_ms: int) -> None:
    """Answer parked fetches whose time is over, tell voters of the epoch, mind the quorum."""
    if now_ms >= role.check_quorum_at_ms:
        leadership.set_check_quorum(state, role, now_ms)
        if now_ms >= role.check_quorum_at_ms:
            leadership.resign(
                state, now_ms, "a majority of voters has not fetched within the time allowed"
            )
            return
    if now_ms >= role.begin_epoch_at_ms:
        _tell_voters(state, role, now_ms)
        _forget_observers(role, now_ms)
    if now_ms >= role.parked_deadline_ms:
        # Those that are half through go with it: replicas then fetch in step, and an idle leader
        # wakes up once for all of them.
        due_ms = now_ms + state.config.fetch_wait_max_ms // 2
        for parked in [p for p in role.parked.values() if due_ms >= p.deadline_ms]:
            leadership.answer_parked(state, role, parked)
        leadership.set_parked_deadline(role)


def on_propose(state: RaftState, role: Leader, event: Propose) -> None:
    """Append, wake the voters before the own fsync, then fsync (group commit)."""
    base_offset = state.log.end_offset
    for count in event.record_counts:
        end = state.log.end_offset
        state.log.append(BatchSpan(end, end + count - 1, state.epoch))
    state.emit(AppendProposed(base_offset, state.epoch, event.batches))
    leadership.wake_voters(state, role)


def on_log_flushed(state: RaftState, role: Leader, now_ms: int) -> None:
    """The leader's own copy counts from now on."""
    _update_high_watermark(state, role, now_ms)


def on_fetch(
    state: RaftState, role: Leader, request: FetchRequest, token: int, now_ms: int
) -> None:
    """A replica asks for more, and by that vouches for what it has."""
    error = ErrorCode.NONE
    if request.epoch < state.epoch:
        error = ErrorCode.FENCED_LEADER_EPOCH
    elif request.epoch > state.epoch:
        error = ErrorCode.UNKNOWN_LEADER_EPOCH
    elif request.fetch_offset < 0 or request.last_fetched_epoch > state.epoch:
        error = ErrorCode.INVALID_REQUEST
    if error is not ErrorCode.NONE:
        _refuse(state, token, error)
        return
    progress = _progress(state, role, request)
    progress.last_contact_ms = now_ms
    snapshot = state.log.snapshot_for(request.fetch_offset, request.last_fetched_epoch)
    if snapshot is not None:
        _refuse(state, token, ErrorCode.NONE, snapshot=snapshot)
        return
    diverging = state.log.divergence(request.fetch_offset, request.last_fetched_epoch)
    if diverging is not None:
        _refuse(state, token, ErrorCode.NONE, diverging)
        return
    replica = (request.replica_id, request.replica_directory_id)
    is_voter = state.voter_set.has(*replica)
    # A replica that may see only what is committed has caught up when it has that; but a new
    # leader does not know how far that reaches.
    is_settled = state.high_watermark > role.epoch_start_offset
    leader_end_offset = (
        leadership.visible_end(state, replica) if is_settled else state.log.end_offset
    )
    progress.on_fetch(request.fetch_offset, leader_end_offset, now_ms)
    parked = ParkedFetch(
        token=token,
        replica=replica,
        fetch_offset=request.fetch_offset,
        high_watermark=request.high_watermark,
        deadline_ms=now_ms + state.config.fetch_wait_max_ms,
    )
    stale = role.parked.pop(replica, None)
    if stale is not None:
        # The replica gave that fetch up and asks anew; nobody waits for the old answer.
        _refuse(state, stale.token, ErrorCode.REQUEST_TIMED_OUT)
    if is_voter:
        _update_high_watermark(state, role, now_ms)
        if state.role is not role:
            _refuse(state, token, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
    if leadership.visible_end(state, replica) > parked.fetch_offset:
        leadership.reply_with_records(state, parked)
    else:
        role.parked[replica] = parked
        role.parked_deadline_ms = min(role.parked_deadline_ms, parked.deadline_ms)


def on_fetch_snapshot(
    state: RaftState, role: Leader, request: FetchSnapshotRequest, token: int, now_ms: int
) -> None:
    """A replica that is far behind asks for a piece of a snapshot."""
    error = ErrorCode.NONE
    if request.epoch < state.epoch:
        error = ErrorCode.FENCED_LEADER_EPOCH
    elif request.epoch > state.epoch:
        error = ErrorCode.UNKNOWN_LEADER_EPOCH
    elif request.position < 0 or request.bytes_max <= 0:
        error = ErrorCode.INVALID_REQUEST
    elif request.snapshot not in state.log.snapshots:
        error = ErrorCode.SNAPSHOT_NOT_FOUND
    leader_id = state.config.node_id
    if error in (ErrorCode.NONE, ErrorCode.SNAPSHOT_NOT_FOUND):
        _progress(state, role, request).last_contact_ms = now_ms
    if error is not ErrorCode.NONE:
        response = FetchSnapshotResponse(epoch=state.epoch, leader_id=leader_id, error=error)
        state.emit(Reply(token, response))
        return
    state.emit(
        ReplyWithSnapshot(
            token=token,
            epoch=state.epoch,
            leader_id=leader_id,
            snapshot=request.snapshot,
            position=request.position,
            bytes_max=min(request.bytes_max, state.config.snapshot_chunk_bytes),
        )
    )


def on_caller_gone(role: Leader, token: int) -> None:
    """Forget the parked fetch of a caller that hung up."""
    for parked in list(role.parked.values()):
        if parked.token == token:
            del role.parked[parked.replica]


def _progress(
    state: RaftState, role: Leader, request: FetchRequest | FetchSnapshotRequest
) -> ReplicaProgress:
    node_id, directory_id = request.replica_id, request.replica_directory_id
    if state.voter_set.has(node_id, directory_id) and node_id in role.voters:
        progress = role.voters[node_id]
        progress.directory_id = directory_id
    else:
        fresh = ReplicaProgress(node_id, directory_id)
        progress = role.observers.setdefault((node_id, directory_id), fresh)
    if isinstance(request, FetchRequest) and request.address is not None:
        progress.address = request.address
    return progress


def _update_high_watermark(state: RaftState, role: Leader, now_ms: int) -> None:
    ends = [progress.end_offset for progress in role.voters.values()]
    if state.is_voter:
        # Only after its own fsync; and not at all while it leads without being a voter, on its
        # way out (KIP-853).
        ends.append(state.log.flushed_end_offset)
    offset = committed_offset(ends)
    # Only an entry of the own epoch commits (Raft paper, figure 8): the LeaderChange record must
    # be on a majority. A fetch can lie above the own log only before it is found to diverge.
    offset = min(offset, state.log.end_offset)
    if offset <= role.epoch_start_offset or not state.advance_high_watermark(offset):
        return
    for parked in list(role.parked.values()):
        # A voter learns the high watermark with its next records or when its wait is over: it
        # needs it only to keep its image warm. An observer waits for exactly this.
        if not state.voter_set.has(*parked.replica) and offset > parked.fetch_offset:
            leadership.answer_parked(state, role, parked)
    voter_changes.on_committed(state, role, now_ms)


def _refuse(
    state: RaftState,
    token: int,
    error: ErrorCode,
    diverging: OffsetAndEpoch | None = None,
    *,
    snapshot: OffsetAndEpoch | None = None,
) -> None:
    state.emit(
        Reply(
            token,
            FetchResponse(
                epoch=state.epoch,
                leader_id=state.config.node_id,
                error=error,
                high_watermark=state.high_watermark,
                diverging=diverging,
                snapshot=snapshot,
            ),
        )
    )


def _tell_voters(state: RaftState, role: Leader, now_ms: int) -> None:
    """BeginQuorumEpoch to every voter that has not fetched lately."""
    resend_ms = state.config.fetch_timeout_ms // 2
    role.begin_epoch_at_ms = now_ms + resend_ms
    for voter_id, progress in role.voters.items():
        if progress.last_contact_ms < 0 or now_ms - progress.last_contact_ms >= resend_ms:
            voter = state.voter_set.get(voter_id)
            state.emit(
                SendRequest(
                    voter_id,
                    state.next_correlation_id(),
                    BeginQuorumEpochRequest(
                        cluster_id=state.config.cluster_id,
                        epoch=state.epoch,
                        leader_id=state.config.node_id,
                        voter_id=voter_id,
                        voter_directory_id=UUID_ZERO if voter is None else voter.directory_id,
                    ),
                )
            )


def _forget_observers(role: Leader, now_ms: int) -> None:
    """Drop what is known of replicas that have not been heard for an observer session."""
    for key, progress in list(role.observers.items()):
        if now_ms - max(progress.last_contact_ms, role.elected_at_ms) > OBSERVER_SESSION_MS:
            del role.observers[key]
