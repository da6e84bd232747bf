"""The faults of a run as data: what happens to whom and when, drawn from the seed beforehand.

A fault ends by itself, so that any of them can be dropped from a schedule and the rest still makes
sense: that is how a failing seed is made small (`chaos.sim.shrink`). `chaos.sim.nemesis` carries
them out. A new kind is a dataclass here, a maker in `KINDS` and a case there.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runtime.errors import ConfigError

LEADER = 0
"""In place of a node id: whoever leads the newest epoch when the fault comes, nobody if none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Crash:
    """The node stops at once and starts again after down_ms.

    is_power_cut: unsynced bytes are lost and peers hear nothing; else only the process ends, its
    written bytes stay and its connections are reset.
    """

    node_id: int
    down_ms: int
    is_power_cut: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashAll:
    """Power goes for everybody and comes back after down_ms."""

    down_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CutPowerAtDiskCall:
    """Power goes at the disk call after the next `calls` changing ones, in recovery too."""

    node_id: int
    calls: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FailFsync:
    """The next fsync of a file whose path contains path_part fails."""

    node_id: int
    path_part: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FillDisk:
    """Only room_bytes more fit on the disk for lasts_ms."""

    node_id: int
    room_bytes: int
    lasts_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FlipBits:
    """Power goes, and a byte of a batch on the disk decays: the draw-th, modulo what there is.

    is_for_good: the damaged node never comes back, if the quorum can do without it.
    """

    node_id: int
    draw: int
    mask: int
    down_ms: int
    is_for_good: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """Nothing passes between the nodes in `side` and the others for lasts_ms. LEADER counts."""

    side: tuple[int, ...]
    lasts_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockOneWay:
    """Nothing passes from sender_id to receiver_id for lasts_ms; the other way is open."""

    sender_id: int
    receiver_id: int
    lasts_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetConnections:
    """Every connection of the node breaks, and both ends hear of it."""

    node_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """The process stands still for lasts_ms (SIGSTOP); its connections stay up."""

    node_id: int
    lasts_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeClock:
    """The node's clock jumps forward by jump_ms and runs at `rate` from then on (1000: exact)."""

    node_id: int
    jump_ms: int
    rate: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HandOver:
    """The leader is asked to step down, as a clean stop does."""


Fault = (
    Crash
    | CrashAll
    | CutPowerAtDiskCall
    | FailFsync
    | FillDisk
    | FlipBits
    | Partition
    | BlockOneWay
    | ResetConnections
    | Pause
    | ChangeClock
    | HandOver
)

Make = Callable[[random.Random, Sequence[int]], Fault]
"""Draws a fault of one kind for nodes with these ids."""


def _any_node(rng: random.Random, ids: Sequence[int]) -> int:
    return LEADER if rng.random() < 0.4 else rng.choice(ids)


def _crash(rng: random.Random, ids: Sequence[int]) -> Fault:
    return Crash(
        node_id=_any_node(rng, ids),
        down_ms=rng.choice((0, 50, 500, 3_000)),
        is_power_cut=rng.random() < 0.6,
    )


def _cut_power(rng: random.Random, ids: Sequence[int]) -> Fault:
    return CutPowerAtDiskCall(node_id=_any_node(rng, ids), calls=rng.randrange(40))


def _fail_fsync(rng: random.Random, ids: Sequence[int]) -> Fault:
    part = rng.choice(("", ".log", "quorum-state", "leader-epoch"))
    return FailFsync(node_id=_any_node(rng, ids), path_part=part)


def _fill_disk(rng: random.Random, ids: Sequence[int]) -> Fault:
    return FillDisk(
        node_id=_any_node(rng, ids),
        room_bytes=rng.choice((0, 60, 500, 3_000)),
        lasts_ms=rng.choice((200, 2_000)),
    )


def _flip_bits(rng: random.Random, ids: Sequence[int]) -> Fault:
    return FlipBits(
        node_id=_any_node(rng, ids),
        draw=rng.randrange(1 << 30),
        mask=1 << rng.randrange(8),
        down_ms=rng.choice((50, 1_000)),
        is_for_good=rng.random() < 0.3,
    )


def _partition(rng: random.Random, ids: Sequence[int]) -> Fault:
    side: tuple[int, ...] = (LEADER,)
    if rng.random() < 0.7:
        side = tuple(sorted(rng.sample(ids, rng.randint(1, max(len(ids) - 1, 1)))))
    return Partition(side=side, lasts_ms=rng.choice((100, 1_000, 4_000)))


def _one_way(rng: random.Random, ids: Sequence[int]) -> Fault:
    sender, receiver = rng.sample(ids, 2) if len(ids) > 1 else (ids[0], ids[0])
    return BlockOneWay(
        sender_id=sender, receiver_id=receiver, lasts_ms=rng.choice((100, 1_000, 4_000))
    )


def _reset(rng: random.Random, ids: Sequence[int]) -> Fault:
    return ResetConnections(node_id=_any_node(rng, ids))


def _pause(rng: random.Random, ids: Sequence[int]) -> Fault:
    return Pause(node_id=_any_node(rng, ids), lasts_ms=rng.choice((50, 700, 3_000)))


def _change_clock(rng: random.Random, ids: Sequence[int]) -> Fault:
    return ChangeClock(
        node_id=_any_node(rng, ids),
        jump_ms=rng.choice((0, 100, 1_500)),
        rate=rng.randint(950, 1_050),
    )


KINDS: Mapping[str, tuple[type[Any], Make]] = {
    "crash": (Crash, _crash),
    "crash-all": (CrashAll, lambda rng, _: CrashAll(down_ms=rng.choice((0, 500)))),
    "cut-power": (CutPowerAtDiskCall, _cut_power),
    "fail-fsync": (FailFsync, _fail_fsync),
    "fill-disk": (FillDisk, _fill_disk),
    "flip-bits": (FlipBits, _flip_bits),
    "partition": (Partition, _partition),
    "one-way": (BlockOneWay, _one_way),
    "reset": (ResetConnections, _reset),
    "pause": (Pause, _pause),
    "clock": (ChangeClock, _change_clock),
    "hand-over": (HandOver, lambda _rng, _ids: HandOver()),
}
"""Every kind of fault by its name in JSON and in summaries."""

_NAMES = {fault_type: name for name, (fault_type, _) in KINDS.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledFault:
    """A fault and the virtual time at which it comes."""

    at_ms: int
    fault: Fault


def kind_of(fault: Fault) -> str:
    """The fault's name."""
    return _NAMES[type(fault)]


def draw_schedule(
    rng: random.Random,
    *,
    node_ids: Sequence[int],
    kinds: Sequence[str],
    duration_ms: int,
    interval_ms: int,
) -> tuple[ScheduledFault, ...]:
    """Faults of these kinds, one every interval_ms on average, none for no kinds."""
    schedule: list[ScheduledFault] = []
    at_ms = rng.randint(1, 2 * interval_ms)
    while kinds and at_ms < duration_ms:
        _, make = KINDS[rng.choice(kinds)]
        schedule.append(ScheduledFault(at_ms=at_ms, fault=make(rng, node_ids)))
        at_ms += rng.randint(1, 2 * interval_ms)
    return tuple(schedule)


def to_json(scheduled: ScheduledFault) -> dict[str, Any]:
    """A flat object: at_ms, kind and the fault's own fields."""
    fields = dataclasses.asdict(scheduled.fault)
    return {"at_ms": scheduled.at_ms, "kind": kind_of(scheduled.fault), **fields}


def from_json(data: Mapping[str, Any]) -> ScheduledFault:
    """The inverse of `to_json`. Raises ConfigError naming what is wrong."""
    fields = dict(data)
    try:
        at_ms, kind = int(fields.pop("at_ms")), fields.pop("kind")
        fault_type, _ = KINDS[kind]
        if "side" in fields:
            fields["side"] = tuple(fields["side"])
        return ScheduledFault(at_ms=at_ms, fault=fault_type(**fields))
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"not a fault of the simulator: {dict(data)} ({error!r})") from error
