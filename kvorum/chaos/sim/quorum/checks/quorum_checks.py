"""The invariants of the quorum after every event (names as in the KRaft TLA+ specification).

Each check raises CheckFailed with its finding; each has a test that feeds it a bad history. Logs
are compared by digests of their prefixes, so a check need not read them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from kvorum.chaos.sim.kernel.checks import CheckFailed, check
from kvorum.chaos.sim.quorum.checks.checked_node import CheckedNode
from kvorum.chaos.sim.quorum.checks.snapshot_checks import SnapshotChecks
from kvorum.chaos.sim.quorum.checks.voter_checks import VoterChecks, Votes, named
from kvorum.chaos.sim.quorum.model.mirror import Mirror
from kvorum.chaos.sim.quorum.model.recovery import DiskSettings
from kvorum.chaos.sim.quorum.model.state import VALUE_PREFIX, VoterKeys, is_among, most_of
from kvorum.raft.core.states import Follower
from kvorum.raft.model.effects import AppendVoters, LeaderChanged
from kvorum.raft.model.values import VoteState
from kvorum.runtime.ids import NO_NODE, UUID_ZERO


class QuorumChecks:
    """Remembers facts and compares them.

    snapshots: the checks of snapshots.
    voters: the checks of voter sets.
    leaders: epoch to node.
    committed: records as first seen below a high watermark.
    committed_in: epoch to the end offset that its leader committed.
    votes: epoch to the votes given in it.
    acknowledged: offset to the value that a client was told is committed.
    """

    def __init__(self, settings: DiskSettings, first_voters: VoterKeys) -> None:
        self.leaders: dict[int, int] = {}
        self.committed = Mirror(voters=first_voters)
        self.snapshots = SnapshotChecks(self.committed, settings)
        self.voters = VoterChecks(self.committed)
        self.committed_in: dict[int, int] = {}
        self.votes: defaultdict[int, Votes] = defaultdict(dict)
        self.epochs: dict[int, int] = {}
        self.high_watermarks: dict[tuple[int, int], int] = {}
        self.acknowledged: dict[int, bytes] = {}
        self.nodes: Sequence[CheckedNode] = []
        self._lost: list[Holder] = []

    def committed_values(self) -> list[bytes]:
        """The replicated list: what clients appended, in the order of the log."""
        return [v for _, v in self.committed.entries if v.startswith(VALUE_PREFIX)]

    def forget(self, node: CheckedNode) -> None:
        """Drop the facts about a node that has another, empty disk."""
        self._lost.append(_holder(node))
        self.epochs.pop(node.node_id, None)
        self.snapshots.forget(node)

    def after_event(self, node: CheckedNode) -> None:
        """Check MonotonicEpoch in memory, and FollowsItself."""
        epoch, role = node.core.epoch, node.core.role
        check(
            not isinstance(role, Follower) or role.leader_id != node.node_id,
            "FollowsItself",
            node.summary(),
        )
        known = self.epochs.get(node.node_id, 0)
        if epoch < known:
            raise CheckFailed("MonotonicEpoch", f"epoch fell from {known}: {node.summary()}")
        self.epochs[node.node_id] = epoch
        self.snapshots.after_event(node)
        self.voters.after_event(node)

    def on_recovered(self, node: CheckedNode, mirror: Mirror, vote_state: VoteState) -> None:
        """Check DurableSurvives: fsynced records and votes are there after a stop."""
        end_offset = node.durable_end_offset
        # A log that a snapshot has replaced was checked with its snapshot.
        check(
            self.snapshots.is_begun_anew(node, mirror)
            or mirror.digest_at(end_offset) == node.mirror.digest_at(end_offset),
            "DurableSurvives",
            f"node {node.node_id} had fsynced {end_offset} records and came back with "
            f"{mirror.end_offset}, the first to differ at {mirror.differs_at(node.mirror)}",
        )
        check(
            any(
                saved is not None and _is_same_state(saved, vote_state)
                for saved in (node.saved_vote, node.saving_vote)
            ),
            "DurableSurvives",
            f"node {node.node_id} came back with {vote_state}, had saved {node.saved_vote}",
        )
        self.on_vote_state(node, vote_state)

    def on_vote_state(self, node: CheckedNode, state: VoteState) -> None:
        """Check MonotonicEpoch on disk, and VotedOnce: a vote never changes within its epoch. A
        vote belongs to the disk: a node with another disk is another voter."""
        known = self.epochs.get(node.node_id, 0)
        check(
            state.epoch >= known,
            "MonotonicEpoch",
            f"node {node.node_id} persisted epoch {state.epoch} < {known}",
        )
        if state.voted_id == NO_NODE:
            return
        own = node.node_id, node.config.directory_id
        vote = state.voted_id, state.voted_directory_id
        first = self.votes[state.epoch].setdefault(own, vote)
        check(
            _is_same_vote(first, vote),
            "VotedOnce",
            f"node {node.node_id} voted twice in epoch {state.epoch}: {first[0]}, {vote[0]}",
        )

    def on_leader_changed(self, node: CheckedNode, change: LeaderChanged) -> None:
        """Check ElectionSafety and LeaderCompleteness."""
        if change.leader_id == NO_NODE:
            return
        known = self.leaders.setdefault(change.epoch, change.leader_id)
        check(
            known == change.leader_id,
            "ElectionSafety",
            f"two leaders in epoch {change.epoch}: {known} and {change.leader_id}",
        )
        if change.leader_id == node.node_id:
            # Compare only records that were committed in earlier epochs: delayed votes may elect a
            # leader in an epoch that is long over, and this leader can no longer commit anything.
            ends = (end for epoch, end in self.committed_in.items() if epoch < change.epoch)
            end_offset = max(ends, default=0)
            check(
                node.mirror.digest_at(end_offset) == self.committed.digest_at(end_offset),
                "LeaderCompleteness",
                f"leader {node.node_id} of epoch {change.epoch} lacks committed entries: the first "
                f"of {end_offset} at {node.mirror.differs_at(self.committed)}",
            )
            self.voters.on_leader(node, change, self.votes[change.epoch])

    def on_changing_voters(self, node: CheckedNode, effect: AppendVoters) -> None:
        """Check the voter set that a leader is about to append."""
        has_committed = effect.epoch in self.committed_in
        self.voters.on_appending(node, effect, has_committed=has_committed)

    def on_log_changed(self, node: CheckedNode) -> None:
        """Check LogMatching: equal epoch at equal offset means equal logs up to there."""
        self.voters.on_log_changed(node)
        for other in self.nodes:
            if other is node:
                continue
            end_offset = node.mirror.agreed_end(other.mirror)
            digest, other_digest = (
                node.mirror.digest_at(end_offset),
                other.mirror.digest_at(end_offset),
            )
            # None: one log begins after the end of the other.
            if digest != other_digest and None not in (digest, other_digest):
                first, second = sorted((node.node_id, other.node_id))
                raise CheckFailed(
                    "LogMatching",
                    f"logs of {first} and {second} differ below {end_offset}, where both have "
                    f"the same epoch, at {node.mirror.differs_at(other.mirror)}",
                )

    def on_committed(self, node: CheckedNode, high_watermark: int) -> None:
        """Check MonotonicHighWatermark, StateMachineSafety, MajorityReachedHighWatermark, and
        CommitInOwnEpoch: a leader commits only with a record of its own epoch on top."""
        key = (node.node_id, node.incarnation)
        before = self.high_watermarks.get(key, 0)
        check(
            high_watermark >= before,
            "MonotonicHighWatermark",
            f"high watermark fell from {before} to {high_watermark} at node {node.node_id}",
        )
        self.high_watermarks[key] = high_watermark
        digest = node.mirror.digest_at(high_watermark)
        check(
            digest is not None,
            "StateMachineSafety",
            f"node {node.node_id} commits {high_watermark} beyond its log",
        )
        known_end = min(high_watermark, self.committed.end_offset)
        if node.mirror.digest_at(known_end) != self.committed.digest_at(known_end):
            offset = node.mirror.differs_at(self.committed)
            raise CheckFailed(
                "StateMachineSafety",
                f"offset {offset} was committed as {self.committed.entry(offset)}, "
                f"node {node.node_id} has {node.mirror.entry(offset)}",
            )
        if high_watermark > known_end:
            self._held_by_majority(node, high_watermark)
            last = node.mirror.entry(high_watermark - 1)
            for offset in range(known_end, high_watermark):
                entry = node.mirror.entry(offset)
                if entry is not None:
                    self.committed.append(*entry)
            if last is None:
                return
            check(
                not node.is_leader or last[0] == node.core.epoch,
                "CommitInOwnEpoch",
                f"node {node.node_id} leads epoch {node.core.epoch} and commits up to a record of "
                f"epoch {last[0]}, which a later leader may still replace (Raft paper, figure 8)",
            )
            self.committed_in[last[0]] = high_watermark

    def on_applied(self, node: CheckedNode) -> None:
        """Check StateMachinesAgree: equal digests at equal offsets, of bytes read back from
        snapshot and log."""
        state = node.applied
        check(
            state.digest == self.committed.digest_at(state.end_offset),
            "StateMachinesAgree",
            f"the state of node {node.node_id} at {state.end_offset} is not the others'",
        )

    def acknowledge(self, offset: int, value: bytes) -> None:
        """Record that a client was told that its value is committed, for Durability."""
        entry = self.committed.entry(offset)
        check(
            entry is not None and entry[1] == value,
            "Durability",
            f"acknowledged {value!r} at {offset}, which is not committed",
        )
        self.acknowledged[offset] = value

    def converged(self) -> None:
        """Check, after healing, that every node has all committed records, and so all acknowledged
        values."""
        end_offset = self.committed.end_offset
        for node in self.nodes:
            if node.is_removed:
                continue
            check(
                node.mirror.digest_at(end_offset) == self.committed.digest_at(end_offset),
                "Convergence",
                f"node {node.node_id} does not hold what is committed: the first of {end_offset} "
                f"at {node.mirror.differs_at(self.committed)}",
            )
        self.voters.converged(self.nodes)
        for offset, value in self.acknowledged.items():
            entry = self.committed.entry(offset)
            check(
                entry is not None and entry[1] == value,
                "Durability",
                f"lost {value!r}, acknowledged at {offset}",
            )

    def _held_by_majority(self, leader: CheckedNode, end_offset: int) -> None:
        digest = leader.mirror.digest_at(end_offset)
        voters = leader.mirror.voters
        # A disk that was lost later counts too: it held the record, and never votes for a log
        # without it.
        holders = [
            holder.disk[0]
            for holder in [*map(_holder, self.nodes), *self._lost]
            if is_among(voters, *holder.disk)
            and holder.durable_end_offset >= end_offset
            and holder.mirror.digest_at(end_offset) == digest
        ]
        check(
            len(holders) >= most_of(len(voters)),
            "MajorityReachedHighWatermark",
            f"offset {end_offset - 1} is committed, but only {holders} hold it on disk of the "
            f"voters {named(voters)}",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """The content of one disk, which may be lost by now. disk: node and directory id."""

    disk: tuple[int, bytes]
    mirror: Mirror
    durable_end_offset: int


def _holder(node: CheckedNode) -> Holder:
    return Holder(
        disk=(node.node_id, node.config.directory_id),
        mirror=node.mirror,
        durable_end_offset=node.durable_end_offset,
    )


def _is_same_vote(one: tuple[int, bytes], other: tuple[int, bytes]) -> bool:
    # With static voters the vote file does not name the candidate's disk.
    return one[0] == other[0] and (one[1] == other[1] or UUID_ZERO in (one[1], other[1]))


def _is_same_state(one: VoteState, other: VoteState) -> bool:
    return (one.epoch, one.leader_id) == (other.epoch, other.leader_id) and _is_same_vote(
        (one.voted_id, one.voted_directory_id), (other.voted_id, other.voted_directory_id)
    )
