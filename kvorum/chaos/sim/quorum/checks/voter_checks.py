"""The invariants of voter sets and their changes.

The checks read voter sets from the bytes of the logs (`mirror`) and never ask the core for its
voters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from kvorum.chaos.sim.kernel.checks import check
from kvorum.chaos.sim.quorum.checks.checked_node import CheckedNode
from kvorum.chaos.sim.quorum.model.linearizability import Outcome
from kvorum.chaos.sim.quorum.model.mirror import Mirror
from kvorum.chaos.sim.quorum.model.state import (
    Change,
    ChangeKind,
    VoterKeys,
    is_among,
    keys_of_set,
    most_of,
)
from kvorum.raft.model.effects import AppendVoters, LeaderChanged
from kvorum.raft.model.voters import VoterSet

Votes = dict[tuple[int, bytes], tuple[int, bytes]]
"""The votes of one epoch: voter (node id, directory id) to candidate (id, directory id)."""


class VoterChecks:
    """Invariants of voter sets.

    committed: the committed log.
    appended: (offset, set) of uncommitted sets that a log holds or may come to hold.
    """

    def __init__(self, committed: Mirror) -> None:
        self.committed = committed
        self.appended: set[tuple[int, VoterKeys]] = set()
        self._seen: dict[int, tuple[VoterSet, VoterKeys]] = {}

    def after_event(self, node: CheckedNode) -> None:
        """Check VotersInForce: a node uses the last voter set in its log, committed or not. Check
        RemovedLeads: a node that is not in the set, and knows that the set is committed, is not the
        leader."""
        voters, keys = node.core.voter_set, node.mirror.voters
        if node.is_leader and not is_among(keys, node.node_id, node.config.directory_id):
            offset = max((offset for offset, _ in node.mirror.voter_sets), default=-1)
            check(offset >= node.core.high_watermark, "RemovedLeads", node.summary())
        seen = self._seen.get(node.node_id)
        if seen is not None and seen[0] is voters and seen[1] is keys:
            return
        self._seen[node.node_id] = voters, keys
        check(
            keys_of_set(voters) == keys,
            "VotersInForce",
            f"node {node.node_id} goes by the voters {voters.ids}, its log ends with {named(keys)}",
        )

    def on_appending(self, node: CheckedNode, effect: AppendVoters, *, has_committed: bool) -> None:
        """Check the set that a leader is about to append; its disk may fail before the set is
        complete.

        OneChangeAtATime: the previous set is committed. ChangeAfterOwnCommit: a record of the
        leader's own epoch is committed, or two leaders could each start from a different set.
        """
        keys = keys_of_set(effect.voters)
        self.appended.add((effect.base_offset, keys))
        before = max((offset for offset, _ in node.mirror.voter_sets), default=-1)
        check(
            before < self.committed.end_offset,
            "OneChangeAtATime",
            f"node {node.node_id} changes the voters at {effect.base_offset} while those at "
            f"{before} are not committed: {node.summary()}",
        )
        check(
            has_committed,
            "ChangeAfterOwnCommit",
            f"node {node.node_id} changes the voters in epoch {effect.epoch}, in which nothing is "
            f"committed yet: {node.summary()}",
        )

    def on_log_changed(self, node: CheckedNode) -> None:
        """Check VotersDifferByOne: majorities of two consecutive sets always overlap."""
        sets = node.mirror.voter_sets
        if not sets:
            return
        offset, keys = sets[-1]
        if offset >= self.committed.end_offset:
            self.appended.add((offset, keys))
        before = sets[-2][1] if len(sets) > 1 else node.mirror.base_voters
        check(
            not before or len(before ^ keys) <= 1,
            "VotersDifferByOne",
            f"log of node {node.node_id} goes from the voters {named(before)} to {named(keys)} "
            f"at {offset}",
        )

    def on_leader(self, node: CheckedNode, change: LeaderChanged, votes: Votes) -> None:
        """Check ElectedByMajority: of the voters in the new leader's log, each counted with the
        disk that it votes with."""
        keys = node.mirror.voters_at(change.epoch_start_offset)
        own = node.node_id, node.config.directory_id
        granting = {
            voter_id
            for (voter_id, directory_id), candidate in votes.items()
            if candidate == own and is_among(keys, voter_id, directory_id)
        }
        check(
            len(granting) >= most_of(len(keys)),
            "ElectedByMajority",
            f"node {node.node_id} leads epoch {change.epoch} by the votes of {sorted(granting)}; "
            f"voters are {named(keys)}",
        )

    def possible_sets(self) -> list[VoterKeys]:
        """Voter sets that are or may come into force: the last committed one, and those that may
        still be committed."""
        end_offset = self.committed.end_offset
        self.appended = {item for item in self.appended if item[0] >= end_offset}
        return [self.committed.voters, *(keys for _, keys in self.appended)]

    def on_change_done(self, change: Change, voters: VoterSet) -> None:
        """Check ChangeAcknowledged: a change that the operator was told is done is committed."""
        keys = keys_of_set(voters)
        is_there = any(node_id == change.node_id for node_id, _ in keys)
        check(
            keys == self.committed.voters and is_there == (change.kind is ChangeKind.ADD),
            "ChangeAcknowledged",
            f"{change} is reported done with {voters.ids}; committed are "
            f"{named(self.committed.voters)}",
        )

    def check_changes(self, changes: Sequence[Change]) -> None:
        """Check ChangesExplained: each change of the committed set was requested, and each
        change reported as done happened, once per report. So a removed voter stays out until it
        is added."""
        added: Counter[tuple[int, bytes]] = Counter()
        removed: Counter[int] = Counter()
        history = [self.committed.base_voters, *(keys for _, keys in self.committed.voter_sets)]
        for before, after in pairwise(history):
            added.update(after - before)
            removed.update(node_id for node_id, _ in before - after)
        adds = [change for change in changes if change.kind is ChangeKind.ADD]
        removals = [change for change in changes if change.kind is ChangeKind.REMOVE]
        _explained(added, ((c.node_id, c.directory_id) for c in _done(adds)), _tried(adds, True))
        _explained(removed, (c.node_id for c in _done(removals)), _tried(removals, False))

    def converged(self, nodes: Iterable[CheckedNode]) -> None:
        """Check Convergence: after healing every voter in force is an existing node with that
        disk."""
        there = {(node.node_id, node.config.directory_id) for node in nodes}
        lost = frozenset(
            key
            for key in self.committed.voters
            if not any(is_among({key}, *disk) for disk in there)
        )
        check(not lost, "Convergence", f"voters {named(lost)} are in force and no more")


def named(keys: VoterKeys) -> str:
    """Voters as text."""
    return ", ".join(
        f"{node_id}/{directory_id.hex()[:6]}" for node_id, directory_id in sorted(keys)
    )


def _done(changes: Iterable[Change]) -> list[Change]:
    return [change for change in changes if change.outcome is Outcome.OK]


def _tried(changes: Iterable[Change], by_disk: bool) -> Iterable[Any]:
    for change in changes:
        if change.outcome is not Outcome.FAILED:
            yield (change.node_id, change.directory_id) if by_disk else change.node_id


def _explained(seen: Mapping[Any, int], done: Iterable[Any], tried: Iterable[Any]) -> None:
    most, least = Counter(tried), Counter(done)
    for key in sorted(seen.keys() | least.keys()):
        check(
            least[key] <= seen.get(key, 0) <= most[key],
            "ChangesExplained",
            f"voter {key}: {seen.get(key, 0)} changes are committed, {least[key]} were reported "
            f"done, {most[key]} asked for",
        )
