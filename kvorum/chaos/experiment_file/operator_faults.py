"""Requests of operators that a cluster of the experiment can never carry out. Pure.

`possible_targets` has the rules for targets; a request that could only be refused by the cluster,
after its start, is refused here when the file is read.
"""

from __future__ import annotations

from kvorum.chaos.experiment_file.faults import ArgumentProblem
from kvorum.chaos.experiment_file.possible_targets import (
    PossibleTargets,
    possible_nodes,
    why_no_partition,
)
from kvorum.chaos.faults import AddVoter, LiveFault, Reassign, RemoveVoter
from kvorum.chaos.targets import TargetKind

_INTERNAL = "__"
_SETS = (
    TargetKind.CONTROLLERS,
    TargetKind.STANDBY_CONTROLLERS,
    TargetKind.BROKERS,
    TargetKind.ALL,
    TargetKind.MINORITY,
    TargetKind.MAJORITY,
)


def impossible_requests(fault: LiveFault, possible: PossibleTargets) -> list[ArgumentProblem]:
    """A problem for each argument of an operator's request that no moment of a run could meet."""
    match fault:
        case AddVoter() | RemoveVoter():
            reason = _why_no_voter(fault, possible)
            return [ArgumentProblem(key="target", message=reason)] if reason else []
        case Reassign():
            return _of_reassignment(fault, possible)
        case _:
            return []


def _why_no_voter(fault: AddVoter | RemoveVoter, possible: PossibleTargets) -> str:
    name, target = fault.func, fault.target
    if not possible.voters:
        return (
            f"{name} needs a voter set that can change: give the configuration `voters`, the "
            "number of controllers that vote at the start"
        )
    if target.kind in _SETS or len(target.nodes) > 1:
        return f"{name} changes one voter at a time, and {target.text()} may be several nodes"
    if not possible_nodes(target, possible) & set(possible.nodes.controllers):
        return f"only a controller can vote, and {target.text()} is none"
    if isinstance(fault, AddVoter) and len(possible.nodes.controllers) == 1:
        return f"{name} needs a second controller, and the cluster has one"
    return ""


def _of_reassignment(fault: Reassign, possible: PossibleTargets) -> list[ArgumentProblem]:
    problems = []

    def problem(key: str, message: str) -> None:
        problems.append(ArgumentProblem(key=key, message=message))

    is_of_load = fault.topic in ("", possible.topic)
    known = (possible.topic, *possible.other_topics)
    if not is_of_load and fault.topic not in known and not fault.topic.startswith(_INTERNAL):
        problem("topic", f"no load writes to {fault.topic!r}; known: {', '.join(known)}")
    missing = [reason for at in fault.partitions if (reason := why_no_partition(at, possible))]
    if is_of_load and missing:
        problem("partitions", missing[0])
    for name in fault.replicas:
        if name not in possible.nodes.brokers:
            brokers = ", ".join(possible.nodes.brokers)
            problem("replicas", f"no broker is named {name!r} in this cluster (brokers: {brokers})")
    if not fault.replicas and len(possible.nodes.brokers) == 1:
        problem("", "reassign needs a second broker to move a replica to, and the cluster has one")
    return problems
