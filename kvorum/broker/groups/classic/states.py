"""The states of a classic group and the allowed transitions. Pure."""

from __future__ import annotations

import enum
from typing import NamedTuple


class ClassicGroupState(enum.Enum):
    """The state of a classic group. The values are the names that Kafka's tools show."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Transition(NamedTuple):
    source: ClassicGroupState
    target: ClassicGroupState
    when: str


TRANSITIONS: tuple[Transition, ...] = (
    Transition(
        ClassicGroupState.EMPTY,
        ClassicGroupState.PREPARING_REBALANCE,
        "a first member joins; more may for group.initial.rebalance.delay.ms",
    ),
    Transition(
        ClassicGroupState.EMPTY, ClassicGroupState.DEAD, "deleted, or its last offset has expired"
    ),
    Transition(
        ClassicGroupState.PREPARING_REBALANCE,
        ClassicGroupState.COMPLETING_REBALANCE,
        "all members have joined, or the rebalance time-out is over; a new generation begins",
    ),
    Transition(
        ClassicGroupState.PREPARING_REBALANCE,
        ClassicGroupState.EMPTY,
        "the time to join is over and no member is left; written to the log",
    ),
    Transition(
        ClassicGroupState.COMPLETING_REBALANCE,
        ClassicGroupState.STABLE,
        "the leader has sent the assignment; written to the log",
    ),
    Transition(
        ClassicGroupState.COMPLETING_REBALANCE,
        ClassicGroupState.PREPARING_REBALANCE,
        "a member joins, leaves, is lost, or does not fetch its assignment in time",
    ),
    Transition(
        ClassicGroupState.STABLE,
        ClassicGroupState.PREPARING_REBALANCE,
        "a member joins, leaves, is lost, or changes what it subscribes to",
    ),
)

_ALLOWED = frozenset((row.source, row.target) for row in TRANSITIONS)


def is_allowed(source: ClassicGroupState, target: ClassicGroupState) -> bool:
    return (source, target) in _ALLOWED
