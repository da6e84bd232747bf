"""Makes tables of samples: the terminal's and bench/results.md. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.figures import FIGURES, KAFKA, KVORUM, Figure, Summary, ratio_of, summarize

#: side -> figure key -> samples, one for each round.
Samples = Mapping[str, Mapping[str, Sequence[float]]]

HEADINGS = ("figure", "unit", "Apache Kafka 4.4", "Kvorum", "Kvorum / Kafka", "goal", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRow:
    """One process of one side; values are medians over the rounds."""

    side: str
    name: str
    resident_mb: float | None
    idle_cpu_percent: float | None


def number(value: float) -> str:
    """Three significant digits, and never an exponent."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    if abs(value) >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if abs(value) >= 0.1 else f"{value:.3f}"


def range_text(summary: Summary | None) -> str:
    """`median (minimum-maximum)`, the bare value of a single sample, or a dash."""
    if summary is None:
        return "-"
    if summary.count == 1:
        return number(summary.median)
    return f"{number(summary.median)} ({number(summary.least)}-{number(summary.most)})"


def table_rows(
    samples: Samples,
    failures: Mapping[tuple[str, str], str],
    figures: Sequence[Figure] = FIGURES,
) -> list[tuple[str, ...]]:
    """A row for each figure with a sample or a failure, in their order.

    failures: (side, group) to the reason of the first failure of that group.
    """
    rows = []
    for figure in figures:
        summaries = {
            side: summarize(samples.get(side, {}).get(figure.key, ())) for side in (KAFKA, KVORUM)
        }
        has_failed = any((side, figure.group) in failures for side in (KAFKA, KVORUM))
        if has_failed or any(summary is not None for summary in summaries.values()):
            rows.append(_row(figure, summaries, failures))
    return rows


def _row(
    figure: Figure,
    summaries: Mapping[str, Summary | None],
    failures: Mapping[tuple[str, str], str],
) -> tuple[str, ...]:
    kafka, kvorum = summaries[KAFKA], summaries[KVORUM]
    kafka_median = None if kafka is None else kafka.median
    ratio = ratio_of(None if kvorum is None else kvorum.median, kafka_median)
    verdict = None if kvorum is None else figure.goal.is_met(kvorum.median, kafka_median)
    # If a figure of Kvorum failed even once, its goal must not count as met.
    if (KVORUM, figure.group) in failures:
        verdict = False
    return (
        figure.title,
        figure.unit,
        _cell(kafka, (KAFKA, figure.group) in failures),
        _cell(kvorum, (KVORUM, figure.group) in failures),
        "-" if ratio is None else f"{number(ratio)}x",
        figure.goal.text(),
        {True: "met", False: "missed", None: ""}[verdict],
    )


def _cell(summary: Summary | None, has_failed: bool) -> str:
    if not has_failed:
        return range_text(summary)
    return "failed" if summary is None else f"{range_text(summary)}, failed once or more"


def plain_table(rows: Sequence[tuple[str, ...]], headings: Sequence[str] = HEADINGS) -> str:
    """Columns padded with spaces, for a terminal."""
    lines = [tuple(headings), *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(headings))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def markdown_table(rows: Sequence[tuple[str, ...]], headings: Sequence[str] = HEADINGS) -> str:
    """The same as a Markdown table."""
    lines = [tuple(headings), ("---",) * len(headings), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


PROCESS_HEADINGS = ("side", "process", "resident MB after load", "idle CPU, % of a core")


def process_table_rows(rows: Sequence[ProcessRow]) -> list[tuple[str, ...]]:
    """Rows for PROCESS_HEADINGS."""
    return [
        (
            row.side,
            row.name,
            "-" if row.resident_mb is None else number(row.resident_mb),
            "-" if row.idle_cpu_percent is None else number(row.idle_cpu_percent),
        )
        for row in rows
    ]


def results_markdown(
    *,
    machine: Mapping[str, str],
    method: Sequence[str],
    rows: Sequence[tuple[str, ...]],
    processes: Sequence[ProcessRow],
    failures: Mapping[tuple[str, str], str],
    notes: Sequence[str],
) -> str:
    """The whole of bench/results.md."""
    parts = [
        "# Kvorum beside Apache Kafka 4.4",
        "Written by `make bench`; do not edit. Cells are median (least-most) over the rounds. "
        "Absolute figures move by tens of per cent from run to run: read the ratios. "
        "The quorum beside etcd: [quorum.md](quorum.md). Over TLS: [tls.md](tls.md).",
        markdown_table(rows),
    ]
    if failures:
        parts.append("## Failed")
        parts.append(
            "\n".join(f"- {side}, {group}: {why}" for (side, group), why in failures.items())
        )
    if notes:
        parts += ["## Seen during the run", "\n".join(f"- {note}" for note in notes)]
    if processes:
        parts += ["## Processes", markdown_table(process_table_rows(processes), PROCESS_HEADINGS)]
    parts += ["## Machine", markdown_table(list(machine.items()), ("what", "value"))]
    parts += ["## Method", "\n".join(f"- {line}" for line in method)]
    return "\n\n".join(parts) + "\n"
