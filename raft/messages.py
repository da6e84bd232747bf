"""Requests and responses between nodes of the quorum (kraft.md section 4).

Every response carries the sender's epoch and the leader it knows, so that any answer can
correct a node that is behind.
"""

from __future__ import annotations

from dataclasses import dataclass

from raft.model import BatchSpan, OffsetAndEpoch
from runtime.errors import ErrorCode
from runtime.ids import NO_NODE


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteRequest:
    """A candidate asks for a vote, or with is_pre_vote for the promise of one (KIP-996).

    voter_id: who is meant to receive it; last_epoch, end_offset: the candidate's log.
    """

    cluster_id: str
    epoch: int
    candidate_id: int
    voter_id: int
    last_epoch: int
    end_offset: int
    is_pre_vote: bool


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
    """

    cluster_id: str
    epoch: int
    replica_id: int
    fetch_offset: int
    last_fetched_epoch: int
    high_watermark: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchResponse:
    """records: whole batches from the fetch offset on, described by spans.

    diverging: the leader's log ends for the largest epoch it knows not above the fetcher's at
    this offset; the fetcher truncates and asks again.
    """

    epoch: int
    leader_id: int = NO_NODE
    error: ErrorCode = ErrorCode.NONE
    high_watermark: int = -1
    diverging: OffsetAndEpoch | None = None
    spans: tuple[BatchSpan, ...] = ()
    records: bytes = b""


Request = VoteRequest | BeginQuorumEpochRequest | EndQuorumEpochRequest | FetchRequest
Response = VoteResponse | QuorumEpochResponse | FetchResponse
