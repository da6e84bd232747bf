"""Throughput and latency of two runs over one time axis, as parts of an SVG. Pure.

Times count from the begin of each run's load.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from kvorum.chaos.report.canvas import Canvas, round_up, short
from kvorum.chaos.report.document import Series

_PANEL_HEIGHT = 120
_GAP = 44
#: The class of each run's marks; the page's style sheet has their colours.
_STYLES = ("first", "second")


def draw_rates(canvas: Canvas, series: Sequence[Series], *, top: float) -> float:
    """Records acknowledged per second. Returns the top of the next panel."""
    canvas.heading(top - 12, "records acknowledged per second")
    rates = [[count * 1000 / entry.bucket_ms for count in entry.acknowledged] for entry in series]
    high = round_up(max(max(found) for found in rates))

    def y(rate: float) -> float:
        return top + _PANEL_HEIGHT * (1 - rate / high)

    canvas.scale([(0, "0"), (high / 2, short(high / 2)), (high, short(high))], y)
    for entry, found, style in zip(series, rates, _STYLES, strict=True):
        pen = "M"
        line = []
        # The end of the load truncates the last bucket, which would show a drop that was none.
        for place, rate in enumerate(found[: max(1, len(found) - 1)]):
            line.append(f"{pen}{canvas.x((place + 0.5) * entry.bucket_ms):.1f},{y(rate):.1f}")
            pen = "L"
        canvas.path("".join(line), f"median {style}")
    return top + _PANEL_HEIGHT + _GAP


def draw_latencies(canvas: Canvas, series: Sequence[Series], *, top: float) -> float:
    """The 99th percentile of the latency, and the time axis. Returns the height of the whole."""
    canvas.heading(top - 12, "latency, 99th percentile, ms")
    known = [value for entry in series for value in entry.latency_p99_ms if value]
    low = 10 ** math.floor(math.log10(max(min(known, default=1.0), 0.01)))
    high = 10 ** math.ceil(math.log10(max(max(known, default=10.0), low * 10)))
    decades = math.log10(high / low)

    def y(value: float) -> float:
        return top + _PANEL_HEIGHT * (1 - math.log10(max(value, low) / low) / decades)

    ticks = [low * 10**power for power in range(round(decades) + 1)]
    canvas.scale([(tick, short(tick)) for tick in ticks], y)
    for entry, style in zip(series, _STYLES, strict=True):
        pen = "M"
        line = []
        for place, value in enumerate(entry.latency_p99_ms):
            if value is None:
                pen = "M"
                continue
            line.append(f"{pen}{canvas.x((place + 0.5) * entry.bucket_ms):.1f},{y(value):.1f}")
            pen = "L"
        canvas.path("".join(line), f"median {style}")
    bottom = top + _PANEL_HEIGHT + 6
    canvas.time_axis(bottom)
    return bottom + 30
