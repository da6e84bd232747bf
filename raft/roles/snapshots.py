"""Fetching a snapshot: piece by piece, each on disk before the next, checked whole, then loaded.

The transfer outlives connections, roles and leaders: snapshots of one offset and epoch are equal
byte for byte on all nodes, and the final check decides (KIP-630).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvorum.raft.effects import (
    DropSnapshots,
    FinishSnapshot,
    Noted,
    ReplaceLog,
    SendRequest,
    WriteSnapshotChunk,
)
from kvorum.raft.events import SnapshotReceived, SnapshotTaken
from kvorum.raft.messages import FetchSnapshotRequest, FetchSnapshotResponse
from kvorum.raft.model import OffsetAndEpoch
from kvorum.raft.progress import SnapshotFetch
from kvorum.raft.roles import follower
from kvorum.raft.roles.states import NEVER_MS, Candidate, Follower, Leader, Prospective
from kvorum.raft.transitions import become_follower, become_unattached
from kvorum.runtime.errors import ErrorCode, invariant
from kvorum.runtime.ids import NO_NODE

if TYPE_CHECKING:
    from kvorum.raft.core import RaftCore


def begin(core: RaftCore, role: Follower, snapshot: OffsetAndEpoch, now_ms: int) -> None:
    """The leader's log no longer holds what this node needs: get its snapshot.

    One that is under way goes on, although the leader names a newer one by now: it holds
    committed records all the same, and if the leader has let it go it says so. Under load a
    transfer that is cut would otherwise begin again each time.
    """
    if core.snapshot_fetch is None:
        if snapshot.offset <= max(core.high_watermark, core.log.start_offset):
            core.emit(Noted(f"epoch={core.epoch} the leader offers {snapshot}, which is behind"))
            role.retry_at_ms = now_ms + core.config.retry_backoff_ms
            return
        core.emit(Noted(f"epoch={core.epoch} fetches snapshot={snapshot.offset}-{snapshot.epoch}"))
        core.snapshot_fetch = SnapshotFetch(snapshot)
    ask(core, role, now_ms)


def abandon(core: RaftCore) -> None:
    """The transfer is of no use any more; the next one drops what it left on disk."""
    core.snapshot_fetch = None


def ask(core: RaftCore, role: Follower, now_ms: int) -> None:
    """Ask for the next piece; if the disk still works on the last one, look again when it is done.

    Until then the fetch deadline goes on: a node whose disk hangs gives its leader up in vain,
    learns that the others have it, and comes back here.
    """
    fetching = core.snapshot_fetch
    if fetching is None or fetching.is_writing:
        role.retry_at_ms = NEVER_MS
        return
    role.retry_at_ms = NEVER_MS
    role.correlation_id = core.next_correlation_id()
    role.request_deadline_ms = now_ms + core.config.request_timeout_ms
    core.emit(
        SendRequest(
            role.leader_id,
            role.correlation_id,
            FetchSnapshotRequest(
                cluster_id=core.config.cluster_id,
                epoch=core.epoch,
                replica_id=core.config.node_id,
                replica_directory_id=core.config.directory_id,
                snapshot=fetching.snapshot,
                position=fetching.position,
                bytes_max=core.config.snapshot_chunk_bytes,
            ),
        )
    )


def on_response(
    core: RaftCore,
    role: Follower,
    correlation_id: int,
    response: FetchSnapshotResponse,
    now_ms: int,
) -> None:
    """A piece arrived, or the leader has that snapshot no more."""
    if correlation_id != role.correlation_id:
        return
    role.correlation_id = -1
    role.request_deadline_ms = NEVER_MS
    fetching = core.snapshot_fetch
    if response.error in (ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE):
        abandon(core)
        core.emit(Noted(f"epoch={core.epoch} snapshot gone reason={response.error.name.lower()}"))
    if response.error is not ErrorCode.NONE or fetching is None:
        role.retry_at_ms = now_ms + core.config.retry_backoff_ms
        return
    follower.note_success(core, role, now_ms)
    is_next = response.position == fetching.position and (
        response.data or response.position == response.size
    )
    is_within = response.position + len(response.data) <= response.size
    if fetching.is_writing or not is_next or not is_within:
        role.retry_at_ms = now_ms + core.config.retry_backoff_ms
        return
    fetching.size = response.size
    fetching.is_writing = True
    core.emit(WriteSnapshotChunk(fetching.snapshot, fetching.position, response.data))
    fetching.position += len(response.data)


def on_chunk_written(
    core: RaftCore, snapshot: OffsetAndEpoch, end_position: int, now_ms: int
) -> None:
    """The piece is in the part file: the next one, or the final check."""
    fetching = core.snapshot_fetch
    if fetching is None or fetching.snapshot != snapshot or fetching.position != end_position:
        return  # of a transfer given up
    if fetching.is_complete:
        core.emit(FinishSnapshot(snapshot))
        return
    fetching.is_writing = False
    if isinstance(core.role, Follower) and core.role.correlation_id < 0:
        ask(core, core.role, now_ms)


def on_received(core: RaftCore, event: SnapshotReceived, now_ms: int) -> None:
    """The whole file is checked and named, or was damaged and is gone."""
    fetching = core.snapshot_fetch
    if fetching is None or fetching.snapshot != event.snapshot:
        if event.is_good and event.snapshot not in core.log.snapshots:
            # Given up meanwhile: a file that the log does not know would be counted by retention.
            core.emit(DropSnapshots((event.snapshot,), core.log.start_offset))
        return
    abandon(core)
    name = f"snapshot={event.snapshot.offset}-{event.snapshot.epoch}"
    role = core.role
    if not event.is_good:
        core.emit(Noted(f"epoch={core.epoch} {name} arrived damaged"))
        if isinstance(role, Follower) and role.correlation_id < 0:
            # Its copy at the leader may be the damaged one: not again at once.
            role.retry_at_ms = now_ms + core.config.election_timeout_ms
        return
    invariant(not isinstance(role, Leader), "a leader never loads a snapshot")
    core.emit(Noted(f"epoch={core.epoch} begins anew at {name}"))
    core.log.replace(event.snapshot, event.voters)
    core.emit(ReplaceLog(event.snapshot))
    core.advance_high_watermark(event.snapshot.offset)
    if isinstance(role, Prospective | Candidate):
        # The voter set may be another one now, and this node's vote with it: the round is over.
        if role.leader_id in (NO_NODE, core.config.node_id):
            become_unattached(core, core.epoch, now_ms)
        else:
            become_follower(core, core.epoch, role.leader_id, now_ms)
    elif isinstance(role, Follower):
        # An answer still to come was asked for by the old log.
        follower.fetch(core, role, now_ms)


def on_taken(core: RaftCore, event: SnapshotTaken) -> None:
    """The state machine has a snapshot on disk; the log before the first one may go."""
    snapshot = event.snapshot
    known = core.log.snapshots
    if known and snapshot.offset <= known[-1].offset:
        return  # a newer one came from the leader while this one was being written
    invariant(
        snapshot.offset <= core.high_watermark,
        f"{snapshot} is above the high watermark {core.high_watermark}",
    )
    core.log.add_snapshot(snapshot)
    if len(known) == 1:
        core.emit(DropSnapshots((), core.log.start_offset))


def on_expired(core: RaftCore, count: int) -> None:
    """Retention is over for the oldest ones; the newest always stays."""
    count = min(count, len(core.log.snapshots) - 1)
    if count > 0:
        gone = tuple(core.log.snapshots[:count])
        core.log.drop_snapshots(count)
        core.emit(DropSnapshots(gone, core.log.start_offset))
