"""Faults that only a world with a controller and brokers knows, as data, and how they are drawn."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

OPERATIONS = (
    "register",
    "unfence",
    "shut-down",
    "fence",
    "alter-isr",
    "producer-ids",
    "create-topics",
    "delete-topics",
    "create-partitions",
    "configs",
    "quotas",
    "reassign",
    "elect",
    "features",
    "unregister",
    "register-controller",
)
"""Every kind of operation of the controller that writes records."""

MOMENTS = ("decided", "committed")
"""Between decision and commit, or between commit and reply."""

MEANS = ("kill", "power", "pause", "cut")
"""The faults of the active controller: kill -9, a power cut, SIGSTOP, all its links cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StrikeOperation:
    """The active controller is hit in the middle of the next operation of that kind.

    moment: one of MOMENTS; means: one of MEANS; lasts_ms: until it is well again.
    """

    operation: str
    moment: str
    means: str
    lasts_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StopBroker:
    """The broker's process is asked to stop: controlled shutdown, then a clean start."""

    broker: int
    down_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashBroker:
    """The broker's process is killed, or its machine loses power, and starts again."""

    broker: int
    down_ms: int
    is_power_cut: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WipeBroker:
    """The broker comes back with an empty disk, under its id."""

    broker: int
    down_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FlapLink:
    """The broker's link to the controllers comes and goes, every cut breaking its connections.

    broker: -1 for all of them at once. Times are drawn from [min, max].
    """

    broker: int
    lasts_ms: int
    up_ms: tuple[int, int] = (80, 300)
    down_ms: tuple[int, int] = (50, 300)


ControllerFault = StrikeOperation | StopBroker | CrashBroker | WipeBroker | FlapLink

Make = Callable[[random.Random, Sequence[int]], ControllerFault]


def _strike(rng: random.Random, _: Sequence[int]) -> ControllerFault:
    return StrikeOperation(
        operation=rng.choice(OPERATIONS),
        moment=rng.choice(MOMENTS),
        means=rng.choice(MEANS),
        lasts_ms=rng.choice((100, 700, 2_000)),
    )


def _stop(rng: random.Random, _: Sequence[int]) -> ControllerFault:
    return StopBroker(broker=rng.randrange(8), down_ms=rng.choice((0, 200, 1_500)))


def _crash(rng: random.Random, _: Sequence[int]) -> ControllerFault:
    return CrashBroker(
        broker=rng.randrange(8),
        down_ms=rng.choice((0, 50, 500, 3_000)),
        is_power_cut=rng.random() < 0.4,
    )


def _wipe(rng: random.Random, _: Sequence[int]) -> ControllerFault:
    return WipeBroker(broker=rng.randrange(8), down_ms=rng.choice((0, 500)))


def _flap(rng: random.Random, _: Sequence[int]) -> ControllerFault:
    return FlapLink(broker=rng.choice((-1, 0, 1, 2, 3)), lasts_ms=rng.choice((500, 2_000, 5_000)))


CONTROLLER_KINDS: Mapping[str, tuple[type[Any], Make]] = {
    "strike-operation": (StrikeOperation, _strike),
    "stop-broker": (StopBroker, _stop),
    "crash-broker": (CrashBroker, _crash),
    "wipe-broker": (WipeBroker, _wipe),
    "flap-link": (FlapLink, _flap),
}
"""Kinds by name; `broker` counts through the brokers of the run, modulo their number."""
