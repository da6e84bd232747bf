"""The assignor of Streams groups, `sticky` (KIP-1071): every task gets one active member and
standbys on other processes; members keep what they have as far as the balance allows. Pure.

  active    1. its last member, 2. the standby with the least load, 3. the process with the least
  standby   1. its last active member, 2. a last standby, 3. the process with the least load

Steps 1 and 2 go only as far as a member's share. A process's load is its tasks by its members.
Standbys are for subtopologies with state, and never on a process that has the task already.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kvorum.broker.groups.streams.configuring import ConfiguredSubtopology
from kvorum.broker.groups.streams.tasks import NO_ROLES, Task, Tasks

NAME = "sticky"


class Worker(NamedTuple):
    """A member, as the assignor sees it.

    has: the tasks that it is working on.
    offsets: how far its copies of tasks' states go, of those that it has on disk (the sum of the
        changelogs' offsets).
    """

    process_id: str
    has: Tasks = NO_ROLES
    offsets: Mapping[Task, int] = {}


def assign_sticky(
    workers: Mapping[str, Worker],
    subtopologies: Mapping[str, ConfiguredSubtopology],
    num_standby_replicas: int,
) -> dict[str, Tasks]:
    """The tasks of each member. Without members there is nobody to assign to: {}."""
    if not workers:
        return {}
    tasks = [
        (name, partition) for name, part in subtopologies.items() for partition in _range(part)
    ]
    stateful = [task for task in tasks if subtopologies[task[0]].is_stateful]
    board = _Board(workers, len(tasks), len(stateful) * num_standby_replicas)
    _assign_active(board, tasks)
    if num_standby_replicas > 0:
        _assign_standbys(board, stateful, num_standby_replicas)
    return {
        member_id: Tasks(frozenset(board.active[member_id]), frozenset(board.standby[member_id]))
        for member_id in workers
    }


def _range(part: ConfiguredSubtopology) -> range:
    return range(part.num_tasks)


class _Share:
    """How many tasks a member may keep: the rest of the tasks by the rest of the members. A member
    with a full share takes no more part, so that early round-ups leave the others less."""

    def __init__(self, tasks: int, members: int) -> None:
        self._tasks, self._members = tasks, members
        self.limit = -(-tasks // members)

    def count(self, has: int) -> None:
        """A member has that many tasks now."""
        if has == self.limit:
            self._tasks -= has
            self._members -= 1
            self.limit = -(-self._tasks // self._members) if self._members else 0


class _Process:
    def __init__(self) -> None:
        self.members: dict[str, int] = {}
        self.tasks: set[Task] = set()
        self.count = 0

    @property
    def load(self) -> float:
        return self.count / len(self.members)

    @property
    def idlest(self) -> str:
        return min(self.members, key=lambda member_id: (self.members[member_id], member_id))


class _Board:
    """The assignment so far."""

    def __init__(self, workers: Mapping[str, Worker], active: int, standbys: int) -> None:
        self.active: dict[str, set[Task]] = {}
        self.standby: dict[str, set[Task]] = {}
        self.process_of: dict[str, _Process] = {}
        self.processes: dict[str, _Process] = {}
        self.last_active: dict[Task, str] = {}
        copies: dict[Task, list[tuple[bool, int, str]]] = {}
        for member_id, worker in sorted(workers.items()):
            process = self.processes.setdefault(worker.process_id, _Process())
            process.members[member_id] = 0
            self.process_of[member_id] = process
            self.active[member_id], self.standby[member_id] = set(), set()
            self.last_active.update(dict.fromkeys(worker.has.active, member_id))
            for task in worker.has.standby | worker.offsets.keys():
                is_other = task not in worker.has.standby
                row = (is_other, -worker.offsets.get(task, 0), member_id)
                copies.setdefault(task, []).append(row)
        #: Members with a copy of a task's state, standbys first, then by how far it goes.
        self.last_copies = {
            task: [member_id for _, _, member_id in sorted(rows)] for task, rows in copies.items()
        }
        self.active_share = _Share(active, len(workers))
        self.share = _Share(active + standbys, len(workers))

    def count_of(self, member_id: str) -> int:
        return self.process_of[member_id].members[member_id]

    def give(self, member_id: str, task: Task, *, is_active: bool) -> None:
        process = self.process_of[member_id]
        process.members[member_id] += 1
        process.count += 1
        process.tasks.add(task)
        (self.active if is_active else self.standby)[member_id].add(task)
        if is_active:
            self.active_share.count(process.members[member_id])
        self.share.count(process.members[member_id])

    def idlest_copy(self, task: Task, *, without_task: bool) -> str | None:
        """The member with the least load of those with a copy of the task's state; in a tie, the
        best copy. without_task: only on processes that do not have the task yet."""
        best: tuple[float, int] | None = None
        found = None
        for member_id in self.last_copies.get(task, ()):
            process = self.process_of[member_id]
            if without_task and task in process.tasks:
                continue
            load = (process.load, process.members[member_id])
            if best is None or (load[0] < best[0] and load[1] < best[1]):
                best, found = load, member_id
        return found


class _ByLoad:
    """The processes, the one with the least load first."""

    def __init__(self, processes: Iterable[_Process]) -> None:
        self._heap = [(one.load, place, one) for place, one in enumerate(processes)]
        heapq.heapify(self._heap)

    def give(self, board: _Board, task: Task, *, is_active: bool) -> bool:
        """Give the task to the first process, as a standby to the first that does not have it.
        False if there is none."""
        passed = []
        is_given = False
        while self._heap and not is_given:
            _, place, process = heapq.heappop(self._heap)
            if is_active or task not in process.tasks:
                board.give(process.idlest, task, is_active=is_active)
                is_given = True
            passed.append((process.load, place, process))
        for row in passed:
            heapq.heappush(self._heap, row)
        return is_given


def _assign_active(board: _Board, tasks: list[Task]) -> None:
    rest = []
    for task in sorted(tasks, key=lambda task: (task[1], task[0])):
        member_id = board.last_active.get(task)
        if member_id is not None and board.count_of(member_id) < board.active_share.limit:
            board.give(member_id, task, is_active=True)
        else:
            rest.append(task)
    free = []
    for task in rest:
        member_id = board.idlest_copy(task, without_task=False)
        if member_id is not None and board.count_of(member_id) < board.active_share.limit:
            board.give(member_id, task, is_active=True)
        else:
            free.append(task)
    by_load = _ByLoad(board.processes.values())
    for task in sorted(free):
        by_load.give(board, task, is_active=True)


def _assign_standbys(board: _Board, tasks: list[Task], replicas: int) -> None:
    rest: list[tuple[Task, int]] = []
    for task in sorted(tasks, key=lambda task: (task[1], task[0]), reverse=True):
        for done in range(replicas):
            member_id = _last_holder(board, task)
            if member_id is None:
                rest.append((task, replicas - done))
                break
            board.give(member_id, task, is_active=False)
    by_load = _ByLoad(board.processes.values())
    for task, missing in sorted(rest, reverse=True):
        for _ in range(missing):
            if not by_load.give(board, task, is_active=False):
                # Fewer processes than copies.
                break


def _last_holder(board: _Board, task: Task) -> str | None:
    """A member that has worked on the task, has room, and whose process does not have it yet."""
    last = board.last_active.get(task)
    is_free = last is not None and task not in board.process_of[last].tasks
    if last is not None and is_free and board.count_of(last) < board.share.limit:
        return last
    copy = board.idlest_copy(task, without_task=True)
    return copy if copy is not None and board.count_of(copy) < board.share.limit else None
