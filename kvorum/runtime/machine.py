"""The disk and the clock of a node.

The disk has two interfaces: calls that block, and coroutines for snapshots. A node opens files and
reads clocks through its one `Machine` alone, so that a fault of the chaos lab reaches all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kvorum.runtime.async_disk import AsyncDisk, OsAsyncDisk
from kvorum.runtime.clock import SYSTEM_CLOCK, Clock
from kvorum.runtime.disk import Disk, OsDisk
from kvorum.runtime.fault_board import FaultBoard


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """async_disk: the same disk for snapshots, as coroutines."""

    disk: Disk = field(default_factory=OsDisk)
    async_disk: AsyncDisk = field(default_factory=OsAsyncDisk)
    clock: Clock = SYSTEM_CLOCK


def machine_of(fault_board: str) -> Machine:
    """The operating system's parts, with the faults of the board at this path; without faults for
    an empty path. Raises ConfigError if the file is no board."""
    if not fault_board:
        return Machine()
    # Imported here: a node without a board has no code of faults.
    from kvorum.runtime.faulty_disk import FaultGate, FaultyAsyncDisk, FaultyClock, FaultyDisk

    board = FaultBoard(fault_board)
    gate = FaultGate(board)
    return Machine(
        disk=FaultyDisk(gate), async_disk=FaultyAsyncDisk(gate), clock=FaultyClock(board)
    )
