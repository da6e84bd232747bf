"""Leading: append, answer fetches, move the high watermark, mind the quorum."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raft.effects import (
    AppendLeaderChange,
    AppendProposed,
    FlushLog,
    Reply,
    ReplyWithRecords,
    SendRequest,
)
from raft.events import Propose
from raft.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
)
from raft.model import BatchSpan, OffsetAndEpoch
from raft.progress import ParkedFetch, ReplicaProgress
from raft.quorum import committed_offset, majority
from raft.roles.states import NEVER_MS, Leader
from raft.transitions import become_leader, become_resigned
from runtime.errors import ErrorCode, invariant

if TYPE_CHECKING:
    from raft.core import RaftCore

#: Observers that have not fetched for so long are forgotten (KRaft: observer session).
OBSERVER_SESSION_MS = 300_000


def begin_epoch(core: RaftCore, granting: list[int], now_ms: int) -> Leader:
    """Open the epoch: its first record names the leader, and the voters are told at once."""
    config = core.config
    role = Leader(
        leader_id=config.node_id,
        epoch_start_offset=core.log.end_offset,
        elected_at_ms=now_ms,
        voters={v: ReplicaProgress(v) for v in config.voters if v != config.node_id},
        begin_epoch_at_ms=now_ms,
    )
    become_leader(core, role)
    base_offset = core.log.end_offset
    core.log.append(BatchSpan(base_offset, base_offset, core.epoch))
    core.emit(
        AppendLeaderChange(base_offset, core.epoch, config.node_id, config.voters, tuple(granting))
    )
    core.emit(FlushLog(core.log.end_offset, core.log.generation))
    _tell_voters(core, role, now_ms)
    _set_check_quorum(core, role, now_ms)
    return role


def on_tick(core: RaftCore, role: Leader, now_ms: int) -> None:
    """Answer parked fetches whose time is over, tell voters of the epoch, mind the quorum."""
    if now_ms >= role.check_quorum_at_ms:
        _set_check_quorum(core, role, now_ms)
        if now_ms >= role.check_quorum_at_ms:
            resign(core, now_ms, "a majority of voters has not fetched within the time allowed")
            return
    if now_ms >= role.begin_epoch_at_ms:
        _tell_voters(core, role, now_ms)
    if now_ms >= role.parked_deadline_ms:
        for parked in [p for p in role.parked.values() if now_ms >= p.deadline_ms]:
            _answer(core, role, parked)
        _set_parked_deadline(role)


def on_propose(core: RaftCore, role: Leader, event: Propose) -> None:
    """Append, wake the voters before the own fsync, then fsync (group commit)."""
    base_offset = core.log.end_offset
    for count in event.record_counts:
        end = core.log.end_offset
        core.log.append(BatchSpan(end, end + count - 1, core.epoch))
    core.emit(AppendProposed(base_offset, core.epoch, event.batches))
    for parked in list(role.parked.values()):
        if parked.replica_id in role.voters:
            _answer(core, role, parked)
    core.emit(FlushLog(core.log.end_offset, core.log.generation))


def on_log_flushed(core: RaftCore, role: Leader) -> None:
    """The leader's own copy counts from now on."""
    _update_high_watermark(core, role)


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
    diverging = core.log.divergence(request.fetch_offset, request.last_fetched_epoch)
    if diverging is not None:
        _refuse(core, token, ErrorCode.NONE, diverging)
        return
    _progress(core, role, request.replica_id).on_fetch(
        request.fetch_offset, core.log.end_offset, now_ms
    )
    if request.replica_id in role.voters:
        _update_high_watermark(core, role)
    stale = role.parked.pop(request.replica_id, None)
    if stale is not None:
        # The replica gave that fetch up and asks anew; nobody waits for the old answer.
        _refuse(core, stale.token, ErrorCode.REQUEST_TIMED_OUT)
    parked = ParkedFetch(
        token=token,
        replica_id=request.replica_id,
        fetch_offset=request.fetch_offset,
        high_watermark=request.high_watermark,
        deadline_ms=now_ms + core.config.fetch_wait_max_ms,
    )
    if _visible_end(core, role, parked) > parked.fetch_offset:
        _reply(core, role, parked)
    else:
        role.parked[parked.replica_id] = parked
        role.parked_deadline_ms = min(role.parked_deadline_ms, parked.deadline_ms)


def on_caller_gone(role: Leader, token: int) -> None:
    """Forget the parked fetch of a caller that hung up."""
    for parked in list(role.parked.values()):
        if parked.token == token:
            del role.parked[parked.replica_id]


def resign(core: RaftCore, now_ms: int, reason: str) -> None:
    """Step down and hand over: the voter that holds most goes first (KIP-595, EndQuorumEpoch)."""
    role = core.role
    invariant(isinstance(role, Leader), "only a leader resigns")
    if not isinstance(role, Leader):
        return
    successors = sorted(role.voters, key=lambda v: (-role.voters[v].end_offset, v))
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


def _progress(core: RaftCore, role: Leader, replica_id: int) -> ReplicaProgress:
    progress = role.voters.get(replica_id)
    if progress is None:
        progress = role.observers.setdefault(replica_id, ReplicaProgress(replica_id))
    return progress


def _visible_end(core: RaftCore, role: Leader, parked: ParkedFetch) -> int:
    """Voters get all there is; observers only what is committed, so they never truncate."""
    if parked.replica_id in role.voters:
        return core.log.end_offset
    return min(core.log.end_offset, max(core.high_watermark, 0))


def _update_high_watermark(core: RaftCore, role: Leader) -> None:
    own = core.log.flushed_end_offset
    offset = committed_offset([own, *(p.end_offset for p in role.voters.values())])
    # Only an entry of the own epoch commits (Raft paper, figure 8): the LeaderChange record must
    # be on a majority. A fetch can lie above the own log only before it is found to diverge.
    offset = min(offset, core.log.end_offset)
    if offset <= role.epoch_start_offset or not core.advance_high_watermark(offset):
        return
    for parked in list(role.parked.values()):
        # A voter learns the high watermark with its next records or when its wait is over: it
        # needs it only to keep its image warm. An observer waits for exactly this.
        if parked.replica_id not in role.voters and offset > parked.fetch_offset:
            _answer(core, role, parked)


def _answer(core: RaftCore, role: Leader, parked: ParkedFetch) -> None:
    role.parked.pop(parked.replica_id, None)
    _set_parked_deadline(role)
    _reply(core, role, parked)


def _set_parked_deadline(role: Leader) -> None:
    role.parked_deadline_ms = min((p.deadline_ms for p in role.parked.values()), default=NEVER_MS)


def _reply(core: RaftCore, role: Leader, parked: ParkedFetch) -> None:
    core.emit(
        ReplyWithRecords(
            token=parked.token,
            epoch=core.epoch,
            leader_id=core.config.node_id,
            high_watermark=core.high_watermark,
            fetch_offset=parked.fetch_offset,
            end_offset=_visible_end(core, role, parked),
            bytes_max=core.config.fetch_bytes_max,
        )
    )


def _refuse(
    core: RaftCore, token: int, error: ErrorCode, diverging: OffsetAndEpoch | None = None
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
            ),
        )
    )


def _tell_voters(core: RaftCore, role: Leader, now_ms: int) -> None:
    """BeginQuorumEpoch to every voter that has not fetched lately."""
    resend_ms = core.config.fetch_timeout_ms // 2
    role.begin_epoch_at_ms = now_ms + resend_ms
    for voter_id, progress in role.voters.items():
        if progress.last_fetch_ms < 0 or now_ms - progress.last_fetch_ms >= resend_ms:
            core.emit(
                SendRequest(
                    voter_id,
                    core.next_correlation_id(),
                    BeginQuorumEpochRequest(
                        cluster_id=core.config.cluster_id,
                        epoch=core.epoch,
                        leader_id=core.config.node_id,
                        voter_id=voter_id,
                    ),
                )
            )


def _set_check_quorum(core: RaftCore, role: Leader, now_ms: int) -> None:
    """When the quorum would be lost if no more fetches came."""
    others_needed = majority(len(core.config.voters)) - 1
    if others_needed == 0:
        role.check_quorum_at_ms = NEVER_MS
        return
    # A voter that has not fetched yet is given the time since the election.
    last_fetches = sorted(
        (max(p.last_fetch_ms, role.elected_at_ms) for p in role.voters.values()), reverse=True
    )
    role.check_quorum_at_ms = last_fetches[others_needed - 1] + core.config.check_quorum_timeout_ms
