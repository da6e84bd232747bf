"""Requests of an operator that an experiment sends as faults, through the Kafka protocol.

`request_of` makes an `OperatorRequest` of a fault, and the injector calls its functions. An
election and a change of the voters are over when `send` returns; a reassignment and a rolling
restart go on, and the injector asks `is_over`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from kvorum.chaos.faults import (
    AddVoter,
    ElectPreferredLeaders,
    OperatorFault,
    Reassign,
    RemoveVoter,
    Roll,
)
from kvorum.chaos.live.faults.operator_calls import ask_any_broker, error_text
from kvorum.chaos.live.faults.reassignments import RunningReassignment, full_names
from kvorum.chaos.live.faults.rolling import CanRoll, RollingRestart
from kvorum.chaos.live.faults.voter_changes import change_voters
from kvorum.chaos.live.host.node_requests import Call
from kvorum.chaos.live.systems.protocol import NotObservable, System
from kvorum.chaos.targets import PartitionView, TargetView, UnresolvableTarget, resolve

_ELECT = Call(key=43, name="elect_leaders", version=2)
_PREFERRED = 0
_REQUEST_MS = 4_000

Key = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorRequest:
    """A request to make. nodes: those that it concerns.

    is_over: tells whether the work is done; None if it is done when `send` returns.
    finish: stops or cancels what is not done yet, and cleans up.
    outcome: for the history, filled by `finish`.
    """

    nodes: tuple[str, ...]
    send: Callable[[], None]
    is_over: Callable[[], bool] | None = None
    finish: Callable[[], None] | None = None
    outcome: dict[str, object] = field(default_factory=dict)


def request_of(
    fault: OperatorFault, system: System, view: TargetView, rng: random.Random
) -> OperatorRequest:
    """The request of a fault now. Raises UnresolvableTarget if there is nothing to ask for."""
    match fault:
        case ElectPreferredLeaders():
            return _election(system, view)
        case AddVoter() | RemoveVoter():
            names = resolve(fault.target, view, rng)
            if len(names) > 1:
                raise UnresolvableTarget(
                    f"{fault.target.text()} is {', '.join(names)}: one voter changes at a time"
                )
            (name,) = names
            return OperatorRequest(nodes=names, send=lambda: change_voters(system, fault, name))
        case Reassign():
            moving = RunningReassignment(fault, system, view, rng)
            return OperatorRequest(
                nodes=moving.nodes(),
                send=moving.start,
                is_over=moving.is_over,
                finish=moving.finish,
                outcome=moving.outcome,
            )
        case Roll():
            if not isinstance(system, CanRoll):
                raise UnresolvableTarget(f"{system.name} has no rolling restart")
            rolling = RollingRestart(system)
            return OperatorRequest(
                nodes=(*view.controllers, *view.brokers),
                send=rolling.start,
                is_over=rolling.is_over,
                finish=rolling.finish,
                outcome=rolling.outcome,
            )
        case _:
            assert_never(fault)


def _election(system: System, view: TargetView) -> OperatorRequest:
    moving = away_from_preferred(view)
    if not moving:
        raise UnresolvableTarget(
            "every partition is led by its preferred replica, or has it out of the ISR"
        )
    losing = sorted({str(partition.leader) for partition in moving.values()})
    keys = [(name, number) for topic, number in moving for name in full_names(system, [topic])]
    return OperatorRequest(nodes=tuple(losing), send=lambda: elect_preferred(system, keys))


def away_from_preferred(view: TargetView) -> Mapping[Key, PartitionView]:
    """The partitions whose leader is not their preferred replica (the first), while that one is in
    the ISR and could lead."""
    return {
        key: partition
        for key, partition in sorted(view.partitions.items())
        if partition.leader is not None
        and partition.leader != partition.replicas[0]
        and partition.replicas[0] in partition.isr
    }


def elect_preferred(system: System, keys: Sequence[Key]) -> None:
    """ElectLeaders (KIP-460) with the type PREFERRED.

    A partition that got its preferred leader meanwhile, or that lost it from the ISR, is left as
    it is. Raises UnresolvableTarget if no broker answers, or if no partition got its preferred
    leader.
    """
    topics: dict[str, list[int]] = {}
    for topic, number in keys:
        topics.setdefault(topic, []).append(number)
    values = {
        "election_type": _PREFERRED,
        "topic_partitions": [
            {"topic": topic, "partitions": numbers} for topic, numbers in topics.items()
        ],
        "timeout": _REQUEST_MS,
    }
    try:
        answer = ask_any_broker(system, _ELECT, values)
    except NotObservable as error:
        raise UnresolvableTarget(f"no preferred leader was elected: {error}") from error
    code = int(answer.error_code)
    outcomes = {
        f"{topic.topic}/{partition.partition_id}": partition
        for topic in answer.replica_election_results
        for partition in topic.partition_result
    }
    refused = [
        f"{name}: {error_text(int(partition.error_code), partition)}"
        for name, partition in outcomes.items()
        if int(partition.error_code)
    ]
    if code or len(refused) == len(outcomes):
        reason = error_text(code, answer) if code else "; ".join(refused)
        raise UnresolvableTarget(f"no preferred leader was elected: {reason}")
