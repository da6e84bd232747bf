"""The state of one node of the quorum, and the effects of the event that it is stepping.

The roles hold the rules that read and change this state; `raft.core.raft_core` hands
them the events. Every change of role goes through `raft.core.transitions`.
"""

from __future__ import annotations

import random

from kvorum.raft.core.states import NEVER_MS, Follower, Resigned, Role, Unattached
from kvorum.raft.model.effects import (
    Effect,
    HighWatermarkAdvanced,
    LeaderChanged,
    QuorumAlert,
    TimelineEntry,
)
from kvorum.raft.model.log_tail import LogTail
from kvorum.raft.model.progress import SnapshotFetch
from kvorum.raft.model.values import RaftConfig, VoteState
from kvorum.raft.model.voters import Voter, VoterSet
from kvorum.runtime.ids import NO_NODE, UUID_ZERO

OLDER_LEADER_FETCH_TIMEOUTS = 3
"""Fetch timeouts for which a leader of an older epoch may answer: twice as long as one that was cut
off goes on."""
LOST_DISKS_ADVICE = (
    "Voters of that quorum have lost their disks, or it is another one. Stop them at once, then "
    "recover the quorum from a controller that holds the metadata (kvorum quorum recover; "
    "docs/protocol/voters.md, disks that were installed again by mistake)"
)


class RaftState:
    """A node's whole state of consensus.

    epoch, voted_id, persisted_leader_id: as last emitted by PersistVoteState.
    high_watermark: end (exclusive) of the records known to be committed; -1 if not known yet.
    refused_leader: why this node did not do what the last leader asked; "" once it obeys one.
    """

    def __init__(
        self,
        config: RaftConfig,
        *,
        vote_state: VoteState,
        log: LogTail,
        rng: random.Random,
        now_ms: int,
    ) -> None:
        self.config = config
        self.log = log
        self.rng = rng
        # Records below a snapshot were committed when it was made.
        self.high_watermark = log.snapshots[-1].offset if log.snapshots else -1
        if log.last_epoch > vote_state.epoch:
            vote_state = VoteState(epoch=log.last_epoch)
        self.epoch = vote_state.epoch
        self.voted_id = vote_state.voted_id
        self.voted_directory_id = vote_state.voted_directory_id
        self.persisted_leader_id = vote_state.leader_id
        self.snapshot_fetch: SnapshotFetch | None = None
        self._static_voters = VoterSet.static(config.voters)
        self.refused_leader = ""
        self._correlation_id = 0
        self._foreign_peers: set[int] = set()
        self._contradicted_epoch = -1
        """The last epoch in which a peer named another leader than the known one."""
        self._older_leader_since_ms = NEVER_MS
        """Since when only leaders of older epochs have answered."""
        self._effects: list[Effect] = []
        self._leadership = LeaderChanged(self.epoch, NO_NODE)
        self.role: Role = self._initial_role(now_ms)

    @property
    def leader_id(self) -> int:
        """The leader that this node acknowledges; NO_NODE if it knows none."""
        return self._leadership.leader_id

    @property
    def voter_set(self) -> VoterSet:
        """The voter set in force on this node: the configured one, or the last one in the log,
        committed or not."""
        return self.log.voters.last if self.config.is_dynamic else self._static_voters

    @property
    def known_committed(self) -> int:
        """End (exclusive) of the records that no leader may take away: those below the high
        watermark, those that were committed before this start, and all that an observer has, since
        a leader shows an observer only what is committed."""
        if self.config.address is None and not self.is_voter:
            return self.log.end_offset
        return max(self.high_watermark, self.config.committed_offset)

    @property
    def is_voter(self) -> bool:
        """True if this node, with its directory id, is in the voter set in force."""
        return self.voter_set.has(self.config.node_id, self.config.directory_id)

    @property
    def is_electable(self) -> bool:
        """True if this node stands for election when it loses the leader.

        A node that the latest voter set leaves out must still stand until that set is committed
        (Ongaro's thesis, 4.2.2). Bad sequence without this:
        1. Leader A of {A, B} removes itself and is cut off before B has the VotersRecord.
        2. A resigns.
        3. B needs A's vote and does not get it, because B's log is shorter. If A did not stand, the
           quorum would never have a leader again.
        """
        if self.is_voter:
            return True
        history = self.log.voters
        return (
            self.config.is_dynamic
            and history.last_offset >= max(self.high_watermark, 0)
            and history.previous.has(self.config.node_id, self.config.directory_id)
        )

    @property
    def own_voter(self) -> Voter | None:
        """This node's own voter entry; None for a broker."""
        config = self.config
        if config.address is None:
            return None
        return Voter(config.node_id, config.directory_id, *config.address)

    @property
    def is_voter_entry_stale(self) -> bool:
        """True if the voter set in force names another listener for this voter than its own."""
        if not self.config.is_dynamic or self.own_voter is None or not self.is_voter:
            return False
        return self.voter_set.get(self.config.node_id) != self.own_voter

    def is_own(self, voter: Voter) -> bool:
        """True if a voter entry has this node's id and directory id."""
        return voter.is_key(self.config.node_id, self.config.directory_id)

    def is_addressed_to_self(self, voter_id: int, voter_directory_id: bytes) -> bool:
        """True if a request addressed to this voter is meant for this node and its directory id."""
        own = self.config
        return voter_id == own.node_id and voter_directory_id in (UUID_ZERO, own.directory_id)

    def emit(self, effect: Effect) -> None:
        self._effects.append(effect)

    def refuse_leader(self, reason: str) -> None:
        """Note why the present leader is not obeyed, and tell the driver once."""
        if reason != self.refused_leader:
            self.refused_leader = reason
            self.emit(QuorumAlert(reason))

    def note_older_leader(self, leader_id: int, epoch: int, now_ms: int) -> None:
        """Refuse a leader that goes on in an older epoch than this node has seen.

        A leader that was cut off answers so too, until it resigns for want of a quorum. One that
        does so for longer has a quorum: of disks that do not know the later epochs.
        """
        self._older_leader_since_ms = min(self._older_leader_since_ms, now_ms)
        silence_ms = OLDER_LEADER_FETCH_TIMEOUTS * self.config.fetch_timeout_ms
        if now_ms - self._older_leader_since_ms >= silence_ms:
            self.refuse_leader(
                f"leader {leader_id} leads epoch {epoch}, and this node has seen epoch "
                f"{self.epoch}. {LOST_DISKS_ADVICE}"
            )

    def note_leader(self) -> None:
        """Note that a peer has named a leader of this node's epoch, or of a newer one."""
        self._older_leader_since_ms = NEVER_MS

    def note_leadership(self, leadership: LeaderChanged) -> None:
        """Tell the driver of a new leader or epoch, once for each change."""
        if leadership != self._leadership:
            self._leadership = leadership
            self.emit(leadership)
            self.emit(TimelineEntry(f"epoch={leadership.epoch} leader={leadership.leader_id}"))

    def next_correlation_id(self) -> int:
        self._correlation_id += 1
        return self._correlation_id

    def random_election_deadline_ms(self, now_ms: int) -> int:
        base_ms = self.config.election_timeout_ms
        return now_ms + base_ms + self.rng.randrange(base_ms)

    def random_fetch_deadline_ms(self, now_ms: int) -> int:
        # A random tenth is added, so that the followers of a silent leader do not all stand at
        # once.
        base_ms = self.config.fetch_timeout_ms
        return now_ms + base_ms + self.rng.randrange(base_ms // 10 + 1)

    def random_startup_deadline_ms(self, now_ms: int) -> int:
        return now_ms + self.rng.randrange(self.config.startup_election_timeout_ms + 1)

    def advance_high_watermark(self, offset: int) -> bool:
        """Raise the high watermark to offset. Return False, with nothing changed, if it is not
        higher."""
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        self.emit(HighWatermarkAdvanced(offset))
        return True

    def _initial_role(self, now_ms: int) -> Role:
        """The role after a restart (KIP-595). A node never starts as leader."""
        config = self.config
        deadline_ms = self.random_startup_deadline_ms(now_ms)
        if not self.is_electable:
            return Unattached(discover_at_ms=now_ms)
        if self.persisted_leader_id == config.node_id:
            # This node led the epoch before the restart and may have lost records that it appended
            # in it. If it led the epoch again, one (offset, epoch) could name two different
            # records.
            return Resigned(leader_id=config.node_id, election_deadline_ms=deadline_ms)
        if self.voter_set.ids == (config.node_id,):
            return Unattached(election_deadline_ms=now_ms)
        if self.persisted_leader_id in self.voter_set.ids:
            return Follower(
                leader_id=self.persisted_leader_id,
                fetch_deadline_ms=self.random_fetch_deadline_ms(now_ms),
                retry_at_ms=now_ms,
                update_voter_at_ms=now_ms if self.is_voter_entry_stale else NEVER_MS,
            )
        return Unattached(election_deadline_ms=deadline_ms)
