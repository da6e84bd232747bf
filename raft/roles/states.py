"""The roles of a node in one epoch, and which may follow which (KIP-595, KIP-996).

Only `raft.transitions` makes these, so that every change of role is checked against
`TRANSITIONS` and persisted in one place.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kvorum.raft.progress import ParkedFetch, PendingChange, ReplicaKey, ReplicaProgress
from kvorum.runtime.ids import NO_NODE

NEVER_MS = 1 << 62
"""A deadline that does not come."""


@dataclass(slots=True)
class Unattached:
    """Knows the epoch, and perhaps who leads it, but does not follow anybody.

    Voters wait for election_deadline_ms; observers look for the leader at discover_at_ms.
    lost_leader_id: whom an observer has just lost. Until distrusted_until_ms it does not go back
    there on others' word, who may not have noticed yet.
    """

    leader_id: int = NO_NODE
    election_deadline_ms: int = NEVER_MS
    discover_at_ms: int = NEVER_MS
    correlation_id: int = -1
    lost_leader_id: int = NO_NODE
    distrusted_until_ms: int = -1

    @property
    def deadline_ms(self) -> int:
        return min(self.election_deadline_ms, self.discover_at_ms)


@dataclass(slots=True)
class Election:
    """A round of votes.

    pending: correlation id to voter; resend_at_ms: voter to time; failed: voters that could not
    be reached in this round, at least once.
    """

    election_deadline_ms: int
    granted: set[int]
    rejected: set[int] = field(default_factory=set)
    pending: dict[int, int] = field(default_factory=dict)
    resend_at_ms: dict[int, int] = field(default_factory=dict)
    failed: set[int] = field(default_factory=set)
    is_hastened: bool = False

    @property
    def deadline_ms(self) -> int:
        return min(self.election_deadline_ms, *self.resend_at_ms.values(), NEVER_MS)


@dataclass(slots=True)
class Prospective(Election):
    """Asks whether a vote would be granted, in the same epoch, writing nothing (KIP-996).

    leader_id: the leader it lost, to whom it returns if the others still have that leader.
    """

    leader_id: int = NO_NODE


@dataclass(slots=True)
class Candidate(Election):
    """Raised the epoch, voted for itself, asks for votes."""

    @property
    def leader_id(self) -> int:
        return NO_NODE


@dataclass(slots=True)
class Follower:
    """Fetches from the leader of the epoch.

    is_leader_lost: the connection broke or the fetch timeout passed since the last success.
    correlation_id: of the fetch, or the piece of a snapshot, in flight; -1 if none.
    update_voter_at_ms: when to tell the leader, again, that this voter's listener has moved.
    is_flushing: appended records are on their way to the disk; the next fetch would vouch for
        them, so it waits.
    """

    leader_id: int
    fetch_deadline_ms: int
    is_leader_lost: bool = False
    stand_at_ms: int = NEVER_MS
    stand_reason: str = "the stream to the leader broke and did not come back"
    correlation_id: int = -1
    request_deadline_ms: int = NEVER_MS
    retry_at_ms: int = NEVER_MS
    update_voter_at_ms: int = NEVER_MS
    is_flushing: bool = False

    @property
    def deadline_ms(self) -> int:
        return min(
            self.fetch_deadline_ms,
            self.stand_at_ms,
            self.request_deadline_ms,
            self.retry_at_ms,
            self.update_voter_at_ms,
        )


@dataclass(slots=True)
class Leader:
    """Appends and answers fetches.

    epoch_start_offset: where this epoch's first record (LeaderChange) stands; the high watermark
        may not move before that record is on a majority.
    voters: the other voters by id. observers: whoever else fetches. parked: at most one a replica.
    """

    leader_id: int
    epoch_start_offset: int
    elected_at_ms: int
    voters: dict[int, ReplicaProgress]
    observers: dict[ReplicaKey, ReplicaProgress] = field(default_factory=dict)
    parked: dict[ReplicaKey, ParkedFetch] = field(default_factory=dict)
    pending_change: PendingChange | None = None
    begin_epoch_at_ms: int = NEVER_MS
    check_quorum_at_ms: int = NEVER_MS
    parked_deadline_ms: int = NEVER_MS

    @property
    def deadline_ms(self) -> int:
        return min(self.begin_epoch_at_ms, self.check_quorum_at_ms, self.parked_deadline_ms)


@dataclass(slots=True)
class Resigned:
    """Led this epoch and will neither lead nor vote in it again; tells voters to take over."""

    leader_id: int
    election_deadline_ms: int

    @property
    def deadline_ms(self) -> int:
        return self.election_deadline_ms


Role = Unattached | Prospective | Candidate | Follower | Leader | Resigned

TRANSITIONS: dict[type, dict[type, str]] = {
    Unattached: {
        Unattached: "a higher epoch, or a vote granted in this one",
        Prospective: "election timeout (voters)",
        Follower: "the leader of the epoch is learnt",
    },
    Prospective: {
        Unattached: "lost or timed out without a known leader; a higher epoch",
        Candidate: "a majority of pre-votes",
        Follower: "lost or timed out while the old leader is known; a leader is learnt or answers",
    },
    Candidate: {
        Unattached: "a higher epoch",
        Prospective: "the round timed out, or everybody reachable has spoken",
        Follower: "another leader of this epoch",
        Leader: "a majority of votes",
    },
    Leader: {
        Unattached: "a higher epoch",
        Follower: "the leader of a higher epoch",
        Resigned: "shutdown, removal, or no majority within the check-quorum time",
    },
    Follower: {
        Unattached: "a higher epoch; an observer that lost its leader",
        Prospective: "fetch timeout, a stream broken for the grace, EndQuorumEpoch (voters)",
        Follower: "the leader of a higher epoch",
    },
    Resigned: {
        Unattached: "its time is over: epoch + 1; or a higher epoch",
        Follower: "the leader of a higher epoch",
    },
}
"""Every change of role that there is, and when; docs/protocol/election.md is drawn from it."""
