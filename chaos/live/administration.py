"""Requests of an operator that an experiment sends as faults, through the Kafka protocol.

A request becomes plain calls here (`request_of`), which the injector makes in order: an election
and a change of the voters are over with their answer, a reassignment goes on by itself.
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
from kvorum.chaos.live.reassignments import Reassignment, full_names
from kvorum.chaos.live.rolling import CanRoll, RollingRestart
from kvorum.chaos.live.systems.protocol import System
from kvorum.chaos.live.voter_changes import change_voters
from kvorum.chaos.targets import ClusterView, PartitionView, UnresolvableTarget, resolve

_TIMEOUT_S = 5.0

Key = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorRequest:
    """A request to make. nodes: those that it concerns.

    is_over: None for a request that is over when `send` returns. finish: ends the rest of one that
    goes on. outcome: for the history, filled by `finish`.
    """

    nodes: tuple[str, ...]
    send: Callable[[], None]
    is_over: Callable[[], bool] | None = None
    finish: Callable[[], None] | None = None
    outcome: dict[str, object] = field(default_factory=dict)


def request_of(
    fault: OperatorFault, system: System, view: ClusterView, rng: random.Random
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
            moving = Reassignment(fault, system, view, rng)
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


def _election(system: System, view: ClusterView) -> OperatorRequest:
    moving = away_from_preferred(view)
    if not moving:
        raise UnresolvableTarget(
            "every partition is led by its preferred replica, or has it out of the ISR"
        )
    losing = sorted({str(partition.leader) for partition in moving.values()})
    keys = [(name, number) for topic, number in moving for name in full_names(system, [topic])]
    return OperatorRequest(
        nodes=tuple(losing), send=lambda: elect_preferred(system.bootstrap(), keys)
    )


def away_from_preferred(view: ClusterView) -> Mapping[Key, PartitionView]:
    """The partitions whose leader is not their preferred replica (the first), while that one is in
    the ISR and could lead."""
    return {
        key: partition
        for key, partition in sorted(view.partitions.items())
        if partition.leader is not None
        and partition.leader != partition.replicas[0]
        and partition.replicas[0] in partition.isr
    }


def elect_preferred(bootstrap: str, keys: Sequence[Key]) -> None:
    """ElectLeaders (KIP-460) with the type PREFERRED, for topics that the cluster has: a view may
    name a topic twice.

    A partition that got its preferred leader meanwhile, or that lost it from the ISR, is left as
    it is. Raises UnresolvableTarget if no broker answers, or if no partition got its preferred
    leader.
    """
    from confluent_kafka import ElectionType, KafkaException, TopicPartition
    from confluent_kafka.admin import AdminClient

    # The request's timeout is the socket's: `elect_leaders` of confluent-kafka 2.16 raises
    # SystemError when it is given one of its own.
    limits = {"socket.timeout.ms": round(_TIMEOUT_S * 1000), "log_level": 2}
    admin = AdminClient({"bootstrap.servers": bootstrap, **limits})
    try:
        topics = admin.list_topics(timeout=_TIMEOUT_S).topics
        asked = [TopicPartition(topic, number) for topic, number in keys if topic in topics]
        outcomes = admin.elect_leaders(ElectionType.PREFERRED, asked).result()
    except KafkaException as error:
        raise UnresolvableTarget(f"no preferred leader was elected: {error}") from error
    refused = [f"{p.topic}/{p.partition}: {e}" for p, e in outcomes.items() if e is not None]
    if len(refused) == len(outcomes):
        raise UnresolvableTarget(f"no preferred leader was elected: {'; '.join(refused)}")
