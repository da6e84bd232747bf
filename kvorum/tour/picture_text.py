"""A picture in characters, for a terminal or a pipe, and as cells for other forms. Pure."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterator

from kvorum.tour.picture import Picture, Row

Cell = tuple[str, str]
"""A character and its style: that of a part is `t` and its tone, that of a blank is empty."""
Grid = list[list[Cell]]
_BLOCKS, _PLAIN_BLOCKS = "█▒░▓▚·", "#=-+%."
_CODES = {"title": "1", "t0": "36", "t1": "33", "t2": "32", "t3": "90", "t4": "35"}
_ROOM_MIN, _TEXT_SPARE = 8, 5


def lines_of(picture: Picture, width: int, *, is_plain: bool) -> list[str]:
    """is_plain: in ASCII, without colours."""
    lines = []
    for cells in grid(picture, width, _PLAIN_BLOCKS if is_plain else _BLOCKS):
        codes = {} if is_plain else _CODES
        line = ""
        for style, text in runs(cells):
            line += f"\x1b[{codes[style]}m{text}\x1b[0m" if style in codes else text
        lines.append(line.rstrip())
    return lines


def runs(cells: list[Cell]) -> Iterator[tuple[str, str]]:
    """The style and the text of each piece of a line."""
    for style, group in itertools.groupby(cells, key=lambda cell: cell[1]):
        yield style, "".join(character for character, _ in group)


def grid(picture: Picture, width: int, signs: str) -> Grid:
    """The lines of the picture. signs: a character for each tone; that of GAP is the last."""
    lines: Grid = []
    _wrap(lines, 0, picture.title, "title", width)
    left = max(len(row.label) for row in picture.rows) + 2
    notes = max(len(row.note) for row in picture.rows)
    room = max(_ROOM_MIN, width - left - (notes + 2 if notes else 0))
    first, scale = _scale(picture, room)
    for row in picture.rows:
        top = len(lines)
        _put(lines, top, 0, row.label, "label")
        _put(lines, top, left + room + 2, row.note, "note")
        places = itertools.accumulate(part.length for part in row.parts)
        edges = [left + round((row.start - first + place) * scale) for place in (0, *places)]
        texts = _parts(lines, row, edges, signs)
        marks = [(left + round((place - first) * scale), label) for place, label in row.marks]
        _marks(lines, marks, width)
        _wrap(lines, left + 2, texts, "note", width)
    for tone, meaning in picture.key:
        top = len(lines)
        _wrap(lines, 4, meaning, "note", width)
        _put(lines, top, 0, signs[tone] * 3, f"t{tone}")
    return [line[:width] for line in lines]


def _scale(picture: Picture, room: int) -> tuple[float, float]:
    """The first place, and the columns of a unit."""
    first = min(row.start for row in picture.rows)
    ends = [row.start + sum(part.length for part in row.parts) for row in picture.rows]
    scale = room / (max(ends) - first or 1)
    parts = [part for row in picture.rows for part in row.parts if part.length]
    if any(part.text for part in parts):  # A record need not be wider than its text.
        scale = min(scale, max((len(part.text) + _TEXT_SPARE) / part.length for part in parts))
    # Records are equally wide.
    return first, int(scale) if scale >= 1 and len(parts) > len(picture.rows) else scale


def _parts(lines: Grid, row: Row, edges: list[int], signs: str) -> str:
    """Put the parts into the last line. Returns their texts, if one of them has no room."""
    is_full = False
    for part, (begin, end) in zip(row.parts, itertools.pairwise(edges), strict=True):
        size = max(end - begin, int(part.length > 0))
        size -= size > 2 and len(row.parts) > 1  # A blank between two parts.
        text = part.text.strip()
        is_full = is_full or len(text) >= max(size, 1)
        text = f" {text} " if text and len(text) + 4 <= size else text
        filled = (text if len(text) < size else "").center(size, signs[part.tone])
        _put(lines, len(lines) - 1, begin, filled, f"t{part.tone}")
    return ", ".join(part.text or "-" for part in row.parts) if is_full else ""


def _marks(lines: Grid, marks: list[tuple[int, str]], width: int) -> None:
    """Put marks below the last line, on as many lines as they need side by side."""
    top = len(lines)
    # From the right, so that a tick down to a label crosses no other label.
    for column, label in sorted(marks, reverse=True):
        is_left = column + len(label) >= width
        text = f"{label}^" if is_left else f"^{label}"
        begin = max(0, min(column, width - 1) - len(label)) if is_left else column
        piece = slice(begin, begin + len(text) + 1)
        is_free = [not any(style for _, style in line[piece]) for line in lines[top:]]
        line = is_free.index(True) if True in is_free else len(is_free)
        _put(lines, top + line, begin, text, "mark")


def _wrap(lines: Grid, column: int, text: str, style: str, width: int) -> None:
    for piece in textwrap.wrap(text, width - column):
        _put(lines, len(lines), column, piece, style)


def _put(lines: Grid, line: int, column: int, text: str, style: str) -> None:
    lines += [[] for _ in range(line + 1 - len(lines))]
    lines[line] += [(" ", "")] * (column - len(lines[line]))
    lines[line][column : column + len(text)] = [(character, style) for character in text]
