"""The parts of the operating system that a node is given: its disk, twice, and its clock.

A node takes them from one `Machine` and makes none itself. So a fault of the chaos lab reaches
every file and every timestamp of the node, or none.
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
