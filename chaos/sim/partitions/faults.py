"""Faults that only a world with the logs of partitions knows, as data, and how they are drawn."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

LOG_PARTS = (".log", ".index", "leader-epoch", "checkpoint", "partition.metadata", "t0", "t1", "")
"""Parts of paths below which a disk fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashBrokers:
    """Several brokers lose power at once, and come back one after the other.

    brokers: counted through, modulo their number; apart_ms: between their starts.
    """

    brokers: tuple[int, ...]
    down_ms: int
    apart_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IsolateBroker:
    """Nothing passes between the broker and the other brokers for lasts_ms; clients still reach it.

    sees_controllers: the links to those stay.
    """

    broker: int
    lasts_ms: int
    sees_controllers: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CutPowerOfBroker:
    """Power goes at the disk call after the next `calls` changing ones."""

    broker: int
    calls: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FailBrokerDisk:
    """The next disk call of that kind fails where the path contains path_part."""

    broker: int
    path_part: str
    operation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseBroker:
    """The process stands still for lasts_ms (SIGSTOP)."""

    broker: int
    lasts_ms: int


PartitionFault = CrashBrokers | IsolateBroker | CutPowerOfBroker | FailBrokerDisk | PauseBroker

Make = Callable[[random.Random, Sequence[int]], PartitionFault]


def _crash(rng: random.Random, _: Sequence[int]) -> PartitionFault:
    return CrashBrokers(
        brokers=tuple(rng.sample(range(4), rng.choice((2, 2, 3, 4)))),
        down_ms=rng.choice((0, 300, 2_000)),
        apart_ms=rng.choice((0, 200, 1_500)),
    )


def _isolate(rng: random.Random, _: Sequence[int]) -> PartitionFault:
    return IsolateBroker(
        broker=rng.randrange(8),
        lasts_ms=rng.choice((300, 1_500, 4_000)),
        sees_controllers=rng.random() < 0.5,
    )


def _cut_power(rng: random.Random, _: Sequence[int]) -> PartitionFault:
    return CutPowerOfBroker(broker=rng.randrange(8), calls=rng.randrange(60))


def _fail_disk(rng: random.Random, _: Sequence[int]) -> PartitionFault:
    return FailBrokerDisk(
        broker=rng.randrange(8),
        path_part=rng.choice(LOG_PARTS),
        operation=rng.choice(("sync", "sync", "write", "write", "rename", "remove", "truncate")),
    )


def _pause(rng: random.Random, _: Sequence[int]) -> PartitionFault:
    return PauseBroker(broker=rng.randrange(8), lasts_ms=rng.choice((100, 1_000, 3_000)))


PARTITION_KINDS: Mapping[str, tuple[type[Any], Make]] = {
    "crash-brokers": (CrashBrokers, _crash),
    "isolate-broker": (IsolateBroker, _isolate),
    "cut-power-of-broker": (CutPowerOfBroker, _cut_power),
    "fail-broker-disk": (FailBrokerDisk, _fail_disk),
    "pause-broker": (PauseBroker, _pause),
}
"""Kinds by name; `broker` counts through the brokers of the run, modulo their number."""
