"""Targets that no cluster of the experiment's size can have. Pure.

A target is resolved when its step begins. One that can never match a node would only show as a
skipped step, after the cluster was started: it is refused when the file is read.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from difflib import get_close_matches

from kvorum.chaos.experiment_file.faults import ArgumentProblem
from kvorum.chaos.faults import LiveFault, NetworkPartition, WipeDisk
from kvorum.chaos.targets import FIRST_BROKER_ID, Target, TargetKind

_OF_ALL = {
    TargetKind.CONTROLLERS: "controllers",
    TargetKind.BROKERS: "brokers",
    TargetKind.ALL: "all",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeNames:
    """The names of a cluster's nodes; a node may be both controller and broker."""

    controllers: tuple[str, ...]
    brokers: tuple[str, ...]

    def of(self, scope: str) -> tuple[str, ...]:
        """The nodes of `controllers`, `brokers` or `all`."""
        both = {"controllers": self.controllers, "brokers": self.brokers}
        return both.get(scope) or tuple(dict.fromkeys(self.controllers + self.brokers))


def node_names(controllers: int, brokers: int) -> NodeNames:
    """The names of a cluster that a run starts itself."""
    return NodeNames(
        controllers=tuple(f"controller-{number}" for number in range(1, controllers + 1)),
        brokers=tuple(f"broker-{FIRST_BROKER_ID + number}" for number in range(brokers)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PossibleTargets:
    """The possible targets of an experiment: its nodes, and the topic of its load.

    voters: the controllers of the first voter set, 0 for a static set that has all of them.
    other_topics: those of the loads beside the append load.
    """

    nodes: NodeNames
    topic: str
    partitions: int
    replication_factor: int
    voters: int = 0
    other_topics: tuple[str, ...] = ()


def impossible_targets(fault: LiveFault, possible: PossibleTargets) -> list[ArgumentProblem]:
    """A problem for each target of the fault that no node can match, or for two targets between
    which there is no link."""
    targets: dict[str, Target] = {
        field.name: value
        for field in dataclasses.fields(fault)
        if isinstance(value := getattr(fault, field.name), Target)
    }
    problems = [
        ArgumentProblem(key=key, message=reason)
        for key, target in targets.items()
        if (reason := _why_nobody(target, possible)) is not None
    ]
    if problems:
        return problems
    ends = [key for key in ("source", "destination", "target", "away_from") if key in targets]
    if len(ends) == 1:
        target = targets[ends[0]]
        if target.kind is TargetKind.CLIENTS:
            reason = f"clients are no node that {fault.func} can hit; use a fault of links"
            return [ArgumentProblem(key=ends[0], message=reason)]
        if isinstance(fault, WipeDisk) and (reason := _why_no_wipe(target, possible)):
            return [ArgumentProblem(key=ends[0], message=reason)]
    if len(ends) == 2:
        first, second = (targets[key] for key in ends)
        reason = _why_no_link(first, second, possible, is_split=isinstance(fault, NetworkPartition))
        if reason:
            return [ArgumentProblem(key=ends[1], message=reason)]
    return []


def possible_nodes(target: Target, possible: PossibleTargets) -> set[str]:
    """The nodes that the target may match at some time."""
    match target.kind:
        case TargetKind.NODE:
            return set(target.nodes)
        case TargetKind.ONE | TargetKind.MINORITY | TargetKind.MAJORITY:
            return set(possible.nodes.of(target.scope))
        case TargetKind.LEADER | TargetKind.FOLLOWER | TargetKind.BROKERS:
            return set(possible.nodes.brokers)
        case TargetKind.CLIENTS:
            return set()
        case TargetKind.KILLED | TargetKind.PAUSED | TargetKind.ALL:
            return set(possible.nodes.of("all"))
        case _:
            return set(possible.nodes.controllers)


def why_no_partition(number: int, possible: PossibleTargets) -> str | None:
    """The reason why the load's topic has no partition of this number; None if it has one."""
    if number < possible.partitions:
        return None
    return f"{possible.topic} has the partitions 0 to {possible.partitions - 1}, not {number}"


def _why_nobody(target: Target, possible: PossibleTargets) -> str | None:
    nodes, text = possible.nodes, target.text()
    match target.kind:
        case TargetKind.NODE:
            for name in target.nodes:
                if name not in nodes.of("all"):
                    known = ", ".join(nodes.of("all"))
                    return f"no node is named {name!r} in this cluster (nodes: {known})"
        case TargetKind.ONE | TargetKind.MINORITY | TargetKind.MAJORITY:
            return _why_no_share(target, len(nodes.of(target.scope)))
        case TargetKind.STANDBY_CONTROLLER | TargetKind.STANDBY_CONTROLLERS:
            if len(nodes.controllers) < 2:
                return f"{text} needs a second controller, and the cluster has one"
        case TargetKind.LEADER | TargetKind.FOLLOWER:
            return _why_no_replica(target, possible)
    return None


def _why_no_share(target: Target, count: int) -> str | None:
    if target.kind is TargetKind.MAJORITY and count == 1:
        return f"a majority of 1 is all of {target.scope}; write {target.scope!r}"
    if target.kind is TargetKind.MINORITY and count < 3:
        return f"a minority of {count} is nobody; {target.text()} needs 3 or more {target.scope}"
    return None


def _why_no_replica(target: Target, possible: PossibleTargets) -> str | None:
    if target.topic != possible.topic:
        near = get_close_matches(target.topic, [possible.topic], n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"the load's topic is {possible.topic!r}"
        return f"a target names the load's topic, not {target.topic!r}; {hint}"
    if reason := why_no_partition(target.partition, possible):
        return reason
    if target.kind is TargetKind.FOLLOWER and possible.replication_factor == 1:
        return f"{target.text()} needs a replication_factor of 2 or more, and it is 1"
    return None


def _why_no_link(
    first: Target, second: Target, possible: PossibleTargets, *, is_split: bool
) -> str | None:
    left, right = _certain(first, possible), _certain(second, possible)
    is_of_clients = TargetKind.CLIENTS in (first.kind, second.kind)
    if is_of_clients:
        other = second if first.kind is TargetKind.CLIENTS else first
        nodes = possible_nodes(other, possible)
        if not nodes & set(possible.nodes.brokers):
            return f"clients connect to brokers only, and {other.text()} is none"
        return None
    nodes = possible_nodes(second, possible)
    if left and is_split and not nodes - left:
        return f"{second.text()} without {first.text()} is nobody: nothing is cut"
    if left and left == right and len(left) == 1:
        return f"{first.text()} has no link to itself"
    return None


def _why_no_wipe(target: Target, possible: PossibleTargets) -> str:
    """The rule of `live.wipe_rules`, for what is certain before the run; empty if nothing is."""
    count = len(possible.nodes.controllers)
    match target.kind:
        case TargetKind.ACTIVE_CONTROLLER | TargetKind.STANDBY_CONTROLLER:
            struck = 1
        case TargetKind.STANDBY_CONTROLLERS:
            struck = count - 1
        case TargetKind.ONE | TargetKind.MAJORITY if target.scope == "controllers":
            struck = 1 if target.kind is TargetKind.ONE else count // 2 + 1
        case _:
            struck = len(_certain(target, possible) & set(possible.nodes.controllers))
    needed = count // 2 + 1
    if struck == 0 or count - struck >= needed:
        return ""
    return (
        f"wipe {target.text()} leaves {count - struck} of {count} controllers with their disks, "
        f"and the quorum needs {needed}; wipe fewer, or give the cluster more controllers"
    )


def _certain(target: Target, possible: PossibleTargets) -> set[str]:
    """The nodes that the target matches at any time."""
    if target.kind is TargetKind.NODE:
        return set(target.nodes)
    if target.kind in _OF_ALL:
        return set(possible.nodes.of(_OF_ALL[target.kind]))
    return set()
