"""Rules of a leader that serve several of its tasks: check-quorum, parked fetches, stepping down.

`raft.core.leader` calls these functions for fetches and deadlines, `raft.core.voter_changes` for
a changed voter set.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from kvorum.raft.core.state import RaftState
from kvorum.raft.core.states import NEVER_MS, Leader
from kvorum.raft.core.transitions import become_resigned
from kvorum.raft.model.effects import FlushLog, ReplyWithRecords, SendRequest
from kvorum.raft.model.messages import EndQuorumEpochRequest
from kvorum.raft.model.progress import ParkedFetch, ReplicaKey, ReplicaProgress
from kvorum.raft.model.quorum import majority
from kvorum.runtime.errors import invariant
from kvorum.runtime.ids import UUID_ZERO

TURN_MS = 2
TURN_FETCHES = 16
"""The observers' fetches that a leader answers in a turn of TURN_MS."""
TURNS_MAX = 64
"""With many observers a turn answers more of them, so that all are answered in this many turns."""


def apply_voter_set(state: RaftState, role: Leader) -> None:
    """Divide the replicas into voters and observers by the voter set in force; their progress is
    kept."""
    known = {(p.node_id, p.directory_id): p for p in role.voters.values()} | role.observers
    before = {p.node_id: p for p in role.voters.values()}
    voters: dict[int, ReplicaProgress] = {}
    for voter in state.voter_set.voters:
        if state.is_own(voter):
            continue
        progress = known.get((voter.node_id, voter.directory_id))
        old = before.get(voter.node_id)
        # One of the two entries names no directory: it is the same replica.
        if progress is None and old and UUID_ZERO in (voter.directory_id, old.directory_id):
            progress = old
            if old.directory_id == UUID_ZERO:
                old.directory_id = voter.directory_id
        voters[voter.node_id] = progress or ReplicaProgress(voter.node_id, voter.directory_id)
    chosen = {id(progress) for progress in voters.values()}
    role.voters = voters
    role.observers = {key: p for key, p in known.items() if id(p) not in chosen}


def resign(state: RaftState, now_ms: int, reason: str) -> None:
    """Step down and hand over, the voter with the longest log first (KIP-595, EndQuorumEpoch)."""
    role = state.role
    invariant(isinstance(role, Leader), "only a leader resigns")
    if not isinstance(role, Leader):
        return
    voters = role.voters
    successors = sorted(voters, key=lambda v: (-voters[v].end_offset, v))
    become_resigned(state, now_ms, reason)
    for voter_id in successors:
        state.emit(
            SendRequest(
                voter_id,
                state.next_correlation_id(),
                EndQuorumEpochRequest(
                    cluster_id=state.config.cluster_id,
                    epoch=state.epoch,
                    leader_id=state.config.node_id,
                    preferred_successors=tuple(successors),
                ),
            )
        )


def set_check_quorum(state: RaftState, role: Leader, now_ms: int) -> None:
    """Set the time at which the leader loses its quorum if no voter fetches any more."""
    others_needed = majority(len(state.voter_set)) - state.is_voter
    if others_needed == 0:
        role.check_quorum_at_ms = NEVER_MS
        return
    # For a voter that has not fetched yet, the time runs from the election.
    contacts = sorted(
        (max(p.last_contact_ms, role.elected_at_ms) for p in role.voters.values()), reverse=True
    )
    role.check_quorum_at_ms = contacts[others_needed - 1] + state.config.check_quorum_timeout_ms


def wake_voters(state: RaftState, role: Leader) -> None:
    """Answer the voters' parked fetches after an append, then ask for an fsync."""
    for progress in role.voters.values():
        parked = role.parked.pop((progress.node_id, progress.directory_id), None)
        if parked is not None:
            reply_with_records(state, parked)
    set_parked_deadline(role)
    state.emit(FlushLog(state.log.end_offset, state.log.generation))


def answer_due(state: RaftState, role: Leader, now_ms: int) -> None:
    """Answer the observers' due fetches, as many as this turn allows; the next turn answers more.

    Bad sequence otherwise: 1. A cluster has 1,000 brokers. 2. A commit wakes all of them, and all
    fetch again. 3. Until the leader has read those fetches, for 50 ms and more, it sees no voter's
    fetch, and commits nothing.
    """
    if role.due and now_ms >= role.turn_began_ms + TURN_MS:
        role.turn_began_ms = now_ms
        role.turn_left = max(TURN_FETCHES, len(role.observers) // TURNS_MAX)
    answered = list(itertools.islice(role.due.values(), role.turn_left))
    role.turn_left -= len(answered)
    for parked in answered:
        del role.due[parked.replica]
        reply_with_records(state, parked)
    role.next_turn_at_ms = role.turn_began_ms + TURN_MS if role.due else NEVER_MS


def make_due(state: RaftState, role: Leader, fetches: Iterable[ParkedFetch]) -> None:
    """Answer these parked fetches: voters' at once, observers' in turn."""
    for parked in fetches:
        del role.parked[parked.replica]
        if state.voter_set.has(*parked.replica):
            reply_with_records(state, parked)
        else:
            role.due[parked.replica] = parked
    set_parked_deadline(role)


def visible_end(state: RaftState, replica: ReplicaKey) -> int:
    """The end offset that a replica may read to.

    A voter reads to the end of the log; an observer only to the high watermark, so that it never
    truncates.
    """
    if state.voter_set.has(*replica):
        return state.log.end_offset
    return min(state.log.end_offset, max(state.high_watermark, 0))


def reply_with_records(state: RaftState, parked: ParkedFetch) -> None:
    state.emit(
        ReplyWithRecords(
            token=parked.token,
            epoch=state.epoch,
            leader_id=state.config.node_id,
            high_watermark=state.high_watermark,
            fetch_offset=parked.fetch_offset,
            end_offset=visible_end(state, parked.replica),
            bytes_max=state.config.fetch_bytes_max,
        )
    )


def set_parked_deadline(role: Leader) -> None:
    # All wait equally long, so the oldest one's time is over first.
    oldest = next(iter(role.parked.values()), None)
    role.parked_deadline_ms = NEVER_MS if oldest is None else oldest.deadline_ms
