"""Placement of new partitions' replicas: striped over brokers and racks (KRaft's striped placer).

Each partition's replicas are on distinct racks as far as possible, then on distinct machines: as
long as there are as many machines as replicas, no machine has two of a partition. Within a rack
and a machine a fenced broker is used last, and never as a leader. The active brokers of a rack stay
within one replica and one leader of each other, as long as machines leave the choice. Racks of
different sizes get equal shares, so brokers of different racks get unequal ones
(`python -m bench.placement`). Randomness only orders equals, so that the partitions of small topics
are not all on the first broker.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from kvorum.runtime.errors import ErrorCode, Rejected, required


@dataclass(frozen=True, slots=True)
class UsableBroker:
    """A broker that may have replicas.

    is_active: it may lead too.
    host: of its machine, None if that is unknown; brokers of one host fail together.
    """

    broker_id: int
    rack: str | None
    is_active: bool
    host: str | None = None


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
    racks = _racks(brokers)
    first_rack = rng.randrange(len(racks))
    active_count = sum(1 for broker in brokers if broker.is_active)
    placements: list[tuple[int, ...]] = []
    for index in range(partition_count):
        if index % active_count == 0:
            # Shuffle each time every broker has led, or the same pairs of brokers would share all
            # their partitions.
            for rack in racks:
                rack.shuffle(rng)
        placements.append(_place_one(racks, first_rack + index, replication_factor))
    return placements


_Entry = tuple[int, int, int, int]
"""An entry of a heap: two counts, the place among equals, and the broker id."""


class _Rack:
    """The brokers of one rack, active before fenced, with what each got so far.

    The broker with the fewest leaders leads next, and the one with the fewest replicas follows.
    Among equals the one with the most leaders follows, which leaves the lead to the others. So the
    brokers of a rack stay within one leader and one replica of each other.

    Both choices are heaps: a topic of 1,000 partitions on 1,000 brokers would otherwise take 0.2 s
    and more. A count that changes gets a new entry, and the old one is dropped when it is met.
    """

    def __init__(self, active: list[int], fenced: list[int], machines: Mapping[int, str]) -> None:
        """machines: of each broker."""
        self.machines = machines
        self._active = active
        self._fenced = fenced
        self._place: dict[int, int] = {}
        self._replicas: Counter[int] = Counter()
        self._leaders: Counter[int] = Counter()
        self._to_lead: list[_Entry] = []
        self._to_follow: tuple[list[_Entry], list[_Entry]] = ([], [])

    def shuffle(self, rng: random.Random) -> None:
        """Change the order among equals. Call it before the first choice."""
        rng.shuffle(self._active)
        rng.shuffle(self._fenced)
        for brokers in (self._active, self._fenced):
            self._place.update((broker_id, at) for at, broker_id in enumerate(brokers))
        self._to_lead = sorted(map(self._leading, self._active))
        self._to_follow = (
            sorted(map(self._following, self._active)),
            sorted(map(self._following, self._fenced)),
        )

    def take_leader(self) -> int | None:
        while self._to_lead:
            entry = heappop(self._to_lead)
            if entry == self._leading(entry[-1]):
                self._leaders[entry[-1]] += 1
                self._count(entry[-1], is_active=True)
                return entry[-1]
        return None

    def take_follower(self, used: Sequence[int], full: Collection[str]) -> int | None:
        """A broker that is not in `used` and whose machine is not in `full`."""
        for heap, is_active in zip(self._to_follow, (True, False), strict=True):
            passed: list[_Entry] = []
            chosen = None
            while heap and chosen is None:
                entry = heappop(heap)
                broker_id = entry[-1]
                if entry != self._following(broker_id):
                    continue
                if broker_id in used or self.machines[broker_id] in full:
                    passed.append(entry)
                else:
                    chosen = broker_id
            for entry in passed:
                heappush(heap, entry)
            if chosen is not None:
                self._count(chosen, is_active=is_active)
                return chosen
        return None

    def _count(self, broker_id: int, *, is_active: bool) -> None:
        """Count a replica more."""
        self._replicas[broker_id] += 1
        heappush(self._to_follow[0 if is_active else 1], self._following(broker_id))
        if is_active:
            heappush(self._to_lead, self._leading(broker_id))

    def _leading(self, broker_id: int) -> _Entry:
        leaders, replicas = self._leaders[broker_id], self._replicas[broker_id]
        return leaders, replicas, self._place[broker_id], broker_id

    def _following(self, broker_id: int) -> _Entry:
        leaders, replicas = self._leaders[broker_id], self._replicas[broker_id]
        return replicas, -leaders, self._place[broker_id], broker_id


def _problem(brokers: Sequence[UsableBroker], replication_factor: int) -> Rejected | None:
    code = ErrorCode.INVALID_REPLICATION_FACTOR
    if replication_factor < 1:
        return Rejected(code, f"replication factor {replication_factor} is below 1")
    if not brokers:
        return Rejected(
            code,
            "no broker takes new replicas: each shuts down, or has cordoned all its data "
            "directories (cordoned.log.dirs)",
        )
    if replication_factor > len(brokers):
        return Rejected(
            code,
            f"replication factor {replication_factor} is above the {len(brokers)} "
            "brokers to choose from",
        )
    if not any(broker.is_active for broker in brokers):
        return Rejected(code, "all brokers are fenced; none could lead")
    return None


def _racks(brokers: Sequence[UsableBroker]) -> list[_Rack]:
    # Without racks, all brokers form one rack. In a mixed cluster, brokers without a rack form one
    # of their own.
    by_rack: dict[str, tuple[list[int], list[int]]] = {}
    machines = _machines(brokers)
    for broker in sorted(brokers, key=lambda b: b.broker_id):
        active, fenced = by_rack.setdefault(broker.rack or "", ([], []))
        (active if broker.is_active else fenced).append(broker.broker_id)
    return [_Rack(*by_rack[name], machines) for name in sorted(by_rack)]


def _machines(brokers: Sequence[UsableBroker]) -> dict[int, str]:
    """A name of each broker's machine. A broker without a host has a machine of its own; if all
    have the same host, there is nothing to choose from, and each counts as one."""
    is_one = len({broker.host for broker in brokers}) == 1
    return {
        broker.broker_id: f"broker {broker.broker_id}" if is_one or not broker.host else broker.host
        for broker in brokers
    }


def _place_one(racks: list[_Rack], start: int, replication_factor: int) -> tuple[int, ...]:
    rack_count = len(racks)
    replicas: list[int] = []
    # The leader: the next rack that has an active broker.
    position = start
    while (leader := racks[position % rack_count].take_leader()) is None:
        position += 1
    replicas.append(leader)
    machines = racks[0].machines
    while len(replicas) < replication_factor:
        full = {machines[broker_id] for broker_id in replicas}
        # The factor is at most the number of brokers, so the second walk over the racks finds one.
        found = _next(racks, position, replicas, full) or _next(racks, position, replicas, ())
        position, chosen = required(found, "there are brokers to place a replica on")
        replicas.append(chosen)
    return tuple(replicas)


def _next(
    racks: list[_Rack], position: int, used: Sequence[int], full: Collection[str]
) -> tuple[int, int] | None:
    """The next rack behind `position` with a broker for a replica, and that broker."""
    for at in range(position + 1, position + len(racks) + 1):
        chosen = racks[at % len(racks)].take_follower(used, full)
        if chosen is not None:
            return at, chosen
    return None
