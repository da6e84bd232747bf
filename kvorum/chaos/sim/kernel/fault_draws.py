"""Draws the faults of a schedule, by the name of each draw.

A draw of the quorum's faults targets any node by its id, or the active controller. A draw of the
brokers' faults targets brokers by number, modulo their count. `schedule` makes schedules of the
drawn faults, and the worlds' nemeses carry them out.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

from kvorum.chaos.faults import (
    MEANS,
    MOMENTS,
    OPERATIONS,
    AddVoter,
    ChangeClock,
    CutLink,
    CutPower,
    CutPowerAtDiskCall,
    FailDiskCall,
    Fault,
    FillDisk,
    FlapLink,
    FlipBits,
    HandOver,
    KillNode,
    MoveListener,
    NetworkPartition,
    PartitionThenPowerCut,
    PauseNode,
    RemoveVoter,
    ResetConnections,
    StopNode,
    StrikeOperation,
    TakeSnapshot,
    TwoChanges,
    WipeDisk,
)
from kvorum.chaos.targets import Target, TargetKind

Draw = Callable[[random.Random, Sequence[int]], Fault]
"""Draws a fault of one kind for nodes with these ids."""

ACTIVE_CONTROLLER = Target(kind=TargetKind.ACTIVE_CONTROLLER)
"""The leader of the newest epoch when the fault begins; no node if there is no leader."""

ALL = Target(kind=TargetKind.ALL)
BROKERS = Target(kind=TargetKind.BROKERS)

LOG_PARTS = (".log", ".index", "leader-epoch", "checkpoint", "partition.metadata", "t0", "t1", "")
"""Parts of the paths on a broker's disk whose calls fail."""


def nodes(*node_ids: int) -> Target:
    """The nodes with these ids."""
    return Target(kind=TargetKind.NODE, nodes=tuple(f"node-{node_id}" for node_id in node_ids))


def brokers(*numbers: int) -> Target:
    """The brokers with these numbers, from 0, modulo the number of brokers."""
    return Target(kind=TargetKind.NODE, nodes=tuple(f"broker-{number}" for number in numbers))


# Faults of any node.


def _any_node(rng: random.Random, ids: Sequence[int]) -> Target:
    return ACTIVE_CONTROLLER if rng.random() < 0.4 else nodes(rng.choice(ids))


def _end_of(target: Target, duration_ms: int, *, is_power_cut: bool) -> Fault:
    if is_power_cut:
        return CutPower(target=target, duration_ms=duration_ms)
    return KillNode(target=target, duration_ms=duration_ms)


def _crash(rng: random.Random, ids: Sequence[int]) -> Fault:
    target, duration_ms = _any_node(rng, ids), rng.choice((0, 50, 500, 3_000))
    return _end_of(target, duration_ms, is_power_cut=rng.random() < 0.6)


def _crash_all(rng: random.Random, _: Sequence[int]) -> Fault:
    return CutPower(target=ALL, duration_ms=rng.choice((0, 500)))


def _cut_power(rng: random.Random, ids: Sequence[int]) -> Fault:
    return CutPowerAtDiskCall(target=_any_node(rng, ids), calls=rng.randrange(40))


def _fail_disk(rng: random.Random, ids: Sequence[int]) -> Fault:
    return FailDiskCall(
        target=_any_node(rng, ids),
        path_part=rng.choice(("", ".log", "quorum-state", "leader-epoch", ".checkpoint")),
        operation=rng.choice(("sync", "sync", "sync", "sync_dir", "write", "rename", "remove")),
    )


def _fill_disk(rng: random.Random, ids: Sequence[int]) -> Fault:
    return FillDisk(
        target=_any_node(rng, ids),
        room_bytes=rng.choice((0, 60, 500, 3_000)),
        duration_ms=rng.choice((200, 2_000)),
    )


def _flip_bits(rng: random.Random, ids: Sequence[int]) -> Fault:
    return FlipBits(
        target=_any_node(rng, ids),
        draw=rng.randrange(1 << 30),
        mask=1 << rng.randrange(8),
        duration_ms=rng.choice((50, 1_000)),
        is_for_good=rng.random() < 0.3,
    )


def _partition(rng: random.Random, ids: Sequence[int]) -> Fault:
    side = ACTIVE_CONTROLLER
    if rng.random() < 0.7:
        side = nodes(*sorted(rng.sample(ids, rng.randint(1, max(len(ids) - 1, 1)))))
    return NetworkPartition(target=side, away_from=ALL, duration_ms=rng.choice((100, 1_000, 4_000)))


def _cut_off(rng: random.Random, _: Sequence[int]) -> Fault:
    return PartitionThenPowerCut(
        duration_ms=rng.choice((300, 1_200, 2_500)), down_ms=rng.choice((0, 100))
    )


def _one_way(rng: random.Random, ids: Sequence[int]) -> Fault:
    sender, receiver = rng.sample(ids, 2) if len(ids) > 1 else (ids[0], ids[0])
    return CutLink(
        source=nodes(sender),
        destination=nodes(receiver),
        duration_ms=rng.choice((100, 1_000, 4_000)),
    )


def _reset(rng: random.Random, ids: Sequence[int]) -> Fault:
    return ResetConnections(target=_any_node(rng, ids))


def _pause(rng: random.Random, ids: Sequence[int]) -> Fault:
    return PauseNode(target=_any_node(rng, ids), duration_ms=rng.choice((50, 700, 3_000)))


def _change_clock(rng: random.Random, ids: Sequence[int]) -> Fault:
    return ChangeClock(
        target=_any_node(rng, ids),
        jump_ms=rng.choice((0, 100, 1_500)),
        rate=rng.randint(950, 1_050),
    )


def _hand_over(_rng: random.Random, _ids: Sequence[int]) -> Fault:
    return HandOver()


def _take_snapshot(rng: random.Random, ids: Sequence[int]) -> Fault:
    return TakeSnapshot(target=_any_node(rng, ids))


def _add_voter(rng: random.Random, ids: Sequence[int]) -> Fault:
    return AddVoter(target=nodes(rng.choice(ids)))


def _remove_voter(rng: random.Random, ids: Sequence[int]) -> Fault:
    return RemoveVoter(target=_any_node(rng, ids))


def _two_changes(rng: random.Random, ids: Sequence[int]) -> Fault:
    return TwoChanges(added=nodes(rng.choice(ids)), removed=_any_node(rng, ids))


def _wipe_disk(rng: random.Random, ids: Sequence[int]) -> Fault:
    return WipeDisk(target=_any_node(rng, ids), duration_ms=rng.choice((0, 50, 1_000)))


def _move_listener(rng: random.Random, ids: Sequence[int]) -> Fault:
    return MoveListener(target=_any_node(rng, ids))


# Faults of operations and brokers.


def _strike(rng: random.Random, _: Sequence[int]) -> Fault:
    return StrikeOperation(
        operation=rng.choice(OPERATIONS),
        moment=rng.choice(MOMENTS),
        means=rng.choice(MEANS),
        duration_ms=rng.choice((100, 700, 2_000)),
    )


def _stop_broker(rng: random.Random, _: Sequence[int]) -> Fault:
    return StopNode(target=brokers(rng.randrange(8)), duration_ms=rng.choice((0, 200, 1_500)))


def _crash_broker(rng: random.Random, _: Sequence[int]) -> Fault:
    target, duration_ms = brokers(rng.randrange(8)), rng.choice((0, 50, 500, 3_000))
    return _end_of(target, duration_ms, is_power_cut=rng.random() < 0.4)


def _wipe_broker(rng: random.Random, _: Sequence[int]) -> Fault:
    return WipeDisk(target=brokers(rng.randrange(8)), duration_ms=rng.choice((0, 500)))


def _flap(rng: random.Random, _: Sequence[int]) -> Fault:
    number = rng.choice((-1, 0, 1, 2, 3))
    target = BROKERS if number < 0 else brokers(number)
    return FlapLink(target=target, duration_ms=rng.choice((500, 2_000, 5_000)))


# Faults of brokers with logs.


def _crash_brokers(rng: random.Random, _: Sequence[int]) -> Fault:
    return CutPower(
        target=brokers(*rng.sample(range(4), rng.choice((2, 2, 3, 4)))),
        duration_ms=rng.choice((0, 300, 2_000)),
        apart_ms=rng.choice((0, 200, 1_500)),
    )


def _isolate_broker(rng: random.Random, _: Sequence[int]) -> Fault:
    target, duration_ms = brokers(rng.randrange(8)), rng.choice((300, 1_500, 4_000))
    away_from = BROKERS if rng.random() < 0.5 else ALL
    return NetworkPartition(target=target, away_from=away_from, duration_ms=duration_ms)


def _cut_power_of_broker(rng: random.Random, _: Sequence[int]) -> Fault:
    return CutPowerAtDiskCall(target=brokers(rng.randrange(8)), calls=rng.randrange(60))


def _fail_broker_disk(rng: random.Random, _: Sequence[int]) -> Fault:
    return FailDiskCall(
        target=brokers(rng.randrange(8)),
        path_part=rng.choice(LOG_PARTS),
        operation=rng.choice(("sync", "sync", "write", "write", "rename", "remove", "truncate")),
    )


def _pause_broker(rng: random.Random, _: Sequence[int]) -> Fault:
    return PauseNode(target=brokers(rng.randrange(8)), duration_ms=rng.choice((100, 1_000, 3_000)))


CRASH_ALL = "crash-all"

QUORUM_DRAWS: Mapping[str, Draw] = {
    "crash": _crash,
    CRASH_ALL: _crash_all,
    "cut-power": _cut_power,
    "fail-disk": _fail_disk,
    "fill-disk": _fill_disk,
    "flip-bits": _flip_bits,
    "partition": _partition,
    "cut-off": _cut_off,
    "one-way": _one_way,
    "reset": _reset,
    "pause": _pause,
    "clock": _change_clock,
    "hand-over": _hand_over,
    "take-snapshot": _take_snapshot,
    "add-voter": _add_voter,
    "remove-voter": _remove_voter,
    "two-changes": _two_changes,
    "wipe-disk": _wipe_disk,
    "move-listener": _move_listener,
}
"""Draws that every world supports."""

VOTER_DRAWS = frozenset({"add-voter", "remove-voter", "two-changes", "wipe-disk", "move-listener"})
"""The draws that need dynamic voters."""

CONTROLLER_DRAWS: Mapping[str, Draw] = {
    "strike-operation": _strike,
    "stop-broker": _stop_broker,
    "crash-broker": _crash_broker,
    "wipe-broker": _wipe_broker,
    "flap-link": _flap,
}
"""Draws for a world with controllers and brokers."""

PARTITION_DRAWS: Mapping[str, Draw] = {
    "crash-brokers": _crash_brokers,
    "isolate-broker": _isolate_broker,
    "cut-power-of-broker": _cut_power_of_broker,
    "fail-broker-disk": _fail_broker_disk,
    "pause-broker": _pause_broker,
}
"""Draws for a world with the logs of partitions."""

DRAWS: Mapping[str, Draw] = {**QUORUM_DRAWS, **CONTROLLER_DRAWS, **PARTITION_DRAWS}
"""Every draw by its name in schedules and summaries."""
