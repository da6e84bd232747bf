"""A picture as an SVG drawing, for light and dark pages. Pure."""

from __future__ import annotations

from xml.sax.saxutils import escape

from kvorum.tour.picture import GAP, Picture
from kvorum.tour.picture_text import grid, runs

WIDTH = 760
_PAD, _LINE, _BAR, _COLUMN = 18, 25, 20, 7.4
"""A column is as wide as a character; most letters of the font are narrower."""
_SIGN = "\0"
_HEAD = f"""\
<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{WIDTH}" height="%(height)d"
 viewBox="0 0 {WIDTH} %(height)d">
<title>%(title)s</title>
<style>
text {{ font: 13px system-ui, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328 }}
.title {{ font-weight: 600; font-size: 14px }} .end {{ text-anchor: end }}
.note, .mark {{ font-size: 12px; fill: #59636e }}
.page {{ fill: #fff; stroke: #d1d9e0 }} .tick {{ stroke: #1f2328; stroke-width: 1.5 }}
.t0 {{ fill: #2f6db0 }} .t1 {{ fill: #b4530a }} .t2 {{ fill: #2e7d46 }} .t3 {{ fill: #6b7280 }}
.t4 {{ fill: #7b52ab }} .t-1 {{ fill: none; stroke: #8b949e; stroke-dasharray: 3 3 }}
@media (prefers-color-scheme: dark) {{
text {{ fill: #e6edf3 }} .note, .mark {{ fill: #9198a1 }}
.page {{ fill: #0d1117; stroke: #3d444d }} .tick {{ stroke: #e6edf3 }} }}
.in, .gone {{ text-anchor: middle; font-size: 12px }} .in {{ fill: #fff }}
</style>
<rect class="page" x="1" y="1" width="{WIDTH - 2}" height="%(page)d" rx="6"/>
"""


def svg(picture: Picture) -> str:
    """The drawing, a whole file."""
    lines = grid(picture, int((WIDTH - 2 * _PAD) / _COLUMN), _SIGN * 6)
    height = 2 * _PAD + _LINE * len(lines)
    shapes = [_HEAD % {"height": height, "page": height - 2, "title": escape(picture.title)}]
    top = y = _PAD
    for cells in lines:
        x = float(_PAD)
        for style, text in runs(cells):
            end = x + len(text) * _COLUMN
            if style == "mark":
                shapes += _mark(x, end, y, text, top)
            elif _SIGN in text:
                top = y
                shapes += _part(style, x, end, y, text.replace(_SIGN, "").strip())
            elif style:
                shapes.append(_text(style, x, y, text))
            x = end
        y += _LINE
    return "\n".join([*shapes, "</svg>\n"])


def _part(tone: str, x: float, end: float, y: int, text: str) -> list[str]:
    box = f'<rect class="{tone}" x="{x:.1f}" y="{y}" width="{end - x:.1f}" height="{_BAR}" rx="2"/>'
    style = "gone" if tone == f"t{GAP}" else "in"
    return [box, _text(style, (x + end) / 2, y, text)] if text else [box]


def _mark(x: float, end: float, y: int, text: str, top: int) -> list[str]:
    """A tick through the row that begins at `top`, and the label at its right or left."""
    at, label, style = (end, -4, "mark end") if text.endswith("^") else (x, 4, "mark")
    tick = f'<path class="tick" d="M{at:.1f} {top - 3}V{y + 15}"/>'
    return [tick, _text(style, at + label, y, text.strip("^"))]


def _text(style: str, x: float, y: int, text: str) -> str:
    return f'<text class="{style}" x="{x:.1f}" y="{y + 14}">{escape(text)}</text>'
