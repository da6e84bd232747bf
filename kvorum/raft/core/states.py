"""The roles of a node in one epoch, and the changes of role that are allowed (KIP-595, KIP-996).

Only `raft.core.transitions` creates a role, so that every change is checked against `TRANSITIONS`
and persisted in one place.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kvorum.raft.model.progress import ParkedFetch, PendingVoterChange, ReplicaKey, ReplicaProgress
from kvorum.runtime.ids import NO_NODE

NEVER_MS = 1 << 62
"""A deadline that never comes."""


@dataclass(slots=True)
class Unattached:
    """Knows the epoch and perhaps its leader, and follows nobody.

    election_deadline_ms: when a voter stands for election.
    discover_at_ms: when an observer, or a voter with bootstrap servers, next asks for the leader.
    lost_leader_id: the leader that an observer has just lost. Until distrusted_until_ms the
        observer ignores peers that name this leader, as they may not have noticed the loss yet.
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
    """One round of votes or pre-votes.

    pending: voter by correlation id.
    resend_at_ms: time by voter.
    failed: voters to which a request has failed in this round.
    is_shortened: the round's deadline has been shortened once already.
    """

    election_deadline_ms: int
    granted: set[int]
    rejected: set[int] = field(default_factory=set)
    pending: dict[int, int] = field(default_factory=dict)
    resend_at_ms: dict[int, int] = field(default_factory=dict)
    failed: set[int] = field(default_factory=set)
    is_shortened: bool = False

    @property
    def deadline_ms(self) -> int:
        return min(self.election_deadline_ms, *self.resend_at_ms.values(), NEVER_MS)


@dataclass(slots=True)
class Prospective(Election):
    """Asks voters whether they would vote for it, in the same epoch; writes nothing (KIP-996).

    leader_id: the leader that this node lost. The node returns to it if the pre-vote fails.
    """

    leader_id: int = NO_NODE


@dataclass(slots=True)
class Candidate(Election):
    """Has raised the epoch and voted for itself; asks the other voters for their votes."""

    @property
    def leader_id(self) -> int:
        return NO_NODE


@dataclass(slots=True)
class Follower:
    """Fetches from the leader of the epoch.

    is_leader_lost: the connection broke, the fetch timeout passed or the leader resigned, and no
        fetch has succeeded since.
    has_answered: a fetch has succeeded. Until then the leader is hearsay: a controller that has no
        leader names its former one.
    correlation_id: of the Fetch or FetchSnapshot in flight; -1 if there is none.
    update_voter_at_ms: when to send (again) UpdateVoter, because this voter's listener has changed.
    is_flushing: appended records are not fsynced yet. The next fetch would acknowledge them, so it
        waits.
    """

    leader_id: int
    fetch_deadline_ms: int
    is_leader_lost: bool = False
    has_answered: bool = False
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
    """Appends records and answers fetches.

    epoch_start_offset: the offset of this epoch's first record (LeaderChange). The high watermark
        may not advance before a majority has that record.
    voters: the other voters by id.
    observers: all other replicas that fetch.
    parked: fetches that wait for records, at most one for each replica, the oldest first.
    due: observers' fetches to be answered in turn, a few at a time; see `leadership.answer_due`.
    turn_began_ms, turn_left: when the present turn began, and how many it may still answer.
    """

    leader_id: int
    epoch_start_offset: int
    elected_at_ms: int
    voters: dict[int, ReplicaProgress]
    observers: dict[ReplicaKey, ReplicaProgress] = field(default_factory=dict)
    parked: dict[ReplicaKey, ParkedFetch] = field(default_factory=dict)
    due: dict[ReplicaKey, ParkedFetch] = field(default_factory=dict)
    turn_began_ms: int = 0
    turn_left: int = 0
    pending_change: PendingVoterChange | None = None
    begin_epoch_at_ms: int = NEVER_MS
    check_quorum_at_ms: int = NEVER_MS
    parked_deadline_ms: int = NEVER_MS
    next_turn_at_ms: int = NEVER_MS

    @property
    def deadline_ms(self) -> int:
        return min(
            self.begin_epoch_at_ms,
            self.check_quorum_at_ms,
            self.parked_deadline_ms,
            self.next_turn_at_ms,
        )


@dataclass(slots=True)
class Resigned:
    """Has led this epoch and will neither lead nor vote in it again; has asked the voters to take
    over."""

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
"""Every allowed change of role and its cause; docs/protocol/election.md is generated from it."""
