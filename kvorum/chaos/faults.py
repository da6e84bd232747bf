"""The faults of live experiments and of the simulator, defined once for both.

A fault is plain data: its kind, target and duration. Two back ends carry faults out:
`chaos.live.injector` on processes behind toxiproxy, and the nemeses of `chaos.sim` on simulated
clusters in virtual time. A back end that does not support a fault refuses it by its name.

With `duration_ms` set the back end undoes the fault by itself (a killed node is restarted, a paused
one resumed, a cut link healed). Without it the fault lasts until restart, resume, heal, or the end
of the method. Simulated faults always end by themselves. Any of them can therefore be dropped from
a schedule, which is how `chaos.sim.shrink` shrinks a failing seed. A one-way fault from A to B
affects bytes that travel from A to B, no matter which of them opened the connection.

`toxicity` is Toxiproxy's: the per cent of connections that a fault of links hits, drawn for each
connection and each direction on its own. Only live runs draw; the simulator takes 100 alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from kvorum.chaos.targets import Target, TargetKind

_KILLED = Target(kind=TargetKind.KILLED)
_PAUSED = Target(kind=TargetKind.PAUSED)

#: The toxicity, in per cent, of a fault that spares no connection.
EVERY_CONNECTION = 100

# Processes.


@dataclass(frozen=True, slots=True, kw_only=True)
class KillNode:
    """SIGKILL: the process is gone at once, its disk stays as it was."""

    target: Target
    duration_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartNode:
    """Start killed nodes again on their old disks."""

    target: Target = _KILLED


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseNode:
    """SIGSTOP: connections stay open, nothing answers."""

    target: Target
    duration_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeNode:
    """SIGCONT for paused nodes."""

    target: Target = _PAUSED


@dataclass(frozen=True, slots=True, kw_only=True)
class StopNode:
    """SIGTERM: a controlled shutdown, then a start with a clean-shutdown marker. The simulator does
    it to brokers only."""

    target: Target
    duration_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WipeDisk:
    """SIGKILL, and the disk is lost: the node comes back under its id with an empty disk and a new
    directory id. Of controllers only while the others keep a majority of the old disks."""

    target: Target
    duration_ms: int


# Machines and their disks.


@dataclass(frozen=True, slots=True, kw_only=True)
class CutPower:
    """Power fails: unsynced bytes are lost and peers get no answer. If several nodes are hit, they
    fail at once and start one after the other, apart_ms between two starts."""

    target: Target
    duration_ms: int
    apart_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CutPowerAtDiskCall:
    """Power fails after `calls` more disk calls that change something, during recovery too."""

    target: Target
    calls: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FailDiskCall:
    """The next disk call of that kind fails where the path contains path_part.

    operation: as in `runtime.memory_disk.MemoryDisk.fail`.
    """

    target: Target
    path_part: str
    operation: str = "sync"


@dataclass(frozen=True, slots=True, kw_only=True)
class FillDisk:
    """The disk has room for room_bytes more. In a live run, writes that make a file longer count;
    removed files give no room back. A node that dies of it is started when the fault ends."""

    target: Target
    room_bytes: int = 0
    duration_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowDisk:
    """Every fsync takes sync_delay_ms longer. Faults that overlap do not add up: the longest delay
    counts."""

    target: Target
    sync_delay_ms: int
    duration_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FailDisk:
    """Every fsync, or every write and truncation, fails with an error. A node that dies of it is
    started when the fault ends."""

    target: Target
    operation: Literal["sync", "write"] = "sync"
    error: Literal["EIO", "ENOSPC", "EROFS"] = "EIO"
    duration_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FlipBits:
    """Power fails, and one byte of a batch or snapshot on the disk flips: byte number `draw`,
    modulo the number of candidates.

    is_for_good: the damaged node never comes back, if the remaining voters are a majority.
    """

    target: Target
    draw: int
    mask: int
    duration_ms: int
    is_for_good: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StepClock:
    """The node's wall clock is step_ms ahead, or behind if it is negative; time-outs do not move,
    as under a step of NTP. Steps of faults that overlap add up."""

    target: Target
    step_ms: int
    duration_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeClock:
    """The node's clock jumps forward by jump_ms and runs at `rate` from then on (1000: exact)."""

    target: Target
    jump_ms: int
    rate: int


# Links.


@dataclass(frozen=True, slots=True, kw_only=True)
class CutLink:
    """Bytes from source to destination vanish; connections stay open (a black hole)."""

    source: Target
    destination: Target
    toxicity: int = EVERY_CONNECTION
    both_ways: bool = False
    duration_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkPartition:
    """Cut the target from every node of another set, both ways."""

    target: Target
    away_from: Target
    duration_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Delay bytes from source to destination by latency_ms, plus or minus jitter_ms."""

    source: Target
    destination: Target
    latency_ms: int
    jitter_ms: int = 0
    toxicity: int = EVERY_CONNECTION
    both_ways: bool = False
    duration_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bandwidth:
    """Limit bytes from source to destination to kilobytes_per_second, per connection."""

    source: Target
    destination: Target
    kilobytes_per_second: int
    toxicity: int = EVERY_CONNECTION
    both_ways: bool = False
    duration_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """Cut the byte stream into pieces of about slice_bytes, delay_us apart."""

    source: Target
    destination: Target
    slice_bytes: int
    variation_bytes: int = 0
    delay_us: int = 0
    toxicity: int = EVERY_CONNECTION
    both_ways: bool = False
    duration_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitData:
    """Close a connection after it has carried limit_bytes from source to destination."""

    source: Target
    destination: Target
    limit_bytes: int
    toxicity: int = EVERY_CONNECTION
    both_ways: bool = False
    duration_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetPeer:
    """Answer connections between the two with a TCP reset after delay_ms."""

    source: Target
    destination: Target
    delay_ms: int = 0
    toxicity: int = EVERY_CONNECTION
    both_ways: bool = False
    duration_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowClose:
    """Hold back a connection's close by delay_ms."""

    source: Target
    destination: Target
    delay_ms: int
    toxicity: int = EVERY_CONNECTION
    both_ways: bool = False
    duration_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkDown:
    """Close the connections that source opened to destination, and refuse new ones."""

    source: Target
    destination: Target
    both_ways: bool = False
    duration_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PacketLoss:
    """Lose loss_percent of the packets from source to destination, on the way to or from the proxy.
    TCP sends them again, so nothing is lost but time."""

    source: Target
    destination: Target
    loss_percent: int
    both_ways: bool = False
    duration_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HealLinks:
    """Undo every link fault. Killed and paused nodes stay as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetConnections:
    """All connections of the node are reset; both ends see the reset."""

    target: Target


@dataclass(frozen=True, slots=True, kw_only=True)
class FlapLink:
    """The link between each target broker and the controllers goes up and down; every cut breaks
    its connections. The times up and down are drawn from [min, max]."""

    target: Target
    duration_ms: int
    up_ms: tuple[int, int] = (80, 300)
    down_ms: tuple[int, int] = (50, 300)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionThenPowerCut:
    """The active controller is partitioned from the others for duration_ms, then all nodes lose
    power and start again after down_ms: logs that diverged meet in an election."""

    duration_ms: int
    down_ms: int


# Requests of operators during other faults.


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectPreferredLeaders:
    """ElectLeaders (PREFERRED) for every partition of the load's topic whose preferred replica is
    in the ISR and does not lead. It is over at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandOver:
    """The quorum's leader is asked to resign, as in a clean shutdown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeSnapshot:
    """The node snapshots its state now, if it has new records."""

    target: Target


@dataclass(frozen=True, slots=True, kw_only=True)
class AddVoter:
    """An operator requests that the node, with its present disk, becomes a voter. A live run needs
    `voters` in the configuration, and the fault is over when the quorum has the new voter."""

    target: Target


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveVoter:
    """An operator requests that the node is removed from the voters. A live run needs `voters` in
    the configuration, and the fault is over when the quorum is without the voter."""

    target: Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Reassign:
    """AlterPartitionReassignments for the partitions of a topic (the load's, and all partitions,
    by default). replicas: the brokers by name, the preferred one first; without them each
    partition's are drawn from the seed, with a broker that has no replica of it if there is one.
    throttle: bytes a second, of the replicas that move. The fault is over when every partition has
    its new replicas; after duration_ms the rest is cancelled."""

    duration_ms: int
    topic: str = ""
    partitions: tuple[int, ...] = ()
    replicas: tuple[str, ...] = ()
    throttle: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Roll:
    """`kvorum cluster roll` restarts every node in turn, the next one when the last one is well
    again. A roll that stops early makes the run inconclusive; after duration_ms the rest is left
    out."""

    duration_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoChanges:
    """Two operators act at once: one adds a voter, the other removes one."""

    added: Target
    removed: Target


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveListener:
    """The node's process restarts and listens on another address."""

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
class StrikeOperation:
    """The active controller is hit in the middle of the next operation of that kind.

    operation: one of OPERATIONS; moment: one of MOMENTS; means: one of MEANS.
    """

    operation: str
    moment: str
    means: str
    duration_ms: int


NodeFault = KillNode | RestartNode | PauseNode | ResumeNode | StopNode | WipeDisk
ConditionFault = FillDisk | SlowDisk | FailDisk | StepClock
"""Faults of the disk and the clock of a process that runs on (`chaos.live.conditions`)."""
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

#: Name in an experiment (`func`) -> class.
LIVE_FAULTS: Mapping[str, type[LiveFault]] = {
    "kill": KillNode,
    "restart": RestartNode,
    "pause": PauseNode,
    "resume": ResumeNode,
    "stop": StopNode,
    "wipe": WipeDisk,
    "fill_disk": FillDisk,
    "slow_disk": SlowDisk,
    "fail_disk": FailDisk,
    "step_clock": StepClock,
    "cut": CutLink,
    "isolate": NetworkPartition,
    "latency": Latency,
    "bandwidth": Bandwidth,
    "slice": Slice,
    "limit_data": LimitData,
    "reset_peer": ResetPeer,
    "slow_close": SlowClose,
    "down": LinkDown,
    "packet_loss": PacketLoss,
    "heal": HealLinks,
    "elect_leaders": ElectPreferredLeaders,
    "add_voter": AddVoter,
    "remove_voter": RemoveVoter,
    "reassign": Reassign,
    "roll": Roll,
}

#: Name of a fault that only the simulator supports -> class.
SIMULATED_FAULTS: Mapping[str, type[SimulatedFault]] = {
    "cut_power": CutPower,
    "cut_power_at_disk_call": CutPowerAtDiskCall,
    "fail_disk_call": FailDiskCall,
    "flip_bits": FlipBits,
    "change_clock": ChangeClock,
    "reset_connections": ResetConnections,
    "flap": FlapLink,
    "partition_then_power_cut": PartitionThenPowerCut,
    "hand_over": HandOver,
    "take_snapshot": TakeSnapshot,
    "two_changes": TwoChanges,
    "move_listener": MoveListener,
    "strike_operation": StrikeOperation,
}

FAULTS: Mapping[str, type[Fault]] = {**LIVE_FAULTS, **SIMULATED_FAULTS}
_NAMES = {kind: name for name, kind in FAULTS.items()}


def fault_name(fault: Fault) -> str:
    """The name under which experiments, histories, schedules and reports know this fault."""
    return _NAMES[type(fault)]


def duration_of(fault: Fault) -> int | None:
    """Milliseconds until the back end undoes the fault; None if it lasts until another fault undoes
    it."""
    duration: int | None = getattr(fault, "duration_ms", None)
    return duration


def toxicity_of(fault: Fault) -> int:
    """Per cent of the connections that a fault of links hits; EVERY_CONNECTION for any other."""
    toxicity: int = getattr(fault, "toxicity", EVERY_CONNECTION)
    return toxicity


def describe(fault: Fault) -> str:
    """One line for progress, traces and reports: `cut active-controller -> one:brokers`."""
    match fault:
        case KillNode() | RestartNode() | PauseNode() | ResumeNode() | StopNode() | WipeDisk():
            return f"{fault_name(fault)} {fault.target.text()}"
        case FillDisk() | SlowDisk() | FailDisk() | StepClock():
            details = _details(fault, ("target", "duration_ms"))
            return " ".join([fault_name(fault), fault.target.text(), *details])
        case NetworkPartition():
            return f"isolate {fault.target.text()} from {fault.away_from.text()}"
        case (
            CutLink()
            | Latency()
            | Bandwidth()
            | Slice()
            | LimitData()
            | ResetPeer()
            | SlowClose()
            | LinkDown()
            | PacketLoss()
        ):
            arrow = "<->" if fault.both_ways else "->"
            ends = f"{fault.source.text()} {arrow} {fault.destination.text()}"
            left_out = ("source", "destination", "both_ways", "duration_ms", "toxicity")
            share = _share(toxicity_of(fault))
            return " ".join([fault_name(fault), ends, *_details(fault, left_out), *share])
        case AddVoter() | RemoveVoter():
            return f"{fault_name(fault)} {fault.target.text()}"
        case Reassign() | Roll():
            return " ".join([fault_name(fault), *_details(fault, ("duration_ms",))])
        case _:
            return " ".join([fault_name(fault), *_details(fault, ())])


def _share(toxicity: int) -> list[str]:
    return [] if toxicity == EVERY_CONNECTION else [f"toxicity={toxicity}"]


def _details(fault: Fault, left_out: tuple[str, ...]) -> list[str]:
    """The fields of a fault that are set, except those in left_out."""
    values = {
        field.name: getattr(fault, field.name)
        for field in dataclasses.fields(fault)
        if field.name not in left_out
    }
    return [f"{name}={_text_of(value)}" for name, value in values.items() if value]


def _text_of(value: object) -> str:
    if isinstance(value, Target):
        return value.text()
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value)
