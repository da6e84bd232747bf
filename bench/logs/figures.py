"""The figures of `python -m bench.logs`, their goals, and the Markdown that shows them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench.figures import Figure, Goal, summarize
from bench.table import markdown_table, number, range_text

HEADINGS = ("figure", "unit", "Kvorum", "goal", "")

IDLE = "idle"
STARTS = "starts"


def _most(key: str, group: str, title: str, unit: str, bound: float) -> Figure:
    goal = Goal(bound=bound, is_ratio=False, is_floor=False)
    return Figure(key=key, group=group, title=title, unit=unit, goal=goal)


FIGURES: tuple[Figure, ...] = (
    _most(
        "idle_percent",
        IDLE,
        "CPU of a broker with 3,000 idle partitions, the busiest",
        "% of a core",
        2,
    ),
    _most("idle_files", IDLE, "their files, made or open, before a first record", "files", 0),
    _most("idle_restart_s", IDLE, "it restarts after SIGTERM, until it is ready", "s", 1),
    _most("idle_in_sync_s", IDLE, "until it is in sync in all of them", "s", 1),
    _most("clean_restart_s", STARTS, "10 GB of logs, restart after SIGTERM, until ready", "s", 1),
    _most("clean_read_mb", STARTS, "read of them meanwhile", "MB", 1),
    _most(
        "unclean_read_ratio",
        STARTS,
        "restart after kill -9: read, for each byte past the recovery point",
        "B",
        1.1,
    ),
    _most("unclean_restart_s", STARTS, "that restart, until ready", "s", 2),
)


def rows(
    samples: Mapping[str, Sequence[float]], failures: Mapping[str, str]
) -> list[tuple[str, ...]]:
    """A row for HEADINGS for each figure with a sample or a failure. failures: group to reason."""
    found: list[tuple[str, ...]] = []
    for figure in FIGURES:
        taken = summarize(samples.get(figure.key, ()))
        has_failed = figure.group in failures
        if taken is None and not has_failed:
            continue
        # If a figure failed even once, its goal must not count as met.
        is_met = taken is not None and not has_failed and figure.goal.is_met(taken.median, None)
        found.append(
            (
                figure.title,
                figure.unit,
                range_text(taken) + (", failed once or more" if has_failed else ""),
                figure.goal.text(),
                "met" if is_met else "missed",
            )
        )
    return found


def markdown(
    *,
    machine: Mapping[str, str],
    method: Sequence[str],
    table: Sequence[tuple[str, ...]],
    failures: Mapping[str, str],
) -> str:
    """The whole of bench/logs.md."""
    parts = [
        "# Logs at rest and at a start",
        "Written by `python -m bench.logs`; do not edit. Cells are median (least-most).",
        markdown_table(table, HEADINGS),
    ]
    if failures:
        lines = [f"- {group}: {why}" for group, why in failures.items()]
        parts += ["## Failed", "\n".join(lines)]
    parts += ["## Machine", markdown_table(list(machine.items()), ("what", "value"))]
    parts += ["## Method", "\n".join(f"- {line}" for line in method)]
    return "\n\n".join(parts) + "\n"


def unclean_read_ratio(read_mb: float, past_mb: float) -> float:
    """Bytes that a start read for each byte above the recovery point."""
    if past_mb <= 0:
        raise ValueError(f"{number(past_mb)} MB past the recovery point: nothing to recover")
    return read_mb / past_mb
