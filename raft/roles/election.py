"""Standing for election: pre-votes, votes, and answering those of others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvorum.raft.effects import Noted, Reply, SendRequest
from kvorum.raft.messages import VoteRequest, VoteResponse
from kvorum.raft.quorum import is_lost, majority
from kvorum.raft.roles.states import (
    NEVER_MS,
    Candidate,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Unattached,
)
from kvorum.raft.transitions import (
    become_candidate,
    become_follower,
    become_prospective,
    become_unattached,
)
from kvorum.runtime.errors import ErrorCode
from kvorum.runtime.ids import NO_NODE, UUID_ZERO

if TYPE_CHECKING:
    from kvorum.raft.core import RaftCore


def stand(core: RaftCore, now_ms: int, reason: str) -> None:
    """Begin a pre-vote."""
    core.emit(Noted(f"epoch={core.epoch} stands prospective reason={reason!r}"))
    role = become_prospective(core, now_ms)
    _ask_all(core, role, now_ms)
    _count(core, role, now_ms)


def on_tick(core: RaftCore, role: Prospective | Candidate, now_ms: int) -> None:
    """Send again what failed; give up a round that took too long."""
    if now_ms >= role.election_deadline_ms:
        core.emit(Noted(f"epoch={core.epoch} round timed out as {type(role).__name__}"))
        _round_failed(core, role, now_ms)
        return
    for voter_id in sorted(v for v, at_ms in role.resend_at_ms.items() if now_ms >= at_ms):
        del role.resend_at_ms[voter_id]
        _ask(core, role, voter_id)


def on_vote_response(
    core: RaftCore,
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
        core.emit(Noted(f"epoch={core.epoch} voter={voter_id} is the leader"))
        become_follower(core, core.epoch, voter_id, now_ms)
        return
    if response.is_granted:
        role.granted.add(voter_id)
        role.rejected.discard(voter_id)
    else:
        # A voter that was asked twice may have lost the leader in between; the grant counts,
        # whichever answer comes first.
        role.rejected.update({voter_id} - role.granted)
        core.emit(Noted(f"epoch={core.epoch} voter={voter_id} refused reason={response.reason!r}"))
    _count(core, role, now_ms)


def on_request_failed(
    core: RaftCore, role: Prospective | Candidate, correlation_id: int, now_ms: int
) -> None:
    """Ask the voter again after a pause."""
    voter_id = role.pending.pop(correlation_id, None)
    if voter_id is not None:
        role.resend_at_ms[voter_id] = now_ms + core.config.retry_backoff_ms
        role.failed.add(voter_id)
        _hasten_if_split(core, role, now_ms)


def on_vote_request(core: RaftCore, request: VoteRequest, token: int, now_ms: int) -> None:
    """Answer a candidate, or one who would be (KIP-595, KIP-996)."""
    error = _invalid(core, request)
    if error is ErrorCode.NONE and request.epoch > core.epoch:
        become_unattached(core, request.epoch, now_ms)
    if error is not ErrorCode.NONE:
        refusal = error.name.lower().replace("_", " ")
    elif request.is_pre_vote:
        refusal = _pre_vote_refusal(core, request)
    else:
        refusal = _vote_refusal(core, request)
        if not refusal and core.voted_id == NO_NODE:
            # The vote is on disk before the answer leaves: PersistVoteState precedes Reply.
            become_unattached(
                core,
                core.epoch,
                now_ms,
                voted_id=request.candidate_id,
                voted_directory_id=request.candidate_directory_id,
            )
    kind = "pre-vote" if request.is_pre_vote else "vote"
    verdict = f"refused reason={refusal!r}" if refusal else "granted"
    core.emit(Noted(f"epoch={core.epoch} {kind} for={request.candidate_id} {verdict}"))
    core.emit(
        Reply(
            token,
            VoteResponse(
                epoch=core.epoch,
                # One that resigned leads no more, though its epoch has no other leader.
                leader_id=NO_NODE if isinstance(core.role, Resigned) else core.role.leader_id,
                is_granted=not refusal,
                error=error,
                reason=refusal,
            ),
        )
    )
    if request.is_pre_vote and refusal and error is ErrorCode.NONE:
        _ask_in_turn(core, request.candidate_id, now_ms)


def _ask_in_turn(core: RaftCore, voter_id: int, now_ms: int) -> None:
    """A voter whose log is behind this one has lost the leader too: now it will help.

    Bad sequence without this: 1. all packets of the leader vanish, 2. this follower's fetch timeout
    passes first, and the other one refuses since its own has not, 3. it passes, and this one
    refuses since the other's log is behind: both sit out a round and one more fetch timeout.
    A longer log answers a shorter one, so the answering ends.
    """
    role = core.role
    if voter_id not in core.voter_set.ids:
        return
    if isinstance(role, Prospective) and voter_id not in role.granted:
        role.resend_at_ms.pop(voter_id, None)
        role.rejected.discard(voter_id)
        _ask(core, role, voter_id)
    elif isinstance(role, Follower) and role.is_leader_lost and role.stand_at_ms >= NEVER_MS:
        # Its own round was lost, and it waits for nothing but the fetch timeout.
        role.stand_at_ms = now_ms + core.rng.randrange(core.config.leader_loss_grace_ms + 1)
        role.stand_reason = "a voter behind this log has lost the leader too"


def _invalid(core: RaftCore, request: VoteRequest) -> ErrorCode:
    # A candidate's log cannot hold its own epoch yet; a pre-vote is asked in the epoch of the log.
    last_epoch_limit = request.epoch if request.is_pre_vote else request.epoch - 1
    if not core.is_meant(request.voter_id, request.voter_directory_id):
        # A wiped disk under an old id must not vote: what its predecessor promised is forgotten.
        return ErrorCode.INVALID_VOTER_KEY
    if request.end_offset < 0 or not 0 <= request.last_epoch <= last_epoch_limit:
        return ErrorCode.INVALID_REQUEST
    if request.epoch < core.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.NONE


def _pre_vote_refusal(core: RaftCore, request: VoteRequest) -> str:
    match core.role:
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
            return _stale_log(core, request)


def _vote_refusal(core: RaftCore, request: VoteRequest) -> str:
    if (core.voted_id, core.voted_directory_id) == (
        request.candidate_id,
        request.candidate_directory_id,
    ):
        return ""
    if core.voted_id != NO_NODE:
        return f"voted for {core.voted_id}"
    if not isinstance(core.role, Unattached | Prospective):
        return f"is {type(core.role).__name__.lower()} in this epoch"
    if core.role.leader_id != NO_NODE:
        return f"leader of this epoch is {core.role.leader_id}"
    return _stale_log(core, request)


def _stale_log(core: RaftCore, request: VoteRequest) -> str:
    own = (core.log.last_epoch, core.log.end_offset)
    if (request.last_epoch, request.end_offset) >= own:
        return ""
    return f"stale log: {(request.last_epoch, request.end_offset)} is behind {own}"


def _ask_all(core: RaftCore, role: Prospective | Candidate, now_ms: int) -> None:
    for voter_id in core.voter_set.ids:
        if voter_id != core.config.node_id:
            _ask(core, role, voter_id)


def _ask(core: RaftCore, role: Prospective | Candidate, voter_id: int) -> None:
    correlation_id = core.next_correlation_id()
    role.pending[correlation_id] = voter_id
    voter = core.voter_set.get(voter_id)
    core.emit(
        SendRequest(
            voter_id,
            correlation_id,
            VoteRequest(
                cluster_id=core.config.cluster_id,
                epoch=core.epoch,
                candidate_id=core.config.node_id,
                voter_id=voter_id,
                last_epoch=core.log.last_epoch,
                end_offset=core.log.end_offset,
                is_pre_vote=isinstance(role, Prospective),
                candidate_directory_id=core.config.directory_id,
                voter_directory_id=UUID_ZERO if voter is None else voter.directory_id,
            ),
        )
    )


def _count(core: RaftCore, role: Prospective | Candidate, now_ms: int) -> None:
    voters = core.voter_set.ids
    if len(role.granted.intersection(voters)) >= majority(len(voters)):
        if isinstance(role, Prospective):
            candidate = become_candidate(core, now_ms)
            core.emit(Noted(f"epoch={core.epoch} stands candidate"))
            _ask_all(core, candidate, now_ms)
            _count(core, candidate, now_ms)
        else:
            core.lead(sorted(role.granted), now_ms)
    elif is_lost(len(voters), role.rejected.intersection(voters)):
        _round_failed(core, role, now_ms)
    else:
        _hasten_if_split(core, role, now_ms)


def _hasten_if_split(core: RaftCore, role: Prospective | Candidate, now_ms: int) -> None:
    """Do not sit out a whole election timeout when everybody who can be heard has spoken.

    Two followers that lose the same leader at once may split the votes; the dead leader's own
    will not come. Each tries again after a short random time, so one of them will be first.
    """
    silent = set(core.voter_set.ids) - role.granted - role.rejected - role.failed
    if isinstance(role, Candidate) and not silent and not role.is_hastened:
        role.is_hastened = True
        wait_ms = core.rng.randrange(3 * core.config.leader_loss_grace_ms)
        role.election_deadline_ms = min(role.election_deadline_ms, now_ms + wait_ms)


def _round_failed(core: RaftCore, role: Prospective | Candidate, now_ms: int) -> None:
    if isinstance(role, Candidate):
        # Wait out the rest of a random time before the next round, so that two candidates
        # that split the votes do not meet again in step.
        if now_ms >= role.election_deadline_ms:
            stand(core, now_ms, "the round as candidate timed out")
        return
    if role.leader_id not in (NO_NODE, core.config.node_id):
        leader_id = role.leader_id
        become_follower(core, core.epoch, leader_id, now_ms)
        follower = core.role
        if isinstance(follower, Follower):
            # The others still have the leader; this node has not, and says so if asked.
            follower.is_leader_lost = True
        return
    become_unattached(core, core.epoch, now_ms)
    unattached = core.role
    if isinstance(unattached, Unattached):
        unattached.election_deadline_ms = core.random_election_deadline_ms(now_ms)
