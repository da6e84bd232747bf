"""How a run of a lesson looks on a terminal, or in a pipe. Pure."""

from __future__ import annotations

import textwrap

from kvorum.tour.lesson import Lesson
from kvorum.tour.picture import Picture
from kvorum.tour.picture_text import lines_of

WIDTH_MAX = 100
WIDTH_MIN = 40
LINES_SHOWN = 14
FOLDS = 5
_MORE = "    "


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
        return ["", *(self._bold(line) for line in f"$ {command}".splitlines())]

    def way_in(self, commands: list[str]) -> list[str]:
        return ["", "The cluster runs on. These commands lead into it, and end it:", *commands]

    def output(self, output: str) -> list[str]:
        """The lines of an output; those in the middle of a long one are left out."""
        lines = output.rstrip("\n").splitlines()
        left_out = len(lines) - LINES_SHOWN
        if left_out > 1:
            half = LINES_SHOWN // 2
            lines = [*lines[:half], f"  ({left_out} more lines)", *lines[left_out + half :]]
        return [piece for line in lines for piece in self._folded(line)]

    def fact(self, text: str, is_held: bool) -> list[str]:
        mark = self._mark(is_held)
        pad = " " * (len(mark) + 1)
        lines = textwrap.wrap(text, self._width - len(pad))
        painted = mark if self._is_plain else f"\x1b[{32 if is_held else 31}m{mark}\x1b[0m"
        return [f"{painted} {lines[0]}", *(pad + line for line in lines[1:])]

    def picture(self, picture: Picture) -> list[str]:
        return ["", *lines_of(picture, self._width, is_plain=self._is_plain)]

    def end(self, lesson: Lesson, is_passed: bool) -> list[str]:
        if not is_passed:
            return ["", f"Lesson {lesson.number} did not show its claim on this run."]
        rows = (
            ("What you saw", lesson.seen),
            ("In the code", lesson.code),
            ("More", lesson.page),
            ("Try next, with --keep", lesson.try_next),
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

    def _folded(self, line: str) -> list[str]:
        """A long line on up to FOLDS lines, without its end if they are too few."""
        if len(line) <= self._width:
            return [line]
        size = self._width - len(_MORE)
        rest = line[self._width :]
        pieces = [rest[at : at + size] for at in range(0, len(rest), size)]
        if len(pieces) >= FOLDS:
            pieces = [*pieces[: FOLDS - 2], pieces[FOLDS - 2][: size - 3] + "..."]
        return [line[: self._width], *(_MORE + piece for piece in pieces)]
