"""Where the parts of a dashboard's picture go, in pixels; no module that draws is needed here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from tests.live.dashboard_panels import COLUMNS, Panel, Series

WIDTH_PX = 1680
UNIT_PX = 34
"""Height of a unit of the grid; Grafana's is 30 and a gap of 8."""
MARGIN_PX, GAP_PX, HEADER_PX, FOOTER_PX = 14, 8, 84, 34
LEGENDS_MAX = 8
"""More entries would take the room of the lines; a last entry counts the others."""

HANDLE_PX = 36
"""Room of the line before a legend's text, and of the gaps around both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A rectangle of the picture in pixels, from its lower left corner."""

    left: float
    bottom: float
    width: float
    height: float

    def inset(self, left: float, bottom: float, right: float, top: float) -> Box:
        return Box(
            left=self.left + left,
            bottom=self.bottom + bottom,
            width=self.width - left - right,
            height=self.height - bottom - top,
        )


def height_px(panels: Sequence[Panel]) -> int:
    """The height of the whole picture."""
    rows = max(panel.y + panel.height for panel in panels)
    return HEADER_PX + rows * UNIT_PX + FOOTER_PX


def place(panel: Panel, picture_height_px: int) -> Box:
    """Where a panel is drawn: its cells of the grid without the gap to the next ones."""
    column_px = (WIDTH_PX - 2 * MARGIN_PX + GAP_PX) / COLUMNS
    top = picture_height_px - HEADER_PX - panel.y * UNIT_PX
    return Box(
        left=MARGIN_PX + panel.x * column_px,
        bottom=top - panel.height * UNIT_PX + GAP_PX,
        width=panel.width * column_px - GAP_PX,
        height=panel.height * UNIT_PX - GAP_PX,
    )


def legend_entries(found: Sequence[Series]) -> list[tuple[int, str]]:
    """(place among the series, text) of the legend's entries: those with the largest values. The
    place of the entry that counts the others is -1."""
    if len(found) <= LEGENDS_MAX:
        return [(at, series.legend) for at, series in enumerate(found)]
    by_size = sorted(range(len(found)), key=lambda at: -max(found[at].numbers()))
    kept = [(at, found[at].legend) for at in sorted(by_size[: LEGENDS_MAX - 1])]
    return [*kept, (-1, f"and {len(found) - len(kept)} more")]


def columns_of(widths_px: Sequence[float], room_px: float) -> int:
    """The columns of the lowest legend that texts of these widths have room in, as few as it needs.
    matplotlib fills them from the top, the first ones by one text more."""
    count = len(widths_px)
    for columns in range(count, 1, -1):
        rows, longer = divmod(count, columns)
        heights = [rows + 1] * longer + [rows] * (columns - longer)
        ends = accumulate(heights, initial=0)
        if sum(max(widths_px[a:b]) + HANDLE_PX for a, b in pairwise(ends)) <= room_px:
            return math.ceil(count / math.ceil(count / columns))
    return 1


def is_alone(values: Sequence[float], at: int) -> bool:
    """True for a value between two gaps, which no line shows."""
    around = [values[near] for near in (at - 1, at + 1) if 0 <= near < len(values)]
    return not math.isnan(values[at]) and all(math.isnan(value) for value in around)
