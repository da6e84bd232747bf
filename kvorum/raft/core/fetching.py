"""A follower's fetches: what a fetch acknowledges, and what its response proves of the leader.

`raft.core.follower` handles the records of a response, `raft.core.snapshots` the snapshots.
"""

from __future__ import annotations

from kvorum.raft.core.state import RaftState
from kvorum.raft.core.states import NEVER_MS, Follower
from kvorum.raft.model.effects import FlushLog, LeaderChanged, SendRequest
from kvorum.raft.model.messages import FetchRequest


def fetch(state: RaftState, role: Follower, now_ms: int) -> None:
    """Fetch from the end of the log, once all of the log is on disk.

    The fetch acknowledges everything below its offset. The log of a node that led before may end
    in records that are not flushed yet. A controller that does not vote flushes first as well: the
    very next record may make it a voter, and then its earlier fetches count.
    """
    role.retry_at_ms = NEVER_MS
    role.request_deadline_ms = NEVER_MS
    vouches = state.is_voter or state.config.address is not None
    if vouches and state.log.flushed_end_offset < state.log.end_offset:
        role.is_flushing = True
        state.emit(FlushLog(state.log.end_offset, state.log.generation))
        return
    role.is_flushing = False
    role.correlation_id = send_fetch(state, role.leader_id)
    role.request_deadline_ms = now_ms + state.config.request_timeout_ms


def send_fetch(state: RaftState, receiver_id: int) -> int:
    """Emit a fetch from the end of the log; return its correlation id."""
    correlation_id = state.next_correlation_id()
    state.emit(
        SendRequest(
            receiver_id,
            correlation_id,
            FetchRequest(
                cluster_id=state.config.cluster_id,
                epoch=state.epoch,
                replica_id=state.config.node_id,
                fetch_offset=state.log.end_offset,
                last_fetched_epoch=state.log.last_epoch,
                high_watermark=state.high_watermark,
                replica_directory_id=state.config.directory_id,
                address=None if state.is_voter else state.config.address,
            ),
        )
    )
    return correlation_id


def note_success(state: RaftState, role: Follower, now_ms: int) -> None:
    """Note that the leader answered: it is alive and, if it was restarted, still the leader."""
    state.note_leadership(LeaderChanged(state.epoch, role.leader_id))
    role.is_leader_lost = False
    role.has_answered = True
    role.stand_at_ms = NEVER_MS
    role.fetch_deadline_ms = state.random_fetch_deadline_ms(now_ms)
