"""A follower's snapshot transfer: each chunk is on disk before the next is fetched.

The complete file is checked as a whole and then loaded. The transfer survives changes of
connection, role and leader: snapshots of one offset and epoch are equal byte for byte on all nodes,
and the final check catches a difference (KIP-630).
"""

from __future__ import annotations

from kvorum.raft.core import fetching
from kvorum.raft.core.state import RaftState
from kvorum.raft.core.states import NEVER_MS, Candidate, Follower, Leader, Prospective
from kvorum.raft.core.transitions import become_follower, become_unattached
from kvorum.raft.model.effects import (
    DropSnapshots,
    FinishSnapshot,
    ReplaceLog,
    SendRequest,
    TimelineEntry,
    WriteSnapshotChunk,
)
from kvorum.raft.model.events import SnapshotReceived, SnapshotTaken
from kvorum.raft.model.messages import FetchSnapshotRequest, FetchSnapshotResponse
from kvorum.raft.model.progress import SnapshotFetch
from kvorum.raft.model.values import OffsetAndEpoch
from kvorum.runtime.errors import ErrorCode, invariant
from kvorum.runtime.ids import NO_NODE


def begin(state: RaftState, role: Follower, snapshot: OffsetAndEpoch, now_ms: int) -> None:
    """Fetch the leader's snapshot, because the leader's log lacks the records that this node needs.

    A transfer goes on even if the leader now names a newer snapshot. The older snapshot also holds
    only committed records, and the leader answers with an error if it has removed it. Otherwise,
    under load, every interrupted transfer would start again from the beginning.
    """
    if state.snapshot_fetch is None:
        committed = max(state.known_committed, state.log.start_offset)
        if snapshot.offset <= committed:
            state.refuse_leader(
                f"leader {role.leader_id} of epoch {state.epoch} offers {snapshot}, but the "
                f"records up to {committed} are committed: it lacks some of them"
            )
            role.retry_at_ms = now_ms + state.config.fetch_timeout_ms
            return
        state.emit(
            TimelineEntry(
                f"epoch={state.epoch} fetches snapshot={snapshot.offset}-{snapshot.epoch}"
            )
        )
        state.refused_leader = ""
        state.snapshot_fetch = SnapshotFetch(snapshot)
    ask(state, role, now_ms)


def abandon(state: RaftState) -> None:
    """Give the transfer up; the next transfer drops the part file that it left on disk."""
    state.snapshot_fetch = None


def ask(state: RaftState, role: Follower, now_ms: int) -> None:
    """Fetch the next chunk, unless the disk is still busy with the last one.

    The fetch deadline runs on meanwhile. A node whose disk hangs starts a pre-vote in vain, learns
    that the other voters still have the leader, and resumes the transfer.
    """
    transfer = state.snapshot_fetch
    if transfer is None or transfer.is_writing:
        role.retry_at_ms = NEVER_MS
        return
    role.retry_at_ms = NEVER_MS
    role.correlation_id = state.next_correlation_id()
    role.request_deadline_ms = now_ms + state.config.request_timeout_ms
    state.emit(
        SendRequest(
            role.leader_id,
            role.correlation_id,
            FetchSnapshotRequest(
                cluster_id=state.config.cluster_id,
                epoch=state.epoch,
                replica_id=state.config.node_id,
                replica_directory_id=state.config.directory_id,
                snapshot=transfer.snapshot,
                position=transfer.position,
                bytes_max=state.config.snapshot_chunk_bytes,
            ),
        )
    )


def on_response(
    state: RaftState,
    role: Follower,
    correlation_id: int,
    response: FetchSnapshotResponse,
    now_ms: int,
) -> None:
    """Write the chunk that arrived, or give up a snapshot that the leader no longer has."""
    if correlation_id != role.correlation_id:
        return
    role.correlation_id = -1
    role.request_deadline_ms = NEVER_MS
    transfer = state.snapshot_fetch
    if response.error in (ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE):
        abandon(state)
        state.emit(
            TimelineEntry(f"epoch={state.epoch} snapshot gone reason={response.error.name.lower()}")
        )
    if response.error is not ErrorCode.NONE or transfer is None:
        role.retry_at_ms = now_ms + state.config.retry_backoff_ms
        return
    fetching.note_success(state, role, now_ms)
    is_next = response.position == transfer.position and (
        response.data or response.position == response.size
    )
    is_within = response.position + len(response.data) <= response.size
    if transfer.is_writing or not is_next or not is_within:
        role.retry_at_ms = now_ms + state.config.retry_backoff_ms
        return
    transfer.size = response.size
    transfer.is_writing = True
    state.emit(WriteSnapshotChunk(transfer.snapshot, transfer.position, response.data))
    transfer.position += len(response.data)


def on_chunk_written(
    state: RaftState, snapshot: OffsetAndEpoch, end_position: int, now_ms: int
) -> None:
    """Fetch the next chunk, or have the complete file checked."""
    transfer = state.snapshot_fetch
    if transfer is None or transfer.snapshot != snapshot or transfer.position != end_position:
        return  # the chunk belongs to a transfer that was given up
    if transfer.is_complete:
        state.emit(FinishSnapshot(snapshot))
        return
    transfer.is_writing = False
    if isinstance(state.role, Follower) and state.role.correlation_id < 0:
        ask(state, state.role, now_ms)


def on_received(state: RaftState, event: SnapshotReceived, now_ms: int) -> None:
    """Replace the log by the snapshot if it passed the check; else fetch it again later."""
    transfer = state.snapshot_fetch
    if transfer is None or transfer.snapshot != event.snapshot:
        if event.is_good and event.snapshot not in state.log.snapshots:
            # The transfer was given up meanwhile. Retention would count a file that the log does
            # not know.
            state.emit(DropSnapshots((event.snapshot,), state.log.start_offset))
        return
    abandon(state)
    name = f"snapshot={event.snapshot.offset}-{event.snapshot.epoch}"
    role = state.role
    if not event.is_good:
        state.emit(TimelineEntry(f"epoch={state.epoch} {name} arrived damaged"))
        if isinstance(role, Follower) and role.correlation_id < 0:
            # The leader's copy may be the damaged one, so do not fetch it again at once.
            role.retry_at_ms = now_ms + state.config.election_timeout_ms
        return
    invariant(not isinstance(role, Leader), "a leader never loads a snapshot")
    state.emit(TimelineEntry(f"epoch={state.epoch} begins anew at {name}"))
    state.log.replace(event.snapshot, event.voters)
    state.emit(ReplaceLog(event.snapshot))
    state.advance_high_watermark(event.snapshot.offset)
    if isinstance(role, Prospective | Candidate):
        # The snapshot may have brought another voter set, so this round of votes is over.
        if role.leader_id in (NO_NODE, state.config.node_id):
            become_unattached(state, state.epoch, now_ms)
        else:
            become_follower(state, state.epoch, role.leader_id, now_ms)
    elif isinstance(role, Follower):
        # A response still in flight answers a fetch from the old log's end.
        fetching.fetch(state, role, now_ms)


def on_taken(state: RaftState, event: SnapshotTaken) -> None:
    """Add a snapshot that the state machine has written. With the first one, the log below it is
    dropped."""
    snapshot = event.snapshot
    known = state.log.snapshots
    if known and snapshot.offset <= known[-1].offset:
        return  # meanwhile a newer snapshot has come from the leader
    invariant(
        snapshot.offset <= state.high_watermark,
        f"{snapshot} is above the high watermark {state.high_watermark}",
    )
    state.log.add_snapshot(snapshot)
    if len(known) == 1:
        state.emit(DropSnapshots((), state.log.start_offset))


def on_expired(state: RaftState, count: int) -> None:
    """Drop the oldest snapshots, which retention has released; the newest always stays."""
    count = min(count, len(state.log.snapshots) - 1)
    if count > 0:
        gone = tuple(state.log.snapshots[:count])
        state.log.drop_snapshots(count)
        state.emit(DropSnapshots(gone, state.log.start_offset))
