"""A lesson of the tour.

A lesson is a claim, and a function that shows it with commands which a reader could type. Each fact
that the function states is checked on what the commands printed.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kvorum.runtime.errors import KvorumError
from kvorum.tour.stage import Stage

PATIENT = (
    "broker.session.timeout.ms=30000",
    "rpc.keepalive.time.ms=30000",
    "rpc.keepalive.timeout.ms=30000",
)
"""Properties with which a paused broker stays in the cluster for the length of a lesson."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """number, name: what `kvorum tour` takes.

    claim: one sentence.
    show: runs the commands and states the facts.
    seen: what the reader saw, in a sentence or two.
    code: where it is in the code, a path in the repository.
    page: the document that tells more, a path in the repository.
    try_next: what a reader may try.
    controllers, brokers, properties: of the lesson's cluster; without controllers the lesson starts
        its own nodes.
    """

    number: int
    name: str
    title: str
    claim: str
    show: Callable[[Stage], None]
    seen: str
    code: str
    page: str
    try_next: str
    controllers: int = 1
    brokers: int = 3
    properties: tuple[str, ...] = ()


def find(lessons: Sequence[Lesson], wanted: str) -> Lesson:
    """The lesson of that number or name. Raises KvorumError, with the nearest name."""
    for lesson in lessons:
        if wanted in (str(lesson.number), lesson.name):
            return lesson
    near = difflib.get_close_matches(wanted, [lesson.name for lesson in lessons], n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    raise KvorumError(f"there is no lesson {wanted!r}{hint}; `kvorum tour` lists them")
