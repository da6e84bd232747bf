"""Plots of the tables, drawn without a display. A plot is left out if its table is empty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Row = Mapping[str, Any]

_BARS_MAX = 30
_BLUE, _RED, _GREY = "#2f6fb7", "#c0302b", "#8a94a3"


def draw_all(tables: Mapping[str, Sequence[Row]], folder: Path) -> list[str]:
    """Write the PNG files. Returns their names."""
    import matplotlib

    matplotlib.use("Agg")
    folder.mkdir(parents=True, exist_ok=True)
    drawn: list[str] = []
    for name, draw in (
        ("failover_by_fault", _failover),
        ("unavailability", _unavailability),
        ("isr_churn", _churn),
        ("leader_skew", _skew),
        ("record_mix", _mix),
    ):
        rows = tables.get(name, ())
        if rows:
            draw(rows, folder / f"{name}.png")
            drawn.append(f"{name}.png")
    return drawn


def _failover(rows: Sequence[Row], path: Path) -> None:
    shown = [row for row in rows if row["p50_ms"] is not None][:_BARS_MAX]
    labels = [f"{row['fault']} ({row['role']})" for row in shown]
    series = [
        ("median", _BLUE, [row["p50_ms"] for row in shown]),
        ("95 %", _GREY, [row["p95_ms"] for row in shown]),
        ("longest", _RED, [row["max_ms"] for row in shown]),
    ]
    _bars(path, "From fault to next acknowledgement", "milliseconds", labels, series)


def _unavailability(rows: Sequence[Row], path: Path) -> None:
    worst = sorted(rows, key=lambda row: -row["longest_ms"])[:_BARS_MAX]
    labels = [f"{row['run']} / {row['partition']}" for row in worst]
    series = [("longest silence", _RED, [row["longest_ms"] for row in worst])]
    _bars(path, "Longest time without an acknowledgement", "milliseconds", labels, series)


def _churn(rows: Sequence[Row], path: Path) -> None:
    worst = list(rows)[:_BARS_MAX]
    labels = [f"{row['topic'] or row['topic_id']}-{row['partition']}" for row in worst]
    series = [
        ("shrinks", _RED, [row["shrinks"] for row in worst]),
        ("expands", _BLUE, [row["expands"] for row in worst]),
    ]
    _bars(path, "ISR changes by partition", "records", labels, series)


def _skew(rows: Sequence[Row], path: Path) -> None:
    shown = list(rows)[:_BARS_MAX]
    labels = [f"{row['run']} / {row['broker_id']}" for row in shown]
    series = [
        ("leaders", _BLUE, [row["leaders"] for row in shown]),
        ("replicas", _GREY, [row["replicas"] for row in shown]),
    ]
    _bars(path, "Leaders and replicas by broker", "partitions", labels, series)


def _mix(rows: Sequence[Row], path: Path) -> None:
    totals: dict[str, int] = {}
    for row in rows:
        totals[row["record_type"]] = totals.get(row["record_type"], 0) + row["records"]
    order = sorted(totals, key=lambda name: -totals[name])[:_BARS_MAX]
    series = [("records", _BLUE, [totals[name] for name in order])]
    _bars(path, "Record types in the metadata log", "records", order, series)


def _bars(
    path: Path,
    title: str,
    unit: str,
    labels: Sequence[str],
    series: Sequence[tuple[str, str, Sequence[float]]],
) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 1.2 + 0.24 * max(1, len(labels)) * (1 + len(series) / 3)))
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    thickness = 0.8 / len(series)
    for number, (name, colour, values) in enumerate(series):
        places = [place + number * thickness for place in range(len(labels))]
        axes.barh(places, values, thickness, label=name, color=colour)
    middle = (len(series) - 1) * thickness / 2
    axes.set_yticks([place + middle for place in range(len(labels))], labels)
    axes.invert_yaxis()
    axes.set_xlabel(unit)
    axes.set_title(title)
    if len(series) > 1:
        axes.legend()
    figure.savefig(path, dpi=110, bbox_inches="tight")
