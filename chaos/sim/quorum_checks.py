"""What must hold in the quorum after every event (the KRaft TLA+ specification's names).

Each check raises InvariantViolated with what it saw; each has a test that feeds it a bad history.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raft.effects import LeaderChanged
from raft.model import VoteState
from raft.quorum import majority
from runtime.errors import invariant
from runtime.ids import NO_NODE

if TYPE_CHECKING:
    from chaos.sim.node import Entry, SimNode


class QuorumChecks:
    """Remembers what was seen and compares.

    leaders: epoch to node. committed: entry by offset, as first seen below a high watermark.
    votes: (node, epoch) to the vote given. acknowledged: offset to value told to a client.
    """

    def __init__(self, voter_count: int) -> None:
        self._voter_count = voter_count
        self.leaders: dict[int, int] = {}
        self.committed: list[Entry] = []
        self.votes: dict[tuple[int, int], int] = {}
        self.epochs: dict[int, int] = {}
        self.high_watermarks: dict[tuple[int, int], int] = {}
        self.acknowledged: dict[int, bytes] = {}
        self.nodes: list[SimNode] = []

    def after_event(self, node: SimNode) -> None:
        """MonotonicEpoch, in memory as on disk."""
        if not node.is_up:
            return
        known = self.epochs.get(node.node_id, 0)
        invariant(node.core.epoch >= known, f"epoch fell from {known}: {node.summary()}")
        self.epochs[node.node_id] = node.core.epoch

    def on_vote_state(self, node: SimNode, state: VoteState) -> None:
        """VotedOnce: a vote, once on disk, is never another one in that epoch."""
        known = self.epochs.get(node.node_id, 0)
        invariant(state.epoch >= known, f"node {node.node_id} persisted epoch {state} < {known}")
        if state.voted_id == NO_NODE:
            return
        vote = self.votes.setdefault((node.node_id, state.epoch), state.voted_id)
        invariant(
            vote == state.voted_id,
            f"node {node.node_id} voted twice in epoch {state.epoch}: {vote}, {state.voted_id}",
        )

    def on_leader_changed(self, node: SimNode, change: LeaderChanged) -> None:
        """ElectionSafety and LeaderCompleteness."""
        if change.leader_id == NO_NODE:
            return
        known = self.leaders.setdefault(change.epoch, change.leader_id)
        invariant(
            known == change.leader_id,
            f"two leaders in epoch {change.epoch}: {known} and {change.leader_id}",
        )
        if change.leader_id == node.node_id:
            held = node.entries[: len(self.committed)]
            invariant(
                held == self.committed,
                f"leader {node.node_id} of epoch {change.epoch} lacks committed entries",
            )

    def on_committed(self, node: SimNode, high_watermark: int) -> None:
        """StateMachineSafety, monotonic high watermark, and a majority that really holds it."""
        key = (node.node_id, node.incarnation)
        before = self.high_watermarks.get(key, 0)
        invariant(high_watermark >= before, f"high watermark fell from {before} at {node.node_id}")
        self.high_watermarks[key] = high_watermark
        invariant(
            high_watermark <= len(node.entries),
            f"node {node.node_id} commits {high_watermark} beyond its log",
        )
        for offset in range(before, high_watermark):
            entry = node.entries[offset]
            if offset < len(self.committed):
                invariant(
                    self.committed[offset] == entry,
                    f"offset {offset} was committed as {self.committed[offset]}, "
                    f"node {node.node_id} has {entry}",
                )
            else:
                self._held_by_majority(offset, entry)
                self.committed.append(entry)

    def acknowledge(self, offset: int, value: bytes) -> None:
        """A client was told that its value is committed."""
        invariant(
            offset < len(self.committed) and self.committed[offset][1] == value,
            f"acknowledged {value!r} at {offset}, which is not committed",
        )
        self.acknowledged[offset] = value

    def log_matching(self) -> None:
        """LogMatching: equal epoch at equal offset means equal logs up to there."""
        for i, left in enumerate(self.nodes):
            for right in self.nodes[i + 1 :]:
                end = min(len(left.entries), len(right.entries))
                while end and left.entries[end - 1][0] != right.entries[end - 1][0]:
                    end -= 1
                invariant(
                    left.entries[:end] == right.entries[:end],
                    f"logs of {left.node_id} and {right.node_id} differ below {end}",
                )

    def converged(self) -> None:
        """After healing: every node holds every acknowledged value where it was acknowledged."""
        for node in self.nodes:
            for offset, value in self.acknowledged.items():
                invariant(
                    offset < len(node.entries) and node.entries[offset][1] == value,
                    f"node {node.node_id} lost {value!r}, acknowledged at {offset}",
                )

    def _held_by_majority(self, offset: int, entry: Entry) -> None:
        holders = [
            node.node_id
            for node in self.nodes
            if node.is_voter
            and node.durable_end_offset > offset
            and node.entries[offset : offset + 1] == [entry]
        ]
        invariant(
            len(holders) >= majority(self._voter_count),
            f"offset {offset} is committed, but only {holders} hold it on disk",
        )
