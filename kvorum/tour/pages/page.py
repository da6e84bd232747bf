"""A lesson's page under docs/tour, from the JSON of a run. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from kvorum.tour.lesson import Lesson
from kvorum.tour.picture import Part, Picture, Row
from kvorum.tour.printer import WIDTH_MAX, Printer

_FOLDER = re.compile(r"/[^\s\"'=]*/kvorum-tour-\w+")
_ENTRY = re.compile(r"^\| (.+?) \| (?!\(Kvorum\)|of )", re.MULTILINE)
"""An entry of the glossary, unless its word means something else in a lesson."""


def without_machine(told: str, python: str) -> str:
    """A run's JSON without paths of the machine. python: that which runs programs of lessons."""
    return _FOLDER.sub("$PWD", told).replace(python, "python")


def picture_of(told: Mapping[str, Any]) -> Picture:
    """The picture of a run's JSON."""
    rows = [{**row, "parts": tuple(Part(**part) for part in row["parts"])} for row in told["rows"]]
    return Picture(**{**told, "rows": tuple(Row(**row) for row in rows)})


def page(lesson: Lesson, told: Mapping[str, Any], *, picture: str, glossary: str, made: str) -> str:
    """told: the JSON of the run. picture: its file. glossary: docs/glossary.md. made: when, and on
    which machine."""
    document, _, section = lesson.page.partition(" ")
    blocks = [
        f"# {lesson.number}. {lesson.title}",
        lesson.claim,
        f"This is a run of `kvorum tour {lesson.number}` ([the tour](../tour.md)); ✓ is a fact.",
        *_story(told),
        f"![{told['picture']['title']}]({picture})",
        f"**What you saw:** {lesson.seen}",
        f"**In the code:** [{lesson.code}](../../{lesson.code})",
        f"**More:** [{document}](../../{document}) {section}".rstrip(),
        f"**Try next, with `--keep`:** {lesson.try_next}",
        *_words(f"{lesson.claim} {lesson.seen}", glossary),
        f"{made}\n",
    ]
    # Commands with nothing between them are one block.
    return "\n\n".join(blocks).replace("\n```\n\n```console\n", "\n")


def _story(told: Mapping[str, Any]) -> Iterator[str]:
    """Commands with their outputs, and what was said and found between them."""
    printer = Printer(WIDTH_MAX, is_plain=True)
    for number, step in enumerate([*told["commands"], None]):
        for remark in told["remarks"]:
            if remark["after"] == number:
                yield f"✓ {remark['text']}" if remark["is_fact"] else remark["text"]
        if step is not None:
            output = [line.rstrip() for line in printer.output(step["output"])]
            yield "\n".join(["```console", f"$ {step['command']}", *output, "```"])


def _words(text: str, glossary: str) -> Iterator[str]:
    """A line of the glossary's words that occur in the text, if there are any."""
    words = [word for names in _ENTRY.findall(glossary) for word in names.split(", ")]
    found = [word for word in words if re.search(rf"\b{re.escape(word)}(e?s)?\b", text, re.I)]
    if found:
        yield f"**Words,** in the [glossary](../glossary.md): {', '.join(found)}"
