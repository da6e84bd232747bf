"""Leading: append, answer fetches, move the high watermark, mind the quorum."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvorum.raft.effects import (
    AppendLeaderChange,
    AppendProposed,
    FlushLog,
    Reply,
    ReplyWithRecords,
    ReplyWithSnapshot,
    SendRequest,
)
from kvorum.raft.events import Propose
from kvorum.raft.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
)
from kvorum.raft.model import BatchSpan, OffsetAndEpoch
from kvorum.raft.progress import ParkedFetch, ReplicaKey, ReplicaProgress
from kvorum.raft.quorum import committed_offset, majority
from kvorum.raft.roles import voter_changes
from kvorum.raft.roles.states import NEVER_MS, Leader
from kvorum.raft.transitions import become_leader, become_resigned
from kvorum.runtime.errors import ErrorCode, invariant
from kvorum.runtime.ids import UUID_ZERO

if TYPE_CHECKING:
    from kvorum.raft.core import RaftCore

#: Observers that have not fetched for so long are forgotten (KRaft: observer session).
OBSERVER_SESSION_MS = 300_000


def begin_epoch(core: RaftCore, granting: list[int], now_ms: int) -> Leader:
    """Open the epoch: its first record names the leader, and the voters are told at once.

    With dynamic voters the opening batch also holds their set if the log does not have it yet, or
    if this node's own listener has moved (KIP-853).
    """
    config = core.config
    core.snapshot_fetch = None
    role = Leader(
        leader_id=config.node_id,
        epoch_start_offset=core.log.end_offset,
        elected_at_ms=now_ms,
        voters={},
        begin_epoch_at_ms=now_ms,
    )
    become_leader(core, role)
    base_offset = core.log.end_offset
    voters = core.voter_set
    has_voter_set = config.is_dynamic and (
        core.log.voters.last_offset < 0 or core.is_voter_entry_stale
    )
    if has_voter_set:
        own = core.own_voter
        voters = voters if own is None else voters.with_voter(own)
        # Records of the batch: LeaderChange, KRaftVersion, Voters.
        span = BatchSpan(base_offset, base_offset + 2, core.epoch, voters, base_offset + 2)
    else:
        span = BatchSpan(base_offset, base_offset, core.epoch)
    core.log.append(span)
    voter_changes.apply_voter_set(core, role)
    core.emit(
        AppendLeaderChange(
            base_offset, core.epoch, config.node_id, voters, tuple(granting), has_voter_set
        )
    )
    core.emit(FlushLog(core.log.end_offset, core.log.generation))
    _tell_voters(core, role, now_ms)
    set_check_quorum(core, role, now_ms)
    return role


def on_tick(core: RaftCore, role: Leader, now_ms: int) -> None:
    """Answer parked fetches whose time is over, tell voters of the epoch, mind the quorum."""
    if now_ms >= role.check_quorum_at_ms:
        set_check_quorum(core, role, now_ms)
        if now_ms >= role.check_quorum_at_ms:
            resign(core, now_ms, "a majority of voters has not fetched within the time allowed")
            return
    if now_ms >= role.begin_epoch_at_ms:
        _tell_voters(core, role, now_ms)
        _forget_observers(role, now_ms)
    if now_ms >= role.parked_deadline_ms:
        # Those that are half through go with it: replicas then fetch in step, and an idle leader
        # wakes up once for all of them.
        due_ms = now_ms + core.config.fetch_wait_max_ms // 2
        for parked in [p for p in role.parked.values() if due_ms >= p.deadline_ms]:
            _answer(core, role, parked)
        _set_parked_deadline(role)


def on_propose(core: RaftCore, role: Leader, event: Propose) -> None:
    """Append, wake the voters before the own fsync, then fsync (group commit)."""
    base_offset = core.log.end_offset
    for count in event.record_counts:
        end = core.log.end_offset
        core.log.append(BatchSpan(end, end + count - 1, core.epoch))
    core.emit(AppendProposed(base_offset, core.epoch, event.batches))
    wake_voters(core, role)


def wake_voters(core: RaftCore, role: Leader) -> None:
    """Something was appended: answer the voters' parked fetches, then fsync."""
    for parked in list(role.parked.values()):
        if core.voter_set.has(*parked.replica):
            _answer(core, role, parked)
    core.emit(FlushLog(core.log.end_offset, core.log.generation))


def on_log_flushed(core: RaftCore, role: Leader, now_ms: int) -> None:
    """The leader's own copy counts from now on."""
    _update_high_watermark(core, role, now_ms)


def on_fetch(core: RaftCore, role: Leader, request: FetchRequest, token: int, now_ms: int) -> None:
    """A replica asks for more, and by that vouches for what it has."""
    error = ErrorCode.NONE
    if request.epoch < core.epoch:
        error = ErrorCode.FENCED_LEADER_EPOCH
    elif request.epoch > core.epoch:
        error = ErrorCode.UNKNOWN_LEADER_EPOCH
    elif request.fetch_offset < 0 or request.last_fetched_epoch > core.epoch:
        error = ErrorCode.INVALID_REQUEST
    if error is not ErrorCode.NONE:
        _refuse(core, token, error)
        return
    progress = _progress(core, role, request)
    progress.last_contact_ms = now_ms
    snapshot = core.log.snapshot_for(request.fetch_offset, request.last_fetched_epoch)
    if snapshot is not None:
        _refuse(core, token, ErrorCode.NONE, snapshot=snapshot)
        return
    diverging = core.log.divergence(request.fetch_offset, request.last_fetched_epoch)
    if diverging is not None:
        _refuse(core, token, ErrorCode.NONE, diverging)
        return
    replica = (request.replica_id, request.replica_directory_id)
    is_voter = core.voter_set.has(*replica)
    # A replica that may see only what is committed has caught up when it has that; but a new
    # leader does not know how far that reaches.
    is_settled = core.high_watermark > role.epoch_start_offset
    leader_end_offset = _visible_end(core, replica) if is_settled else core.log.end_offset
    progress.on_fetch(request.fetch_offset, leader_end_offset, now_ms)
    parked = ParkedFetch(
        token=token,
        replica=replica,
        fetch_offset=request.fetch_offset,
        high_watermark=request.high_watermark,
        deadline_ms=now_ms + core.config.fetch_wait_max_ms,
    )
    stale = role.parked.pop(replica, None)
    if stale is not None:
        # The replica gave that fetch up and asks anew; nobody waits for the old answer.
        _refuse(core, stale.token, ErrorCode.REQUEST_TIMED_OUT)
    if is_voter:
        _update_high_watermark(core, role, now_ms)
        if core.role is not role:
            _refuse(core, token, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
    if _visible_end(core, replica) > parked.fetch_offset:
        _reply(core, parked)
    else:
        role.parked[replica] = parked
        role.parked_deadline_ms = min(role.parked_deadline_ms, parked.deadline_ms)


def on_fetch_snapshot(
    core: RaftCore, role: Leader, request: FetchSnapshotRequest, token: int, now_ms: int
) -> None:
    """A replica that is far behind asks for a piece of a snapshot."""
    error = ErrorCode.NONE
    if request.epoch < core.epoch:
        error = ErrorCode.FENCED_LEADER_EPOCH
    elif request.epoch > core.epoch:
        error = ErrorCode.UNKNOWN_LEADER_EPOCH
    elif request.position < 0 or request.bytes_max <= 0:
        error = ErrorCode.INVALID_REQUEST
    elif request.snapshot not in core.log.snapshots:
        error = ErrorCode.SNAPSHOT_NOT_FOUND
    leader_id = core.config.node_id
    if error in (ErrorCode.NONE, ErrorCode.SNAPSHOT_NOT_FOUND):
        _progress(core, role, request).last_contact_ms = now_ms
    if error is not ErrorCode.NONE:
        response = FetchSnapshotResponse(epoch=core.epoch, leader_id=leader_id, error=error)
        core.emit(Reply(token, response))
        return
    core.emit(
        ReplyWithSnapshot(
            token=token,
            epoch=core.epoch,
            leader_id=leader_id,
            snapshot=request.snapshot,
            position=request.position,
            bytes_max=min(request.bytes_max, core.config.snapshot_chunk_bytes),
        )
    )


def on_caller_gone(role: Leader, token: int) -> None:
    """Forget the parked fetch of a caller that hung up."""
    for parked in list(role.parked.values()):
        if parked.token == token:
            del role.parked[parked.replica]


def resign(core: RaftCore, now_ms: int, reason: str) -> None:
    """Step down and hand over: the voter that holds most goes first (KIP-595, EndQuorumEpoch)."""
    role = core.role
    invariant(isinstance(role, Leader), "only a leader resigns")
    if not isinstance(role, Leader):
        return
    voters = role.voters
    successors = sorted(voters, key=lambda v: (-voters[v].end_offset, v))
    become_resigned(core, now_ms, reason)
    for voter_id in successors:
        core.emit(
            SendRequest(
                voter_id,
                core.next_correlation_id(),
                EndQuorumEpochRequest(
                    cluster_id=core.config.cluster_id,
                    epoch=core.epoch,
                    leader_id=core.config.node_id,
                    preferred_successors=tuple(successors),
                ),
            )
        )


def _progress(
    core: RaftCore, role: Leader, request: FetchRequest | FetchSnapshotRequest
) -> ReplicaProgress:
    node_id, directory_id = request.replica_id, request.replica_directory_id
    if core.voter_set.has(node_id, directory_id) and node_id in role.voters:
        progress = role.voters[node_id]
        progress.directory_id = directory_id
    else:
        fresh = ReplicaProgress(node_id, directory_id)
        progress = role.observers.setdefault((node_id, directory_id), fresh)
    if isinstance(request, FetchRequest) and request.address is not None:
        progress.address = request.address
    return progress


def _visible_end(core: RaftCore, replica: ReplicaKey) -> int:
    """Voters get all there is; observers only what is committed, so they never truncate."""
    if core.voter_set.has(*replica):
        return core.log.end_offset
    return min(core.log.end_offset, max(core.high_watermark, 0))


def _update_high_watermark(core: RaftCore, role: Leader, now_ms: int) -> None:
    ends = [progress.end_offset for progress in role.voters.values()]
    if core.is_voter:
        # Only after its own fsync; and not at all while it leads without being a voter, on its
        # way out (KIP-853).
        ends.append(core.log.flushed_end_offset)
    offset = committed_offset(ends)
    # Only an entry of the own epoch commits (Raft paper, figure 8): the LeaderChange record must
    # be on a majority. A fetch can lie above the own log only before it is found to diverge.
    offset = min(offset, core.log.end_offset)
    if offset <= role.epoch_start_offset or not core.advance_high_watermark(offset):
        return
    for parked in list(role.parked.values()):
        # A voter learns the high watermark with its next records or when its wait is over: it
        # needs it only to keep its image warm. An observer waits for exactly this.
        if not core.voter_set.has(*parked.replica) and offset > parked.fetch_offset:
            _answer(core, role, parked)
    voter_changes.on_committed(core, role, now_ms)


def _answer(core: RaftCore, role: Leader, parked: ParkedFetch) -> None:
    role.parked.pop(parked.replica, None)
    _set_parked_deadline(role)
    _reply(core, parked)


def _set_parked_deadline(role: Leader) -> None:
    role.parked_deadline_ms = min((p.deadline_ms for p in role.parked.values()), default=NEVER_MS)


def _reply(core: RaftCore, parked: ParkedFetch) -> None:
    core.emit(
        ReplyWithRecords(
            token=parked.token,
            epoch=core.epoch,
            leader_id=core.config.node_id,
            high_watermark=core.high_watermark,
            fetch_offset=parked.fetch_offset,
            end_offset=_visible_end(core, parked.replica),
            bytes_max=core.config.fetch_bytes_max,
        )
    )


def _refuse(
    core: RaftCore,
    token: int,
    error: ErrorCode,
    diverging: OffsetAndEpoch | None = None,
    *,
    snapshot: OffsetAndEpoch | None = None,
) -> None:
    core.emit(
        Reply(
            token,
            FetchResponse(
                epoch=core.epoch,
                leader_id=core.config.node_id,
                error=error,
                high_watermark=core.high_watermark,
                diverging=diverging,
                snapshot=snapshot,
            ),
        )
    )


def _tell_voters(core: RaftCore, role: Leader, now_ms: int) -> None:
    """BeginQuorumEpoch to every voter that has not fetched lately."""
    resend_ms = core.config.fetch_timeout_ms // 2
    role.begin_epoch_at_ms = now_ms + resend_ms
    for voter_id, progress in role.voters.items():
        if progress.last_contact_ms < 0 or now_ms - progress.last_contact_ms >= resend_ms:
            voter = core.voter_set.get(voter_id)
            core.emit(
                SendRequest(
                    voter_id,
                    core.next_correlation_id(),
                    BeginQuorumEpochRequest(
                        cluster_id=core.config.cluster_id,
                        epoch=core.epoch,
                        leader_id=core.config.node_id,
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


def set_check_quorum(core: RaftCore, role: Leader, now_ms: int) -> None:
    """When the quorum would be lost if no more fetches came."""
    others_needed = majority(len(core.voter_set)) - core.is_voter
    if others_needed == 0:
        role.check_quorum_at_ms = NEVER_MS
        return
    # A voter that has not fetched yet is given the time since the election, or since it was added.
    contacts = sorted(
        (max(p.last_contact_ms, role.elected_at_ms) for p in role.voters.values()), reverse=True
    )
    role.check_quorum_at_ms = contacts[others_needed - 1] + core.config.check_quorum_timeout_ms
