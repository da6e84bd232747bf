"""Requests and responses between nodes of the quorum (KIP-595, KIP-630, KIP-853).

Every response carries the sender's epoch and the leader that the sender knows, so that any response
brings a node that is behind up to date. A directory id names a disk; a zero in a request means that
the sender does not know it.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvorum.raft.model.values import BatchSpan, OffsetAndEpoch
from kvorum.raft.model.voters import NO_VOTERS, Voter, VoterSet
from kvorum.runtime.errors import ErrorCode
from kvorum.runtime.ids import NO_NODE, UUID_ZERO, Uuid


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteRequest:
    """A candidate asks for a vote or, with is_pre_vote, whether it would get one (KIP-996).

    voter_id, voter_directory_id: the voter that is asked.
    last_epoch, end_offset: the epoch of the last record in the candidate's log, and the end of that
        log.
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
    """The answer to a VoteRequest.

    reason: why the vote was refused, for the election timeline; empty if granted.
    """

    epoch: int
    leader_id: int = NO_NODE
    is_granted: bool = False
    error: ErrorCode = ErrorCode.NONE
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginQuorumEpochRequest:
    """A new leader announces its epoch to a voter."""

    cluster_id: str
    epoch: int
    leader_id: int
    voter_id: int
    voter_directory_id: Uuid = UUID_ZERO


@dataclass(frozen=True, slots=True, kw_only=True)
class EndQuorumEpochRequest:
    """A leader resigns. preferred_successors: the voters, the one with the longest log first."""

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
    """A replica asks for the records from fetch_offset on.

    last_fetched_epoch: leader epoch of the record before fetch_offset in the replica's log.
    high_watermark: as the replica knows it, so that the leader can tell whether it has a newer one.
    address: the controller listener of a replica that could become a voter; None otherwise.

    A voter's fetch also states that everything below fetch_offset is on its disk, fsynced.
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
    """The answer to a fetch. records: whole batches from the fetch offset on, described by spans.

    diverging: the largest epoch in the leader's log that is not above last_fetched_epoch, and the
        offset at which it ends there. The replica truncates and fetches again.
    snapshot: the records asked for are no longer in the leader's log; the replica must fetch this
        snapshot first.
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
    """A replica asks for a chunk of a snapshot, from byte `position` on (KIP-630)."""

    cluster_id: str
    epoch: int
    replica_id: int
    snapshot: OffsetAndEpoch
    position: int
    bytes_max: int
    replica_directory_id: Uuid = UUID_ZERO


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSnapshotResponse:
    """The answer to a FetchSnapshot.

    data: bytes of the file from `position` on.
    size: of the whole file.
    """

    epoch: int
    leader_id: int = NO_NODE
    error: ErrorCode = ErrorCode.NONE
    position: int = 0
    size: int = 0
    data: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddVoterRequest:
    """Make a voter of an observer that has caught up (KIP-853).

    is_dry_run: only check the request.
    is_answered_early: answer once the leader has appended the new set; else once it is committed.
    """

    cluster_id: str
    voter: Voter
    is_dry_run: bool = False
    is_answered_early: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveVoterRequest:
    """Remove a voter from the set. directory_id: zero matches any disk that votes under node_id."""

    cluster_id: str
    node_id: int
    directory_id: Uuid = UUID_ZERO
    is_dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateVoterRequest:
    """A voter reports that its listener has changed."""

    cluster_id: str
    epoch: int
    voter: Voter


@dataclass(frozen=True, slots=True, kw_only=True)
class VoterChangeResponse:
    """The outcome of a change to the voter set, sent once the change is committed.

    message: the reason of a refusal, for people.
    voters: the set after the change, or the set in force if the change was refused.
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
