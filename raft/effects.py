"""What the core wants done, in the order in which it must be done.

A Reply or SendRequest behind a PersistVoteState waits for that write's fsync. The disk's answer
to FlushLog comes back as the event LogFlushed.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvorum.raft.messages import Request, Response
from kvorum.raft.model import OffsetAndEpoch, VoteState
from kvorum.raft.voters import VoterSet


@dataclass(frozen=True, slots=True)
class PersistVoteState:
    """Write and fsync before the next effect is carried out."""

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

    has_voter_set: KRaftVersion and VotersRecord follow the LeaderChange record in it (KIP-853).
    """

    base_offset: int
    epoch: int
    leader_id: int
    voters: VoterSet
    granting_voters: tuple[int, ...]
    has_voter_set: bool = False


@dataclass(frozen=True, slots=True)
class AppendVoters:
    """Append a VotersRecord; the set is in force from now on."""

    base_offset: int
    epoch: int
    voters: VoterSet


@dataclass(frozen=True, slots=True)
class AppendFetched:
    """Append batches as the leader sent them."""

    base_offset: int
    records: bytes


@dataclass(frozen=True, slots=True)
class TruncateLog:
    """Drop everything at and above end_offset."""

    end_offset: int


@dataclass(frozen=True, slots=True)
class FlushLog:
    """fsync the log up to end_offset, then tell with LogFlushed. Need not block what follows.

    Several may be answered at once by the last. generation counts truncations: a flush that
    began before one says nothing of what was appended after it.
    """

    end_offset: int
    generation: int


@dataclass(frozen=True, slots=True)
class SendRequest:
    """Send to a peer; the outcome is ResponseReceived or RequestFailed with correlation_id."""

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
    """Answer a fetch with log bytes from fetch_offset, not reaching end_offset (exclusive)."""

    token: int
    epoch: int
    leader_id: int
    high_watermark: int
    fetch_offset: int
    end_offset: int
    bytes_max: int


@dataclass(frozen=True, slots=True)
class ReplyWithSnapshot:
    """Answer a FetchSnapshot with bytes of that file, or with SNAPSHOT_NOT_FOUND or
    POSITION_OUT_OF_RANGE."""

    token: int
    epoch: int
    leader_id: int
    snapshot: OffsetAndEpoch
    position: int
    bytes_max: int


@dataclass(frozen=True, slots=True)
class WriteSnapshotChunk:
    """Append to the part file of a snapshot being fetched; SnapshotChunkWritten follows.

    position 0 begins a new part file; one of another snapshot is dropped.
    """

    snapshot: OffsetAndEpoch
    position: int
    data: bytes


@dataclass(frozen=True, slots=True)
class FinishSnapshot:
    """The part file is complete: check it, fsync it, name it; SnapshotReceived follows."""

    snapshot: OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class ReplaceLog:
    """Begin the log anew at the end of a received snapshot, and load the state from it.

    Older snapshots go with the old log.
    """

    snapshot: OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class DropSnapshots:
    """Remove these snapshot files, then the log below start_offset, where the next one ends.

    In this order: a crash in between leaves too much log and never a gap behind a snapshot.
    """

    snapshots: tuple[OffsetAndEpoch, ...]
    start_offset: int


@dataclass(frozen=True, slots=True)
class HighWatermarkAdvanced:
    """Everything below high_watermark is committed and will never change."""

    high_watermark: int


@dataclass(frozen=True, slots=True)
class LeaderChanged:
    """This node sees another leader (NO_NODE: none) or epoch than before.

    epoch_start_offset: only if this node itself leads: where its epoch begins. It may act as
    leader once the high watermark has passed that offset.
    """

    epoch: int
    leader_id: int
    epoch_start_offset: int = -1


@dataclass(frozen=True, slots=True)
class Noted:
    """A line of the election timeline."""

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
    | Noted
)
