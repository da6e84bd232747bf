"""What a run of a lesson has told, and how outputs of commands are read. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from kvorum.runtime.errors import KvorumError

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


@dataclass(slots=True)
class Telling:
    """A run's record, in its order: texts, steps, and facts with whether they held."""

    events: list[str | Step | tuple[str, bool]] = field(default_factory=list)

    @property
    def facts(self) -> list[tuple[str, bool]]:
        return [event for event in self.events if isinstance(event, tuple)]

    @property
    def steps(self) -> list[Step]:
        return [event for event in self.events if isinstance(event, Step)]

    def is_passed(self) -> bool:
        """True if a fact was stated, and every one held."""
        return bool(self.facts) and all(held for _, held in self.facts)


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
