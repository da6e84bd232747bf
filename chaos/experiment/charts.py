"""The chart of the report: one SVG with faults, throughput, latency and gaps over one time axis.

Pure text building; colours and fonts come from the page's style sheet.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

from kvorum.chaos.experiment.timeline import SILENCE_MS_MIN, Bucket, Timeline

_WIDTH = 1160
_LEFT = 74
_RIGHT = 16
_BAR_HEIGHT = 18
_PANEL_HEIGHT = 130
_LANE_HEIGHT = 13
_LANES_MAX = 64
_GAP = 34
_TOP = 22


class _Canvas:
    """Collects SVG elements; x positions come from milliseconds."""

    def __init__(self, begin_ms: float, end_ms: float) -> None:
        self.begin_ms = begin_ms
        self.end_ms = max(end_ms, begin_ms + 1)
        self.parts: list[str] = []

    def x(self, time_ms: float) -> float:
        share = (time_ms - self.begin_ms) / (self.end_ms - self.begin_ms)
        return _LEFT + min(max(share, 0.0), 1.0) * (_WIDTH - _LEFT - _RIGHT)

    def rect(
        self, x: float, y: float, width: float, height: float, style: str, title: str = ""
    ) -> None:
        inner = f"<title>{escape(title)}</title>" if title else ""
        self.parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 1.0):.1f}" '
            f'height="{height:.1f}" class="{style}">{inner}</rect>'
        )

    def text(self, x: float, y: float, words: str, style: str = "label") -> None:
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" class="{style}">{escape(words)}</text>')

    def line(self, x1: float, y1: float, x2: float, y2: float, style: str) -> None:
        self.parts.append(
            f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{style}"/>'
        )

    def path(self, data: str, style: str) -> None:
        if data:
            self.parts.append(f'<path d="{data}" class="{style}"/>')


def draw(timeline: Timeline) -> str:
    """The whole chart as an <svg> element; empty text if there was no load."""
    if not timeline.buckets:
        return ""
    ends = [fault.end_ms or fault.begin_ms for fault in timeline.faults]
    begins = [fault.begin_ms for fault in timeline.faults]
    canvas = _Canvas(min([timeline.load_begin_ms, *begins]), max([timeline.load_end_ms, *ends]))
    bars_height = _BAR_HEIGHT * max(1, len(timeline.faults))
    lanes = sorted(timeline.partition_silences)[:_LANES_MAX]
    throughput_top = _TOP + bars_height + _GAP
    latency_top = throughput_top + _PANEL_HEIGHT + _GAP
    lanes_top = latency_top + _PANEL_HEIGHT + _GAP
    bottom = lanes_top + _LANE_HEIGHT * len(lanes)
    _shade_faults(canvas, timeline, bottom)
    _fault_bars(canvas, timeline)
    _throughput(canvas, timeline, throughput_top)
    _latency(canvas, timeline.buckets, timeline.bucket_ms, latency_top)
    _lanes(canvas, timeline, lanes, lanes_top)
    _time_axis(canvas, bottom)
    height = bottom + 30
    body = "".join(canvas.parts)
    return (
        f'<svg viewBox="0 0 {_WIDTH} {height:.0f}" role="img" '
        f'aria-label="faults, throughput, latency and silences over time">{body}</svg>'
    )


def _shade_faults(canvas: _Canvas, timeline: Timeline, bottom: float) -> None:
    for fault in timeline.faults:
        x = canvas.x(fault.begin_ms)
        end_x = canvas.x(fault.end_ms if fault.end_ms is not None else canvas.end_ms)
        canvas.rect(x, _TOP, end_x - x, bottom - _TOP, f"shade {_family(fault.fault)}")


def _fault_bars(canvas: _Canvas, timeline: Timeline) -> None:
    canvas.text(_LEFT, _TOP - 7, "faults", "heading")
    for row, fault in enumerate(timeline.faults):
        y = _TOP + row * _BAR_HEIGHT
        x = canvas.x(fault.begin_ms)
        end_x = canvas.x(fault.end_ms if fault.end_ms is not None else canvas.end_ms)
        lasted = "to the end" if fault.end_ms is None else f"{fault.end_ms - fault.begin_ms:.0f} ms"
        words = f"{fault.description} [{', '.join(fault.nodes)}]"
        title = f"{fault.name}: {words}, {lasted}"
        canvas.rect(x, y + 2, end_x - x, _BAR_HEIGHT - 4, f"bar {_family(fault.fault)}", title)
        if end_x < _WIDTH * 0.6:
            canvas.text(end_x + 5, y + 13, words)
        else:
            canvas.text(x - 5, y + 13, words, "label before")


def _throughput(canvas: _Canvas, timeline: Timeline, top: float) -> None:
    per_second = 1000 / timeline.bucket_ms
    rates = [bucket.acknowledged * per_second for bucket in timeline.buckets]
    high = _round_up(max(rates, default=1.0))
    canvas.text(_LEFT, top - 7, "records acknowledged per second", "heading")

    def y(rate: float) -> float:
        return top + _PANEL_HEIGHT * (1 - rate / high)

    _scale(canvas, [(0, "0"), (high / 2, f"{high / 2:g}"), (high, f"{high:g}")], y)
    # The end of the load truncates the last bucket, which would show a drop that did not happen.
    points = list(zip(timeline.buckets, rates, strict=True))[: max(1, len(rates) - 1)]
    outline = [f"M{canvas.x(points[0][0].begin_ms):.1f},{y(0):.1f}"]
    for bucket, rate in points:
        outline.append(f"L{canvas.x(bucket.begin_ms):.1f},{y(rate):.1f}")
        outline.append(f"L{canvas.x(bucket.begin_ms + timeline.bucket_ms):.1f},{y(rate):.1f}")
    last_ms = points[-1][0].begin_ms + timeline.bucket_ms
    outline.append(f"L{canvas.x(last_ms):.1f},{y(0):.1f}Z")
    canvas.path("".join(outline), "area")
    for bucket in timeline.buckets:
        if bucket.unknown:
            x = canvas.x(bucket.begin_ms)
            width = canvas.x(bucket.begin_ms + timeline.bucket_ms) - x
            title = f"{bucket.unknown} records with unknown outcome"
            canvas.rect(x, top + _PANEL_HEIGHT - 5, width, 5, "unknown", title)


def _latency(canvas: _Canvas, buckets: Sequence[Bucket], bucket_ms: float, top: float) -> None:
    canvas.text(_LEFT, top - 7, "latency, ms: median (line) and 99th percentile (dots)", "heading")
    values = [bucket.latency_p99_ms for bucket in buckets if bucket.latency_p99_ms]
    lows = [bucket.latency_p50_ms for bucket in buckets if bucket.latency_p50_ms]
    low = 10 ** math.floor(math.log10(max(min(lows, default=1.0), 0.01)))
    high = 10 ** math.ceil(math.log10(max(max(values, default=10.0), low * 10)))
    decades = math.log10(high / low)

    def y(value: float) -> float:
        return top + _PANEL_HEIGHT * (1 - math.log10(max(value, low) / low) / decades)

    ticks = [low * 10**power for power in range(round(decades) + 1)]
    _scale(canvas, [(tick, f"{tick:g}") for tick in ticks], y)
    pen = "M"
    median: list[str] = []
    for bucket in buckets:
        middle = canvas.x(bucket.begin_ms + bucket_ms / 2)
        if bucket.latency_p50_ms is None or bucket.latency_p99_ms is None:
            pen = "M"
            continue
        median.append(f"{pen}{middle:.1f},{y(bucket.latency_p50_ms):.1f}")
        pen = "L"
        title = f"p50 {bucket.latency_p50_ms:.1f} ms, p99 {bucket.latency_p99_ms:.1f} ms"
        canvas.parts.append(
            f'<circle cx="{middle:.1f}" cy="{y(bucket.latency_p99_ms):.1f}" r="2" class="dot">'
            f"<title>{title}</title></circle>"
        )
    canvas.path("".join(median), "median")


def _lanes(canvas: _Canvas, timeline: Timeline, lanes: Sequence[int], top: float) -> None:
    heading = f"partitions; red: no acknowledgement for {SILENCE_MS_MIN:.0f} ms or more"
    left_out = len(timeline.partition_silences) - len(lanes)
    canvas.text(
        _LEFT, top - 7, heading + (f" ({left_out} not drawn)" if left_out else ""), "heading"
    )
    for row, partition in enumerate(lanes):
        y = top + row * _LANE_HEIGHT
        begin_x, end_x = canvas.x(timeline.load_begin_ms), canvas.x(timeline.load_end_ms)
        canvas.rect(begin_x, y + 2, end_x - begin_x, _LANE_HEIGHT - 4, "lane")
        canvas.text(_LEFT - 6, y + 10, str(partition), "label before")
        for silence in timeline.partition_silences[partition]:
            if silence.length_ms >= SILENCE_MS_MIN:
                x = canvas.x(silence.begin_ms)
                title = f"partition {partition}: {silence.length_ms:.0f} ms"
                width = canvas.x(silence.end_ms) - x
                canvas.rect(x, y + 1, width, _LANE_HEIGHT - 2, "silence", title)


def _time_axis(canvas: _Canvas, bottom: float) -> None:
    """Seconds since the start of the run, as in the table of faults; the load begins somewhat
    later."""
    length_s = (canvas.end_ms - canvas.begin_ms) / 1000
    step_s = next(
        (step for step in (1, 2, 5, 10, 30, 60, 300, 600) if length_s / step <= 14), 3_600
    )
    canvas.line(_LEFT, bottom + 2, _WIDTH - _RIGHT, bottom + 2, "axis")
    first, last = canvas.begin_ms / 1000, canvas.end_ms / 1000
    for tick in range(math.ceil(first / step_s), int(last // step_s) + 1):
        x = canvas.x(tick * step_s * 1000)
        canvas.line(x, bottom + 2, x, bottom + 7, "axis")
        canvas.text(x, bottom + 20, f"{tick * step_s} s", "label middle")


def _scale(
    canvas: _Canvas, ticks: Sequence[tuple[float, str]], y: Callable[[float], float]
) -> None:
    for value, words in ticks:
        canvas.line(_LEFT, y(value), _WIDTH - _RIGHT, y(value), "grid")
        canvas.text(_LEFT - 6, y(value) + 4, words, "label before")


def _round_up(value: float) -> float:
    """The next of 1, 2, 5 times a power of ten."""
    power: float = 10.0 ** math.floor(math.log10(max(value, 1.0)))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value)


def _family(fault: str) -> str:
    if fault == "kill":
        return "kill"
    if fault == "pause":
        return "pause"
    return "cut" if fault in ("cut", "isolate", "down") else "shape"
