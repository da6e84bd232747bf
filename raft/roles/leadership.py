"""What a leader does for more than one reason: mind the quorum, answer parked fetches, step down.

`raft.roles.leader` calls these for fetches and deadlines, `raft.roles.voter_changes` for a changed
voter set.
"""

from __future__ import annotations

from kvorum.raft.effects import FlushLog, ReplyWithRecords, SendRequest
from kvorum.raft.messages import EndQuorumEpochRequest
from kvorum.raft.progress import ParkedFetch, ReplicaKey, ReplicaProgress
from kvorum.raft.quorum import majority
from kvorum.raft.roles.states import NEVER_MS, Leader
from kvorum.raft.state import RaftState
from kvorum.raft.transitions import become_resigned
from kvorum.runtime.errors import invariant
from kvorum.runtime.ids import UUID_ZERO


def apply_voter_set(state: RaftState, role: Leader) -> None:
    """Sort the replicas anew into voters and observers; what is known of them stays."""
    known = {(p.node_id, p.directory_id): p for p in role.voters.values()} | role.observers
    before = {p.node_id: p for p in role.voters.values()}
    voters: dict[int, ReplicaProgress] = {}
    for voter in state.voter_set.voters:
        if state.is_own(voter):
            continue
        progress = known.get((voter.node_id, voter.directory_id))
        if progress is None and voter.directory_id == UUID_ZERO:
            progress = before.get(voter.node_id)
        voters[voter.node_id] = progress or ReplicaProgress(voter.node_id, voter.directory_id)
    chosen = {id(progress) for progress in voters.values()}
    role.voters = voters
    role.observers = {key: p for key, p in known.items() if id(p) not in chosen}


def resign(state: RaftState, now_ms: int, reason: str) -> None:
    """Step down and hand over: the voter that holds most goes first (KIP-595, EndQuorumEpoch)."""
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
    """When the quorum would be lost if no more fetches came."""
    others_needed = majority(len(state.voter_set)) - state.is_voter
    if others_needed == 0:
        role.check_quorum_at_ms = NEVER_MS
        return
    # A voter that has not fetched yet is given the time since the election, or since it was added.
    contacts = sorted(
        (max(p.last_contact_ms, role.elected_at_ms) for p in role.voters.values()), reverse=True
    )
    role.check_quorum_at_ms = contacts[others_needed - 1] + state.config.check_quorum_timeout_ms


def wake_voters(state: RaftState, role: Leader) -> None:
    """Something was appended: answer the voters' parked fetches, then fsync."""
    for parked in list(role.parked.values()):
        if state.voter_set.has(*parked.replica):
            answer_parked(state, role, parked)
    state.emit(FlushLog(state.log.end_offset, state.log.generation))


def answer_parked(state: RaftState, role: Leader, parked: ParkedFetch) -> None:
    role.parked.pop(parked.replica, None)
    set_parked_deadline(role)
    reply_with_records(state, parked)


def visible_end(state: RaftState, replica: ReplicaKey) -> int:
    """Voters get all there is; observers only what is committed, so they never truncate."""
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
    role.parked_deadline_ms = min((p.deadline_ms for p in role.parked.values()), default=NEVER_MS)
