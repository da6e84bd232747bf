"""The tasks of a Streams application, and who has which. Pure data.

A task is one partition of a subtopology's input. Its active copy processes records; its standbys
only keep a copy of its state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

Task = tuple[str, int]
"""(subtopology id, partition)."""
TaskSet = frozenset[Task]
NO_TASKS: TaskSet = frozenset()


class Tasks(NamedTuple):
    """The tasks that a member owns, or that a target gives it, by role."""

    active: TaskSet = NO_TASKS
    standby: TaskSet = NO_TASKS
    warmup: TaskSet = NO_TASKS

    @property
    def is_empty(self) -> bool:
        return not (self.active or self.standby or self.warmup)


NO_ROLES = Tasks()


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedTasks:
    """The tasks that a member was told of.

    active: each with the assignment epoch in which the member got it. A commit in an older epoch is
        a former owner's (KIP-1251).
    """

    active: Mapping[Task, int] = field(default_factory=dict)
    standby: TaskSet = NO_TASKS
    warmup: TaskSet = NO_TASKS

    @property
    def tasks(self) -> Tasks:
        return Tasks(frozenset(self.active), self.standby, self.warmup)

    @property
    def is_empty(self) -> bool:
        return not (self.active or self.standby or self.warmup)

    def has_any_of(self, owned: Tasks) -> bool:
        """True if one of the tasks is owned in its role."""
        return not (
            owned.active.isdisjoint(self.active)
            and owned.standby.isdisjoint(self.standby)
            and owned.warmup.isdisjoint(self.warmup)
        )


NOTHING_ASSIGNED = AssignedTasks()


def by_subtopology(tasks: Iterable[Task]) -> list[tuple[str, list[int]]]:
    """The tasks by subtopology, sorted, as records and answers list them."""
    rows: dict[str, list[int]] = {}
    for subtopology_id, partition in sorted(tasks):
        rows.setdefault(subtopology_id, []).append(partition)
    return list(rows.items())
