"""Elections: standing with pre-votes and votes, and answering the vote requests of other nodes."""

from __future__ import annotations

from kvorum.raft.core import leader
from kvorum.raft.core.state import RaftState
from kvorum.raft.core.states import (
    NEVER_MS,
    Candidate,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Unattached,
)
from kvorum.raft.core.transitions import (
    become_candidate,
    become_follower,
    become_prospective,
    become_unattached,
)
from kvorum.raft.model.effects import Reply, SendRequest, TimelineEntry
from kvorum.raft.model.messages import VoteRequest, VoteResponse
from kvorum.raft.model.quorum import is_lost, majority
from kvorum.runtime.errors import ErrorCode
from kvorum.runtime.ids import NO_NODE, UUID_ZERO


def stand(state: RaftState, now_ms: int, reason: str) -> None:
    """Become prospective and ask every other voter for a pre-vote."""
    state.emit(TimelineEntry(f"epoch={state.epoch} stands prospective reason={reason!r}"))
    role = become_prospective(state, now_ms)
    _ask_all(state, role, now_ms)
    _count(state, role, now_ms)


def on_tick(state: RaftState, role: Prospective | Candidate, now_ms: int) -> None:
    """Ask again where a request failed; end a round that has timed out."""
    if now_ms >= role.election_deadline_ms:
        state.emit(TimelineEntry(f"epoch={state.epoch} round timed out as {type(role).__name__}"))
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
    """Count a response of this round; the caller has already compared its epoch."""
    voter_id = role.pending.pop(correlation_id, None)
    if voter_id is None:
        return  # an answer of an earlier round
    if response.leader_id == voter_id and isinstance(role, Prospective):
        # The leader of this epoch is alive and answers, whatever broke the stream to it.
        state.emit(TimelineEntry(f"epoch={state.epoch} voter={voter_id} is the leader"))
        become_follower(state, state.epoch, voter_id, now_ms)
        return
    if response.is_granted:
        role.granted.add(voter_id)
        role.rejected.discard(voter_id)
    else:
        # A voter that was asked twice may have lost the leader in between. Its grant then counts,
        # whichever of its two responses comes first.
        role.rejected.update({voter_id} - role.granted)
        state.emit(
            TimelineEntry(
                f"epoch={state.epoch} voter={voter_id} refused reason={response.reason!r}"
            )
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
    """Answer the request of a candidate or a prospective (KIP-595, KIP-996)."""
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
            # The vote is on disk before the response leaves: PersistVoteState precedes Reply.
            become_unattached(
                state,
                state.epoch,
                now_ms,
                voted_id=request.candidate_id,
                voted_directory_id=request.candidate_directory_id,
            )
    kind = "pre-vote" if request.is_pre_vote else "vote"
    verdict = f"refused reason={refusal!r}" if refusal else "granted"
    state.emit(TimelineEntry(f"epoch={state.epoch} {kind} for={request.candidate_id} {verdict}"))
    state.emit(
        Reply(
            token,
            VoteResponse(
                epoch=state.epoch,
                # A node that resigned no longer leads, although its epoch has no other leader.
                leader_id=NO_NODE if isinstance(state.role, Resigned) else state.role.leader_id,
                is_granted=not refusal,
                error=error,
                reason=refusal,
            ),
        )
    )
    if request.is_pre_vote and refusal and error is ErrorCode.NONE:
        _ask_back(state, request.candidate_id, now_ms)


def _ask_back(state: RaftState, voter_id: int, now_ms: int) -> None:
    """Ask for the pre-vote of a voter whose own pre-vote was refused because its log is behind.

    That voter has lost the leader too, so it will now grant one. Bad sequence without this:
    1. All packets of the leader vanish.
    2. The fetch timeout of follower A passes first. B refuses A's pre-vote, because B's own fetch
       timeout has not passed.
    3. B's fetch timeout passes. A refuses B's pre-vote, because B's log is behind. Both sit out the
       round and one more fetch timeout.

    Only a longer log asks in turn, so two voters cannot ask each other for ever.
    """
    role = state.role
    if voter_id not in state.voter_set.ids:
        return
    if isinstance(role, Prospective) and voter_id not in role.granted:
        role.resend_at_ms.pop(voter_id, None)
        role.rejected.discard(voter_id)
        _ask(state, role, voter_id)
    elif isinstance(role, Follower) and role.is_leader_lost and role.stand_at_ms >= NEVER_MS:
        # This node's own round has failed, and it waits only for the fetch timeout.
        role.stand_at_ms = now_ms + state.rng.randrange(state.config.leader_loss_grace_ms + 1)
        role.stand_reason = "a voter behind this log has lost the leader too"


def _invalid(state: RaftState, request: VoteRequest) -> ErrorCode:
    # A candidate's log cannot hold its own epoch yet; a pre-vote is asked in the epoch of the log.
    last_epoch_limit = request.epoch if request.is_pre_vote else request.epoch - 1
    if not state.is_addressed_to_self(request.voter_id, request.voter_directory_id):
        # A wiped disk under an old id must not vote: the votes cast from the old disk are
        # forgotten.
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
            # Only a node that has lost the leader itself may help to depose it; once it has, it
            # need not wait for the fetch timeout. KIP-996 tests whether this node has ever fetched
            # from the leader. Bad sequence with that test:
            # 1. Voter A restarts.
            # 2. Before A's first fetch, voter B's stream breaks and B asks A for a pre-vote.
            # 3. A grants it and deposes a leader that both could follow.
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
    is_unnamed = state.config.is_dynamic and request.voter_directory_id == UUID_ZERO
    if is_unnamed and state.log.end_offset == 0 < request.end_offset:
        # Bad sequence without this rule: 1. Leader A and voter B commit records, also one that
        # names B's disk; voter C lags. 2. B loses its disk, and is installed again from the folder
        # of its first installation. 3. A dies, and the new B votes for C, which lacks the records.
        return "has no log yet, and the candidate does not know its disk"
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
            state.emit(TimelineEntry(f"epoch={state.epoch} stands candidate"))
            _ask_all(state, candidate, now_ms)
            _count(state, candidate, now_ms)
        else:
            leader.begin_epoch(state, sorted(role.granted), now_ms)
    elif is_lost(len(voters), role.rejected.intersection(voters)):
        _round_failed(state, role, now_ms)
    else:
        _hasten_if_split(state, role, now_ms)


def _hasten_if_split(state: RaftState, role: Prospective | Candidate, now_ms: int) -> None:
    """Shorten the candidate's wait once every voter that can be reached has answered.

    Two followers that lose the same leader at once may split the votes, and the dead leader's own
    vote will not come. Each waits for a short random time, so that one of them stands first.
    """
    silent = set(state.voter_set.ids) - role.granted - role.rejected - role.failed
    if isinstance(role, Candidate) and not silent and not role.is_shortened:
        role.is_shortened = True
        wait_ms = state.rng.randrange(3 * state.config.leader_loss_grace_ms)
        role.election_deadline_ms = min(role.election_deadline_ms, now_ms + wait_ms)


def _round_failed(state: RaftState, role: Prospective | Candidate, now_ms: int) -> None:
    if isinstance(role, Candidate):
        # The candidate waits for the rest of its random timeout, so that two candidates that split
        # the votes do not stand at the same time again.
        if now_ms >= role.election_deadline_ms:
            stand(state, now_ms, "the round as candidate timed out")
        return
    if role.leader_id not in (NO_NODE, state.config.node_id):
        leader_id = role.leader_id
        become_follower(state, state.epoch, leader_id, now_ms)
        follower = state.role
        if isinstance(follower, Follower):
            # The other voters still have the leader. This node has lost it and may grant pre-votes.
            follower.is_leader_lost = True
        return
    become_unattached(state, state.epoch, now_ms)
    unattached = state.role
    if isinstance(unattached, Unattached):
        unattached.election_deadline_ms = state.random_election_deadline_ms(now_ms)
