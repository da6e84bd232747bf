"""The capabilities that each fault needs, and those that each system has. Pure.

A fault that a system cannot carry out is refused before a run begins: half a method would be a
verdict about another experiment.
"""

from __future__ import annotations

from kvorum.chaos.fault_words import FaultOfLink
from kvorum.chaos.faults import (
    AddVoter,
    ElectPreferredLeaders,
    FailDisk,
    Fault,
    FillDisk,
    HealLinks,
    KillNode,
    NetworkPartition,
    PacketLoss,
    PauseNode,
    Reassign,
    RemoveVoter,
    RestartNode,
    ResumeNode,
    Roll,
    SlowDisk,
    StepClock,
    StopNode,
    WipeDisk,
)
from kvorum.chaos.live.systems.protocol import Capability
from kvorum.chaos.targets import Target, TargetKind
from kvorum.runtime.errors import KvorumError

_OF_PROCESSES = frozenset(
    {Capability.KILL, Capability.PAUSE, Capability.STOP, Capability.RESTART, Capability.WIPE}
)
#: Whatever speaks the Kafka protocol has these.
_OF_PROTOCOL = frozenset({Capability.ELECT_LEADERS, Capability.REASSIGN})
OF_LINKS = frozenset({Capability.LINKS, Capability.CLIENT_LINKS, Capability.PACKET_LOSS})
#: A process with a fault board has these.
OF_FAULT_BOARDS = frozenset(
    {Capability.FILL_DISK, Capability.SLOW_DISK, Capability.FAIL_DISK, Capability.CLOCK}
)

#: Of the back ends that start their own clusters; an attached cluster's follow from its file.
_OF_OWN_CLUSTERS = frozenset({Capability.CHANGE_VOTERS, Capability.METADATA_EXPORT})
_OF_OWN = _OF_PROCESSES | OF_LINKS | _OF_PROTOCOL | _OF_OWN_CLUSTERS
KVORUM_CAPABILITIES = _OF_OWN | OF_FAULT_BOARDS | {Capability.ROLL}
KAFKA_CAPABILITIES = _OF_OWN | OF_FAULT_BOARDS


def needs_of(fault: Fault) -> frozenset[Capability]:
    """The capabilities that a live run needs to carry out a fault and to undo it.

    Raises KvorumError for a fault that no live run carries out.
    """
    match fault:
        case KillNode():
            # A killed node is started again at the end of the method at the latest.
            return frozenset({Capability.KILL, Capability.RESTART})
        case StopNode():
            return frozenset({Capability.STOP, Capability.RESTART})
        case WipeDisk():
            return frozenset({Capability.KILL, Capability.WIPE, Capability.RESTART})
        case RestartNode():
            return frozenset({Capability.RESTART})
        case PauseNode() | ResumeNode():
            return frozenset({Capability.PAUSE})
        case FillDisk():
            # A node that dies of its disk is started again at the fault's end.
            return frozenset({Capability.FILL_DISK, Capability.RESTART})
        case FailDisk():
            return frozenset({Capability.FAIL_DISK, Capability.RESTART})
        case SlowDisk():
            return frozenset({Capability.SLOW_DISK})
        case StepClock():
            return frozenset({Capability.CLOCK})
        case HealLinks():
            return frozenset()
        case ElectPreferredLeaders():
            return frozenset({Capability.ELECT_LEADERS})
        case AddVoter() | RemoveVoter():
            return frozenset({Capability.CHANGE_VOTERS})
        case Reassign():
            return frozenset({Capability.REASSIGN})
        case Roll():
            return frozenset({Capability.ROLL})
        case NetworkPartition():
            return _of_ends(fault.target, fault.away_from)
        case PacketLoss():
            return _of_ends(fault.source, fault.destination) | {Capability.PACKET_LOSS}
        case FaultOfLink():
            return _of_ends(fault.source, fault.destination)
        case _:
            raise KvorumError(f"no live run carries out {fault.text()!r}: it is simulated only")


def _of_ends(*ends: Target) -> frozenset[Capability]:
    is_of_clients = any(end.kind is TargetKind.CLIENTS for end in ends)
    return frozenset({Capability.CLIENT_LINKS if is_of_clients else Capability.LINKS})
