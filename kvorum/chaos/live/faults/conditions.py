"""Faults of disks and clocks: carried out by the nodes' fault boards, undone exactly.

A node's board shows the sum of the faults in force there. A node that dies of its full or failing
disk does what it should: it is not started before the fault ends, and its death is the fault's.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable
from typing import assert_never

from kvorum.chaos.faults import ConditionFault, FailDisk, FillDisk, SlowDisk, StepClock
from kvorum.chaos.live.host.processes import NotReached, wait_until
from kvorum.chaos.live.systems.protocol import RUNNING, System, node_named
from kvorum.runtime.fault_board import UNLIMITED, Conditions, Hits

_DEATH_TIMEOUT_MS = 3_000
"""Time for a node whose disk has failed to end, once the fault has ended. Bad sequence without it:
1. A write fails. 2. The fault ends. 3. The node, which runs still, counts as healthy. 4. It ends by
its own rules, and nobody starts it."""


def conditions_of(faults: Iterable[ConditionFault]) -> Conditions:
    """The state of a disk and a clock under all of these faults. Pure.

    The longest delay and the least room count, and of errors the newest; steps of the clock add up.
    """
    sync_delay_us = sync_errno = write_errno = clock_offset_ms = 0
    rooms: list[int] = []
    for fault in faults:
        match fault:
            case SlowDisk():
                sync_delay_us = max(sync_delay_us, fault.sync_delay_ms * 1_000)
            case FillDisk():
                rooms.append(fault.room_bytes)
            case FailDisk():
                number = getattr(errno, fault.error)
                if fault.operation == "sync":
                    sync_errno = number
                else:
                    write_errno = number
            case StepClock():
                clock_offset_ms += fault.step_ms
            case _:
                assert_never(fault)
    return Conditions(
        sync_delay_us=sync_delay_us,
        sync_errno=sync_errno,
        write_errno=write_errno,
        room_bytes=min(rooms, default=UNLIMITED),
        clock_offset_ms=clock_offset_ms,
    )


def is_deadly(fault: ConditionFault) -> bool:
    """True if a node may exit because of the fault, as a node does whose disk fails."""
    return isinstance(fault, FillDisk | FailDisk)


def _is_slow(fault: ConditionFault) -> bool:
    return isinstance(fault, SlowDisk)


class ConditionKeeper:
    """The faults of disks and clocks in force, by node. Not thread-safe.

    is_taken_down: True for a node that another fault has killed or stopped, and will start.
    """

    def __init__(self, system: System, *, is_taken_down: Callable[[str], bool]) -> None:
        self._system = system
        self._is_taken_down = is_taken_down
        self._faults: dict[str, dict[int, ConditionFault]] = {}
        self._before: dict[tuple[str, int], Hits] = {}

    def begin(self, node: str, fault: ConditionFault, fault_id: int) -> None:
        """Put a fault into force at a node."""
        board = self._system.fault_boards[node]
        if is_deadly(fault):
            self._system.may_die(node)
        self._before[node, fault_id] = board.hits()
        self._faults.setdefault(node, {})[fault_id] = fault
        self._show(node)

    def end(self, node: str, fault: ConditionFault, fault_id: int) -> Hits:
        """Take a fault out of force; may be called again. Returns the node's disk calls that faults
        of this kind have hit since `begin`: delayed syncs for a slow disk, failed calls for a full
        or failing one."""
        before = self._before[node, fault_id]
        self._faults[node].pop(fault_id, None)
        self._show(node)
        now = self._system.fault_boards[node].hits()
        # The board has one counter for each kind.
        return Hits(
            delayed_syncs=now.delayed_syncs - before.delayed_syncs if _is_slow(fault) else 0,
            failed_calls=now.failed_calls - before.failed_calls if is_deadly(fault) else 0,
        )

    def revive(self, node: str, fault: ConditionFault, hits: Hits) -> None:
        """Start the node if it died of a fault that has now ended; hits: what `end` returned. No
        effect while another fault may kill the node, or has taken it down."""
        if not is_deadly(fault) or any(map(is_deadly, self._faults[node].values())):
            return
        try:
            if self._is_taken_down(node):
                return
            if hits.failed_calls > 0:
                self._await_death(node)
            if node_named(self._system, node).state != RUNNING:
                self._system.restart(node)
        finally:
            self._system.must_live(node)

    def _show(self, node: str) -> None:
        self._system.fault_boards[node].set(conditions_of(self._faults[node].values()))

    def _await_death(self, node: str) -> None:
        try:
            wait_until(
                lambda: node_named(self._system, node).state != RUNNING,
                timeout_ms=_DEATH_TIMEOUT_MS,
                what=f"{node} has ended",
            )
        except NotReached:
            return  # the node tolerates the errors that it met
