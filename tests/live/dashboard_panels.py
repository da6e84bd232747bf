"""The panels of a Grafana dashboard as data: places, expressions, legends and texts of units.

Only what deploy/monitoring/kvorum.json uses is known here; an unknown unit is a KeyError.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

COLUMNS = 24
"""Columns of Grafana's grid."""

RATE_WINDOW = "10s"
"""$__rate_interval for scrapes of 1 s: smooth lines, and a fault is still seen within seconds."""

_BINARY = ((1024**3, " GiB"), (1024**2, " MiB"), (1024, " KiB"), (1, " B"))
_DECIMAL = ((10**9, " GB/s"), (10**6, " MB/s"), (10**3, " kB/s"), (1, " B/s"))
#: Grafana's name of a unit to the steps of its texts, the largest first.
UNITS: dict[str, tuple[tuple[float, str], ...]] = {
    "none": ((1, ""),),
    "s": ((60, " min"), (1, " s"), (1e-3, " ms"), (1e-6, " µs")),
    "bytes": _BINARY,
    "Bps": _DECIMAL,
    "ops": ((10**3, "K ops/s"), (1, " ops/s")),
    "reqps": ((10**3, "K req/s"), (1, " req/s")),
    "percentunit": ((1e-2, " %"),),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    expression: str
    legend: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """kind: row, stat or timeseries. x, y, width, height: in units of Grafana's grid.
    thresholds: (lowest value, colour's name), ascending."""

    kind: str
    title: str
    x: int
    y: int
    width: int
    height: int
    unit: str = "none"
    thresholds: tuple[tuple[float, str], ...] = ()
    targets: tuple[Target, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """values: one for each step of the time axis; NaN where there is none."""

    legend: str
    values: tuple[float, ...]

    def numbers(self) -> list[float]:
        return [value for value in self.values if not math.isnan(value)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A node was killed or started, `at_s` after the beginning of the time axis."""

    at_s: float
    node: str
    is_kill: bool


def panels_of(board: Mapping[str, Any]) -> list[Panel]:
    """The panels of a dashboard's JSON, in its order."""
    return [_panel(panel) for panel in board["panels"]]


def _panel(panel: Mapping[str, Any]) -> Panel:
    place = panel["gridPos"]
    defaults = panel.get("fieldConfig", {}).get("defaults", {})
    steps = defaults.get("thresholds", {}).get("steps", [])
    return Panel(
        kind=panel["type"],
        title=panel["title"],
        x=place["x"],
        y=place["y"],
        width=place["w"],
        height=place["h"],
        unit=defaults.get("unit", "none"),
        thresholds=tuple(
            (-math.inf if step["value"] is None else step["value"], step["color"]) for step in steps
        ),
        targets=tuple(
            Target(expression=substituted(target["expr"]), legend=target["legendFormat"])
            for target in panel.get("targets", [])
        ),
    )


def substituted(expression: str) -> str:
    """An expression with the dashboard's variables replaced: all topics, RATE_WINDOW."""
    replaced = expression.replace("$__rate_interval", RATE_WINDOW).replace("$topic", ".*")
    assert "$" not in replaced, f"{expression} has a variable that is not known here"
    return replaced


def legend(template: str, labels: Mapping[str, str]) -> str:
    """A series' text: `{{node}} {{listener}}` with the labels' values, as Grafana fills it in."""
    return re.sub(r"\{\{\s*(\w+)\s*\}\}", lambda found: labels.get(found[1], ""), template)


def series_of(
    answer: Sequence[Mapping[str, Any]], template: str, *, start_s: int, count: int
) -> list[Series]:
    """The series of an answer to query_range with a step of one second.

    Infinities become NaN, as Grafana draws neither; a series without a number is left out.
    """
    found = []
    for one in answer:
        values = [math.nan] * count
        for at_s, text in one["values"]:
            if math.isfinite(float(text)):
                values[round(at_s) - start_s] = float(text)
        series = Series(legend=legend(template, one["metric"]), values=tuple(values))
        if series.numbers():
            found.append(series)
    return sorted(found, key=lambda series: series.legend)


def scale(unit: str, largest: float) -> tuple[float, str]:
    """(factor, suffix) for the texts of an axis whose largest value is given."""
    steps = UNITS[unit]
    return next((step for step in steps if step[0] <= largest), steps[-1])


def text_of(unit: str, value: float) -> str:
    """A single value with three digits: `1.5 MiB`; a plain number has all its digits."""
    factor, suffix = scale(unit, abs(value))
    if unit == "none":
        return f"{value:g}" if abs(value) < 1 else f"{value:.0f}"
    return f"{value / factor:.3g}{suffix}"


def threshold_colour(thresholds: Sequence[tuple[float, str]], value: float) -> str:
    """The colour of the highest threshold that the value reaches."""
    return [colour for lowest, colour in thresholds if value >= lowest][-1]


def clock(seconds: float) -> str:
    """`1:05`."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
