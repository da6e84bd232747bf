"""The pages of lessons: how one is written, and that those of the repository are there."""

from __future__ import annotations

import dataclasses
import json
import pathlib

import pytest

from kvorum.tour.lesson import Lesson, find
from kvorum.tour.lessons import LESSONS
from kvorum.tour.pages.page import page, picture_of, without_machine
from kvorum.tour.pages.picture_svg import svg
from kvorum.tour.picture import logs

ROOT = pathlib.Path(__file__).parents[2]
GLOSSARY = """\
| word | means |
| --- | --- |
| batch, pack | a record batch |
| claim | of a new quorum leader: to become active |
| desk | (Kvorum) of the console |
| epoch | a leader's term |
"""
PICTURE = logs("A log", {"101": ["one", ""]}, marks=((1, "end"),), key=((0, "a record"),))
RUN = {
    "commands": [
        {"command": "true", "exit_code": 0, "output": ""},
        {"command": "echo one", "exit_code": 0, "output": "one \n"},
        {"command": "seq 30", "exit_code": 0, "output": "\n".join(map(str, range(1, 31)))},
    ],
    "remarks": [
        {"after": 2, "text": "Numbers follow.", "is_fact": False},
        {"after": 3, "text": "There are 30.", "is_fact": True},
    ],
    "picture": json.loads(json.dumps(dataclasses.asdict(PICTURE))),
}
PAGE = """\
# 6. acks=0, 1, all: what an answer means

Two batches, a claim, on a desk.

This is a run of `kvorum tour 6` ([the tour](../tour.md)); ✓ is a fact.

```console
$ true
$ echo one
one
```

Numbers follow.

```console
$ seq 30
1
2
3
4
5
6
7
  (16 more lines)
24
25
26
27
28
29
30
```

✓ There are 30.

![A log](06-acks.svg)

**What you saw:** numbers.

**In the code:** [kvorum/tour](../../kvorum/tour)

**More:** [docs/configs.md](../../docs/configs.md) (Quotas)

**Try next, with `--keep`:** seq 31

**Words,** in the [glossary](../glossary.md): batch

Run today.
"""


def test_a_page_tells_a_run_in_its_order():
    lesson = dataclasses.replace(
        find(LESSONS, "acks"),
        claim="Two batches, a claim, on a desk.",
        seen="numbers.",
        code="kvorum/tour",
        page="docs/configs.md (Quotas)",
        try_next="seq 31",
    )
    made = page(lesson, RUN, picture="06-acks.svg", glossary=GLOSSARY, made="Run today.")
    assert made == PAGE


def test_the_picture_of_a_run_is_read_back():
    assert svg(picture_of(RUN["picture"])) == svg(PICTURE)


def test_a_page_names_no_folder_of_the_machine():
    told = (
        "exec /opt/a/python x.py; see /var/tmp/kvorum-tour-a_1b/lab/x.log and '/tmp/kvorum-tour-c'"
    )
    assert without_machine(told, "/opt/a/python") == (
        "exec python x.py; see $PWD/lab/x.log and '$PWD'"
    )


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.name)
def test_a_lesson_has_its_page_with_its_claim_and_its_picture(lesson: Lesson):
    """If not: make tour-pages LESSON=name."""
    path = ROOT / "docs" / "tour" / f"{lesson.number:02}-{lesson.name}.md"
    text = path.read_text(encoding="utf-8")
    assert lesson.claim in text and lesson.seen in text
    assert f"]({path.stem}.svg)" in text and path.with_suffix(".svg").exists()


def test_a_page_of_the_repository_belongs_to_a_lesson():
    names = {f"{lesson.number:02}-{lesson.name}" for lesson in LESSONS}
    assert {path.stem for path in (ROOT / "docs" / "tour").iterdir()} <= names
