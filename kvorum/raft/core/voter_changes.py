"""Changes of the voter set, at the leader: one voter at a time, each committed by the new set.

A new set is in force from its append on. Consecutive sets differ by one voter, so any majority of
one overlaps any majority of the other (KIP-853).
"""

from __future__ import annotations

import dataclasses

from kvorum.raft.core import leadership
from kvorum.raft.core.state import RaftState
from kvorum.raft.core.states import Leader
from kvorum.raft.model.effects import AppendVoters, Reply, TimelineEntry
from kvorum.raft.model.messages import (
    AddVoterRequest,
    RemoveVoterRequest,
    UpdateVoterRequest,
    VoterChangeRequest,
    VoterChangeResponse,
)
from kvorum.raft.model.progress import PendingVoterChange
from kvorum.raft.model.quorum import majority
from kvorum.raft.model.values import BatchSpan
from kvorum.raft.model.voters import HOST_BYTES_MAX, VOTERS_MAX, Voter, VoterSet
from kvorum.runtime.errors import ErrorCode, Rejected
from kvorum.runtime.ids import UUID_ZERO, uuid_text


def on_request(
    state: RaftState, role: Leader, request: VoterChangeRequest, token: int, now_ms: int
) -> None:
    """Check the request, append the new voter set, and answer once it is committed, or at
    once if the request asks for that."""
    refusal = _common_refusal(state, role)
    after: VoterSet | Rejected
    if refusal is not None:
        after = refusal
    elif isinstance(request, AddVoterRequest):
        after = _after_add(state, role, request, now_ms)
    elif isinstance(request, RemoveVoterRequest):
        after = _after_remove(state, role, request, now_ms)
    else:
        after = _after_update(state, request)
    if isinstance(after, Rejected):
        state.emit(
            TimelineEntry(f"epoch={state.epoch} voter change refused reason={after.message!r}")
        )
        _reply(state, token, state.voter_set, after)
        return
    is_dry_run = not isinstance(request, UpdateVoterRequest) and request.is_dry_run
    if is_dry_run or after == state.voter_set:
        _reply(state, token, after)
        return
    _put_in_force(state, role, after, now_ms)
    if isinstance(request, AddVoterRequest) and request.is_answered_early:
        # The append comes before this answer, as effects are carried out in their order.
        _reply(state, token, after)
        return
    role.pending_change = PendingVoterChange(token, state.log.end_offset)


def name_directories(state: RaftState, role: Leader, now_ms: int) -> None:
    """Put the directory ids of first voters into the voter set, as soon as their fetches tell them.

    `kvorum init` does not know them (see `first_voters`). Until the set names a voter's
    directory, an empty one could take its place.
    """
    after = state.voter_set
    if not state.config.is_dynamic or all(v.directory_id != UUID_ZERO for v in after.voters):
        return
    for voter in after.voters:
        progress = role.voters.get(voter.node_id)
        if voter.directory_id == UUID_ZERO and progress is not None:
            named = dataclasses.replace(voter, directory_id=progress.directory_id)
            after = after.with_voter(named)
    if after != state.voter_set and _common_refusal(state, role) is None:
        _put_in_force(state, role, after, now_ms)


def _put_in_force(state: RaftState, role: Leader, after: VoterSet, now_ms: int) -> None:
    state.emit(TimelineEntry(f"epoch={state.epoch} voters={after}"))
    offset = state.log.end_offset
    state.log.append(BatchSpan(offset, offset, state.epoch, after, offset))
    state.emit(AppendVoters(offset, state.epoch, after))
    leadership.apply_voter_set(state, role)
    leadership.set_check_quorum(state, role, now_ms)
    leadership.wake_voters(state, role)


def on_committed(state: RaftState, role: Leader, now_ms: int) -> None:
    """The high watermark advanced: answer a change that is now committed, and resign if the
    committed set leaves this node out."""
    pending = role.pending_change
    if pending is not None and state.high_watermark >= pending.end_offset:
        role.pending_change = None
        _reply(state, pending.token, state.voter_set)
    is_settled = state.log.voters.last_offset < state.high_watermark
    if is_settled and not state.is_voter:
        leadership.resign(state, now_ms, "it is no voter any more")


def _common_refusal(state: RaftState, role: Leader) -> Rejected | None:
    if not state.config.is_dynamic:
        return Rejected(
            ErrorCode.UNSUPPORTED_VERSION,
            "the voter set is static (controller.quorum.voters, kraft.version 0); only a quorum "
            "made with dynamic voters (kvorum init) can change it",
        )
    if state.high_watermark <= role.epoch_start_offset:
        return Rejected(
            ErrorCode.REQUEST_TIMED_OUT,
            f"the leader of epoch {state.epoch} has not committed anything yet; try again",
        )
    if state.log.voters.last_offset >= state.high_watermark:
        return Rejected(
            ErrorCode.REQUEST_TIMED_OUT,
            f"another change, at offset {state.log.voters.last_offset}, is not committed yet; one "
            "at a time",
        )
    return None


def _after_add(
    state: RaftState, role: Leader, request: AddVoterRequest, now_ms: int
) -> VoterSet | Rejected:
    voter = request.voter
    if state.voter_set.get(voter.node_id) is not None:
        return Rejected(
            ErrorCode.DUPLICATE_VOTER,
            f"node {voter.node_id} is a voter already; if its disk is lost, remove it first",
        )
    unfit = _unfit(voter)
    if unfit is not None:
        return unfit
    progress = role.observers.get((voter.node_id, voter.directory_id))
    if progress is None or now_ms - progress.last_contact_ms > state.config.fetch_timeout_ms:
        return Rejected(
            ErrorCode.REQUEST_TIMED_OUT,
            f"node {voter.node_id} with directory {uuid_text(voter.directory_id)} does not fetch "
            "from the leader; is it running?",
        )
    if progress.address is None:
        return Rejected(ErrorCode.INVALID_REQUEST, f"node {voter.node_id} is no controller")
    caught_up_ms = progress.last_caught_up_ms
    if caught_up_ms < 0 or now_ms - caught_up_ms > state.config.fetch_timeout_ms:
        return Rejected(
            ErrorCode.REQUEST_TIMED_OUT,
            f"node {voter.node_id} has not caught up: it has {max(progress.end_offset, 0)} of "
            f"{state.high_watermark}",
        )
    after = state.voter_set.with_voter(voter)
    if len(after) > VOTERS_MAX:
        return Rejected(ErrorCode.INVALID_REQUEST, f"a quorum has at most {VOTERS_MAX} voters")
    return _unreachable(state, role, after, now_ms) or after


def _after_remove(
    state: RaftState, role: Leader, request: RemoveVoterRequest, now_ms: int
) -> VoterSet | Rejected:
    voter = state.voter_set.get(request.node_id)
    if voter is None:
        return Rejected(
            ErrorCode.VOTER_NOT_FOUND,
            f"node {request.node_id} is not among the voters {state.voter_set.ids}",
        )
    if request.directory_id not in (UUID_ZERO, voter.directory_id):
        return Rejected(
            ErrorCode.VOTER_NOT_FOUND,
            f"node {request.node_id} votes with directory {uuid_text(voter.directory_id)}, not "
            f"{uuid_text(request.directory_id)}",
        )
    after = state.voter_set.without(request.node_id)
    if not after.voters:
        return Rejected(ErrorCode.INVALID_REQUEST, "the last voter cannot be removed")
    return _unreachable(state, role, after, now_ms) or after


def _after_update(state: RaftState, request: UpdateVoterRequest) -> VoterSet | Rejected:
    voter = state.voter_set.get(request.voter.node_id)
    if request.epoch != state.epoch:
        return Rejected(ErrorCode.FENCED_LEADER_EPOCH, f"the epoch is {state.epoch}")
    if voter is None or not voter.is_key(voter.node_id, request.voter.directory_id):
        return Rejected(ErrorCode.VOTER_NOT_FOUND, f"{request.voter} is no voter")
    return _unfit(request.voter) or state.voter_set.with_voter(request.voter)


def _unfit(voter: Voter) -> Rejected | None:
    """The refusal of a voter entry without directory id or usable listener; None if the entry is
    valid."""
    if voter.directory_id == UUID_ZERO or not voter.host or not 0 < voter.port < 65536:
        return Rejected(
            ErrorCode.INVALID_REQUEST, f"a voter needs a directory id and a listener, got {voter}"
        )
    if len(voter.host.encode()) > HOST_BYTES_MAX:
        return Rejected(
            ErrorCode.INVALID_REQUEST,
            f"the host of a listener has at most {HOST_BYTES_MAX} bytes, got {voter.host!r}",
        )
    return None


def _unreachable(state: RaftState, role: Leader, after: VoterSet, now_ms: int) -> Rejected | None:
    """The refusal of a set without a reachable majority: it would never commit and would stop all
    writes."""
    replicas = [*role.voters.values(), *role.observers.values()]
    alive = {
        progress.node_id
        for progress in replicas
        if after.has(progress.node_id, progress.directory_id)
        and now_ms - progress.last_contact_ms <= state.config.check_quorum_timeout_ms
    }
    if after.has(state.config.node_id, state.config.directory_id):
        alive.add(state.config.node_id)
    if len(alive) >= majority(len(after)):
        return None
    missing = sorted(set(after.ids) - alive)
    return Rejected(
        ErrorCode.INVALID_REQUEST,
        f"of the voters {after.ids} only {len(alive)} can be reached ({missing} cannot), "
        f"{majority(len(after))} are needed: the change would stop the quorum",
    )


def _reply(state: RaftState, token: int, voters: VoterSet, refusal: Rejected | None = None) -> None:
    state.emit(
        Reply(
            token,
            VoterChangeResponse(
                epoch=state.epoch,
                leader_id=state.config.node_id,
                error=ErrorCode.NONE if refusal is None else refusal.code,
                message="" if refusal is None else refusal.message,
                voters=voters,
            ),
        )
    )
