"""The states of a classic group and the allowed transitions. Pure."""

from __future__ import annotations

import enum
from typing import NamedTuple


class GroupState(enum.Enum):
    """The state of a classic group. The values are the names that Kafka's tools show."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Transition(NamedTuple):
    source: GroupState
    target: GroupState
    when: str


TRANSITIONS: tuple[Transition, ...] = (
    Transition(
        GroupState.EMPTY,
        GroupState.PREPARING_REBALANCE,
        "a first member joins; more may for group.initial.rebalance.delay.ms",
    ),
    Transition(GroupState.EMPTY, GroupState.DEAD, "deleted, or its last offset has expired"),
    Transition(
        GroupState.PREPARING_REBALANCE,
        GroupState.COMPLETING_REBALANCE,
        "all members have joined, or the rebalance time-out is over; a new generation begins",
    ),
    Transition(
        GroupState.PREPARING_REBALANCE,
        GroupState.EMPTY,
        "the time to join is over and no member is left; written to the log",
    ),
    Transition(
        GroupState.COMPLETING_REBALANCE,
        GroupState.STABLE,
        "the leader has sent the assignment; written to the log",
    ),
    Transition(
        GroupState.COMPLETING_REBALANCE,
        GroupState.PREPARING_REBALANCE,
        "a member joins, leaves, is lost, or does not fetch its assignment in time",
    ),
    Transition(
        GroupState.STABLE,
        GroupState.PREPARING_REBALANCE,
        "a member joins, leaves, is lost, or changes what it subscribes to",
    ),
)

_ALLOWED = frozenset((row.source, row.target) for row in TRANSITIONS)


def is_allowed(source: GroupState, target: GroupState) -> bool:
    return (source, target) in _ALLOWED
