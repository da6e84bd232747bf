"""What one node of the quorum knows, and the effects of the event at hand.

The rules of each role (`raft.roles`) read and change this; `raft.core` brings them the events. A
change of role goes through `raft.transitions`.
"""

from __future__ import annotations

import random

from kvorum.raft.effects import Effect, HighWatermarkAdvanced, LeaderChanged, Noted
from kvorum.raft.log_tail import LogTail
from kvorum.raft.model import RaftConfig, VoteState
from kvorum.raft.progress import SnapshotFetch
from kvorum.raft.roles.states import NEVER_MS, Follower, Resigned, Role, Unattached
from kvorum.raft.voters import Voter, VoterSet
from kvorum.runtime.ids import NO_NODE, UUID_ZERO


class RaftState:
    """A node's whole state of consensus.

    epoch, voted_id, persisted_leader_id: as last emitted by PersistVoteState.
    high_watermark: end (exclusive) of what is known to be committed, -1 if not known yet.
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
        self._correlation_id = 0
        self._strangers: set[int] = set()
        self._effects: list[Effect] = []
        self._leadership = LeaderChanged(self.epoch, NO_NODE)
        self.role: Role = self._initial_role(now_ms)

    @property
    def leader_id(self) -> int:
        """The node that this node takes for the leader, NO_NODE if none."""
        return self._leadership.leader_id

    @property
    def voter_set(self) -> VoterSet:
        """The voters in force here: of the configuration, or of the log, committed or not."""
        return self.log.voters.last if self.config.is_dynamic else self._static_voters

    @property
    def is_voter(self) -> bool:
        """True if this node, with this disk, is in the voter set it knows."""
        return self.voter_set.has(self.config.node_id, self.config.directory_id)

    @property
    def is_electable(self) -> bool:
        """True if this node stands for election when it loses the leader.

        A node that is out of its own latest set must still stand until that is committed (Ongaro's
        thesis, 4.2.2). Bad sequence: 1. leader 1 of {1, 2} removes itself and is cut off before 2
        has the record, 2. it resigns, 3. node 2 needs its vote and does not get it, as its log
        is shorter: without node 1 standing nobody would ever lead.
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
        """This node as a voter entry, None for a broker."""
        config = self.config
        if config.address is None:
            return None
        return Voter(config.node_id, config.directory_id, *config.address)

    @property
    def is_voter_entry_stale(self) -> bool:
        """The voter set names another listener for this voter than it has."""
        if not self.config.is_dynamic or self.own_voter is None or not self.is_voter:
            return False
        return self.voter_set.get(self.config.node_id) != self.own_voter

    def is_own(self, voter: Voter) -> bool:
        """True if a voter entry means this node and this disk."""
        return voter.is_key(self.config.node_id, self.config.directory_id)

    def is_meant(self, voter_id: int, voter_directory_id: bytes) -> bool:
        """True if a request for this voter is meant for this node and this disk."""
        own = self.config
        return voter_id == own.node_id and voter_directory_id in (UUID_ZERO, own.directory_id)

    def emit(self, effect: Effect) -> None:
        self._effects.append(effect)

    def note_leadership(self, leadership: LeaderChanged) -> None:
        """Tell the driver of another leader or epoch, once."""
        if leadership != self._leadership:
            self._leadership = leadership
            self.emit(leadership)
            self.emit(Noted(f"epoch={leadership.epoch} leader={leadership.leader_id}"))

    def next_correlation_id(self) -> int:
        self._correlation_id += 1
        return self._correlation_id

    def random_election_deadline_ms(self, now_ms: int) -> int:
        base_ms = self.config.election_timeout_ms
        return now_ms + base_ms + self.rng.randrange(base_ms)

    def random_fetch_deadline_ms(self, now_ms: int) -> int:
        # Spread by a tenth, so that followers of a silent leader do not stand in step.
        base_ms = self.config.fetch_timeout_ms
        return now_ms + base_ms + self.rng.randrange(base_ms // 10 + 1)

    def random_startup_deadline_ms(self, now_ms: int) -> int:
        return now_ms + self.rng.randrange(self.config.startup_election_timeout_ms + 1)

    def advance_high_watermark(self, offset: int) -> bool:
        """Raise the high watermark to offset; False (and nothing done) if that is not higher."""
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
            # It may have appended in this epoch what it no longer has: it must not lead it again,
            # or one (offset, epoch) could name two records.
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
