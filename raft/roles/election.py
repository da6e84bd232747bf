"""Standing for election: pre-votes, votes, and answering those of others."""

from __future__ import annotations

from kvorum.raft.effects import Noted, Reply, SendRequest
from kvorum.raft.messages import VoteRequest, VoteResponse
from kvorum.raft.quorum import is_lost, majority
from kvorum.raft.roles import leader
from kvorum.raft.roles.states import (
    NEVER_MS,
    Candidate,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Unattached,
)
from kvorum.raft.state import RaftState
from kvorum.raft.transitions import (
    become_candidate,
    become_follower,
    become_prospective,
    become_unattached,
)
from kvorum.runtime.errors import ErrorCode
from kvorum.runtime.ids import NO_NODE, UUID_ZERO


def stand(state: RaftState, now_ms: int, reason: str) -> None:
    """Begin a pre-vote."""
    state.emit(Noted(f"epoch={state.epoch} stands prospective reason={reason!r}"))
    role = become_prospective(state, now_ms)
    _ask_all(state, role, now_ms)
    _count(state, role, now_ms)


def on_tick(state: RaftState, role: Prospective | Candidate, now_ms: int) -> None:
    """Send again what failed; give up a round that took too long."""
    if now_ms >= role.election_deadline_ms:
        state.emit(Noted(f"epoch={state.epoch} round timed out as {type(role).__name__}"))
        _round_failed(state, role, now_ms)
        return
    for voter_id in sorted(v for v, at_ms in role.resend_at_ms.items() if now_ms >= at_ms):
        del role.resend_at_ms[voter_id]
        _ask(state, role, voter_id)


def on_vote_response(
    state: RaftState,
    role: Prospective | Candidate,
    correlation_id: int,
    response: VoteResponse,
    now_ms: int,
) -> None:
    """Count an answer of this round; the epoch has been compared already."""
    voter_id = role.pending.pop(correlation_id, None)
    if voter_id is None:
        return  # an answer of an earlier round
    if response.leader_id == voter_id and isinstance(role, Prospective):
        # The leader of this very epoch lives and can be reached, whatever broke the stream.
        state.emit(Noted(f"epoch={state.epoch} voter={voter_id} is the leader"))
        become_follower(state, state.epoch, voter_id, now_ms)
        return
    if response.is_granted:
        role.granted.add(voter_id)
        role.rejected.discard(voter_id)
    else:
        # A voter that was asked twice may have lost the leader in between; the grant counts,
        # whichever answer comes first.
        role.rejected.update({voter_id} - role.granted)
        state.emit(
            Noted(f"epoch={state.epoch} voter={voter_id} refused reason={response.reason!r}")
        )
    _count(state, role, now_ms)


def on_request_failed(
    state: RaftState, role: Prospective | Candidate, correlation_id: int, now_ms: int
) -> None:
    """Ask the voter again after a pause."""
    voter_id = role.pending.pop(correlation_id, None)
    if voter_id is not None:
        role.resend_at_ms[voter_id] = now_ms + state.config.retry_backoff_ms
        role.failed.add(voter_id)
        _hasten_if_split(state, role, now_ms)


def on_vote_request(state: RaftState, request: VoteRequest, token: int, now_ms: int) -> None:
    """Answer a candidate, or one who would be (KIP-595, KIP-996)."""
    error = _invalid(state, request)
    if error is ErrorCode.NONE and request.epoch > state.epoch:
        become_unattached(state, request.epoch, now_ms)
    if error is not ErrorCode.NONE:
        refusal = error.name.lower().replace("_", " ")
    elif request.is_pre_vote:
        refusal = _pre_vote_refusal(state, request)
    else:
        refusal = _vote_refusal(state, request)
        if not refusal and state.voted_id == NO_NODE:
            # The vote is on disk before the answer leaves: PersistVoteState precedes Reply.
            become_unattached(
                state,
                state.epoch,
                now_ms,
                voted_id=request.candidate_id,
                voted_directory_id=request.candidate_directory_id,
            )
    kind = "pre-vote" if request.is_pre_vote else "vote"
    verdict = f"refused reason={refusal!r}" if refusal else "granted"
    state.emit(Noted(f"epoch={state.epoch} {kind} for={request.candidate_id} {verdict}"))
    state.emit(
        Reply(
            token,
            VoteResponse(
                epoch=state.epoch,
                # One that resigned leads no more, though its epoch has no other leader.
                leader_id=NO_NODE if isinstance(state.role, Resigned) else state.role.leader_id,
                is_granted=not refusal,
                error=error,
                reason=refusal,
            ),
        )
    )
    if request.is_pre_vote and refusal and error is ErrorCode.NONE:
        _ask_in_turn(state, request.candidate_id, now_ms)


def _ask_in_turn(state: RaftState, voter_id: int, now_ms: int) -> None:
    """A voter whose log is behind this one has lost the leader too: now it will help.

    Bad sequence without this: 1. all packets of the leader vanish, 2. this follower's fetch timeout
    passes first, and the other one refuses since its own has not, 3. it passes, and this one
    refuses since the other's log is behind: both sit out a round and one more fetch timeout.
    A longer log answers a shorter one, so the answering ends.
    """
    role = state.role
    if voter_id not in state.voter_set.ids:
        return
    if isinstance(role, Prospective) and voter_id not in role.granted:
        role.resend_at_ms.pop(voter_id, None)
        role.rejected.discard(voter_id)
        _ask(state, role, voter_id)
    elif isinstance(role, Follower) and role.is_leader_lost and role.stand_at_ms >= NEVER_MS:
        # Its own round was lost, and it waits for nothing but the fetch timeout.
        role.stand_at_ms = now_ms + state.rng.randrange(state.config.leader_loss_grace_ms + 1)
        role.stand_reason = "a voter behind this log has lost the leader too"


def _invalid(state: RaftState, request: VoteRequest) -> ErrorCode:
    # A candidate's log cannot hold its own epoch yet; a pre-vote is asked in the epoch of the log.
    last_epoch_limit = request.epoch if request.is_pre_vote else request.epoch - 1
    if not state.is_meant(request.voter_id, request.voter_directory_id):
        # A wiped disk under an old id must not vote: what its predecessor promised is forgotten.
        return ErrorCode.INVALID_VOTER_KEY
    if request.end_offset < 0 or not 0 <= request.last_epoch <= last_epoch_limit:
        return ErrorCode.INVALID_REQUEST
    if request.epoch < state.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.NONE


def _pre_vote_refusal(state: RaftState, request: VoteRequest) -> str:
    match state.role:
        case Leader():
            return "is the leader"
        case Resigned():
            return "resigned in this epoch"
        case Follower() as role if not role.is_leader_lost:
            # Only who has lost the leader too may help to depose it. KIP-996 asks whether this
            # node has ever fetched from it; but then 1. a voter restarts, 2. before its first
            # fetch another one's stream breaks and asks, 3. a leader that both could follow goes.
            # And once it is lost there is no need to wait for the fetch timeout.
            return "leader alive"
        case _:
            return _stale_log(state, request)


def _vote_refusal(state: RaftState, request: VoteRequest) -> str:
    if (state.voted_id, state.voted_directory_id) == (
        request.candidate_id,
        request.candidate_directory_id,
    ):
        return ""
    if state.voted_id != NO_NODE:
        return f"voted for {state.voted_id}"
    if not isinstance(state.role, Unattached | Prospective):
        return f"is {type(state.role).__name__.lower()} in this epoch"
    if state.role.leader_id != NO_NODE:
        return f"leader of this epoch is {state.role.leader_id}"
    return _stale_log(state, request)


def _stale_log(state: RaftState, request: VoteRequest) -> str:
    own = (state.log.last_epoch, state.log.end_offset)
    if (request.last_epoch, request.end_offset) >= own:
        return ""
    return f"stale log: {(request.last_epoch, request.end_offset)} is behind {own}"


def _ask_all(state: RaftState, role: Prospective | Candidate, now_ms: int) -> None:
    for voter_id in state.voter_set.ids:
        if voter_id != state.config.node_id:
            _ask(state, role, voter_id)


def _ask(state: RaftState, role: Prospective | Candidate, voter_id: int) -> None:
    correlation_id = state.next_correlation_id()
    role.pending[correlation_id] = voter_id
    voter = state.voter_set.get(voter_id)
    state.emit(
        SendRequest(
            voter_id,
            correlation_id,
            VoteRequest(
                cluster_id=state.config.cluster_id,
                epoch=state.epoch,
                candidate_id=state.config.node_id,
                voter_id=voter_id,
                last_epoch=state.log.last_epoch,
                end_offset=state.log.end_offset,
                is_pre_vote=isinstance(role, Prospective),
                candidate_directory_id=state.config.directory_id,
                voter_directory_id=UUID_ZERO if voter is None else voter.directory_id,
            ),
        )
    )


def _count(state: RaftState, role: Prospective | Candidate, now_ms: int) -> None:
    voters = state.voter_set.ids
    if len(role.granted.intersection(voters)) >= majority(len(voters)):
        if isinstance(role, Prospective):
            candidate = become_candidate(state, now_ms)
            state.emit(Noted(f"epoch={state.epoch} stands candidate"))
            _ask_all(state, candidate, now_ms)
            _count(state, candidate, now_ms)
        else:
            leader.begin_epoch(state, sorted(role.granted), now_ms)
    elif is_lost(len(voters), role.rejected.intersection(voters)):
        _round_failed(state, role, now_ms)
    else:
        _hasten_if_split(state, role, now_ms)


def _hasten_if_split(state: RaftState, role: Prospective | Candidate, now_ms: int) -> None:
    """Do not sit out a whole election timeout when everybody who can be heard has spoken.

    Two followers that lose the same leader at once may split the votes; the dead leader's own
    will not come. Each tries again after a short random time, so one of them will be first.
    """
    silent = set(state.voter_set.ids) - role.granted - role.rejected - role.failed
    if isinstance(role, Candidate) and not silent and not role.is_hastened:
        role.is_hastened = True
        wait_ms = state.rng.randrange(3 * state.config.leader_loss_grace_ms)
        role.election_deadline_ms = min(role.election_deadline_ms, now_ms + wait_ms)


def _round_failed(state: RaftState, role: Prospective | Candidate, now_ms: int) -> None:
    if isinstance(role, Candidate):
        # Wait out the rest of a random time before the next round, so that two candidates
        # that split the votes do not meet again in step.
        if now_ms >= role.election_deadline_ms:
            stand(state, now_ms, "the round as candidate timed out")
        return
    if role.leader_id not in (NO_NODE, state.config.node_id):
        leader_id = role.leader_id
        become_follower(state, state.epoch, leader_id, now_ms)
        follower = state.role
        if isinstance(follower, Follower):
            # The others still have the leader; this node has not, and says so if asked.
            follower.is_leader_lost = True
        return
    become_unattached(state, state.epoch, now_ms)
    unattached = state.role
    if isinstance(unattached, Unattached):
        unattached.election_deadline_ms = state.random_election_deadline_ms(now_ms)
