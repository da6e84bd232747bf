"""Plots of the tables, drawn without a display. A plot is left out if it would show nothing."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]
Rows = Mapping[str, Sequence[Row]]

_LINES_MAX = 24
_BLUE, _RED, _GREY, _GREEN, _AMBER = "#2f6fb7", "#c0302b", "#8a94a3", "#3a8f5c", "#c98a1b"
_COLOURS = (_BLUE, _AMBER, _GREEN, _RED)


def draw_all(tables: Rows, faults: Sequence[Row]) -> dict[str, bytes]:
    """File name -> PNG. faults: the rows of the lake's table, for the time line."""
    import matplotlib

    matplotlib.use("Agg")
    drawn: dict[str, bytes] = {}
    plots: tuple[tuple[str, Callable[[], Any]], ...] = (
        ("failover", lambda: _failover(tables.get("recoveries", ()))),
        ("split", lambda: _split(tables.get("failover_by_fault", ()))),
        ("timeline", lambda: _timeline(tables.get("silences", ()), faults)),
        ("latency", lambda: _latency(tables.get("latency_by_fault", ()))),
        ("churn", lambda: _churn(tables.get("isr_churn", ()))),
        ("skew", lambda: _skew(tables.get("broker_skew", ()))),
        ("record_mix", lambda: _mix(tables.get("record_mix", ()))),
        ("duels", lambda: _duels(tables.get("duels", ()))),
    )
    for name, draw in plots:
        figure = draw()
        if figure is not None:
            content = io.BytesIO()
            figure.savefig(content, dpi=110, bbox_inches="tight")
            drawn[f"{name}.png"] = content.getvalue()
    return drawn


def _axes(lines: int, title: str, unit: str) -> tuple[Any, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 1.3 + 0.34 * max(2, lines)))
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.set_title(title, loc="left", fontsize=11)
    axes.set_xlabel(unit)
    axes.grid(axis="x", color="#e3e6ea")
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)
    return figure, axes


def _label(axes: Any, labels: Sequence[str]) -> None:
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.4, -0.6)


def _failover(recoveries: Sequence[Row]) -> Any:
    """Every recovery of a led partition, and of the administration, as a dot; the median of each
    kind of fault as a bar."""
    groups: dict[str, list[float]] = {}
    for row in recoveries:
        is_apart = row["continued_ms"] > 0 and row["unavailable_ms"] == 0
        if row["role"] != "other" and not is_apart:
            name = f"{row['system']}: {row['fault']} ({row['role']})"
            groups.setdefault(name, []).append(float(row["unavailable_ms"]))
    shown = {name: sorted(values) for name, values in sorted(groups.items()) if any(values)}
    if not shown:
        return None
    names = list(shown)[:_LINES_MAX]
    figure, axes = _axes(len(names), "Unavailable after a fault, each dot a partition", "ms")
    axes.set_xscale("symlog", linthresh=100)
    for line, name in enumerate(names):
        values = shown[name]
        spread = [line + 0.25 * ((7 * n) % 11 - 5) / 5 for n in range(len(values))]
        axes.plot(values, spread, ".", color=_BLUE, alpha=0.5, markersize=5)
        axes.vlines(values[(len(values) - 1) // 2], line - 0.35, line + 0.35, color=_RED, lw=2)
    _label(axes, names)
    axes.set_xlim(left=0)
    return figure


def _split(rows: Sequence[Row]) -> Any:
    """The stages of the median, from the fault to the end of the longest silence."""
    shown = [
        row
        for row in rows
        if row["role"] == "led" and row["ack_p50_ms"] and row["elect_p50_ms"] is not None
    ][:_LINES_MAX]
    if not shown:
        return None
    figure, axes = _axes(
        len(shown), "From a leader's fault to the end of the longest silence", "ms"
    )
    stages = (
        ("fence", "fenced", _GREY),
        ("elect", "elected", _BLUE),
        ("ack", "end of the longest silence", _GREEN),
    )
    for _, words, colour in stages:
        axes.barh(0, 0, color=colour, label=words)
    for line, row in enumerate(shown):
        before = 0.0
        for key, _, colour in stages:
            at = row[f"{key}_p50_ms"]
            if at is not None and at > before:
                axes.barh(line, at - before, 0.55, left=before, color=colour)
                before = float(at)
    _label(axes, [f"{row['system']} {row['version'] or ''}: {row['fault']}" for row in shown])
    axes.legend(frameon=False, fontsize=9)
    return figure


def _timeline(silences: Sequence[Row], faults: Sequence[Row]) -> Any:
    """The silences of the run with the longest one, over its faults."""
    counted = [row for row in silences if row["length_ms"] is not None]
    if not counted:
        return None
    run_id = max(counted, key=lambda row: float(row["length_ms"]))["run_id"]
    own = [row for row in counted if row["run_id"] == run_id]
    total: dict[str, float] = {}
    for row in own:
        name = f"{row['topic']}/{row['partition']}" if row["partition"] >= 0 else row["topic"]
        total[name] = total.get(name, 0.0) + float(row["length_ms"])
    names = sorted(sorted(total, key=lambda name: -total[name])[:_LINES_MAX])
    figure, axes = _axes(len(names), f"Silences of run {run_id}, over its faults", "s of the run")
    for fault in faults:
        if fault["run_id"] == run_id:
            begin = float(fault["begin_ms"])
            end = float(fault["end_ms"]) if fault["end_ms"] is not None else begin
            axes.axvspan(begin / 1000, end / 1000, color=_AMBER, alpha=0.18, lw=0)
            axes.annotate(
                fault["fault"], (begin / 1000, 1.0), xycoords=("data", "axes fraction"),
                fontsize=8, rotation=30, color=_GREY,
            )  # fmt: skip
    for row in own:
        name = f"{row['topic']}/{row['partition']}" if row["partition"] >= 0 else row["topic"]
        if name in names:
            begin, length = float(row["begin_ms"]) / 1000, float(row["length_ms"]) / 1000
            axes.barh(names.index(name), length, 0.6, left=begin, color=_RED)
    _label(axes, names)
    axes.set_title(axes.get_title(loc="left"), loc="left", fontsize=11, pad=26)
    return figure


def _latency(rows: Sequence[Row]) -> Any:
    """Median to 99th percentile, during each kind of fault and without one."""
    shown = [row for row in rows if row["p99_ms"]][:_LINES_MAX]
    if not shown:
        return None
    figure, axes = _axes(len(shown), "Latency of acknowledged records, median to 99 %", "ms")
    axes.set_xscale("log")
    for line, row in enumerate(shown):
        colour = _GREY if row["fault"] == "none" else _BLUE
        axes.plot([row["p50_ms"], row["p99_ms"]], [line, line], "-", color=colour, lw=3)
        axes.plot([row["p50_ms"]], [line], "o", color=colour)
        axes.plot([row["p99_ms"]], [line], "D", color=colour)
    _label(axes, [f"{row['system']} {row['version'] or ''}: {row['fault']}" for row in shown])
    return figure


def _churn(rows: Sequence[Row]) -> Any:
    """How many partitions had how many ISR shrinks: uneven churn stands out as a tail."""
    counts: dict[int, int] = {}
    for row in rows:
        counts[int(row["shrinks"])] = counts.get(int(row["shrinks"]), 0) + 1
    if not any(counts):
        return None
    figure, axes = _axes(6, "Partitions by number of ISR shrinks, all runs", "ISR shrinks")
    axes.bar(list(counts), list(counts.values()), color=_BLUE, width=0.8)
    axes.set_ylabel("partitions")
    axes.grid(axis="y", color="#e3e6ea")
    axes.xaxis.get_major_locator().set_params(integer=True)
    return figure


def _skew(rows: Sequence[Row]) -> Any:
    """Brokers that are farthest from an even share, leaders beside replicas."""
    known = [row for row in rows if row["leader_skew"] is not None]
    far = sorted(known, key=lambda row: -abs(float(row["leader_skew"]) - 1))[:_LINES_MAX]
    if not far:
        return None
    figure, axes = _axes(len(far), "Leaders and replicas of a broker, 1 is an even share", "share")
    axes.axvline(1, color=_GREY, lw=1)
    for line, row in enumerate(far):
        leaders, replicas = float(row["leader_skew"]), float(row["replica_skew"] or 0)
        axes.plot([leaders, replicas], [line, line], "-", color=_GREY)
        axes.plot([leaders], [line], "o", color=_BLUE, label="leaders" if line == 0 else None)
        axes.plot([replicas], [line], "o", color=_AMBER, label="replicas" if line == 0 else None)
    _label(axes, [f"{row['run_id']}: {row['broker_id']}" for row in far])
    axes.set_xlim(left=0)
    axes.legend(frameon=False, fontsize=9)
    return figure


def _mix(rows: Sequence[Row]) -> Any:
    totals: dict[str, int] = {}
    for row in rows:
        totals[row["record_type"]] = totals.get(row["record_type"], 0) + row["records"]
    if not totals:
        return None
    order = sorted(totals, key=lambda name: -totals[name])[:_LINES_MAX]
    figure, axes = _axes(len(order), "The metadata logs of all runs by type of record", "records")
    axes.barh(range(len(order)), [totals[name] for name in order], 0.6, color=_BLUE)
    for line, name in enumerate(order):
        axes.annotate(f" {totals[name]:,}", (totals[name], line), va="center", fontsize=8)
    _label(axes, order)
    return figure


def _side_name(row: Row, prefix: str) -> str:
    return f"{row[f'{prefix}_system']} {row[f'{prefix}_version'] or ''}".strip()


def _duels(rows: Sequence[Row]) -> Any:
    """The longest silence of a partition, one system against the other."""
    shown = [
        row for row in rows if row["first_longest_silence_ms"] and row["second_longest_silence_ms"]
    ][:_LINES_MAX]
    if not shown:
        return None
    figure, axes = _axes(len(shown), "Duels: longest silence of a partition", "ms")
    axes.set_xscale("log")
    sides = ("first", "second")
    systems = sorted({_side_name(row, prefix) for row in shown for prefix in sides})
    colours = {name: _COLOURS[n % len(_COLOURS)] for n, name in enumerate(systems)}
    labelled: set[str] = set()
    for line, row in enumerate(shown):
        points = [
            (_side_name(row, prefix), float(row[f"{prefix}_longest_silence_ms"]))
            for prefix in sides
        ]
        axes.plot([value for _, value in points], [line, line], "-", color=_GREY)
        for name, value in points:
            label = None if name in labelled else name
            labelled.add(name)
            axes.plot([value], [line], "o", color=colours[name], label=label)
    _label(axes, [row["experiment"] for row in shown])
    axes.legend(frameon=False, fontsize=9)
    return figure
