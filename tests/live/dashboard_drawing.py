"""Draws the panels of a dashboard at the places that it gives them, in the manner of Grafana."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from string import ascii_uppercase
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.patches import FancyBboxPatch
from matplotlib.ticker import FuncFormatter, MaxNLocator, MultipleLocator
from PIL import Image

from tests.live.dashboard_layout import (
    MARGIN_PX,
    WIDTH_PX,
    Box,
    columns_of,
    height_px,
    is_alone,
    legend_entries,
    place,
)
from tests.live.dashboard_panels import (
    Event,
    Panel,
    Series,
    clock,
    scale,
    text_of,
    threshold_colour,
)

DPI = 100
_SMALL = 8.5
"""Points of legends and ticks."""
_TEXT, _PALE, _GRID, _PAGE, _EDGE = "#1f2933", "#66727f", "#e6e9ed", "#f4f5f7", "#dfe3e8"
_KILL, _START = "#c0302b", "#2f8f57"
_THRESHOLDS = {"red": "#c9403a", "green": "#3a8f5c", "blue": "#3a6fb0"}
_LINES = (
    "#3a8f5c", "#d99a1c", "#2f8fc4", "#d2622a", "#a4373a", "#3f52b5", "#9b4fa5", "#7d8794",
    "#6b8e23", "#00897b",
)  # fmt: skip


class Drawing:
    """events: what is marked in every graph. length_s: of the time axis."""

    def __init__(self, panels: Sequence[Panel], events: Sequence[Event], length_s: int) -> None:
        self._panels = panels
        self._events = events
        self._length_s = length_s
        self._height = height_px(panels)
        size = (WIDTH_PX / DPI, self._height / DPI)
        self._figure = Figure(figsize=size, dpi=DPI, facecolor=_PAGE)
        self._renderer = FigureCanvasAgg(self._figure).get_renderer()

    def png(
        self, series: Mapping[Panel, Sequence[Series]], *, title: str, load: str, footer: str
    ) -> bytes:
        """series: of each panel but rows. load: beside the picture's title."""
        self._header(title, load)
        self._write(MARGIN_PX, 13, footer, size=9, colour=_PALE)
        for panel in self._panels:
            box = place(panel, self._height)
            if panel.kind == "row":
                self._write(box.left, box.bottom + 5, panel.title, size=12, weight="bold")
            elif panel.kind == "stat":
                self._stat(panel, box, series[panel])
            else:
                self._graph(panel, box, series[panel])
        content = io.BytesIO()
        self._figure.savefig(content, dpi=DPI, facecolor=_PAGE)
        # A palette makes the file a third as large.
        palette = Image.open(content).convert("RGB").quantize(256, dither=Image.Dither.NONE)
        smaller = io.BytesIO()
        palette.save(smaller, format="png", optimize=True)
        return smaller.getvalue()

    def _header(self, title: str, load: str) -> None:
        top, right = self._height - 34, WIDTH_PX - MARGIN_PX
        self._write(MARGIN_PX, top, title, size=16, weight="bold")
        self._write(right, top, load, size=10, colour=_PALE, align="right")
        left = float(MARGIN_PX)
        for letter, event in zip(ascii_uppercase, self._events, strict=False):
            colour = _KILL if event.is_kill else _START
            what = "killed" if event.is_kill else "started again"
            text = f"{clock(event.at_s)}  {event.node} {what}"
            self._write(left, self._height - 64, letter, size=10.5, colour=colour, weight="bold")
            self._write(left + 18, self._height - 64, text, size=10.5)
            left += 18 + self._width_px(text, size=10.5) + 36

    def _stat(self, panel: Panel, box: Box, found: Sequence[Series]) -> None:
        """The last value on the colour of its threshold, above its course."""
        numbers = found[0].numbers() if found else []
        colour = threshold_colour(panel.thresholds, numbers[-1]) if numbers else _PALE
        self._card(box, face=_THRESHOLDS.get(colour, colour), edge="none")
        self._write(box.left + 10, box.bottom + box.height - 22, panel.title, size=10, colour="w")
        text = text_of(panel.unit, numbers[-1]) if numbers else "no data"
        middle = box.left + box.width / 2
        self._write(
            middle, box.bottom + 52, text, size=27, colour="w", weight="bold", align="center"
        )
        if numbers:
            axes = self._axes(box.inset(6, 5, 6, box.height - 38))
            axes.axis("off")
            axes.fill_between(
                range(self._length_s + 1), found[0].values, color="w", alpha=0.28, linewidth=0
            )
            axes.set_xlim(0, self._length_s)
            axes.set_ylim(0, max(*numbers, 1) * 1.05)

    def _graph(self, panel: Panel, box: Box, found: Sequence[Series]) -> None:
        self._card(box, face="white", edge=_EDGE)
        self._write(
            box.left + 12, box.bottom + box.height - 23, panel.title, size=10.5, weight="bold"
        )
        if not found:
            middle = box.left + box.width / 2
            at = box.bottom + box.height / 2
            self._write(middle, at, "no data", size=14, colour=_PALE, align="center")
            return
        rows = self._legend(box, legend_entries(found))
        axes = self._axes(box.inset(76, 34 + 17 * rows, 24, 46))
        self._lines(axes, panel, found)
        self._time(axes)

    def _legend(self, box: Box, shown: Sequence[tuple[int, str]]) -> int:
        """Draw the legend's entries at the bottom of a panel. Returns the number of its rows."""
        texts = [text for _, text in shown]
        columns = columns_of([self._width_px(text) for text in texts], box.width - 16)
        handles = [
            Line2D([], [], color=_LINES[at % len(_LINES)] if at >= 0 else "none", linewidth=3)
            for at, _ in shown
        ]
        place_of = (box.left + 10) / WIDTH_PX, (box.bottom + 4) / self._height
        self._figure.legend(
            handles, texts, loc="lower left", bbox_to_anchor=place_of,
            ncols=columns, frameon=False, fontsize=_SMALL, labelcolor=_TEXT, handlelength=1.1,
            handletextpad=0.5, columnspacing=1.4, labelspacing=0.3, borderpad=0.1, borderaxespad=0,
        )  # fmt: skip
        return math.ceil(len(shown) / columns)

    def _width_px(self, text: str, *, size: float = _SMALL) -> float:
        font = FontProperties(size=size)
        width: float = self._renderer.get_text_width_height_descent(text, font, ismath=False)[0]
        return width

    def _lines(self, axes: Axes, panel: Panel, found: Sequence[Series]) -> None:
        largest = max(max(series.numbers()) for series in found)
        factor, suffix = scale(panel.unit, largest)
        for at, series in enumerate(found):
            colour = _LINES[at % len(_LINES)]
            values = [value / factor for value in series.values]
            axes.plot(values, color=colour, linewidth=1.4, solid_capstyle="round")
            alone = [at for at in range(len(values)) if is_alone(values, at)]
            axes.plot(alone, [values[at] for at in alone], ".", color=colour, markersize=4)
        top = largest / factor * 1.08 or 1
        # A line at zero is drawn in its whole width.
        axes.set_ylim(-top / 100, top)
        ticks = MaxNLocator(4, integer=panel.unit == "none", steps=[1, 2, 2.5, 5, 10])
        axes.yaxis.set_major_locator(ticks)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}{suffix}"))

    def _time(self, axes: Axes) -> None:
        axes.set_xlim(0, self._length_s)
        axes.xaxis.set_major_locator(MultipleLocator(30))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: clock(value)))
        axes.tick_params(labelsize=_SMALL, labelcolor=_PALE, length=0, pad=6)
        axes.grid(color=_GRID, linewidth=0.8)
        axes.set_axisbelow(True)
        for side in axes.spines.values():
            side.set_visible(False)
        for letter, event in zip(ascii_uppercase, self._events, strict=False):
            colour = _KILL if event.is_kill else _START
            axes.axvline(event.at_s, color=colour, linewidth=0.9, linestyle=(0, (4, 3)), alpha=0.8)
            axes.annotate(
                letter, (event.at_s, 1), xycoords=("data", "axes fraction"), xytext=(0, 2),
                textcoords="offset points", ha="center", fontsize=8, color=colour, weight="bold",
            )  # fmt: skip

    def _axes(self, box: Box) -> Axes:
        place_of = (
            box.left / WIDTH_PX, box.bottom / self._height,
            box.width / WIDTH_PX, box.height / self._height,
        )  # fmt: skip
        axes = self._figure.add_axes(place_of)
        axes.set_facecolor("none")
        return axes

    def _card(self, box: Box, *, face: str, edge: str) -> None:
        """A rectangle with round corners."""
        card = FancyBboxPatch(
            (box.left / DPI, box.bottom / DPI), box.width / DPI, box.height / DPI,
            boxstyle="round,pad=0,rounding_size=0.05", facecolor=face, edgecolor=edge,
            transform=self._figure.dpi_scale_trans,
            # Below the axes, whose order is 0.
            zorder=-1,
        )  # fmt: skip
        self._figure.add_artist(card)

    def _write(
        self, left: float, bottom: float, text: str, *,
        size: float, colour: str = _TEXT, weight: str = "normal", align: str = "left",
    ) -> None:  # fmt: skip
        place_of = left / WIDTH_PX, bottom / self._height
        style: dict[str, Any] = {"fontsize": size, "color": colour, "weight": weight, "ha": align}
        self._figure.text(*place_of, text, va="baseline", **style)
