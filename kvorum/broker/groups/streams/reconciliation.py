"""Reconciliation: the states of a member between its assignment and its target (KIP-1071). Pure.

  STABLE -> UNREVOKED_TASKS     it is sent the part that it keeps, and stays in its epoch
  UNREVOKED_TASKS -> next       once a heartbeat lists what it owns, without any revoked task; it
                                then enters the target's epoch
  -> UNRELEASED_TASKS           in the target's epoch; others hold some of its target
  -> STABLE                     it has all of its target

An active task is never sent to a member while another holds it. A standby is not sent to a member
while its process has the task by another member: both would open one state directory. A task that
changes its role within a member is not revoked: it keeps its state directory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from kvorum.broker.groups.streams.member import StreamsMember
from kvorum.broker.groups.streams.states import StreamsMemberState
from kvorum.broker.groups.streams.tasks import (
    NO_TASKS,
    NOTHING_ASSIGNED,
    AssignedTasks,
    Task,
    Tasks,
    TaskSet,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Holders:
    """The holders of a task, from its assignment until they give it up: ids of processes, of each
    role."""

    active: Callable[[Task], str | None]
    standby: Callable[[Task], frozenset[str]]
    warmup: Callable[[Task], frozenset[str]]


def reconcile(
    member: StreamsMember,
    *,
    target: Tasks,
    assignment_epoch: int,
    owned: Tasks | None,
    holders: Holders,
) -> StreamsMember:
    """The member after this heartbeat; unchanged if nothing can be done yet.

    owned: the tasks that the member reports, None if it reports none.
    """
    match member.state:
        case StreamsMemberState.STABLE:
            if member.member_epoch == assignment_epoch:
                return member
            epoch = member.member_epoch
        case StreamsMemberState.UNREVOKED_TASKS:
            if owned is None or member.pending_revocation.has_any_of(owned):
                return member
            # It has confirmed that it gave up what this epoch took from it.
            epoch = member.member_epoch + 1
        case StreamsMemberState.UNRELEASED_TASKS:
            epoch = member.member_epoch
        case StreamsMemberState.UNKNOWN:
            # A later version wrote it; `checks` has seen that the member owns nothing.
            epoch = assignment_epoch
    return _next(member, epoch, target, assignment_epoch, owned, holders)


@dataclass(slots=True)
class _Difference:
    """Of one role: what stays, what is to be given up, what can be given now, and whether others
    hold some of the target."""

    kept: TaskSet
    revoked: TaskSet
    free: TaskSet
    is_held: bool


def _difference(has: TaskSet, target: TaskSet, is_held: Callable[[Task], bool]) -> _Difference:
    wanted = target - has
    free = frozenset(task for task in wanted if not is_held(task))
    return _Difference(has & target, has - target, free, len(free) < len(wanted))


def _next(
    member: StreamsMember,
    epoch: int,
    target: Tasks,
    assignment_epoch: int,
    owned: Tasks | None,
    holders: Holders,
) -> StreamsMember:
    has = member.assigned.tasks
    held = _HeldByOthers(member, has, holders)
    active = _difference(has.active, target.active, held.active)
    standby = _difference(has.standby, target.standby, held.standby)
    warmup = _difference(has.warmup, target.warmup, held.warmup)
    is_held = active.is_held or standby.is_held or warmup.is_held
    # Copies that turn into one another, and an active task that becomes a copy, change at once.
    _convert(standby, has.active)
    _convert(warmup, has.standby, out=standby)
    _convert(standby, has.warmup, out=warmup)
    # A copy that is to become active stays until the task is free: it must not be closed.
    standby.revoked -= target.active
    warmup.revoked -= target.active
    revoked = AssignedTasks(
        active={task: member.assigned.active[task] for task in active.revoked},
        standby=standby.revoked,
        warmup=warmup.revoked,
    )
    may_own = owned is None or revoked.has_any_of(owned)
    must_wait = not revoked.is_empty and may_own
    given = NO_TASKS if must_wait else active.free
    promoted_later = target.active - given
    kept = {task: member.assigned.active[task] for task in active.kept}
    if must_wait:
        assigned = AssignedTasks(
            active=kept,
            standby=standby.kept | (has.standby & promoted_later),
            warmup=warmup.kept | (has.warmup & promoted_later),
        )
        return _at(member, StreamsMemberState.UNREVOKED_TASKS, epoch, assigned, revoked)
    assigned = AssignedTasks(
        active={**kept, **dict.fromkeys(given, assignment_epoch)},
        standby=standby.kept | standby.free | (has.standby & promoted_later),
        warmup=warmup.kept | warmup.free | (has.warmup & promoted_later),
    )
    state = StreamsMemberState.UNRELEASED_TASKS if is_held else StreamsMemberState.STABLE
    return _at(member, state, assignment_epoch, assigned, NOTHING_ASSIGNED)


def _convert(into: _Difference, had: TaskSet, out: _Difference | None = None) -> None:
    """Tasks of another role that are to have this one have it from now on."""
    turned = into.free & had
    into.free -= turned
    into.kept |= turned
    if out is not None:
        out.revoked -= turned


def _at(
    member: StreamsMember,
    state: StreamsMemberState,
    epoch: int,
    assigned: AssignedTasks,
    revoked: AssignedTasks,
) -> StreamsMember:
    return replace(
        member,
        state=state,
        member_epoch=epoch,
        previous_member_epoch=member.member_epoch,
        assigned=assigned,
        pending_revocation=revoked,
    )


class _HeldByOthers:
    """The tasks of a target that the member cannot get yet."""

    def __init__(self, member: StreamsMember, has: Tasks, holders: Holders) -> None:
        self._process_id = member.process_id
        self._has = has
        self._holders = holders

    def active(self, task: Task) -> bool:
        return (
            self._holders.active(task) is not None
            or self._is_standby_beside(task)
            or self._is_warmup_beside(task)
        )

    def standby(self, task: Task) -> bool:
        return (
            (self._is_active_here(task) and task not in self._has.active)
            or self._process_id in self._holders.standby(task)
            or self._is_warmup_beside(task)
        )

    def warmup(self, task: Task) -> bool:
        return (
            self._is_active_here(task)
            or self._is_standby_beside(task)
            or self._process_id in self._holders.warmup(task)
        )

    def _is_active_here(self, task: Task) -> bool:
        return self._holders.active(task) == self._process_id

    def _is_standby_beside(self, task: Task) -> bool:
        """A standby of another member of this process."""
        is_here = self._process_id in self._holders.standby(task)
        return is_here and task not in self._has.standby

    def _is_warmup_beside(self, task: Task) -> bool:
        is_here = self._process_id in self._holders.warmup(task)
        return is_here and task not in self._has.warmup
