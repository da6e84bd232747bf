"""Every change of role, in one place: check that it is allowed, persist, then tell the driver.

PersistVoteState is emitted first and effects are carried out in order. So the quorum-state file is
written before any message that depends on it leaves the node. Becoming Prospective or Resigned
writes nothing (KIP-595, KIP-996).
"""

from __future__ import annotations

from kvorum.raft.core.state import RaftState
from kvorum.raft.core.states import (
    NEVER_MS,
    TRANSITIONS,
    Candidate,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Role,
    Unattached,
)
from kvorum.raft.model.effects import LeaderChanged, PersistVoteState, Reply, TimelineEntry
from kvorum.raft.model.messages import FetchResponse, VoterChangeResponse
from kvorum.raft.model.values import VoteState
from kvorum.runtime.errors import ErrorCode, invariant
from kvorum.runtime.ids import NO_NODE, UUID_ZERO


def become_unattached(
    state: RaftState,
    epoch: int,
    now_ms: int,
    *,
    voted_id: int = NO_NODE,
    voted_directory_id: bytes = UUID_ZERO,
    leader_id: int = NO_NODE,
) -> None:
    """Become unattached: a higher epoch was seen, or this node votes in its epoch (voted_id)."""
    invariant(epoch >= state.epoch, f"epoch would fall from {state.epoch} to {epoch}")
    election_deadline_ms = NEVER_MS
    discover_at_ms = NEVER_MS
    if state.is_electable:
        # A node that only saw a higher epoch keeps its deadline. Otherwise a stream of candidates
        # that cannot win could put off its own election for ever.
        if voted_id == NO_NODE and isinstance(state.role, Unattached | Prospective | Candidate):
            election_deadline_ms = state.role.election_deadline_ms
        else:
            election_deadline_ms = state.random_election_deadline_ms(now_ms)
    if not state.is_electable or state.config.bootstrap_ids:
        # Every voter of a dynamic set may have moved since, so an electable node looks for the
        # leader too.
        discover_at_ms = now_ms
    if epoch == state.epoch and voted_id == NO_NODE:
        voted_id, voted_directory_id = state.voted_id, state.voted_directory_id
    if (epoch, leader_id, voted_id) != (state.epoch, state.persisted_leader_id, state.voted_id):
        _persist(state, epoch, leader_id, voted_id, voted_directory_id)
    _enter(
        state,
        Unattached(
            leader_id=leader_id,
            election_deadline_ms=election_deadline_ms,
            discover_at_ms=discover_at_ms,
        ),
    )


def become_follower(state: RaftState, epoch: int, leader_id: int, now_ms: int) -> None:
    """Follow the leader of `epoch`, which is now known, and fetch from it."""
    invariant(epoch >= state.epoch, f"epoch would fall from {state.epoch} to {epoch}")
    invariant(leader_id != state.config.node_id, "a node cannot follow itself")
    is_same = epoch == state.epoch
    voted_id = state.voted_id if is_same else NO_NODE
    voted_directory_id = state.voted_directory_id if is_same else UUID_ZERO
    if (epoch, leader_id) != (state.epoch, state.persisted_leader_id):
        _persist(state, epoch, leader_id, voted_id, voted_directory_id)
    _enter(
        state,
        Follower(
            leader_id=leader_id,
            fetch_deadline_ms=state.random_fetch_deadline_ms(now_ms),
            retry_at_ms=now_ms,
            update_voter_at_ms=now_ms if state.is_voter_entry_stale else NEVER_MS,
        ),
    )


def become_prospective(state: RaftState, now_ms: int) -> Prospective:
    """Start a pre-vote: the leader is lost, or this node never knew one."""
    role = Prospective(
        leader_id=state.role.leader_id,
        election_deadline_ms=state.random_election_deadline_ms(now_ms),
        granted={state.config.node_id},
    )
    _enter(state, role)
    return role


def become_candidate(state: RaftState, now_ms: int) -> Candidate:
    """Raise the epoch and vote for this node itself, on disk: it has won the pre-vote."""
    _persist(state, state.epoch + 1, NO_NODE, state.config.node_id, state.config.directory_id)
    role = Candidate(
        election_deadline_ms=state.random_election_deadline_ms(now_ms),
        granted={state.config.node_id},
    )
    _enter(state, role)
    return role


def become_leader(state: RaftState, role: Leader) -> None:
    """Lead the epoch: a majority has voted for this node in it."""
    config = state.config
    _persist(state, state.epoch, config.node_id, config.node_id, config.directory_id)
    _enter(state, role)


def become_resigned(state: RaftState, now_ms: int, reason: str) -> None:
    """Step down as leader. Nothing is written; this node takes no further part in its epoch."""
    state.emit(TimelineEntry(f"epoch={state.epoch} resigned reason={reason!r}"))
    _enter(
        state,
        Resigned(
            leader_id=state.config.node_id,
            election_deadline_ms=state.random_election_deadline_ms(now_ms),
        ),
    )


def _enter(state: RaftState, role: Role) -> None:
    before = state.role
    allowed = TRANSITIONS[type(before)]
    invariant(
        type(role) in allowed, f"no transition {type(before).__name__} -> {type(role).__name__}"
    )
    state.role = role
    if isinstance(role, Leader):
        state.refused_leader = ""
    if isinstance(before, Leader):
        _turn_away_parked(state, before)
    if not isinstance(role, Leader):
        state.note_leadership(LeaderChanged(state.epoch, _acknowledged_leader(role)))


def _acknowledged_leader(role: Role) -> int:
    """The leader to which clients of this node are sent; only a follower acknowledges one."""
    return role.leader_id if isinstance(role, Follower) else NO_NODE


def _turn_away_parked(state: RaftState, leader: Leader) -> None:
    epoch, leader_id = state.epoch, state.role.leader_id
    error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    for parked in (*leader.parked.values(), *leader.due.values()):
        state.emit(
            Reply(parked.token, FetchResponse(epoch=epoch, leader_id=leader_id, error=error))
        )
    if leader.pending_change is not None:
        response = VoterChangeResponse(
            epoch=epoch,
            leader_id=leader_id,
            error=error,
            message="the leader stepped down before the change was committed; it may still be",
            voters=state.voter_set,
        )
        state.emit(Reply(leader.pending_change.token, response))


def _persist(
    state: RaftState, epoch: int, leader_id: int, voted_id: int, voted_directory_id: bytes
) -> None:
    state.epoch = epoch
    state.voted_id = voted_id
    state.voted_directory_id = voted_directory_id
    state.persisted_leader_id = leader_id
    state.emit(PersistVoteState(VoteState(epoch, leader_id, voted_id, voted_directory_id)))
