"""The record of a run of a lesson, and readers of what commands print. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kvorum.runtime.errors import KvorumError
from kvorum.tour.picture import Picture

_COLUMNS = re.compile(r"\S+(?: \S+)*")
"""Cells of a table: columns stand two blanks or more apart."""


class NotShown(KvorumError):
    """The lesson could not show its claim; the message says which fact did not hold."""


@dataclass(slots=True)
class Step:
    """A command of a run. output: what it printed, both streams."""

    command: str
    exit_code: int
    output: str


@dataclass(frozen=True, slots=True)
class Remark:
    """A text behind `after` commands. is_held: of a fact; None for what is only said."""

    after: int
    text: str
    is_held: bool | None = None


class Telling:
    """A run's record: its commands, what was said and stated, and its picture."""

    def __init__(self) -> None:
        self.picture: Picture | None = None
        self.steps: list[Step] = []
        self.remarks: list[Remark] = []

    @property
    def facts(self) -> list[Remark]:
        """The remarks that are facts."""
        return [remark for remark in self.remarks if remark.is_held is not None]


def rows_of(table: str) -> list[dict[str, str]]:
    """The rows of a table that a command printed, by column."""
    lines = table.splitlines()
    heads = [i for i, line in enumerate(lines) if line and line == line.upper()]
    if not heads:
        return []
    head = lines[heads[0]]
    columns = [(found.start(), found.group()) for found in _COLUMNS.finditer(head)]
    starts = [start for start, _ in columns]
    rows = []
    for line in lines[heads[0] + 1 :]:
        cells = [
            line[start:end].strip()
            for start, end in zip(starts, [*starts[1:], len(line) + 1], strict=True)
        ]
        if any(cells):
            rows.append(dict(zip((name for _, name in columns), cells, strict=True)))
    return rows


def leader_of(described: str) -> str:
    """The leader of the first partition in the output of `kvorum topics describe`."""
    rows = rows_of(described)
    return rows[0]["LEADER"] if rows else ""


def isr_of(described: str) -> list[str]:
    """The ISR of that partition."""
    rows = rows_of(described)
    return rows[0]["ISR"].split(",") if rows else []


def number_after(label: str, text: str) -> int:
    """The number behind `label:` in an output of labels and values; -1 if there is none."""
    found = re.search(rf"{label}:\s+(-?\d+)", text)
    return -1 if found is None else int(found.group(1))
