"""How a run of a lesson looks on a terminal, or in a pipe. Pure."""

from __future__ import annotations

import textwrap

from kvorum.tour.lesson import Lesson

WIDTH_MAX = 100
WIDTH_MIN = 40
LINES_SHOWN = 14


class Printer:
    """width: columns of the terminal. is_plain: without colours, and in ASCII."""

    def __init__(self, width: int, *, is_plain: bool) -> None:
        self._width = max(WIDTH_MIN, min(width, WIDTH_MAX))
        self._is_plain = is_plain

    def head(self, lesson: Lesson) -> list[str]:
        return ["", self._bold(f"{lesson.number}. {lesson.title}"), *self.text(lesson.claim)]

    def text(self, text: str) -> list[str]:
        return ["", *textwrap.wrap(text, self._width)]

    def command(self, command: str) -> list[str]:
        return ["", self._bold(f"$ {command}")]

    def output(self, output: str) -> list[str]:
        """The lines of an output; those in the middle of a long one are left out."""
        lines = [self._cut(line) for line in output.rstrip("\n").splitlines()]
        left_out = len(lines) - LINES_SHOWN
        if left_out <= 1:
            return lines
        half = LINES_SHOWN // 2
        return [*lines[:half], f"  ({left_out} more lines)", *lines[left_out + half :]]

    def fact(self, text: str, is_held: bool) -> list[str]:
        mark = self._mark(is_held)
        pad = " " * (len(mark) + 1)
        lines = textwrap.wrap(text, self._width - len(pad))
        painted = mark if self._is_plain else f"\x1b[{32 if is_held else 31}m{mark}\x1b[0m"
        return [f"{painted} {lines[0]}", *(pad + line for line in lines[1:])]

    def end(self, lesson: Lesson, is_passed: bool) -> list[str]:
        if not is_passed:
            return ["", f"Lesson {lesson.number} did not show its claim on this run."]
        rows = (
            ("What you saw", lesson.seen),
            ("In the code", lesson.code),
            ("More", lesson.page),
            ("Try next", lesson.try_next),
        )
        lines = [""]
        for name, text in rows:
            lines += textwrap.wrap(
                f"{name}: {text}", self._width, subsequent_indent="  ", break_on_hyphens=False
            )
        return lines

    def _mark(self, is_held: bool) -> str:
        if self._is_plain:
            return "ok " if is_held else "NOT"
        return "✓" if is_held else "✗"

    def _bold(self, text: str) -> str:
        return text if self._is_plain else f"\x1b[1m{text}\x1b[0m"

    def _cut(self, line: str) -> str:
        return line if len(line) <= self._width else line[: self._width - 3] + "..."
