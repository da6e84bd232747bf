"""Placement of new partitions' replicas: striped over brokers and racks (KRaft's striped placer).

Each partition's replicas are on distinct racks as far as possible. A fenced broker is used last,
and never as a leader. If racks have equal sizes, or there are none, the numbers of leaders differ
by one at most, and replicas are even at every multiple of the active brokers. Racks of different
sizes get equal shares, so their brokers get unequal ones (`python -m bench.placement`). Randomness
only picks starting points, so that the partitions of small topics are not all on the first broker.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from kvorum.runtime.errors import ErrorCode, Rejected, invariant


@dataclass(frozen=True, slots=True)
class UsableBroker:
    """A broker that may have replicas. is_active: it may lead too."""

    broker_id: int
    rack: str | None
    is_active: bool


def place(
    brokers: Sequence[UsableBroker],
    *,
    partition_count: int,
    replication_factor: int,
    rng: random.Random,
) -> list[tuple[int, ...]] | Rejected:
    """The replicas of each partition; the first is the preferred leader.

    Rejected with INVALID_REPLICATION_FACTOR if there are not enough brokers, or if none is active.
    """
    problem = _problem(brokers, replication_factor)
    if problem is not None:
        return problem
    racks = _racks(brokers, rng)
    first_rack = rng.randrange(len(racks))
    active_count = sum(1 for broker in brokers if broker.is_active)
    placements: list[tuple[int, ...]] = []
    for index in range(partition_count):
        if index and index % active_count == 0:
            # Every broker has led once. Shuffle, or the same pairs of brokers would share all their
            # partitions.
            for rack in racks:
                rack.shuffle(rng)
        placements.append(_place_one(racks, first_rack + index, replication_factor))
        if (index + 1) % len(racks) == 0:
            # Each rack has led once, so rotate. If racks rotated with every partition, a rack whose
            # size shares a divisor with the number of racks would let only some of its brokers
            # lead.
            for rack in racks:
                rack.rotate()
    return placements


class _Rack:
    """The brokers of one rack, active before fenced, each list with a moving start."""

    def __init__(self, active: list[int], fenced: list[int], rng: random.Random) -> None:
        self._active = _rotated(active, rng.randrange(len(active)) if active else 0)
        self._fenced = _rotated(fenced, rng.randrange(len(fenced)) if fenced else 0)

    def rotate(self) -> None:
        self._active = _rotated(self._active, 1)
        self._fenced = _rotated(self._fenced, 1)

    def shuffle(self, rng: random.Random) -> None:
        rng.shuffle(self._active)
        rng.shuffle(self._fenced)

    def active(self) -> int | None:
        return self._active[0] if self._active else None

    def next_unused(self, used: Sequence[int], *, fenced: bool) -> int | None:
        for broker_id in self._fenced if fenced else self._active:
            if broker_id not in used:
                return broker_id
        return None


def _rotated(values: list[int], by: int) -> list[int]:
    return values[by:] + values[:by]


def _problem(brokers: Sequence[UsableBroker], replication_factor: int) -> Rejected | None:
    code = ErrorCode.INVALID_REPLICATION_FACTOR
    if replication_factor < 1:
        return Rejected(code, f"replication factor {replication_factor} is below 1")
    if replication_factor > len(brokers):
        return Rejected(
            code,
            f"replication factor {replication_factor} is above the {len(brokers)} "
            "brokers to choose from",
        )
    if not any(broker.is_active for broker in brokers):
        return Rejected(code, "all brokers are fenced; none could lead")
    return None


def _racks(brokers: Sequence[UsableBroker], rng: random.Random) -> list[_Rack]:
    # Without racks, all brokers form one rack. In a mixed cluster, brokers without a rack form one
    # of their own.
    by_rack: dict[str, tuple[list[int], list[int]]] = {}
    for broker in sorted(brokers, key=lambda b: b.broker_id):
        active, fenced = by_rack.setdefault(broker.rack or "", ([], []))
        (active if broker.is_active else fenced).append(broker.broker_id)
    return [_Rack(*by_rack[name], rng) for name in sorted(by_rack)]


def _place_one(racks: list[_Rack], start: int, replication_factor: int) -> tuple[int, ...]:
    rack_count = len(racks)
    replicas: list[int] = []
    # The leader: the next rack that has an active broker.
    position = start
    while (leader := racks[position % rack_count].active()) is None:
        position += 1
    replicas.append(leader)
    misses = 0
    while len(replicas) < replication_factor:
        position += 1
        rack = racks[position % rack_count]
        chosen = rack.next_unused(replicas, fenced=False)
        if chosen is None:
            chosen = rack.next_unused(replicas, fenced=True)
        if chosen is None:
            misses += 1
            # The factor is at most the number of brokers, so one walk over the racks finds one.
            invariant(misses <= 2 * rack_count, "ran out of brokers to place a replica on")
            continue
        misses = 0
        replicas.append(chosen)
    return tuple(replicas)
