"""Guarantees about consumer groups: one owner of a partition, and committed offsets that last.

A fold over the events of members. A member's events are written by the client's own callbacks: an
`assign` names all that it owns from then on, a `revoke` is written before the partitions are given
up, and has type info if the assignment was lost (the coordinator had removed the member, and others
may own the partitions by then).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kvorum.chaos.experiment.checks import catalogue
from kvorum.chaos.experiment.checks.gather import Fold, Key
from kvorum.chaos.experiment.checks.model import Board, whole
from kvorum.chaos.experiment.history import (
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
_NEVER_MS = float("inf")


@dataclass(slots=True, kw_only=True)
class _Tenure:
    """One member's ownership of a partition. generation: of its newest assignment; others: the
    members that got the partition meanwhile."""

    member: str
    generation: int | None
    others: list[str] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class _Commits:
    """The committed offset of a group in a partition, as far as clients know it.

    Each possible one is (offset, time of its acknowledgement, generation); a commit of unknown
    outcome is never acknowledged, and may still take effect until a commit of a later generation
    is, which fences it.
    """

    possible: list[tuple[int, float, int]] = field(default_factory=list)

    @property
    def floor(self) -> int:
        """The lowest offset at which the group may be."""
        return min((offset for offset, _, _ in self.possible), default=_NO_OFFSET)

    def acknowledged_before(self, time_ms: float) -> int:
        """The highest offset that was acknowledged before this time."""
        before = (offset for offset, acked_ms, _ in self.possible if acked_ms < time_ms)
        return max(before, default=_NO_OFFSET)

    def add(self, offset: int, generation: int, invoked_ms: float, acked_ms: float) -> None:
        """Note a commit that has an outcome now."""
        if acked_ms < _NEVER_MS:
            self.possible = [
                item
                for item in self.possible
                if item[1] >= invoked_ms and (item[1] < _NEVER_MS or item[2] >= generation)
            ]
        self.possible.append((offset, acked_ms, generation))


class Groups:
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
        now = set(event.partitions)
        for (of_group, key), owners in self._owners.items():
            if of_group == group and key not in now:
                owners.pop(member, None)
        for key in event.partitions:
            owners = self._owners.setdefault((group, key), {})
            self._owned_twice.examined += 1
            mine = owners.get(member)
            if mine is None:
                mine = owners[member] = _Tenure(member=member, generation=event.generation)
                commits = self._commits.get((group, key))
                if commits is not None:
                    self._floors[group, member, key] = commits.floor
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
        acked_ms = event.time_ms if event.type == OK else _NEVER_MS
        generation = -1 if event.generation is None else event.generation
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
            commits.add(op.offset, generation, event.invoked_ms, acked_ms)

    def _poll(self, event: Event) -> None:
        """The first poll of a new owner begins at the committed offset."""
        if event.group is None or event.type == INVOKE:
            return
        for op in event.ops:
            if not isinstance(op, Poll) or not op.offsets:
                continue
            key = (op.topic, op.partition)
            floor = self._floors.pop((event.group, event.process, key), None)
            if floor is None:
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
        """An administrator read the committed offset."""
        details = details_of(event)
        group = details.get("group")
        if details.get("what") != "committed" or event.partition is None:
            return
        commits = self._commits.get((str(group), (event.topic or "", event.partition)))
        if commits is None:
            return
        self._lost.examined += 1
        offset = whole(details.get("offset"))
        if offset < commits.floor:
            self._lost.add(
                f"group {group} has committed offset {offset} of "
                f"{event.topic}-{event.partition}, {commits.floor} was acknowledged",
                topic=event.topic,
                partition=event.partition,
                offset=offset,
            )
