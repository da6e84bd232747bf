"""A follower's fetches: what each one vouches for, and what an answer says of the leader.

The answers' records are `raft.roles.follower`'s, the snapshots `raft.roles.snapshots`'s.
"""

from __future__ import annotations

from kvorum.raft.effects import FlushLog, LeaderChanged, SendRequest
from kvorum.raft.messages import FetchRequest
from kvorum.raft.roles.states import NEVER_MS, Follower
from kvorum.raft.state import RaftState


def fetch(state: RaftState, role: Follower, now_ms: int) -> None:
    """Ask the leader for what comes next, once all of the own log is on disk.

    The fetch vouches for everything below its offset. A node that led before may still have a
    flush of its own under way. A controller that does not vote vouches as well: it may become a
    voter by the very next record, and then its earlier fetches count.
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
    """Emit a fetch from the end of the log; its correlation id."""
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
    """The leader answered: it lives, and after a restart it is the leader still."""
    state.note_leadership(LeaderChanged(state.epoch, role.leader_id))
    role.is_leader_lost = False
    role.stand_at_ms = NEVER_MS
    role.fetch_deadline_ms = state.random_fetch_deadline_ms(now_ms)
