"""Guarantees about consumer groups: one owner of a partition, and committed offsets that last.

A fold over the events of members. A member's events are written by the client's own callbacks:
- `assign` names the partitions that it gets, beside those that it has, and in `ops` the committed
  offsets that it found there;
- `revoke` is written before the partitions are given up. Its type is info if the assignment was
  lost: the coordinator had removed the member, and others may own the partitions by then.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from kvorum.chaos.checks import catalogue
from kvorum.chaos.checks.gather import Fold, Key
from kvorum.chaos.checks.results import Board
from kvorum.chaos.history import (
    ASSIGN,
    COMMIT,
    FAIL,
    INFO,
    INVOKE,
    OBSERVE,
    OK,
    POLL,
    REVOKE,
    TRANSACTION,
    Commit,
    Event,
    Poll,
    details_of,
)

_NO_OFFSET = -1
#: A commit of unknown outcome takes effect within this time or never: brokers drop the requests of
#: a connection that its client gave up.
_LATE_EFFECT_MAX_MS = 10_000.0
#: Commits that were replaced and may still be the answer to a read that began before.
_SUPERSEDED_KEPT_MAX = 64


@dataclass(slots=True, kw_only=True)
class _Tenure:
    """One member's ownership of a partition.

    generation: of its newest assignment.
    others: the members that got the partition meanwhile.
    """

    member: str
    generation: int | None
    others: list[str] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class _Commits:
    """The committed offset of a group in a partition, as far as clients know it.

    possible: (offset, time of its outcome, acknowledged) of each commit that may be in force.
    superseded: (offset, time at which a later commit was acknowledged) of those that were.
    """

    possible: list[tuple[int, float, bool]] = field(default_factory=list)
    superseded: deque[tuple[int, float]] = field(
        default_factory=lambda: deque(maxlen=_SUPERSEDED_KEPT_MAX)
    )

    def floor(self, since_ms: float) -> int:
        """The lowest offset that a read which began then may find now; -1 if it may find none."""
        oldest = self.superseded[0][1] if self.superseded else since_ms
        if len(self.superseded) == _SUPERSEDED_KEPT_MAX and oldest >= since_ms:
            # So many commits happened during the read that the oldest are forgotten.
            return _NO_OFFSET
        replaced = [offset for offset, until_ms in self.superseded if until_ms >= since_ms]
        is_certain = any(acked and at_ms < since_ms for _, at_ms, acked in self.possible)
        if not replaced and not is_certain:
            return _NO_OFFSET
        return min([*replaced, *(offset for offset, _, _ in self.possible)])

    def acknowledged_before(self, time_ms: float) -> int:
        """The highest offset in force that was acknowledged before this time."""
        before = (offset for offset, at_ms, acked in self.possible if acked and at_ms < time_ms)
        return max(before, default=_NO_OFFSET)

    def add(self, offset: int, invoked_ms: float, at_ms: float, *, is_acked: bool) -> None:
        """Note a commit that has an outcome now. An acknowledged one takes the place of those that
        had an effect before it began."""
        if is_acked:
            kept: list[tuple[int, float, bool]] = []
            for item in self.possible:
                last_ms = item[1] if item[2] else item[1] + _LATE_EFFECT_MAX_MS
                if last_ms >= invoked_ms:
                    kept.append(item)
                else:
                    self.superseded.append((item[0], at_ms))
            self.possible = kept
        self.possible.append((offset, at_ms, is_acked))


class GroupFold:
    """The fold. Its state has the size of the groups' assignments, not of the history."""

    def __init__(self, board: Board) -> None:
        self._owned_twice = board[catalogue.OWNED_TWICE]
        self._lost = board[catalogue.COMMIT_LOST]
        self._moved_back = board[catalogue.COMMIT_MOVED_BACK]
        self._owners: dict[tuple[str, Key], dict[str, _Tenure]] = {}
        self._commits: dict[tuple[str, Key], _Commits] = {}
        #: The lowest offset at which a member may begin a partition that it got.
        self._floors: dict[tuple[str, str, Key], int] = {}

    def folds(self) -> dict[str, Fold]:
        """By the function of the events that each takes."""
        return {
            ASSIGN: self._assign,
            REVOKE: self._revoke,
            COMMIT: self._commit,
            POLL: self._poll,
            TRANSACTION: self._transaction,
            OBSERVE: self._observe,
        }

    # --- owners ------------------------------------------------------------------------------

    def _assign(self, event: Event) -> None:
        if event.group is None or event.type in (INVOKE, FAIL):
            return
        group, member = event.group, event.process
        for key in event.partitions:
            owners = self._owners.setdefault((group, key), {})
            self._owned_twice.examined += 1
            mine = owners.get(member)
            if mine is None:
                mine = owners[member] = _Tenure(member=member, generation=event.generation)
                for other in owners.values():
                    if other is not mine:
                        other.others.append(member)
            mine.generation = event.generation
            for other in owners.values():
                if other is not mine and other.generation == mine.generation is not None:
                    self._owned_twice.add(
                        f"{other.member} and {member} of group {group} both own {key[0]}-{key[1]} "
                        f"in generation {mine.generation}",
                        topic=key[0],
                        partition=key[1],
                    )
        self._look_at_start(event, group)

    def _look_at_start(self, event: Event, group: str) -> None:
        """The committed offsets that a member found are no lower than what was acknowledged before
        it asked."""
        found_at = {
            (op.topic, op.partition): op.offset for op in event.ops if isinstance(op, Commit)
        }
        for key in event.partitions:
            commits = self._commits.get((group, key))
            if commits is None:
                continue
            offset = found_at.get(key)
            floor = commits.floor(event.invoked_ms)
            if offset is None or floor == _NO_OFFSET:
                # No committed offset to compare: `_poll` judges where the member begins.
                self._floors[group, event.process, key] = commits.floor(event.time_ms)
                continue
            self._lost.examined += 1
            if offset < floor:
                self._lost.add(
                    f"{event.process} found committed offset {offset} of group {group} in "
                    f"{key[0]}-{key[1]}, {floor} was acknowledged",
                    topic=key[0],
                    partition=key[1],
                    offset=offset,
                )

    def _revoke(self, event: Event) -> None:
        if event.group is None or event.type in (INVOKE, FAIL):
            return
        for key in event.partitions:
            tenure = self._owners.get((event.group, key), {}).pop(event.process, None)
            self._floors.pop((event.group, event.process, key), None)
            if tenure is None or event.type == INFO:
                # Lost: the member was removed from the group before, and did not know.
                continue
            for other in tenure.others:
                self._owned_twice.add(
                    f"{other} of group {event.group} got {key[0]}-{key[1]} before "
                    f"{event.process} gave it up",
                    topic=key[0],
                    partition=key[1],
                )

    # --- offsets -----------------------------------------------------------------------------

    def _commit(self, event: Event) -> None:
        if event.group is None or event.type not in (OK, INFO):
            return
        for op in event.ops:
            if not isinstance(op, Commit):
                continue
            commits = self._commits.setdefault((event.group, (op.topic, op.partition)), _Commits())
            if event.type == OK:
                self._moved_back.examined += 1
                before = commits.acknowledged_before(event.invoked_ms)
                if op.offset < before:
                    self._moved_back.add(
                        f"{event.process} committed offset {op.offset} of group {event.group} "
                        f"after {before} was acknowledged",
                        topic=op.topic,
                        partition=op.partition,
                        offset=op.offset,
                    )
            commits.add(op.offset, event.invoked_ms, event.time_ms, is_acked=event.type == OK)

    def _poll(self, event: Event) -> None:
        """The first poll of a new owner begins at the committed offset."""
        if event.group is None or event.type == INVOKE:
            return
        for op in event.ops:
            if not isinstance(op, Poll) or not op.offsets:
                continue
            key = (op.topic, op.partition)
            floor = self._floors.pop((event.group, event.process, key), None)
            if floor is None or floor == _NO_OFFSET:
                continue
            self._lost.examined += 1
            if op.offsets[0] < floor:
                self._lost.add(
                    f"{event.process} got {op.topic}-{op.partition} and began at offset "
                    f"{op.offsets[0]}, group {event.group} had committed {floor}",
                    topic=op.topic,
                    partition=op.partition,
                    offset=op.offsets[0],
                )

    def _transaction(self, event: Event) -> None:
        self._poll(event)
        self._commit(event)

    def _observe(self, event: Event) -> None:
        """The coordinator described a group: each member with what it owns."""
        details = details_of(event)
        members = details.get("members")
        if details.get("what") != "group" or not isinstance(members, dict):
            return
        owners: dict[Key, str] = {}
        for member, places in sorted(members.items()):
            for topic, partition in places:
                self._owned_twice.examined += 1
                owner = owners.setdefault((topic, partition), member)
                if owner != member:
                    self._owned_twice.add(
                        f"the coordinator of group {details.get('group')} says that {owner} and "
                        f"{member} own {topic}-{partition}",
                        topic=topic,
                        partition=partition,
                    )
