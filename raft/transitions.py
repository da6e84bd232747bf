"""Every change of role, in one place: checked, persisted, told.

The state file is written before anything that rests on it leaves the node: PersistVoteState is
emitted first, and effects are carried out in order. Entering Prospective and Resigned writes
nothing (KIP-595, KIP-996).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvorum.raft.effects import LeaderChanged, Noted, PersistVoteState, Reply
from kvorum.raft.messages import FetchResponse, VoterChangeResponse
from kvorum.raft.model import VoteState
from kvorum.raft.roles.states import (
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
from kvorum.runtime.errors import ErrorCode, invariant
from kvorum.runtime.ids import NO_NODE, UUID_ZERO

if TYPE_CHECKING:
    from kvorum.raft.core import RaftCore


def become_unattached(
    core: RaftCore,
    epoch: int,
    now_ms: int,
    *,
    voted_id: int = NO_NODE,
    voted_directory_id: bytes = UUID_ZERO,
    leader_id: int = NO_NODE,
) -> None:
    """A higher epoch was seen, or a vote was granted in this one (voted_id)."""
    invariant(epoch >= core.epoch, f"epoch would fall from {core.epoch} to {epoch}")
    election_deadline_ms = NEVER_MS
    discover_at_ms = NEVER_MS
    if core.is_electable:
        # A node that only saw a higher epoch keeps the time it had left, so that a stream of
        # would-be candidates cannot put off its own election for ever.
        if voted_id == NO_NODE and isinstance(core.role, Unattached | Prospective | Candidate):
            election_deadline_ms = core.role.election_deadline_ms
        else:
            election_deadline_ms = core.random_election_deadline_ms(now_ms)
    if not core.is_electable or core.config.bootstrap_ids:
        # With dynamic voters all that this node knows may have moved, so it asks as well.
        discover_at_ms = now_ms
    if epoch == core.epoch and voted_id == NO_NODE:
        voted_id, voted_directory_id = core.voted_id, core.voted_directory_id
    if (epoch, leader_id, voted_id) != (core.epoch, core.persisted_leader_id, core.voted_id):
        _persist(core, epoch, leader_id, voted_id, voted_directory_id)
    _enter(
        core,
        Unattached(
            leader_id=leader_id,
            election_deadline_ms=election_deadline_ms,
            discover_at_ms=discover_at_ms,
        ),
    )


def become_follower(core: RaftCore, epoch: int, leader_id: int, now_ms: int) -> None:
    """The leader of `epoch` is known: fetch from it."""
    invariant(epoch >= core.epoch, f"epoch would fall from {core.epoch} to {epoch}")
    invariant(leader_id != core.config.node_id, "a node cannot follow itself")
    is_same = epoch == core.epoch
    voted_id = core.voted_id if is_same else NO_NODE
    voted_directory_id = core.voted_directory_id if is_same else UUID_ZERO
    if (epoch, leader_id) != (core.epoch, core.persisted_leader_id):
        _persist(core, epoch, leader_id, voted_id, voted_directory_id)
    _enter(
        core,
        Follower(
            leader_id=leader_id,
            fetch_deadline_ms=core.random_fetch_deadline_ms(now_ms),
            retry_at_ms=now_ms,
            update_voter_at_ms=now_ms if core.is_voter_entry_stale else NEVER_MS,
        ),
    )


def become_prospective(core: RaftCore, now_ms: int) -> Prospective:
    """The leader is lost, or there never was one: ask whether a vote would be granted."""
    role = Prospective(
        leader_id=core.role.leader_id,
        election_deadline_ms=core.random_election_deadline_ms(now_ms),
        granted={core.config.node_id},
    )
    _enter(core, role)
    return role


def become_candidate(core: RaftCore, now_ms: int) -> Candidate:
    """A majority would vote for this node: raise the epoch and vote for itself, on disk."""
    _persist(core, core.epoch + 1, NO_NODE, core.config.node_id, core.config.directory_id)
    role = Candidate(
        election_deadline_ms=core.random_election_deadline_ms(now_ms),
        granted={core.config.node_id},
    )
    _enter(core, role)
    return role


def become_leader(core: RaftCore, role: Leader) -> None:
    """A majority voted for this node in this epoch."""
    config = core.config
    _persist(core, core.epoch, config.node_id, config.node_id, config.directory_id)
    _enter(core, role)


def become_resigned(core: RaftCore, now_ms: int, reason: str) -> None:
    """A leader steps down; nothing is written, its epoch is over for it all the same."""
    core.emit(Noted(f"epoch={core.epoch} resigned reason={reason!r}"))
    _enter(
        core,
        Resigned(
            leader_id=core.config.node_id,
            election_deadline_ms=core.random_election_deadline_ms(now_ms),
        ),
    )


def _enter(core: RaftCore, role: Role) -> None:
    before = core.role
    allowed = TRANSITIONS[type(before)]
    invariant(
        type(role) in allowed, f"no transition {type(before).__name__} -> {type(role).__name__}"
    )
    core.role = role
    if isinstance(before, Leader):
        _turn_away_parked(core, before)
    if not isinstance(role, Leader):
        core.note_leadership(LeaderChanged(core.epoch, _acknowledged_leader(role)))


def _acknowledged_leader(role: Role) -> int:
    """The leader for requests that need one; NO_NODE once it has resigned."""
    return role.leader_id if isinstance(role, Follower) else NO_NODE


def _turn_away_parked(core: RaftCore, leader: Leader) -> None:
    epoch, leader_id = core.epoch, core.role.leader_id
    error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    for parked in leader.parked.values():
        core.emit(Reply(parked.token, FetchResponse(epoch=epoch, leader_id=leader_id, error=error)))
    if leader.pending_change is not None:
        response = VoterChangeResponse(
            epoch=epoch,
            leader_id=leader_id,
            error=error,
            message="the leader stepped down before the change was committed; it may still be",
            voters=core.voter_set,
        )
        core.emit(Reply(leader.pending_change.token, response))


def _persist(
    core: RaftCore, epoch: int, leader_id: int, voted_id: int, voted_directory_id: bytes
) -> None:
    core.epoch = epoch
    core.voted_id = voted_id
    core.voted_directory_id = voted_directory_id
    core.persisted_leader_id = leader_id
    core.emit(PersistVoteState(VoteState(epoch, leader_id, voted_id, voted_directory_id)))
