"""Values that every part of the quorum shares."""

from __future__ import annotations

from dataclasses import dataclass

from kvorum.raft.model.voters import VoterSet
from kvorum.runtime.errors import invariant
from kvorum.runtime.ids import NO_NODE, UUID_ZERO


@dataclass(frozen=True, slots=True)
class OffsetAndEpoch:
    """A log position, named so that two nodes can compare it: a log end and the epoch before it."""

    offset: int
    epoch: int


@dataclass(frozen=True, slots=True)
class BatchSpan:
    """All that the core knows of a batch: its offsets (both inclusive) and its leader epoch.

    voters: the voter set of the VotersRecord in the batch, None if it holds none.
    voters_offset: the offset of that record.
    """

    base_offset: int
    last_offset: int
    epoch: int
    voters: VoterSet | None = None
    voters_offset: int = -1


@dataclass(frozen=True, slots=True)
class VoteState:
    """The state that a node must keep across a crash (KRaft's quorum-state file).

    leader_id: the leader of `epoch`.
    voted_id: the candidate that this node voted for in `epoch`. Both may be NO_NODE.
    voted_directory_id: the directory id of that candidate, zero if it named none. The state is
        written and fsynced before any response that depends on it leaves.
    """

    epoch: int = 0
    leader_id: int = NO_NODE
    voted_id: int = NO_NODE
    voted_directory_id: bytes = UUID_ZERO


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftConfig:
    """The identity and the timeouts of this node. All times in milliseconds.

    voters: ids of a static voter set; a node that is not among them is an observer. Empty: the
        voter set is dynamic and comes from the log (KIP-853).
    directory_id: names this node's disk; zero only in tests.
    committed_offset: the records below were committed before this start, as this disk knows; -1:
        nothing is known.
    address: (host, port) of this node's controller listener, None for a broker. Only a node with an
        address may become a voter; it fsyncs before each fetch, as voters do.
    bootstrap_ids: stand-in ids (-2, -3, ...) for the bootstrap servers. A node that knows no voter
        yet asks them.
    election_timeout_ms: base of the randomised election timeout, drawn from [base, 2 * base).
    startup_election_timeout_ms: upper bound of the first timeout after start. A pre-vote disturbs
        no leader, so a fresh quorum need not wait a whole election timeout for its first leader.
    fetch_timeout_ms: a follower that had no response from its leader for this long stands for
        election.
    check_quorum_timeout_ms: a leader that no majority has fetched from for this long resigns.
    leader_loss_grace_ms: after the stream to the leader broke, a follower waits [grace, 2 * grace)
        for it to come back before it starts a pre-vote.
    fetch_wait_max_ms: the longest time for which a leader parks a fetch that has nothing to return.
    retry_backoff_ms: pause before a failed request is sent again.
    request_timeout_ms: a response that takes longer is no longer waited for.
    snapshot_chunk_bytes: upper limit of one FetchSnapshot response.
    """

    node_id: int
    cluster_id: str
    voters: tuple[int, ...] = ()
    directory_id: bytes = UUID_ZERO
    committed_offset: int = -1
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
        """True if the voter set comes from the log (kraft.version 1), False if it is configured."""
        return not self.voters

    def __post_init__(self) -> None:
        invariant(len(set(self.voters)) == len(self.voters), f"bad voter set {self.voters}")
        invariant(
            self.fetch_wait_max_ms < self.request_timeout_ms < self.fetch_timeout_ms,
            "a parked fetch must be answered before its request times out, "
            "and a lost answer must be noticed before the leader is given up",
        )
