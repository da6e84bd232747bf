"""Values that every part of the quorum shares."""

from __future__ import annotations

from dataclasses import dataclass

from kvorum.raft.voters import VoterSet
from kvorum.runtime.errors import invariant
from kvorum.runtime.ids import NO_NODE, UUID_ZERO


@dataclass(frozen=True, slots=True)
class OffsetAndEpoch:
    """A position of the log named so that two nodes can compare it."""

    offset: int
    epoch: int


@dataclass(frozen=True, slots=True)
class BatchSpan:
    """What the core may know of a batch: its offsets (both inclusive) and its leader's epoch.

    voters: the voter set of the VotersRecord in it, if there is one, and voters_offset where.
    """

    base_offset: int
    last_offset: int
    epoch: int
    voters: VoterSet | None = None
    voters_offset: int = -1


@dataclass(frozen=True, slots=True)
class VoteState:
    """What a node must remember over a crash (KRaft's quorum-state file).

    leader_id: leader of `epoch` if known; voted_id: whom this node voted for in `epoch`.
    Both may be NO_NODE. voted_directory_id: the disk voted for, zero if it was not named.
    Written and fsynced before any answer that rests on it.
    """

    epoch: int = 0
    leader_id: int = NO_NODE
    voted_id: int = NO_NODE
    voted_directory_id: bytes = UUID_ZERO


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftConfig:
    """Who this node is and how patient it is. All times in milliseconds.

    voters: ids of a static voter set; a node that is not among them is an observer. Empty: the
        voter set is dynamic and comes from the log (KIP-853).
    directory_id: names this node's disk; zero only in tests.
    address: (host, port) of this node's controller listener, None for a broker. Only a node with
        one may become a voter; it fsyncs before each fetch, as voters do.
    bootstrap_ids: stand-ins (-2, -3, ...) for the bootstrap servers, whom a node asks that knows
        no voter yet.
    election_timeout_ms: base of the randomised election timeout, drawn from [base, 2 * base).
    startup_election_timeout_ms: upper bound of the first timeout after start; a pre-vote harms
        nobody, so a fresh quorum need not wait a whole timeout for its first leader.
    fetch_timeout_ms: a follower without an answer from its leader for so long stands for election.
    check_quorum_timeout_ms: a leader that a majority has not fetched from for so long resigns.
    leader_loss_grace_ms: after the stream to the leader broke, wait [grace, 2 * grace) for it to
        come back before a pre-vote.
    fetch_wait_max_ms: how long a leader parks a fetch that has nothing to return.
    retry_backoff_ms: pause before a failed request is sent again.
    request_timeout_ms: an answer that took longer is not waited for any more.
    snapshot_chunk_bytes: most that one FetchSnapshot brings.
    """

    node_id: int
    cluster_id: str
    voters: tuple[int, ...] = ()
    directory_id: bytes = UUID_ZERO
    address: tuple[str, int] | None = None
    bootstrap_ids: tuple[int, ...] = ()
    election_timeout_ms: int = 300
    startup_election_timeout_ms: int = 100
    fetch_timeout_ms: int = 900
    check_quorum_timeout_ms: int = 1350
    leader_loss_grace_ms: int = 30
    fetch_wait_max_ms: int = 400
    fetch_bytes_max: int = 8 << 20
    snapshot_chunk_bytes: int = 1 << 20
    retry_backoff_ms: int = 20
    request_timeout_ms: int = 800

    @property
    def is_dynamic(self) -> bool:
        """The voter set comes from the log: kraft.version 1, else 0."""
        return not self.voters

    def __post_init__(self) -> None:
        invariant(len(set(self.voters)) == len(self.voters), f"bad voter set {self.voters}")
        invariant(
            self.fetch_wait_max_ms < self.request_timeout_ms < self.fetch_timeout_ms,
            "a parked fetch must be answered before its request times out, "
            "and a lost answer must be noticed before the leader is given up",
        )
