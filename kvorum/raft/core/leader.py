"""Leading: append records, answer fetches, advance the high watermark, and resign without a
quorum."""

from __future__ import annotations

from kvorum.raft.core import leadership, voter_changes
from kvorum.raft.core.state import RaftState
from kvorum.raft.core.states import Leader
from kvorum.raft.core.transitions import become_leader
from kvorum.raft.model.effects import (
    AppendLeaderChange,
    AppendProposed,
    FlushLog,
    LeaderChanged,
    QuorumAlert,
    Reply,
    ReplyWithSnapshot,
    SendRequest,
)
from kvorum.raft.model.events import Propose
from kvorum.raft.model.messages import (
    BeginQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
)
from kvorum.raft.model.progress import ParkedFetch, ReplicaProgress
from kvorum.raft.model.quorum import committed_offset
from kvorum.raft.model.values import BatchSpan, OffsetAndEpoch
from kvorum.runtime.errors import ErrorCode
from kvorum.runtime.ids import UUID_ZERO, uuid_text

#: The leader forgets an observer that has not fetched for this long (KRaft: observer session).
OBSERVER_SESSION_MS = 300_000
LOST_LOG_FETCHES = 3
"""Fetches from offset 0 in a row that tell of a lost log: one or two may be late, from the time
when the voter looked for a leader."""


def begin_epoch(state: RaftState, granting: list[int], now_ms: int) -> None:
    """Open the epoch that this node won: append its first record and tell the voters.

    With dynamic voters the opening batch also holds the voter set (KIP-853), if the log has none
    yet or if this node's listener has changed.
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
    _send_begin_quorum_epoch(state, role, now_ms)
    leadership.set_check_quorum(state, role, now_ms)
    state.note_leadership(LeaderChanged(state.epoch, config.node_id, role.epoch_start_offset))


def on_tick(state: RaftState, role: Leader, now_ms: int) -> None:
    """Resign without a quorum; announce the epoch again; answer parked fetches whose wait is
    over."""
    if now_ms >= role.check_quorum_at_ms:
        leadership.set_check_quorum(state, role, now_ms)
        if now_ms >= role.check_quorum_at_ms:
            leadership.resign(
                state, now_ms, "a majority of voters has not fetched within the time allowed"
            )
            return
    if now_ms >= role.begin_epoch_at_ms:
        _send_begin_quorum_epoch(state, role, now_ms)
        _forget_observers(role, now_ms)
    if now_ms >= role.parked_deadline_ms:
        # Fetches that have waited at least half their time are answered too. The replicas then
        # fetch at the same time, and an idle leader wakes up once for all of them.
        due_ms = now_ms + state.config.fetch_wait_max_ms // 2
        leadership.make_due(
            state, role, [p for p in role.parked.values() if due_ms >= p.deadline_ms]
        )
    if role.due:
        leadership.answer_due(state, role, now_ms)


def on_propose(state: RaftState, role: Leader, event: Propose) -> None:
    """Append, answer the voters' parked fetches, and only then fsync (group commit)."""
    base_offset = state.log.end_offset
    for count in event.record_counts:
        end = state.log.end_offset
        state.log.append(BatchSpan(end, end + count - 1, state.epoch))
    state.emit(AppendProposed(base_offset, state.epoch, event.batches))
    leadership.wake_voters(state, role)


def on_log_flushed(state: RaftState, role: Leader, now_ms: int) -> None:
    """Count the leader's own copy, which is now on disk, toward the high watermark."""
    _update_high_watermark(state, role, now_ms)


def on_fetch(
    state: RaftState, role: Leader, request: FetchRequest, token: int, now_ms: int
) -> None:
    """Answer or park a replica's fetch, which acknowledges everything below its offset."""
    error = ErrorCode.NONE
    if request.epoch < state.epoch:
        error = ErrorCode.FENCED_LEADER_EPOCH
    elif request.epoch > state.epoch:
        error = ErrorCode.UNKNOWN_LEADER_EPOCH
    elif request.fetch_offset < 0 or request.last_fetched_epoch > state.epoch:
        error = ErrorCode.INVALID_REQUEST
    if error is not ErrorCode.NONE:
        _answer(state, token, error)
        return
    progress = _progress(state, role, request)
    is_dynamic_voter = state.config.is_dynamic and progress is role.voters.get(request.replica_id)
    if is_dynamic_voter and progress.end_offset > 0 == request.fetch_offset:
        # The voter had acknowledged records to this leader. Its log is gone: the directory was
        # emptied, or put back from a copy of its first days.
        _tell_of_lost_log(state, progress)
        _answer(state, token, ErrorCode.INVALID_VOTER_KEY)
        return
    progress.last_contact_ms = now_ms
    snapshot = state.log.snapshot_for(request.fetch_offset, request.last_fetched_epoch)
    if snapshot is not None:
        _answer(state, token, ErrorCode.NONE, snapshot=snapshot)
        return
    diverging = state.log.divergence(request.fetch_offset, request.last_fetched_epoch)
    if diverging is not None:
        _answer(state, token, ErrorCode.NONE, diverging)
        return
    replica = (request.replica_id, request.replica_directory_id)
    is_voter = state.voter_set.has(*replica)
    # An observer has caught up once it has all committed records. A new leader does not know where
    # those end, so it compares the observer with the end of its own log.
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
    stale = role.parked.pop(replica, None) or role.due.pop(replica, None)
    if stale is not None:
        # The replica gave up its earlier fetch and sent this one; nobody waits for the old
        # response.
        _answer(state, stale.token, ErrorCode.REQUEST_TIMED_OUT)
    if is_voter:
        _update_high_watermark(state, role, now_ms)
        if state.role is not role:
            _answer(state, token, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        voter_changes.name_directories(state, role, now_ms)
    if leadership.visible_end(state, replica) <= parked.fetch_offset:
        role.parked[replica] = parked
        role.parked_deadline_ms = min(role.parked_deadline_ms, parked.deadline_ms)
    elif is_voter:
        leadership.reply_with_records(state, parked)
    else:
        role.due[replica] = parked
        leadership.answer_due(state, role, now_ms)


def _tell_of_lost_log(state: RaftState, progress: ReplicaProgress) -> None:
    progress.fetches_from_zero += 1
    if progress.fetches_from_zero == LOST_LOG_FETCHES:
        state.emit(
            QuorumAlert(
                f"voter {progress.node_id} with directory {uuid_text(progress.directory_id)} has "
                f"lost its metadata log, of which it had acknowledged {progress.end_offset}: its "
                "votes are forgotten, so it may not go on. Remove it (kvorum quorum remove-voter), "
                "give it a new directory (kvorum init --again), and add it again"
            )
        )


def on_fetch_snapshot(
    state: RaftState, role: Leader, request: FetchSnapshotRequest, token: int, now_ms: int
) -> None:
    """Send a chunk of a snapshot to a replica whose log ends before this log begins."""
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
    """Forget the parked fetch of a caller that has hung up."""
    for fetches in (role.parked, role.due):
        for parked in list(fetches.values()):
            if parked.token == token:
                del fetches[parked.replica]


def _progress(
    state: RaftState, role: Leader, request: FetchRequest | FetchSnapshotRequest
) -> ReplicaProgress:
    node_id, directory_id = request.replica_id, request.replica_directory_id
    voter = role.voters.get(node_id)
    # While the voter set does not name the directory, the first one that fetches has the place.
    is_other = (
        voter is not None
        and state.config.is_dynamic
        and voter.directory_id not in (UUID_ZERO, directory_id)
    )
    if voter is not None and not is_other and state.voter_set.has(node_id, directory_id):
        progress = voter
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
        # The leader counts its own log only after its own fsync. It does not count it at all while
        # it leads without being a voter, after its removal (KIP-853).
        ends.append(state.log.flushed_end_offset)
    offset = committed_offset(ends)
    # Only a record of the leader's own epoch commits (Raft paper, figure 8), so a majority must
    # have the LeaderChange record. A replica's offset can exceed the end of this log only until its
    # divergence is found.
    offset = min(offset, state.log.end_offset)
    if offset <= role.epoch_start_offset or not state.advance_high_watermark(offset):
        return
    # A voter learns the new high watermark with its next records, or when its wait is over. It
    # needs the value only to keep its image up to date. An observer waits for exactly this.
    leadership.make_due(
        state,
        role,
        [
            parked
            for parked in role.parked.values()
            if offset > parked.fetch_offset and not state.voter_set.has(*parked.replica)
        ],
    )
    leadership.answer_due(state, role, now_ms)
    voter_changes.on_committed(state, role, now_ms)


def _answer(
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


def _send_begin_quorum_epoch(state: RaftState, role: Leader, now_ms: int) -> None:
    """Send BeginQuorumEpoch to every voter that has not sent a request lately."""
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
    """Forget the progress of every observer that has been silent for an observer session."""
    for key, progress in list(role.observers.items()):
        if now_ms - max(progress.last_contact_ms, role.elected_at_ms) > OBSERVER_SESSION_MS:
            del role.observers[key]
