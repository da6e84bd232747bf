"""Collects the elements of an SVG whose x axis is time. Pure text building."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

#: The part of the width that labels may take.
_LABELS_SHARE_MAX = 0.4
_STEPS_S = (1, 2, 5, 10, 30, 60, 300, 600, 3_600)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartShape:
    """The sizes of a chart, in pixels.

    left, right: margins.
    character: width of a letter of a label.
    ticks: the most that fit on the time axis.
    """

    width: int
    left: int
    right: int
    character: float
    ticks: int

    def with_labels(self, names: Sequence[str]) -> ChartShape:
        """This shape with room for these labels at the left, of at most _LABELS_SHARE_MAX of the
        width."""
        wanted = max((len(name) for name in names), default=0) * self.character + 10
        left = max(self.left, min(math.ceil(wanted), int(self.width * _LABELS_SHARE_MAX)))
        return dataclasses.replace(self, left=left)


class Canvas:
    """One chart. x positions come from milliseconds, y positions are pixels from the top."""

    def __init__(self, shape: ChartShape, begin_ms: float, end_ms: float) -> None:
        self.shape = shape
        self.begin_ms = begin_ms
        self.end_ms = max(end_ms, begin_ms + 1)
        self._parts: list[str] = []
        self._right = shape.width - shape.right

    def element(self, height: float, words: str) -> str:
        """The <svg> element; words: what it shows, for readers who do not see it."""
        body = "".join(self._parts)
        return (
            f'<svg viewBox="0 0 {self.shape.width} {height:.0f}" role="img" '
            f'aria-label="{escape(words)}">{body}</svg>'
        )

    def x(self, time_ms: float) -> float:
        share = (time_ms - self.begin_ms) / (self.end_ms - self.begin_ms)
        return self.shape.left + min(max(share, 0.0), 1.0) * (self._right - self.shape.left)

    def rect(
        self, x: float, y: float, width: float, height: float, style: str, title: str = ""
    ) -> None:
        inner = f"<title>{escape(title)}</title>" if title else ""
        self._parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 1.0):.1f}" '
            f'height="{height:.1f}" class="{style}">{inner}</rect>'
        )

    def dot(self, x: float, y: float, title: str) -> None:
        self._parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2" class="dot"><title>{escape(title)}</title>'
            "</circle>"
        )

    def text(self, x: float, y: float, words: str, style: str = "label") -> None:
        self._parts.append(f'<text x="{x:.1f}" y="{y:.1f}" class="{style}">{escape(words)}</text>')

    def heading(self, y: float, words: str) -> None:
        """A panel's heading, from the left edge on."""
        self.text(2, y, self._cut(words, self.shape.width - 4), "heading")

    def before(self, y: float, words: str) -> None:
        """A label that ends at the left margin."""
        self.text(self.shape.left - 6, y, self._cut(words, self.shape.left - 8), "label before")

    def beside(self, x: float, end_x: float, y: float, several: Sequence[str]) -> None:
        """Draw a label for the bar from x to end_x: the first of `several` that fits beside the bar
        or within it. Draw none if none fits; then only the bar's tooltip has the text."""
        after, ahead = self._right - end_x - 5, x - 5
        for words in several:
            if self.fits(words, after):
                self.text(end_x + 5, y, words)
            elif self.fits(words, ahead):
                self.text(x - 5, y, words, "label before")
            elif self.fits(words, end_x - x - 8):
                self.text(x + 4, y, words, "label inside")
            else:
                continue
            return

    def fits(self, words: str, width: float) -> bool:
        """True if a label has room in that width."""
        return len(words) * self.shape.character <= width

    def line(self, x1: float, y1: float, x2: float, y2: float, style: str) -> None:
        self._parts.append(
            f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{style}"/>'
        )

    def path(self, data: str, style: str) -> None:
        if data:
            self._parts.append(f'<path d="{data}" class="{style}"/>')

    def scale(self, ticks: Sequence[tuple[float, str]], y: Callable[[float], float]) -> None:
        """Lines across the panel with their values."""
        for value, words in ticks:
            self.line(self.shape.left, y(value), self._right, y(value), "grid")
            self.before(y(value) + 4, words)

    def time_axis(self, y: float) -> None:
        """The axis below everything, in seconds of the history."""
        length_s = (self.end_ms - self.begin_ms) / 1000
        step_s = next((step for step in _STEPS_S if length_s / step <= self.shape.ticks), 14_400)
        self.line(self.shape.left, y + 2, self._right, y + 2, "axis")
        first, last = self.begin_ms / 1000, self.end_ms / 1000
        for moment in range(math.ceil(first / step_s), int(last // step_s) + 1):
            self.tick(self.x(moment * step_s * 1000), y + 2, f"{moment * step_s} s")

    def tick(self, x: float, y: float, words: str) -> None:
        """A mark on the axis. A label at the right end is moved in, so that it is not cut."""
        self.line(x, y, x, y + 5, "axis")
        half = len(words) * self.shape.character / 2
        self.text(min(x, self.shape.width - half - 1), y + 18, words, "label middle")

    def _cut(self, words: str, width: float) -> str:
        letters = int(width / self.shape.character)
        return words if len(words) <= letters else words[: max(0, letters - 1)] + "…"


def round_up(value: float) -> float:
    """The next of 1, 2, 5 times a power of ten."""
    power: float = 10.0 ** math.floor(math.log10(max(value, 1.0)))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value)


def short(value: float) -> str:
    """A value of a scale in few letters."""
    return f"{value / 1000:g}k" if value >= 10_000 else f"{value:g}"
