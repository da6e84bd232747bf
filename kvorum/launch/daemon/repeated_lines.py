"""Limits repeated log lines to growing intervals.

A quorum that cannot elect a leader logs the same few lines several times a second, which would hide
the line with the cause.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

FIRST_PAUSE_S = 1.0
PAUSE_S_MAX = 60.0
LINES_KEPT_MAX = 64
"""Limit of remembered lines; a quorum without a leader has fewer than ten."""


@dataclass(slots=True)
class _Line:
    pause_s: float
    due_s: float
    left_out: int = 0


class RepeatedLines(logging.Filter):
    """A filter for a logger. It limits INFO only: a repeated warning has its own reason."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: dict[str, _Line] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno != logging.INFO:
            return True
        text = record.getMessage()
        line = self._lines.pop(text, None)
        # A line that was absent for twice its pause is new again.
        if line is None or record.created >= line.due_s + line.pause_s:
            line = _Line(FIRST_PAUSE_S, record.created + FIRST_PAUSE_S)
            self._remember(text, line)
            return True
        self._remember(text, line)
        if record.created < line.due_s:
            line.left_out += 1
            return False
        if line.left_out:
            record.msg, record.args = f"{text} (and {line.left_out} times since)", None
        line.pause_s = min(2 * line.pause_s, PAUSE_S_MAX)
        line.due_s, line.left_out = record.created + line.pause_s, 0
        return True

    def _remember(self, text: str, line: _Line) -> None:
        """Remember a line as the newest; the oldest is dropped if there are too many."""
        while len(self._lines) >= LINES_KEPT_MAX:
            del self._lines[next(iter(self._lines))]
        self._lines[text] = line
