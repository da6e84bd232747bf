"""The effects that the core asks for, in the order in which they must be carried out.

A Reply or SendRequest that follows a PersistVoteState waits for the fsync of that write. A finished
FlushLog comes back as the event LogFlushed.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvorum.raft.model.messages import Request, Response
from kvorum.raft.model.values import OffsetAndEpoch, VoteState
from kvorum.raft.model.voters import VoterSet


@dataclass(frozen=True, slots=True)
class PersistVoteState:
    """Write the vote state and fsync it before the next effect is carried out."""

    state: VoteState


@dataclass(frozen=True, slots=True)
class AppendProposed:
    """Append the proposed batches back to back from base_offset, stamped with this epoch."""

    base_offset: int
    epoch: int
    batches: tuple[bytes | bytearray, ...]


@dataclass(frozen=True, slots=True)
class AppendLeaderChange:
    """Append the control batch that opens an epoch (KIP-595).

    has_voter_set: the batch also holds KRaftVersion and VotersRecord, behind the LeaderChange
        record (KIP-853).
    """

    base_offset: int
    epoch: int
    leader_id: int
    voters: VoterSet
    granting_voters: tuple[int, ...]
    has_voter_set: bool = False


@dataclass(frozen=True, slots=True)
class AppendVoters:
    """Append a VotersRecord. The new set is in force from the append on, before it is committed."""

    base_offset: int
    epoch: int
    voters: VoterSet


@dataclass(frozen=True, slots=True)
class AppendFetched:
    """Append batches unchanged, as the leader sent them."""

    base_offset: int
    records: bytes


@dataclass(frozen=True, slots=True)
class TruncateLog:
    """Drop everything at and above end_offset."""

    end_offset: int


@dataclass(frozen=True, slots=True)
class FlushLog:
    """Fsync the log up to end_offset, then deliver LogFlushed. Later effects need not wait for it.

    One LogFlushed may answer several of these. generation counts truncations: an fsync that began
    before a truncation does not cover the records appended after it.
    """

    end_offset: int
    generation: int


@dataclass(frozen=True, slots=True)
class SendRequest:
    """Send a request to a peer. The outcome comes back with correlation_id, as ResponseReceived or
    RequestFailed."""

    receiver_id: int
    correlation_id: int
    request: Request


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer the request that came with this token."""

    token: int
    response: Response


@dataclass(frozen=True, slots=True)
class ReplyWithRecords:
    """Answer a fetch with log bytes from fetch_offset up to end_offset (exclusive)."""

    token: int
    epoch: int
    leader_id: int
    high_watermark: int
    fetch_offset: int
    end_offset: int
    bytes_max: int


@dataclass(frozen=True, slots=True)
class ReplyWithSnapshot:
    """Answer a FetchSnapshot with bytes of the snapshot file, or with SNAPSHOT_NOT_FOUND or
    POSITION_OUT_OF_RANGE."""

    token: int
    epoch: int
    leader_id: int
    snapshot: OffsetAndEpoch
    position: int
    bytes_max: int


@dataclass(frozen=True, slots=True)
class WriteSnapshotChunk:
    """Append to the part file of the snapshot being fetched; SnapshotChunkWritten follows.

    Position 0 begins a new part file and drops the part file of any other snapshot.
    """

    snapshot: OffsetAndEpoch
    position: int
    data: bytes


@dataclass(frozen=True, slots=True)
class FinishSnapshot:
    """Check the complete part file, fsync it and give it its final name; SnapshotReceived
    follows."""

    snapshot: OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class ReplaceLog:
    """Replace the log by an empty one that starts at the end of a received snapshot, and load the
    state from that snapshot.

    Snapshots older than this one are removed with the old log.
    """

    snapshot: OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class DropSnapshots:
    """Remove these snapshot files, then the log below start_offset, the end of the oldest snapshot
    kept.

    In this order a crash in between leaves too much log, and never a gap between a snapshot and the
    log behind it.
    """

    snapshots: tuple[OffsetAndEpoch, ...]
    start_offset: int


@dataclass(frozen=True, slots=True)
class HighWatermarkAdvanced:
    """Every record below high_watermark is committed and will never change."""

    high_watermark: int


@dataclass(frozen=True, slots=True)
class LeaderChanged:
    """This node knows another leader (NO_NODE: none) or another epoch than before.

    epoch_start_offset: the first offset of the epoch, given only if this node is the leader. The
        node may act as leader once the high watermark has passed that offset.
    """

    epoch: int
    leader_id: int
    epoch_start_offset: int = -1


@dataclass(frozen=True, slots=True)
class QuorumAlert:
    """Something that no sound quorum does, such as a leader without committed records. This node
    takes no part in it; a person must see to the quorum. text: what, and the way out."""

    text: str


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """A line for the election timeline, which people read."""

    text: str


Effect = (
    PersistVoteState
    | AppendProposed
    | AppendLeaderChange
    | AppendVoters
    | AppendFetched
    | TruncateLog
    | FlushLog
    | SendRequest
    | Reply
    | ReplyWithRecords
    | ReplyWithSnapshot
    | WriteSnapshotChunk
    | FinishSnapshot
    | ReplaceLog
    | DropSnapshots
    | HighWatermarkAdvanced
    | LeaderChanged
    | QuorumAlert
    | TimelineEntry
)
