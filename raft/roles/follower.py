"""Following: one fetch in flight, truncate where the leader says, append, fsync, ask again.

A snapshot that the leader sends for lack of log is `raft.roles.snapshots`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvorum.raft.effects import (
    AppendFetched,
    FlushLog,
    LeaderChanged,
    Noted,
    SendRequest,
    TruncateLog,
)
from kvorum.raft.messages import (
    FetchRequest,
    FetchResponse,
    UpdateVoterRequest,
    VoterChangeResponse,
)
from kvorum.raft.roles import election, snapshots
from kvorum.raft.roles.states import NEVER_MS, Follower, Unattached
from kvorum.raft.transitions import become_follower, become_unattached
from kvorum.runtime.errors import ErrorCode, invariant
from kvorum.runtime.ids import NO_NODE

if TYPE_CHECKING:
    from kvorum.raft.core import RaftCore


UPDATE_VOTER_FETCH_TIMEOUTS = 3
"""Pause between two UpdateVoter requests, in fetch timeouts (KIP-853)."""


def on_tick(core: RaftCore, role: Follower, now_ms: int) -> None:
    """Act on the deadlines that have come."""
    if now_ms >= role.fetch_deadline_ms:
        role.is_leader_lost = True
        _give_up(core, now_ms, "the fetch timeout passed")
    elif now_ms >= role.stand_at_ms:
        _give_up(core, now_ms, role.stand_reason)
    elif now_ms >= role.request_deadline_ms:
        role.correlation_id = -1
        fetch(core, role, now_ms)
    elif now_ms >= role.retry_at_ms:
        fetch(core, role, now_ms)
    if now_ms >= role.update_voter_at_ms and core.role is role:
        _update_voter(core, role, now_ms)


def fetch(core: RaftCore, role: Follower, now_ms: int) -> None:
    """Ask the leader for what comes next, once all of the own log is on disk.

    The fetch vouches for everything below its offset. A node that led before may still have a
    flush of its own under way. A controller that does not vote vouches as well: it may become a
    voter by the very next record, and then its earlier fetches count.
    """
    role.retry_at_ms = NEVER_MS
    role.request_deadline_ms = NEVER_MS
    vouches = core.is_voter or core.config.address is not None
    if vouches and core.log.flushed_end_offset < core.log.end_offset:
        role.is_flushing = True
        core.emit(FlushLog(core.log.end_offset, core.log.generation))
        return
    role.is_flushing = False
    role.correlation_id = send_fetch(core, role.leader_id)
    role.request_deadline_ms = now_ms + core.config.request_timeout_ms


def send_fetch(core: RaftCore, receiver_id: int) -> int:
    """Emit a fetch from the end of the log; its correlation id."""
    correlation_id = core.next_correlation_id()
    core.emit(
        SendRequest(
            receiver_id,
            correlation_id,
            FetchRequest(
                cluster_id=core.config.cluster_id,
                epoch=core.epoch,
                replica_id=core.config.node_id,
                fetch_offset=core.log.end_offset,
                last_fetched_epoch=core.log.last_epoch,
                high_watermark=core.high_watermark,
                replica_directory_id=core.config.directory_id,
                address=None if core.is_voter else core.config.address,
            ),
        )
    )
    return correlation_id


def on_fetch_response(
    core: RaftCore, role: Follower, correlation_id: int, response: FetchResponse, now_ms: int
) -> None:
    """Take the answer to the fetch in flight; the epoch is this one's."""
    if correlation_id != role.correlation_id:
        return  # it was given up; a second append of the same records would not fit
    role.correlation_id = -1
    role.request_deadline_ms = NEVER_MS
    if response.error is not ErrorCode.NONE:
        _on_fetch_error(core, role, response, now_ms)
        return
    note_success(core, role, now_ms)
    if response.snapshot is not None:
        snapshots.begin(core, role, response.snapshot, now_ms)
        return
    snapshots.abandon(core)  # the log itself can be continued after all
    if response.diverging is not None:
        _truncate(core, response)
        fetch(core, role, now_ms)
        return
    if response.spans:
        if not _continues(core, response):
            core.emit(Noted(f"epoch={core.epoch} the leader sent records that do not fit here"))
            role.retry_at_ms = now_ms + core.config.retry_backoff_ms
            return
        _append(core, role, response, now_ms)
    core.advance_high_watermark(min(core.log.end_offset, response.high_watermark))
    fetch(core, role, now_ms)


def note_success(core: RaftCore, role: Follower, now_ms: int) -> None:
    """The leader answered: it lives, and after a restart it is the leader still."""
    core.note_leadership(LeaderChanged(core.epoch, role.leader_id))
    role.is_leader_lost = False
    role.stand_at_ms = NEVER_MS
    role.fetch_deadline_ms = core.random_fetch_deadline_ms(now_ms)


def on_request_failed(core: RaftCore, role: Follower, correlation_id: int, now_ms: int) -> None:
    """The connection to the leader broke or was refused."""
    if correlation_id != role.correlation_id:
        return
    role.correlation_id = -1
    role.request_deadline_ms = NEVER_MS
    if not core.is_electable:
        _look_elsewhere(core, now_ms)
        return
    role.retry_at_ms = now_ms + core.config.retry_backoff_ms
    _lose_leader(core, role, now_ms, "the stream broke")


def on_log_flushed(core: RaftCore, role: Follower, now_ms: int) -> None:
    """Appended records are on disk: ask for more, which acknowledges them to the leader."""
    if role.is_flushing and core.log.flushed_end_offset == core.log.end_offset:
        role.is_flushing = False
        fetch(core, role, now_ms)


def discover(core: RaftCore, role: Unattached, now_ms: int) -> None:
    """Ask any voter, or bootstrap server; the answer names the leader."""
    # An answer comes at once, or after the longest wait if that voter is the leader itself.
    role.discover_at_ms = now_ms + 2 * core.config.fetch_wait_max_ms
    # Voters learnt from the log may all have moved; a dynamic node asks the bootstrap servers too.
    candidates = core.voter_set.ids + core.config.bootstrap_ids
    candidates = tuple(c for c in candidates if c != core.config.node_id)
    if not candidates:
        return
    if core.is_voter and core.log.flushed_end_offset < core.log.end_offset:
        # The one asked may be the leader, and would count what the fetch vouches for.
        core.emit(FlushLog(core.log.end_offset, core.log.generation))
        role.discover_at_ms = now_ms + core.config.retry_backoff_ms
        return
    if now_ms < role.distrusted_until_ms:
        others = tuple(voter for voter in candidates if voter != role.lost_leader_id)
        candidates = others or candidates
    role.correlation_id = send_fetch(core, core.rng.choice(candidates))


def on_discovery_response(
    core: RaftCore, role: Unattached, sender_id: int, response: FetchResponse, now_ms: int
) -> None:
    """An answer that named no leader, or the leader's own."""
    role.correlation_id = -1
    leader_id = response.leader_id if response.leader_id != NO_NODE else sender_id
    if response.error is ErrorCode.NONE and leader_id >= 0:
        become_follower(core, core.epoch, leader_id, now_ms)
    else:
        role.discover_at_ms = now_ms + core.config.retry_backoff_ms


def on_discovery_failed(core: RaftCore, role: Unattached, now_ms: int) -> None:
    """That voter cannot be reached: another one, soon."""
    role.correlation_id = -1
    role.discover_at_ms = now_ms + core.config.retry_backoff_ms


def _truncate(core: RaftCore, response: FetchResponse) -> None:
    diverging = response.diverging
    if diverging is None:
        return
    end_offset = core.log.truncation_offset(diverging)
    invariant(
        end_offset < core.log.end_offset,
        f"the leader asks to truncate to {end_offset}, where the log ends: it lacks an epoch of "
        "this node's base",
    )
    invariant(
        end_offset >= core.high_watermark,
        f"leader asks to truncate to {end_offset}, below the high watermark "
        f"{core.high_watermark}: committed records would be lost",
    )
    core.emit(Noted(f"epoch={core.epoch} truncates from={core.log.end_offset} to={end_offset}"))
    core.log.truncate(end_offset)
    core.emit(TruncateLog(end_offset))


def _continues(core: RaftCore, response: FetchResponse) -> bool:
    """True if the batches go on where the log ends, in epochs that rise to this one at most."""
    end_offset, epoch = core.log.end_offset, core.log.last_epoch
    for span in response.spans:
        if span.base_offset != end_offset or not epoch <= span.epoch <= core.epoch:
            return False
        if span.last_offset < span.base_offset:
            return False
        end_offset, epoch = span.last_offset + 1, span.epoch
    return True


def _append(core: RaftCore, role: Follower, response: FetchResponse, now_ms: int) -> None:
    base_offset = core.log.end_offset
    for span in response.spans:
        core.log.append(span)
    core.emit(AppendFetched(base_offset, response.records))
    if role.update_voter_at_ms == NEVER_MS and core.is_voter_entry_stale:
        role.update_voter_at_ms = now_ms


def _on_fetch_error(core: RaftCore, role: Follower, response: FetchResponse, now_ms: int) -> None:
    if not core.is_electable and response.error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
        _look_elsewhere(core, now_ms)
        return
    role.retry_at_ms = now_ms + core.config.retry_backoff_ms
    if response.error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
        # The epoch is the same, so it is the leader itself that leads no more: it restarted.
        _lose_leader(core, role, now_ms, "it says that it leads no more")


def _lose_leader(core: RaftCore, role: Follower, now_ms: int, reason: str) -> None:
    """Give the leader a short grace to come back, then stand."""
    if role.is_leader_lost:
        return
    core.emit(Noted(f"epoch={core.epoch} lost leader={role.leader_id} reason={reason!r}"))
    role.is_leader_lost = True
    grace_ms = core.config.leader_loss_grace_ms
    role.stand_at_ms = now_ms + grace_ms + core.rng.randrange(grace_ms + 1)


def _give_up(core: RaftCore, now_ms: int, reason: str) -> None:
    if core.is_electable:
        election.stand(core, now_ms, reason)
    else:
        _look_elsewhere(core, now_ms)


def _update_voter(core: RaftCore, role: Follower, now_ms: int) -> None:
    """Tell the leader where this voter listens now (KIP-853, UpdateVoter)."""
    role.update_voter_at_ms = NEVER_MS
    voter = core.own_voter
    if voter is None or not core.is_voter_entry_stale:
        return
    role.update_voter_at_ms = now_ms + UPDATE_VOTER_FETCH_TIMEOUTS * core.config.fetch_timeout_ms
    request = UpdateVoterRequest(cluster_id=core.config.cluster_id, epoch=core.epoch, voter=voter)
    core.emit(SendRequest(role.leader_id, core.next_correlation_id(), request))


def on_update_response(core: RaftCore, response: VoterChangeResponse) -> None:
    """The log itself will tell that the change is made; a refusal is tried again later."""
    if response.error is not ErrorCode.NONE:
        core.emit(Noted(f"epoch={core.epoch} voter update refused reason={response.message!r}"))


def _look_elsewhere(core: RaftCore, now_ms: int) -> None:
    lost_leader_id = core.role.leader_id
    become_unattached(core, core.epoch, now_ms)
    role = core.role
    if isinstance(role, Unattached):
        role.discover_at_ms = now_ms + core.config.retry_backoff_ms
        role.leader_id = NO_NODE
        role.lost_leader_id = lost_leader_id
        role.distrusted_until_ms = now_ms + core.config.election_timeout_ms
