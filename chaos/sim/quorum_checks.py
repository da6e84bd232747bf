"""What must hold in the quorum after every event (names as in the KRaft TLA+ specification).

Each check raises CheckFailed with what it saw; each has a test that feeds it a bad history. Logs
are compared by digests of their prefixes, so a check costs no walk over them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from chaos.sim.checks import CheckFailed, check
from chaos.sim.mirror import VALUE_PREFIX, Mirror
from raft.effects import LeaderChanged
from raft.model import VoteState
from raft.quorum import majority
from runtime.ids import NO_NODE

if TYPE_CHECKING:
    from chaos.sim.node import SimNode

VotersInForce = Callable[["SimNode"], Collection[int]]
"""Ids of the voters whose majority a node needs that commits now."""


class QuorumChecks:
    """Remembers what was seen and compares.

    leaders: epoch to node. committed: as first seen below a high watermark; committed_in: epoch to
    the end offset of what its leader committed. votes: (node, epoch) to the vote given.
    acknowledged: offset to value told to a client.
    """

    def __init__(self, voters_in_force: VotersInForce) -> None:
        self._voters_in_force = voters_in_force
        self.leaders: dict[int, int] = {}
        self.committed = Mirror()
        self.committed_in: dict[int, int] = {}
        self.votes: dict[tuple[int, int], int] = {}
        self.epochs: dict[int, int] = {}
        self.high_watermarks: dict[tuple[int, int], int] = {}
        self.acknowledged: dict[int, bytes] = {}
        self.nodes: list[SimNode] = []

    def committed_values(self) -> list[bytes]:
        """The replicated list: what clients appended, in the order of the log."""
        return [v for _, v in self.committed.entries if v.startswith(VALUE_PREFIX)]

    def forget(self, node: SimNode) -> None:
        """An observer lost its disk: what it knew begins anew."""
        self.epochs.pop(node.node_id, None)

    def after_event(self, node: SimNode) -> None:
        """MonotonicEpoch, in memory."""
        epoch = node.core.epoch
        known = self.epochs.get(node.node_id, 0)
        if epoch < known:
            raise CheckFailed("MonotonicEpoch", f"epoch fell from {known}: {node.summary()}")
        self.epochs[node.node_id] = epoch

    def on_recovered(self, node: SimNode, mirror: Mirror, vote_state: VoteState) -> None:
        """DurableSurvives: what was fsynced, log and vote, is there after a stop."""
        end_offset = node.durable_end_offset
        check(
            mirror.digest_at(end_offset) == node.mirror.digest_at(end_offset),
            "DurableSurvives",
            f"node {node.node_id} had fsynced {end_offset} records and came back with "
            f"{mirror.end_offset}, the first to differ at {mirror.differs_at(node.mirror)}",
        )
        check(
            vote_state in (node.saved_vote, node.saving_vote),
            "DurableSurvives",
            f"node {node.node_id} came back with {vote_state}, had saved {node.saved_vote}",
        )
        self.on_vote_state(node, vote_state)

    def on_vote_state(self, node: SimNode, state: VoteState) -> None:
        """MonotonicEpoch on disk, and VotedOnce: a vote is never another one in that epoch."""
        known = self.epochs.get(node.node_id, 0)
        check(
            state.epoch >= known,
            "MonotonicEpoch",
            f"node {node.node_id} persisted epoch {state.epoch} < {known}",
        )
        if state.voted_id == NO_NODE:
            return
        vote = self.votes.setdefault((node.node_id, state.epoch), state.voted_id)
        check(
            vote == state.voted_id,
            "VotedOnce",
            f"node {node.node_id} voted twice in epoch {state.epoch}: {vote}, {state.voted_id}",
        )

    def on_leader_changed(self, node: SimNode, change: LeaderChanged) -> None:
        """ElectionSafety and LeaderCompleteness."""
        if change.leader_id == NO_NODE:
            return
        known = self.leaders.setdefault(change.epoch, change.leader_id)
        check(
            known == change.leader_id,
            "ElectionSafety",
            f"two leaders in epoch {change.epoch}: {known} and {change.leader_id}",
        )
        if change.leader_id == node.node_id:
            # Of what was committed in earlier epochs only: votes that were held up may make a
            # leader of an epoch that is long over, and it can commit nothing any more.
            ends = (end for epoch, end in self.committed_in.items() if epoch < change.epoch)
            end_offset = max(ends, default=0)
            check(
                node.mirror.digest_at(end_offset) == self.committed.digest_at(end_offset),
                "LeaderCompleteness",
                f"leader {node.node_id} of epoch {change.epoch} lacks committed entries: the first "
                f"of {end_offset} at {node.mirror.differs_at(self.committed)}",
            )

    def on_log_changed(self, node: SimNode) -> None:
        """LogMatching: equal epoch at equal offset means equal logs up to there."""
        for other in self.nodes:
            if other is node:
                continue
            end_offset = node.mirror.agreed_end(other.mirror)
            if node.mirror.digest_at(end_offset) != other.mirror.digest_at(end_offset):
                first, second = sorted((node.node_id, other.node_id))
                raise CheckFailed(
                    "LogMatching",
                    f"logs of {first} and {second} differ below {end_offset}, where both have "
                    f"the same epoch, at {node.mirror.differs_at(other.mirror)}",
                )

    def on_committed(self, node: SimNode, high_watermark: int) -> None:
        """MonotonicHighWatermark, StateMachineSafety, MajorityReachedHighWatermark, and that a
        leader commits nothing but with a record of its own epoch on top."""
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

    def on_applied(self, node: SimNode) -> None:
        """StateMachinesAgree: equal digests at equal offsets, of bytes read back from the log."""
        check(
            node.applied_digest == self.committed.digest_at(node.applied_end_offset),
            "StateMachinesAgree",
            f"the state of node {node.node_id} at {node.applied_end_offset} is not the others'",
        )

    def acknowledge(self, offset: int, value: bytes) -> None:
        """Durability: a client was told that its value is committed."""
        entry = self.committed.entry(offset)
        check(
            entry is not None and entry[1] == value,
            "Durability",
            f"acknowledged {value!r} at {offset}, which is not committed",
        )
        self.acknowledged[offset] = value

    def converged(self) -> None:
        """After healing: every node holds all that is committed, and so all acknowledged values."""
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
        for offset, value in self.acknowledged.items():
            entry = self.committed.entry(offset)
            check(
                entry is not None and entry[1] == value,
                "Durability",
                f"lost {value!r}, acknowledged at {offset}",
            )

    def _held_by_majority(self, leader: SimNode, end_offset: int) -> None:
        digest = leader.mirror.digest_at(end_offset)
        voters = self._voters_in_force(leader)
        holders = [
            node.node_id
            for node in self.nodes
            if node.node_id in voters
            and node.durable_end_offset >= end_offset
            and node.mirror.digest_at(end_offset) == digest
        ]
        check(
            len(holders) >= majority(len(voters)),
            "MajorityReachedHighWatermark",
            f"offset {end_offset - 1} is committed, but only {holders} hold it on disk",
        )
