"""The quorum's figures, their goals, and the Markdown that shows them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.figures import Goal, ratio_of, summarize
from bench.table import markdown_table, number, range_text

ETCD = "etcd"
KVORUM = "kvorum"
SIDES = (ETCD, KVORUM)
SIZES = (10, 10_000, 100_000)
"""Numbers of partitions for the figures of fail-over."""

HEADINGS = ("figure", "unit", "etcd", "Kvorum", "Kvorum / etcd", "goal", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumFigure:
    """A line of the table. goal: None for a figure that is only reported."""

    key: str
    group: str
    title: str
    unit: str
    goal: Goal | None = None


def _figure(key: str, group: str, title: str, unit: str, goal: Goal | None = None) -> QuorumFigure:
    return QuorumFigure(key=key, group=group, title=title, unit=unit, goal=goal)


def _most(bound: float) -> Goal:
    return Goal(bound=bound, is_ratio=False, is_floor=False)


def _least(bound: float) -> Goal:
    return Goal(bound=bound, is_ratio=False, is_floor=True)


def _of_size(size: int) -> tuple[QuorumFigure, ...]:
    name = f"{size:,} partitions"
    return (
        _figure(
            f"gap_{size}_s",
            f"partitions-{size}",
            f"gap in topic creation, kill -9 of the active controller, {name}",
            "s",
            _most(0.3),
        ),
        _figure(
            f"resident_{size}_mb",
            f"partitions-{size}",
            f"resident memory, largest controller, {name}",
            "MB",
            _most(60 if size < 100_000 else 250),
        ),
        _figure(
            f"idle_{size}_percent",
            f"partitions-{size}",
            f"idle CPU, busiest controller, {name}",
            "% of a core",
            _most(1) if size == SIZES[0] else None,
        ),
    )


FIGURES: tuple[QuorumFigure, ...] = (
    _figure("sequential_per_s", "commits", "commits, one writer", "1/s", _least(750)),
    _figure("sequential_p50_ms", "commits", "its latency, p50", "ms"),
    _figure("sequential_p99_ms", "commits", "its latency, p99", "ms"),
    _figure("stream_per_s", "commits", "commits, 500 writers on one stream", "1/s", _least(12_000)),
    _figure("stream_p50_ms", "commits", "their latency, p50", "ms"),
    _figure("stream_p99_ms", "commits", "their latency, p99", "ms"),
    _figure(
        "connections_per_s",
        "commits",
        "commits, 500 writers on 100 connections",
        "1/s",
        _least(8_288),
    ),
    _figure("connections_p50_ms", "commits", "their latency, p50", "ms"),
    _figure("connections_p99_ms", "commits", "their latency, p99", "ms"),
    _figure("kill_s", "gaps", "gap in writes, kill -9 of the leader", "s", _most(0.3)),
    _figure("hang_s", "gaps", "gap in writes, SIGSTOP of the leader", "s", _most(1.5)),
    _figure(
        "vanish_s", "vanish", "gap in writes, all packets of the leader vanish", "s", _most(1.5)
    ),
    _figure("idle_percent", "idle", "idle CPU, busiest member", "% of a core", _most(1)),
    _figure("resident_mb", "idle", "resident memory when idle, largest member", "MB", _most(60)),
    *(figure for size in SIZES for figure in _of_size(size)),
    _figure(
        "heartbeats_percent",
        "brokers",
        "CPU of the active controller, heartbeats of 1,000 brokers",
        "% of a core",
        _most(50),
    ),
    _figure(
        "fence_s",
        "brokers",
        "kill -9 of a broker that leads 10,000 partitions: all lead elsewhere",
        "s",
        _most(1),
    ),
    _figure("write_s", "pauses", "100,000 partitions: snapshot written", "s", _most(1)),
    _figure("write_pause_ms", "pauses", "longest pause of the loop meanwhile", "ms", _most(20)),
    _figure("load_s", "pauses", "100,000 partitions: snapshot loaded", "s", _most(1)),
    _figure("load_pause_ms", "pauses", "longest pause of the loop meanwhile", "ms", _most(20)),
    _figure(
        "fence_pause_ms",
        "pauses",
        "100,000 partitions: pause of the loop to fence one of three brokers",
        "ms",
        _most(20),
    ),
)

GROUPS: tuple[str, ...] = tuple(dict.fromkeys(figure.group for figure in FIGURES))

#: side -> figure key -> samples.
Samples = Mapping[str, Mapping[str, Sequence[float]]]
#: (side, group) -> the reason of the first failure.
Failures = Mapping[tuple[str, str], str]


def rows(samples: Samples, failures: Failures) -> list[tuple[str, ...]]:
    """A row for HEADINGS for each figure with a sample or a failure."""
    found = []
    for figure in FIGURES:
        taken = {side: summarize(samples.get(side, {}).get(figure.key, ())) for side in SIDES}
        failed = {side for side in SIDES if (side, figure.group) in failures}
        if not failed and not any(taken.values()):
            continue
        cells = [
            range_text(taken[side]) + (", failed once or more" if side in failed else "")
            for side in SIDES
        ]
        medians = [None if (one := taken[side]) is None else one.median for side in SIDES]
        ratio = ratio_of(medians[1], medians[0])
        found.append(
            (
                figure.title,
                figure.unit,
                *cells,
                "-" if ratio is None else f"{number(ratio)}x",
                "" if figure.goal is None else figure.goal.text(),
                _verdict(figure.goal, medians[1], KVORUM in failed),
            )
        )
    return found


def _verdict(goal: Goal | None, median: float | None, has_failed: bool) -> str:
    if goal is None:
        return ""
    # If a figure failed even once, its goal must not count as met.
    if has_failed:
        return "missed"
    if median is None:
        return ""
    return "met" if goal.is_met(median, None) else "missed"


def markdown(
    *,
    machine: Mapping[str, str],
    method: Sequence[str],
    table: Sequence[tuple[str, ...]],
    failures: Failures,
) -> str:
    """The whole of bench/quorum.md."""
    parts = [
        "# The quorum beside etcd",
        "Written by `python -m bench.quorum`; do not edit. Cells are median (least-most). Absolute "
        "figures move by tens of per cent from run to run: read the ratios.",
        markdown_table(table, HEADINGS),
    ]
    if failures:
        lines = [f"- {side}, {group}: {why}" for (side, group), why in failures.items()]
        parts += ["## Failed", "\n".join(lines)]
    parts += ["## Machine", markdown_table(list(machine.items()), ("what", "value"))]
    parts += ["## Method", "\n".join(f"- {line}" for line in method)]
    return "\n\n".join(parts) + "\n"
