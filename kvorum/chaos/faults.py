"""The faults of live experiments and of the simulator, defined once for both.

A fault is plain data: its kind, target and duration. Two back ends carry faults out:
`chaos.live.faults.injector` on processes behind toxiproxy, and the nemeses of `chaos.sim` on
simulated clusters in virtual time. A back end that does not support a fault refuses it by its name.

With `duration_ms` set the back end undoes the fault by itself (a killed node is restarted, a paused
one resumed, a cut link healed). Without it the fault lasts until restart, resume, heal, or the end
of the method. Simulated faults always end by themselves. Any of them can therefore be dropped from
a schedule, which is how `chaos.sim.shrink` shrinks a failing seed. A one-way fault from A to B
affects bytes that travel from A to B, no matter which of them opened the connection.

`toxicity` is Toxiproxy's: the per cent of connections that a fault of links hits, drawn for each
connection and each direction on its own. Only live runs draw; the simulator takes 100 alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from kvorum.chaos.fault_words import EVERY_CONNECTION, FaultOfLink, FaultOfNodes, NamedFault
from kvorum.chaos.targets import Target, TargetKind

_KILLED = Target(kind=TargetKind.KILLED)
_PAUSED = Target(kind=TargetKind.PAUSED)

# Processes.


@dataclass(frozen=True, slots=True, kw_only=True)
class KillNode(FaultOfNodes):
    """SIGKILL: the process is gone at once, its disk stays as it was."""

    func = "kill"
    target: Target
    duration_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartNode(FaultOfNodes):
    """Start killed nodes again on their old disks."""

    func = "restart"
    target: Target = _KILLED


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseNode(FaultOfNodes):
    """SIGSTOP: connections stay open, nothing answers."""

    func = "pause"
    target: Target
    duration_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeNode(FaultOfNodes):
    """SIGCONT for paused nodes."""

    func = "resume"
    target: Target = _PAUSED


@dataclass(frozen=True, slots=True, kw_only=True)
class StopNode(FaultOfNodes):
    """SIGTERM: a controlled shutdown, then a start with a clean-shutdown marker. The simulator does
    it to brokers only."""

    func = "stop"
    target: Target
    duration_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WipeDisk(FaultOfNodes):
    """SIGKILL, and the disk is lost: the node comes back under its id with an empty disk and a new
    directory id. Of controllers only while the others keep a majority of the old disks."""

    func = "wipe"
    target: Target
    duration_ms: int


# Machines and their disks.


@dataclass(frozen=True, slots=True, kw_only=True)
class CutPower(NamedFault):
    """Power fails: unsynced bytes are lost and peers get no answer. If several nodes are hit, they
    fail at once and start one after the other, apart_ms between two starts."""

    func = "cut_power"
    target: Target
    duration_ms: int
    apart_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CutPowerAtDiskCall(NamedFault):
    """Power fails after `calls` more disk calls that change something, during recovery too."""

    func = "cut_power_at_disk_call"
    target: Target
    calls: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FailDiskCall(NamedFault):
    """The next disk call of that kind fails where the path contains path_part.

    operation: as in `runtime.memory_disk.MemoryDisk.fail`.
    """

    func = "fail_disk_call"
    target: Target
    path_part: str
    operation: str = "sync"


@dataclass(frozen=True, slots=True, kw_only=True)
class FillDisk(FaultOfNodes):
    """The disk has room for room_bytes more. In a live run, writes that make a file longer count;
    removed files give no room back. A node that dies of it is started when the fault ends."""

    func = "fill_disk"
    target: Target
    room_bytes: int = 0
    duration_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowDisk(FaultOfNodes):
    """Every fsync takes sync_delay_ms longer. Faults that overlap do not add up: the longest delay
    counts."""

    func = "slow_disk"
    target: Target
    sync_delay_ms: int
    duration_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FailDisk(FaultOfNodes):
    """Every fsync, or every write and truncation, fails with an error. A node that dies of it is
    started when the fault ends."""

    func = "fail_disk"
    target: Target
    operation: Literal["sync", "write"] = "sync"
    error: Literal["EIO", "ENOSPC", "EROFS"] = "EIO"
    duration_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FlipBits(NamedFault):
    """Power fails, and one byte of a batch or snapshot on the disk flips: byte number `draw`,
    modulo the number of candidates.

    is_for_good: the damaged node never comes back, if the remaining voters are a majority.
    """

    func = "flip_bits"
    target: Target
    draw: int
    mask: int
    duration_ms: int
    is_for_good: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StepClock(FaultOfNodes):
    """The node's wall clock is step_ms ahead, or behind if it is negative; time-outs do not move,
    as under a step of NTP. Steps of faults that overlap add up."""

    func = "step_clock"
    target: Target
    step_ms: int
    duration_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeClock(NamedFault):
    """The node's clock jumps forward by jump_ms and runs at `rate` from then on (1000: exact)."""

    func = "change_clock"
    target: Target
    jump_ms: int
    rate: int


# Links.


@dataclass(frozen=True, slots=True, kw_only=True)
class CutLink(FaultOfLink):
    """Bytes from source to destination vanish; connections stay open (a black hole)."""

    func = "cut"
    source: Target
    destination: Target
    toxicity: int = EVERY_CONNECTION
    both_ways: bool = False
    duration_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkPartition(NamedFault):
    """Cut the target from every node of another set, both ways."""

    func = "isolate"
    target: Target
    away_from: Target
    duration_ms: int | None = None

    def text(self) -> str:
        return f"{self.func} {self.target.text()} from {self.away_from.text()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency(FaultOfLink):
    """Delay bytes from source to destination by latency_ms, plus or minus jitter_ms."""

    func = "latency"
    source: Target
    destination: Target
    latency_ms: int
    jitter_ms: int = 0
    toxicity: int = EVERY_CONNECTION
    both_ways: bool = False
    duration_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bandwidth(FaultOfLink):
    """Limit bytes from source to destination to kilobytes_per_second, per connection."""

    func = "bandwidth"
    source: Target
    destination: Target
    kilobytes_per_second: int
    toxicity: int = EVERY_CONNECTION
    both_ways: bool = False
    duration_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice(FaultOfLink):
    """Cut the byte stream into pieces of about slice_bytes, delay_us apart."""

    func = "slice"
    source: Target
    destination: Target
    slice_bytes: int
    variation_bytes: int = 0
    delay_us: int = 0
    toxicity: int = EVERY_CONNECTION
    both_ways: bool = False
    duration_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitData(FaultOfLink):
    """Close a connection after it has carried limit_bytes from source to destination."""

    func = "limit_data"
    source: Target
    destination: Target
    limit_bytes: int
    toxicity: int = EVERY_CONNECTION
    both_ways: bool = False
    duration_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetPeer(FaultOfLink):
    """Answer connections between the two with a TCP reset after delay_ms."""

    func = "reset_peer"
    source: Target
    destination: Target
    delay_ms: int = 0
    toxicity: int = EVERY_CONNECTION
    both_ways: bool = False
    duration_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowClose(FaultOfLink):
    """Hold back a connection's close by delay_ms."""

    func = "slow_close"
    source: Target
    destination: Target
    delay_ms: int
    toxicity: int = EVERY_CONNECTION
    both_ways: bool = False
    duration_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkDown(FaultOfLink):
    """Close the connections that source opened to destination, and refuse new ones."""

    func = "down"
    source: Target
    destination: Target
    both_ways: bool = False
    duration_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PacketLoss(FaultOfLink):
    """Lose loss_percent of the packets from source to destination, on the way to or from the proxy.
    TCP sends them again, so nothing is lost but time."""

    func = "packet_loss"
    source: Target
    destination: Target
    loss_percent: int
    both_ways: bool = False
    duration_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HealLinks(NamedFault):
    """Undo every link fault. Killed and paused nodes stay as they are."""

    func = "heal"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetConnections(NamedFault):
    """All connections of the node are reset; both ends see the reset."""

    func = "reset_connections"
    target: Target


@dataclass(frozen=True, slots=True, kw_only=True)
class FlapLink(NamedFault):
    """The link between each target broker and the controllers goes up and down; every cut breaks
    its connections. The times up and down are drawn from [min, max]."""

    func = "flap"
    target: Target
    duration_ms: int
    up_ms: tuple[int, int] = (80, 300)
    down_ms: tuple[int, int] = (50, 300)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionThenPowerCut(NamedFault):
    """The active controller is partitioned from the others for duration_ms, then all nodes lose
    power and start again after down_ms: logs that diverged meet in an election."""

    func = "partition_then_power_cut"
    duration_ms: int
    down_ms: int


# Requests of operators during other faults.


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectPreferredLeaders(NamedFault):
    """ElectLeaders (PREFERRED) for every partition of the load's topic whose preferred replica is
    in the ISR and does not lead. It is over at once."""

    func = "elect_leaders"


@dataclass(frozen=True, slots=True, kw_only=True)
class HandOver(NamedFault):
    """The quorum's leader is asked to resign, as in a clean shutdown."""

    func = "hand_over"


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeSnapshot(NamedFault):
    """The node snapshots its state now, if it has new records."""

    func = "take_snapshot"
    target: Target


@dataclass(frozen=True, slots=True, kw_only=True)
class AddVoter(FaultOfNodes):
    """An operator requests that the node, with its present disk, becomes a voter. A live run needs
    `voters` in the configuration, and the fault is over when the quorum has the new voter."""

    func = "add_voter"
    target: Target


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveVoter(FaultOfNodes):
    """An operator requests that the node is removed from the voters. A live run needs `voters` in
    the configuration, and the fault is over when the quorum is without the voter."""

    func = "remove_voter"
    target: Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Reassign(NamedFault):
    """AlterPartitionReassignments for the partitions of a topic (the load's, and all partitions, by
    default).

    replicas: the brokers by name, the preferred one first; without them each partition's are drawn
        from the seed, with a broker that has no replica of it if there is one.
    throttle: bytes a second, of the replicas that move. The fault is over when every partition has
        its new replicas; after duration_ms the rest is cancelled.
    """

    func = "reassign"
    unsaid = ("duration_ms",)
    duration_ms: int
    topic: str = ""
    partitions: tuple[int, ...] = ()
    replicas: tuple[str, ...] = ()
    throttle: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Roll(NamedFault):
    """`kvorum cluster roll` restarts every node in turn, the next one when the last one is well
    again. A roll that stops early makes the run inconclusive; after duration_ms the rest is left
    out."""

    func = "roll"
    unsaid = ("duration_ms",)
    duration_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoChanges(NamedFault):
    """Two operators act at once: one adds a voter, the other removes one."""

    func = "two_changes"
    added: Target
    removed: Target


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveListener(NamedFault):
    """The node's process restarts and listens on another address."""

    func = "move_listener"
    target: Target


OPERATIONS = (
    "register", "unfence", "shut-down", "fence", "alter-isr", "producer-ids", "create-topics",
    "delete-topics", "create-partitions", "configs", "quotas", "create-acls", "delete-acls",
    "reassign", "elect", "features", "unregister", "register-controller",
)  # fmt: skip
"""All kinds of controller operations that write records."""

MOMENTS = ("decided", "committed")
"""Between decision and commit, or between commit and reply."""

MEANS = ("kill", "power", "pause", "cut")
"""The faults of the active controller: kill -9, a power cut, SIGSTOP, all its links cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StrikeOperation(NamedFault):
    """The active controller is hit in the middle of the next operation of that kind.

    operation: one of OPERATIONS.
    moment: one of MOMENTS.
    means: one of MEANS.
    """

    func = "strike_operation"
    operation: str
    moment: str
    means: str
    duration_ms: int


NodeFault = KillNode | RestartNode | PauseNode | ResumeNode | StopNode | WipeDisk
ConditionFault = FillDisk | SlowDisk | FailDisk | StepClock
"""Faults of the disk and the clock of a process that runs on (`chaos.live.faults.conditions`)."""
ShapingFault = Latency | Bandwidth | Slice | LimitData | ResetPeer | SlowClose
LinkFault = CutLink | NetworkPartition | ShapingFault | LinkDown | PacketLoss
OperatorFault = ElectPreferredLeaders | AddVoter | RemoveVoter | Reassign | Roll
LiveFault = NodeFault | ConditionFault | LinkFault | HealLinks | OperatorFault
"""Faults that live runs support."""

SimulatedFault = (
    CutPower
    | CutPowerAtDiskCall
    | FailDiskCall
    | FlipBits
    | ChangeClock
    | ResetConnections
    | FlapLink
    | PartitionThenPowerCut
    | HandOver
    | TakeSnapshot
    | TwoChanges
    | MoveListener
    | StrikeOperation
)
"""Faults that only the simulator supports, since they need control of a machine, of a single disk
call or of a moment."""

Fault = LiveFault | SimulatedFault

#: The name of a fault in an experiment -> its class.
LIVE_FAULTS: Mapping[str, type[LiveFault]] = {kind.func: kind for kind in get_args(LiveFault)}

#: The same of the faults that only the simulator supports.
SIMULATED_FAULTS: Mapping[str, type[SimulatedFault]] = {
    kind.func: kind for kind in get_args(SimulatedFault)
}

FAULTS: Mapping[str, type[Fault]] = {**LIVE_FAULTS, **SIMULATED_FAULTS}


def duration_of(fault: Fault) -> int | None:
    """Milliseconds until the back end undoes the fault; None if it lasts until another fault undoes
    it."""
    duration: int | None = getattr(fault, "duration_ms", None)
    return duration


def toxicity_of(fault: Fault) -> int:
    """Per cent of the connections that a fault of links hits; EVERY_CONNECTION for any other."""
    toxicity: int = getattr(fault, "toxicity", EVERY_CONNECTION)
    return toxicity
