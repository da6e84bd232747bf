"""Draws faults from the seed, and writes them as JSON and back."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kvorum.chaos.sim.controller.faults import CONTROLLER_KINDS
from kvorum.chaos.sim.faults import (
    LEADER,
    AddVoter,
    AnyFault,
    BlockOneWay,
    ChangeClock,
    Crash,
    CrashAll,
    CutOff,
    CutPowerAtDiskCall,
    FailDisk,
    Fault,
    FillDisk,
    FlipBits,
    HandOver,
    MoveListener,
    Partition,
    Pause,
    RemoveVoter,
    ResetConnections,
    ScheduledFault,
    TakeSnapshot,
    TwoChanges,
    WipeDisk,
)
from kvorum.chaos.sim.partitions.faults import PARTITION_KINDS
from kvorum.runtime.errors import ConfigError

Make = Callable[[random.Random, Sequence[int]], AnyFault]
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


def _fail_disk(rng: random.Random, ids: Sequence[int]) -> Fault:
    return FailDisk(
        node_id=_any_node(rng, ids),
        path_part=rng.choice(("", ".log", "quorum-state", "leader-epoch", ".checkpoint")),
        operation=rng.choice(("sync", "sync", "sync", "sync_dir", "write", "rename", "remove")),
    )


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


def _cut_off(rng: random.Random, _: Sequence[int]) -> Fault:
    return CutOff(lasts_ms=rng.choice((300, 1_200, 2_500)), down_ms=rng.choice((0, 100)))


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


def _take_snapshot(rng: random.Random, ids: Sequence[int]) -> Fault:
    return TakeSnapshot(node_id=_any_node(rng, ids))


def _add_voter(rng: random.Random, ids: Sequence[int]) -> Fault:
    return AddVoter(node_id=rng.choice(ids))


def _remove_voter(rng: random.Random, ids: Sequence[int]) -> Fault:
    return RemoveVoter(node_id=_any_node(rng, ids))


def _two_changes(rng: random.Random, ids: Sequence[int]) -> Fault:
    return TwoChanges(added_id=rng.choice(ids), removed_id=_any_node(rng, ids))


def _wipe_disk(rng: random.Random, ids: Sequence[int]) -> Fault:
    return WipeDisk(node_id=_any_node(rng, ids), down_ms=rng.choice((0, 50, 1_000)))


def _move_listener(rng: random.Random, ids: Sequence[int]) -> Fault:
    return MoveListener(node_id=_any_node(rng, ids))


KINDS: Mapping[str, tuple[type[Any], Make]] = {
    "crash": (Crash, _crash),
    "crash-all": (CrashAll, lambda rng, _: CrashAll(down_ms=rng.choice((0, 500)))),
    "cut-power": (CutPowerAtDiskCall, _cut_power),
    "fail-disk": (FailDisk, _fail_disk),
    "fill-disk": (FillDisk, _fill_disk),
    "flip-bits": (FlipBits, _flip_bits),
    "partition": (Partition, _partition),
    "cut-off": (CutOff, _cut_off),
    "one-way": (BlockOneWay, _one_way),
    "reset": (ResetConnections, _reset),
    "pause": (Pause, _pause),
    "clock": (ChangeClock, _change_clock),
    "hand-over": (HandOver, lambda _rng, _ids: HandOver()),
    "take-snapshot": (TakeSnapshot, _take_snapshot),
    "add-voter": (AddVoter, _add_voter),
    "remove-voter": (RemoveVoter, _remove_voter),
    "two-changes": (TwoChanges, _two_changes),
    "wipe-disk": (WipeDisk, _wipe_disk),
    "move-listener": (MoveListener, _move_listener),
}
"""Every kind of fault by its name in JSON and in summaries."""

VOTER_KINDS = frozenset({"add-voter", "remove-voter", "two-changes", "wipe-disk", "move-listener"})
"""Those that need dynamic voters."""

_ALL: Mapping[str, tuple[type[Any], Make]] = {**KINDS, **CONTROLLER_KINDS, **PARTITION_KINDS}
_NAMES = {fault_type: name for name, (fault_type, _) in _ALL.items()}


def kind_of(fault: AnyFault) -> str:
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
        _, make = _ALL[rng.choice(kinds)]
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
        fault_type, _ = _ALL[kind]
        for name, value in fields.items():
            if isinstance(value, list):
                fields[name] = tuple(value)
        return ScheduledFault(at_ms=at_ms, fault=fault_type(**fields))
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"not a fault of the simulator: {dict(data)} ({error!r})") from error
