"""Requests and responses between nodes of the quorum (KIP-595, KIP-630, KIP-853).

Every response carries the sender's epoch and the leader it knows, so that any answer can
correct a node that is behind. A directory id names a disk; zero in a request means that the
sender does not know it.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvorum.raft.model import BatchSpan, OffsetAndEpoch
from kvorum.raft.voters import NO_VOTERS, Voter, VoterSet
from kvorum.runtime.errors import ErrorCode
from kvorum.runtime.ids import NO_NODE, UUID_ZERO, Uuid


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteRequest:
    """A candidate asks for a vote, or with is_pre_vote for the promise of one (KIP-996).

    voter_id, voter_directory_id: who is meant to receive it; last_epoch, end_offset: the
    candidate's log.
    """

    cluster_id: str
    epoch: int
    candidate_id: int
    voter_id: int
    last_epoch: int
    end_offset: int
    is_pre_vote: bool
    candidate_directory_id: Uuid = UUID_ZERO
    voter_directory_id: Uuid = UUID_ZERO


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteResponse:
    """reason: why a vote was refused, for the election timeline; empty when granted."""

    epoch: int
    leader_id: int = NO_NODE
    is_granted: bool = False
    error: ErrorCode = ErrorCode.NONE
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginQuorumEpochRequest:
    """A new leader makes itself known to a voter."""

    cluster_id: str
    epoch: int
    leader_id: int
    voter_id: int
    voter_directory_id: Uuid = UUID_ZERO


@dataclass(frozen=True, slots=True, kw_only=True)
class EndQuorumEpochRequest:
    """A leader steps down; preferred_successors: voters by how much they hold, best first."""

    cluster_id: str
    epoch: int
    leader_id: int
    preferred_successors: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumEpochResponse:
    """Answer to BeginQuorumEpoch and EndQuorumEpoch."""

    epoch: int
    leader_id: int = NO_NODE
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchRequest:
    """A replica asks for what follows (fetch_offset, last_fetched_epoch).

    By asking, a voter says that everything below fetch_offset is on its disk, fsynced.
    high_watermark: the one the replica knows, so that the leader can tell it of a newer one.
    address: the controller listener of a replica that could become a voter, None otherwise.
    """

    cluster_id: str
    epoch: int
    replica_id: int
    fetch_offset: int
    last_fetched_epoch: int
    high_watermark: int
    replica_directory_id: Uuid = UUID_ZERO
    address: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchResponse:
    """records: whole batches from the fetch offset on, described by spans.

    diverging: the leader's log ends for the largest epoch it knows not above the fetcher's at
    this offset; the fetcher truncates and asks again.
    snapshot: what the fetcher needs is no longer in the log; it must fetch this snapshot first.
    """

    epoch: int
    leader_id: int = NO_NODE
    error: ErrorCode = ErrorCode.NONE
    high_watermark: int = -1
    diverging: OffsetAndEpoch | None = None
    snapshot: OffsetAndEpoch | None = None
    spans: tuple[BatchSpan, ...] = ()
    records: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSnapshotRequest:
    """A replica asks for a piece of a snapshot, from byte `position` on (KIP-630)."""

    cluster_id: str
    epoch: int
    replica_id: int
    snapshot: OffsetAndEpoch
    position: int
    bytes_max: int
    replica_directory_id: Uuid = UUID_ZERO


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSnapshotResponse:
    """data: bytes of the file from `position` on; size: of the whole file."""

    epoch: int
    leader_id: int = NO_NODE
    error: ErrorCode = ErrorCode.NONE
    position: int = 0
    size: int = 0
    data: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddVoterRequest:
    """Let a replica that has caught up vote (KIP-853). is_dry_run: check, change nothing."""

    cluster_id: str
    voter: Voter
    is_dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveVoterRequest:
    """Take a voter out of the set. directory_id zero: whatever disk votes under that id."""

    cluster_id: str
    node_id: int
    directory_id: Uuid = UUID_ZERO
    is_dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateVoterRequest:
    """A voter's listener has moved."""

    cluster_id: str
    epoch: int
    voter: Voter


@dataclass(frozen=True, slots=True, kw_only=True)
class VoterChangeResponse:
    """Outcome of a change to the voter set, given once it is committed.

    message: why not, for people. voters: the set after the change, or the one in force.
    """

    epoch: int
    leader_id: int = NO_NODE
    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    voters: VoterSet = NO_VOTERS


VoterChangeRequest = AddVoterRequest | RemoveVoterRequest | UpdateVoterRequest
Request = (
    VoteRequest
    | BeginQuorumEpochRequest
    | EndQuorumEpochRequest
    | FetchRequest
    | FetchSnapshotRequest
    | VoterChangeRequest
)
Response = (
    VoteResponse | QuorumEpochResponse | FetchResponse | FetchSnapshotResponse | VoterChangeResponse
)
