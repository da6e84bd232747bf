"""The chart of the report: one SVG with faults, leaders, throughput, latency, ISR churn and
partitions over one time axis.

Pure text building; colours and fonts come from the page's style sheet. The page has the chart
twice, for wide and for narrow screens, since text in an SVG shrinks with it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from kvorum.chaos.outages.recovery import FaultSpan, Partition
from kvorum.chaos.outages.timeline import Bucket, Timeline, isr_changes, leader_changes
from kvorum.chaos.report.canvas import Canvas, ChartShape, round_up, short
from kvorum.chaos.report.wording import milliseconds

WIDE = ChartShape(width=1160, left=84, right=16, character=6.0, ticks=14)
NARROW = ChartShape(width=360, left=40, right=8, character=5.6, ticks=5)

_BAR_HEIGHT = 18
_BARS_MAX = 30
_PANEL_HEIGHT = 120
_CHURN_HEIGHT = 60
_LANE_HEIGHT = 14
_LANES_MAX = 64
_MARKS_MAX = 200
_GAP = 40
_TOP = 22


def draw(timeline: Timeline, shape: ChartShape) -> str:
    """The whole chart as an <svg> element; empty text if there was no load."""
    if not timeline.buckets:
        return ""
    faults = timeline.faults[:_BARS_MAX]
    ends = [fault.end_ms or fault.begin_ms for fault in timeline.faults]
    begins = [fault.begin_ms for fault in timeline.faults]
    begin_ms = min([timeline.load_begin_ms, *begins])
    lanes = sorted(timeline.partitions)[:_LANES_MAX]
    names = _names(lanes)
    shape = shape.with_labels(names)
    canvas = Canvas(shape, begin_ms, max([timeline.load_end_ms, *ends]))
    strip_top = _TOP + _BAR_HEIGHT * max(1, len(faults)) + _GAP
    throughput_top = strip_top + _BAR_HEIGHT + _GAP
    latency_top = throughput_top + _PANEL_HEIGHT + _GAP
    churn_top = latency_top + _PANEL_HEIGHT + _GAP
    lanes_top = churn_top + _CHURN_HEIGHT + _GAP
    bottom = lanes_top + _LANE_HEIGHT * len(lanes)
    for fault in timeline.faults:
        x = canvas.x(fault.begin_ms)
        end_x = canvas.x(canvas.end_ms if fault.end_ms is None else fault.end_ms)
        canvas.rect(x, _TOP, end_x - x, bottom - _TOP, f"shade {_family(fault.fault)}")
    _fault_bars(canvas, faults, len(timeline.faults) - len(faults))
    _epochs(canvas, timeline, strip_top)
    _throughput(canvas, timeline, throughput_top)
    _latency(canvas, timeline.buckets, timeline.bucket_ms, latency_top)
    _churn(canvas, timeline, churn_top)
    _lanes(canvas, timeline, dict(zip(lanes, names, strict=True)), lanes_top)
    canvas.time_axis(bottom)
    words = "faults, controllers, throughput, latency, ISR churn and partitions over time"
    return canvas.element(bottom + 30, words)


def _fault_bars(canvas: Canvas, faults: Sequence[FaultSpan], left_out: int) -> None:
    canvas.heading(_TOP - 8, "faults" + (f" (and {left_out} more)" if left_out else ""))
    for row, fault in enumerate(faults):
        y = _TOP + row * _BAR_HEIGHT
        x = canvas.x(fault.begin_ms)
        end_x = canvas.x(canvas.end_ms if fault.end_ms is None else fault.end_ms)
        lasted = "to the end" if fault.lasted_ms is None else f"{fault.lasted_ms:.0f} ms"
        words = f"{fault.description} [{', '.join(fault.nodes)}]"
        title = f"{fault.name}: {words}, {lasted}"
        canvas.rect(x, y + 2, end_x - x, _BAR_HEIGHT - 4, f"bar {_family(fault.fault)}", title)
        number = str(row + 1)
        shorter = (f"{number} {words}", f"{number} {fault.description}", f"{number} {fault.fault}")
        canvas.beside(x, end_x, y + 13, (*shorter, number))


def _epochs(canvas: Canvas, timeline: Timeline, top: float) -> None:
    """A strip: one segment for each active controller, with its epoch."""
    epochs = timeline.controller_epochs()
    shown = epochs[-_MARKS_MAX:]
    more = f" (the last {len(shown)} of {len(epochs)})" if len(epochs) > len(shown) else ""
    canvas.heading(top - 12, f"active controller, by epoch{more}")
    for at, (time_ms, epoch, leader) in enumerate(shown):
        until_ms = shown[at + 1][0] if at + 1 < len(shown) else canvas.end_ms
        x, end_x = canvas.x(time_ms), canvas.x(until_ms)
        title = f"epoch {epoch}: controller {leader}, from {time_ms / 1000:.2f} s"
        style = f"epoch {'even' if epoch % 2 == 0 else 'odd'}"
        canvas.rect(x, top, end_x - x, _BAR_HEIGHT - 2, style, title)
        for words in (f"epoch {epoch}: controller {leader}", f"{epoch}: {leader}", str(epoch)):
            if canvas.fits(words, end_x - x - 8):
                canvas.text(x + 4, top + 12, words, "label inside")
                break


def _throughput(canvas: Canvas, timeline: Timeline, top: float) -> None:
    per_second = 1000 / timeline.bucket_ms
    rates = [bucket.acknowledged * per_second for bucket in timeline.buckets]
    high = round_up(max(rates, default=1.0))
    canvas.heading(top - 12, "records acknowledged per second")

    def y(rate: float) -> float:
        return top + _PANEL_HEIGHT * (1 - rate / high)

    canvas.scale([(0, "0"), (high / 2, short(high / 2)), (high, short(high))], y)
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


def _latency(canvas: Canvas, buckets: Sequence[Bucket], bucket_ms: float, top: float) -> None:
    canvas.heading(top - 12, "latency, ms: median (line), 99th percentile (dots)")
    found = [
        (bucket, bucket.latencies.percentile(0.5), bucket.latencies.percentile(0.99))
        for bucket in buckets
    ]
    lows = [median for _, median, _ in found if median]
    highs = [p99 for _, _, p99 in found if p99]
    low = 10 ** math.floor(math.log10(max(min(lows, default=1.0), 0.01)))
    high = 10 ** math.ceil(math.log10(max(max(highs, default=10.0), low * 10)))
    decades = math.log10(high / low)

    def y(value: float) -> float:
        return top + _PANEL_HEIGHT * (1 - math.log10(max(value, low) / low) / decades)

    ticks = [low * 10**power for power in range(round(decades) + 1)]
    canvas.scale([(tick, short(tick)) for tick in ticks], y)
    pen = "M"
    line: list[str] = []
    for bucket, median, p99 in found:
        if median is None or p99 is None:
            pen = "M"
            continue
        middle = canvas.x(bucket.begin_ms + bucket_ms / 2)
        line.append(f"{pen}{middle:.1f},{y(median):.1f}")
        pen = "L"
        canvas.dot(middle, y(p99), f"p50 {median:.1f} ms, p99 {p99:.1f} ms")
    canvas.path("".join(line), "median")


def _churn(canvas: Canvas, timeline: Timeline, top: float) -> None:
    """Bars above the line: members that joined an ISR; below it: members that left."""
    canvas.heading(top - 12, "ISR churn: members joined (up), left (down)")
    joined = [0] * len(timeline.buckets)
    left = [0] * len(timeline.buckets)
    for changes in isr_changes(timeline).values():
        for time_ms, more, fewer in changes:
            place = int((time_ms - timeline.load_begin_ms) // timeline.bucket_ms)
            if 0 <= place < len(joined):
                joined[place] += more
                left[place] += fewer
    high = max([1, *joined, *left])
    middle = top + _CHURN_HEIGHT / 2

    def y(count: float) -> float:
        return middle - count / high * _CHURN_HEIGHT / 2

    canvas.scale([(high, str(high)), (0, "0"), (-high, str(high))], y)
    for bucket, more, fewer in zip(timeline.buckets, joined, left, strict=True):
        x = canvas.x(bucket.begin_ms)
        width = max(2.0, canvas.x(bucket.begin_ms + timeline.bucket_ms) - x)
        if more:
            canvas.rect(x, y(more), width, middle - y(more), "joined", f"{more} joined an ISR")
        if fewer:
            canvas.rect(x, middle, width, y(-fewer) - middle, "left", f"{fewer} left an ISR")


def _names(lanes: Sequence[Partition]) -> list[str]:
    """The label of each lane: the topic only where there are several."""
    has_one_topic = len({topic for topic, _ in lanes}) == 1
    return [str(number) if has_one_topic else f"{topic}/{number}" for topic, number in lanes]


def _lanes(canvas: Canvas, timeline: Timeline, lanes: Mapping[Partition, str], top: float) -> None:
    left_out = len(timeline.partitions) - len(lanes)
    more = f" (and {left_out} more)" if left_out else ""
    canvas.heading(top - 12, f"partitions{more}; red: unavailable; tick: new leader")
    elected = leader_changes(timeline)
    for row, (key, name) in enumerate(lanes.items()):
        y = top + row * _LANE_HEIGHT
        begin_x, end_x = canvas.x(timeline.load_begin_ms), canvas.x(timeline.load_end_ms)
        canvas.rect(begin_x, y + 2, end_x - begin_x, _LANE_HEIGHT - 5, "lane")
        canvas.before(y + 10, name)
        for span in timeline.partitions[key].spans[-_MARKS_MAX:]:
            x = canvas.x(span.begin_ms)
            title = f"{key[0]}/{key[1]}: {milliseconds(span.length_ms)} without an acknowledgement"
            canvas.rect(x, y + 1, canvas.x(span.end_ms) - x, _LANE_HEIGHT - 3, "silence", title)
        for time_ms, epoch, leader in elected.get(key, [])[-_MARKS_MAX:]:
            who = f"broker {leader} leads" if leader >= 0 else "no leader"
            title = f"{key[0]}/{key[1]}: {who} from epoch {epoch}"
            canvas.rect(canvas.x(time_ms) - 1, y, 2.5, _LANE_HEIGHT - 1, "elected", title)


def _family(fault: str) -> str:
    if fault in ("kill", "stop", "wipe"):
        return "kill"
    if fault == "pause":
        return "pause"
    return "cut" if fault in ("cut", "isolate", "down") else "shape"
