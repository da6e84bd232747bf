"""Following: one fetch in flight; truncate on divergence, append, fsync, fetch again.

`raft.core.snapshots` handles the snapshot that a leader offers when its log starts too late.
"""

from __future__ import annotations

from kvorum.raft.core import election, fetching, snapshots
from kvorum.raft.core.state import LOST_DISKS_ADVICE, RaftState
from kvorum.raft.core.states import NEVER_MS, Follower, Unattached
from kvorum.raft.core.transitions import become_follower, become_unattached
from kvorum.raft.model.effects import (
    AppendFetched,
    FlushLog,
    SendRequest,
    TimelineEntry,
    TruncateLog,
)
from kvorum.raft.model.messages import (
    FetchResponse,
    UpdateVoterRequest,
    VoterChangeResponse,
)
from kvorum.raft.model.values import OffsetAndEpoch
from kvorum.runtime.errors import ErrorCode, NodeRefused
from kvorum.runtime.ids import NO_NODE

UPDATE_VOTER_FETCH_TIMEOUTS = 3
"""Pause between two UpdateVoter requests, in fetch timeouts (KIP-853)."""


def on_tick(state: RaftState, role: Follower, now_ms: int) -> None:
    """Act on the deadlines that have passed."""
    if now_ms >= role.fetch_deadline_ms:
        role.is_leader_lost = True
        _give_up(state, now_ms, "the fetch timeout passed")
    elif now_ms >= role.stand_at_ms:
        _give_up(state, now_ms, role.stand_reason)
    elif now_ms >= role.request_deadline_ms:
        role.correlation_id = -1
        fetching.fetch(state, role, now_ms)
    elif now_ms >= role.retry_at_ms:
        fetching.fetch(state, role, now_ms)
    if now_ms >= role.update_voter_at_ms and state.role is role:
        _update_voter(state, role, now_ms)


def on_fetch_response(
    state: RaftState, role: Follower, correlation_id: int, response: FetchResponse, now_ms: int
) -> None:
    """Take the response to the fetch in flight. The caller has checked that its epoch is this
    node's."""
    if correlation_id != role.correlation_id:
        return  # the fetch was given up; its records may be in the log already
    role.correlation_id = -1
    role.request_deadline_ms = NEVER_MS
    if response.error is not ErrorCode.NONE:
        _on_fetch_error(state, role, response, now_ms)
        return
    fetching.note_success(state, role, now_ms)
    if response.snapshot is not None:
        snapshots.begin(state, role, response.snapshot, now_ms)
        return
    snapshots.abandon(state)  # the leader's log continues this one, so no snapshot is needed
    if response.diverging is not None:
        if _truncate(state, role, response.diverging):
            fetching.fetch(state, role, now_ms)
        else:
            role.retry_at_ms = now_ms + state.config.fetch_timeout_ms
        return
    state.refused_leader = ""
    if response.spans:
        if not _continues(state, response):
            state.emit(
                TimelineEntry(f"epoch={state.epoch} the leader sent records that do not fit here")
            )
            role.retry_at_ms = now_ms + state.config.retry_backoff_ms
            return
        _append(state, role, response, now_ms)
    state.advance_high_watermark(min(state.log.end_offset, response.high_watermark))
    fetching.fetch(state, role, now_ms)


def on_request_failed(state: RaftState, role: Follower, correlation_id: int, now_ms: int) -> None:
    """The connection to the leader broke or was refused."""
    if correlation_id != role.correlation_id:
        return
    role.correlation_id = -1
    role.request_deadline_ms = NEVER_MS
    if not state.is_electable:
        _look_elsewhere(state, now_ms)
        return
    role.retry_at_ms = now_ms + state.config.retry_backoff_ms
    _lose_leader(state, role, now_ms, "the stream broke")


def on_log_flushed(state: RaftState, role: Follower, now_ms: int) -> None:
    """Fetch again once the appended records are on disk; the fetch acknowledges them to the
    leader."""
    if role.is_flushing and state.log.flushed_end_offset == state.log.end_offset:
        role.is_flushing = False
        fetching.fetch(state, role, now_ms)


def discover(state: RaftState, role: Unattached, now_ms: int) -> None:
    """Send a fetch to a random voter or bootstrap server; the response names the leader."""
    # Any peer answers at once, except the leader itself, which may park the fetch.
    role.discover_at_ms = now_ms + 2 * state.config.fetch_wait_max_ms
    # All voters in the log may have moved, so a dynamic node asks the bootstrap servers too.
    candidates = state.voter_set.ids + state.config.bootstrap_ids
    candidates = tuple(c for c in candidates if c != state.config.node_id)
    if not candidates:
        return
    if state.is_voter and state.log.flushed_end_offset < state.log.end_offset:
        # If the peer is the leader, it counts everything below the fetch offset as on disk here.
        state.emit(FlushLog(state.log.end_offset, state.log.generation))
        role.discover_at_ms = now_ms + state.config.retry_backoff_ms
        return
    if now_ms < role.distrusted_until_ms:
        others = tuple(voter for voter in candidates if voter != role.lost_leader_id)
        candidates = others or candidates
    role.correlation_id = fetching.send_fetch(state, state.rng.choice(candidates))


def on_discovery_response(
    state: RaftState, role: Unattached, sender_id: int, response: FetchResponse, now_ms: int
) -> None:
    """Follow the named leader, or the sender if the sender is the leader; else try again later.

    Raises NodeRefused if the leader has this node's id.
    """
    role.correlation_id = -1
    leader_id = response.leader_id if response.leader_id != NO_NODE else sender_id
    if response.error is ErrorCode.NONE and leader_id == state.config.node_id:
        raise NodeRefused(
            f"node {leader_id} leads the quorum already, as another process; this one needs a "
            "node.id of its own"
        )
    if response.error is ErrorCode.NONE and leader_id >= 0:
        become_follower(state, state.epoch, leader_id, now_ms)
    else:
        role.discover_at_ms = now_ms + state.config.retry_backoff_ms


def on_discovery_failed(state: RaftState, role: Unattached, now_ms: int) -> None:
    """Ask another peer soon, because this one cannot be reached."""
    role.correlation_id = -1
    role.discover_at_ms = now_ms + state.config.retry_backoff_ms


def _truncate(state: RaftState, role: Follower, diverging: OffsetAndEpoch) -> bool:
    """Drop the end of the log that the leader does not have. False if this node refuses.

    Bad sequence without the refusal: 1. Two of three voters lose their disks and are installed
    again as new ones. 2. They elect a leader over an empty log. 3. The third voter and every broker
    truncate what they know to be committed.
    """
    end_offset = state.log.truncation_offset(diverging)
    asks = f"leader {role.leader_id} of epoch {state.epoch} asks to truncate to {end_offset}"
    if end_offset >= state.log.end_offset:
        state.refuse_leader(f"{asks}, where the log ends: it lacks an epoch of this node's base")
        return False
    committed = state.known_committed
    if end_offset < committed:
        state.refuse_leader(
            f"{asks}, but the records up to {committed} are committed and would be lost. "
            f"{LOST_DISKS_ADVICE}"
        )
        return False
    state.emit(
        TimelineEntry(f"epoch={state.epoch} truncates from={state.log.end_offset} to={end_offset}")
    )
    state.refused_leader = ""
    state.log.truncate(end_offset)
    state.emit(TruncateLog(end_offset))
    return True


def _continues(state: RaftState, response: FetchResponse) -> bool:
    """True if the batches continue the log, in epochs that never fall and never exceed this one."""
    end_offset, epoch = state.log.end_offset, state.log.last_epoch
    for span in response.spans:
        if span.base_offset != end_offset or not epoch <= span.epoch <= state.epoch:
            return False
        if span.last_offset < span.base_offset:
            return False
        end_offset, epoch = span.last_offset + 1, span.epoch
    return True


def _append(state: RaftState, role: Follower, response: FetchResponse, now_ms: int) -> None:
    base_offset = state.log.end_offset
    for span in response.spans:
        state.log.append(span)
    state.emit(AppendFetched(base_offset, response.records))
    if role.update_voter_at_ms == NEVER_MS and state.is_voter_entry_stale:
        role.update_voter_at_ms = now_ms


def _on_fetch_error(state: RaftState, role: Follower, response: FetchResponse, now_ms: int) -> None:
    if not state.is_electable and response.error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
        _look_elsewhere(state, now_ms)
        return
    role.retry_at_ms = now_ms + state.config.retry_backoff_ms
    if response.error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
        # The epoch has not changed, so the peer is the leader of this epoch and has restarted.
        _lose_leader(state, role, now_ms, "it says that it leads no more")


def _lose_leader(state: RaftState, role: Follower, now_ms: int, reason: str) -> None:
    """Give the leader a short grace to come back before this node stands for election."""
    if role.is_leader_lost:
        return
    state.emit(TimelineEntry(f"epoch={state.epoch} lost leader={role.leader_id} reason={reason!r}"))
    role.is_leader_lost = True
    grace_ms = state.config.leader_loss_grace_ms
    role.stand_at_ms = now_ms + grace_ms + state.rng.randrange(grace_ms + 1)


def _give_up(state: RaftState, now_ms: int, reason: str) -> None:
    if state.is_electable:
        election.stand(state, now_ms, reason)
    else:
        _look_elsewhere(state, now_ms)


def _update_voter(state: RaftState, role: Follower, now_ms: int) -> None:
    """Tell the leader this voter's new listener (KIP-853, UpdateVoter)."""
    role.update_voter_at_ms = NEVER_MS
    voter = state.own_voter
    if voter is None or not state.is_voter_entry_stale:
        return
    role.update_voter_at_ms = now_ms + UPDATE_VOTER_FETCH_TIMEOUTS * state.config.fetch_timeout_ms
    request = UpdateVoterRequest(cluster_id=state.config.cluster_id, epoch=state.epoch, voter=voter)
    state.emit(SendRequest(role.leader_id, state.next_correlation_id(), request))


def on_update_response(state: RaftState, response: VoterChangeResponse) -> None:
    """Note a refusal, which is tried again later. The log itself shows a change that was made."""
    if response.error is not ErrorCode.NONE:
        state.emit(
            TimelineEntry(f"epoch={state.epoch} voter update refused reason={response.message!r}")
        )


def _look_elsewhere(state: RaftState, now_ms: int) -> None:
    lost_leader_id = state.role.leader_id
    become_unattached(state, state.epoch, now_ms)
    role = state.role
    if isinstance(role, Unattached):
        role.discover_at_ms = now_ms + state.config.retry_backoff_ms
        role.leader_id = NO_NODE
        role.lost_leader_id = lost_leader_id
        role.distrusted_until_ms = now_ms + state.config.election_timeout_ms
