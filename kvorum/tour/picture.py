"""The picture of a lesson: rows of bars, made from the figures of its run. Values only.

A log is a row whose parts are its batches or epochs, with the high watermark as a mark; a figure is
a row of one part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

GAP = -1
"""The tone of a part where nothing is, such as a deleted record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A piece of a row.

    length: in the picture's unit, 0 or more.
    text: stands in it where there is room.
    tone: its colour, from 0 to 4, or GAP; the picture's key says what each means.
    """

    length: float
    text: str = ""
    tone: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """start: where the first part begins. marks: (place, label), such as (3, "HW"). note: stands
    behind the row."""

    label: str
    parts: tuple[Part, ...]
    start: float = 0
    marks: tuple[tuple[float, str], ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """title: a sentence. key: (tone, meaning), for pictures of several tones."""

    title: str
    rows: tuple[Row, ...]
    key: tuple[tuple[int, str], ...] = ()


Key = tuple[tuple[int, str], ...]


def bars(
    title: str,
    figures: Mapping[str, float | tuple[float, ...]],
    unit: str = "",
    key: Key = (),
) -> Picture:
    """A picture of one figure a row, or of several that make a sum, each in a tone of its own."""
    rows = []
    for label, figure in figures.items():
        terms = figure if isinstance(figure, tuple) else (figure,)
        parts = tuple(Part(length=term, tone=tone) for tone, term in enumerate(terms))
        rows.append(Row(label=label, parts=parts, note=f"{round(sum(terms), 3):,} {unit}".rstrip()))
    return Picture(title=title, rows=tuple(rows), key=key)


def logs(
    title: str,
    texts: Mapping[str, Iterable[str]],
    tone: Callable[[str], int] = lambda text: 0,
    marks: Iterable[tuple[float, str]] = (),
    key: Key = (),
) -> Picture:
    """A picture of a log a row, with a part of one offset for each record, and a gap for an empty
    text. marks: below the last row."""
    rows = [
        Row(
            label=label,
            parts=tuple(
                Part(length=1, text=each, tone=int(tone(each)) if each else GAP) for each in log
            ),
        )
        for label, log in texts.items()
    ]
    rows[-1] = replace(rows[-1], marks=tuple(marks))
    return Picture(title=title, rows=tuple(rows), key=key)


def spans(edges: Sequence[int], tone: Callable[[int], int] = lambda begin: 0) -> tuple[Part, ...]:
    """The parts between offsets, each with its first one as its text."""
    return tuple(
        Part(length=end - begin, text=str(begin), tone=int(tone(begin)))
        for begin, end in pairwise(edges)
    )
