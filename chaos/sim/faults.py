"""The faults of a run as data: what happens to whom and when, drawn from the seed beforehand.

A fault ends by itself, so that any of them can be dropped from a schedule and the rest still makes
sense: that is how a failing seed is made small (`chaos.sim.shrink`). `chaos.sim.quorum.nemesis`
carries them out. A new kind is a dataclass here, a maker in `chaos.sim.fault_draws` and a case
there.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvorum.chaos.sim.controller.faults import ControllerFault
from kvorum.chaos.sim.partitions.faults import PartitionFault

LEADER = 0
"""In place of a node id: whoever leads the newest epoch when the fault comes, nobody if none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Crash:
    """The node stops at once and starts again after down_ms.

    is_power_cut: unsynced bytes are lost and peers hear nothing; else only the process ends, its
    written bytes stay and its connections are reset.
    """

    node_id: int
    down_ms: int
    is_power_cut: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashAll:
    """Power goes for everybody and comes back after down_ms."""

    down_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CutPowerAtDiskCall:
    """Power goes at the disk call after the next `calls` changing ones, in recovery too."""

    node_id: int
    calls: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FailDisk:
    """The next disk call of that kind fails where the path contains path_part.

    operation: sync, sync_dir, write, rename or remove.
    """

    node_id: int
    path_part: str
    operation: str = "sync"


@dataclass(frozen=True, slots=True, kw_only=True)
class FillDisk:
    """Only room_bytes more fit on the disk for lasts_ms."""

    node_id: int
    room_bytes: int
    lasts_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FlipBits:
    """Power goes, and a byte of a batch on the disk decays: the draw-th, modulo what there is.

    is_for_good: the damaged node never comes back, if the quorum can do without it.
    """

    node_id: int
    draw: int
    mask: int
    down_ms: int
    is_for_good: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """Nothing passes between the nodes in `side` and the others for lasts_ms. LEADER counts."""

    side: tuple[int, ...]
    lasts_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CutOff:
    """The leader is cut off for lasts_ms, then power goes for everybody and comes back after
    down_ms: logs that parted meet in an election."""

    lasts_ms: int
    down_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockOneWay:
    """Nothing passes from sender_id to receiver_id for lasts_ms; the other way is open."""

    sender_id: int
    receiver_id: int
    lasts_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetConnections:
    """Every connection of the node breaks, and both ends hear of it."""

    node_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """The process stands still for lasts_ms (SIGSTOP); its connections stay up."""

    node_id: int
    lasts_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeClock:
    """The node's clock jumps forward by jump_ms and runs at `rate` from then on (1000: exact)."""

    node_id: int
    jump_ms: int
    rate: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HandOver:
    """The leader is asked to step down, as a clean stop does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeSnapshot:
    """The node snapshots its state now, if it has anything new."""

    node_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AddVoter:
    """An operator asks for the node, with the disk it has, to become a voter."""

    node_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveVoter:
    """An operator asks for the node to be no voter any more."""

    node_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoChanges:
    """Two operators at once: the one adds, the other removes."""

    added_id: int
    removed_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WipeDisk:
    """The node's disk is lost. It comes back under its id with an empty one, which has another
    directory id, unless the quorum cannot do without the vote of the old one."""

    node_id: int
    down_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveListener:
    """The node's process starts again and listens elsewhere."""

    node_id: int


Fault = (
    Crash
    | CrashAll
    | CutPowerAtDiskCall
    | FailDisk
    | FillDisk
    | FlipBits
    | Partition
    | CutOff
    | BlockOneWay
    | ResetConnections
    | Pause
    | ChangeClock
    | HandOver
    | TakeSnapshot
    | AddVoter
    | RemoveVoter
    | TwoChanges
    | WipeDisk
    | MoveListener
)


AnyFault = Fault | ControllerFault | PartitionFault
"""Of any world."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledFault:
    """A fault and the virtual time at which it comes."""

    at_ms: int
    fault: AnyFault
