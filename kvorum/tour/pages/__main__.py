"""`python -m kvorum.tour.pages docs/tour [LESSON...]`: runs lessons, and writes their pages and
pictures. A driver."""

from __future__ import annotations

import datetime
import json
import os
import platform
import shlex
import subprocess
import sys
from pathlib import Path

from kvorum import __version__
from kvorum.runtime.python_module import module_command
from kvorum.tour.lesson import Lesson, find
from kvorum.tour.lessons import LESSONS
from kvorum.tour.pages.page import page, picture_of, without_machine
from kvorum.tour.pages.picture_svg import svg


def main(folder: str, *names: str) -> None:
    for lesson in [find(LESSONS, name) for name in names] or LESSONS:
        _write(lesson, Path(folder) / f"{lesson.number:02}-{lesson.name}.md")


def _write(lesson: Lesson, path: Path) -> None:
    """Raises CalledProcessError if the lesson does not show its claim."""
    command = module_command("kvorum", "tour", lesson.name, "-o", "json")
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    told = json.loads(without_machine(done.stdout.decode(), shlex.quote(sys.executable)))
    picture = path.with_suffix(".svg")
    picture.write_text(svg(picture_of(told["picture"])), encoding="utf-8")
    glossary = (path.parents[1] / "glossary.md").read_text(encoding="utf-8")
    text = page(lesson, told, picture=picture.name, glossary=glossary, made=_made())
    path.write_text(text, encoding="utf-8")


def _made() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    return (
        f"Run on {datetime.datetime.now(datetime.UTC):%Y-%m-%d} with Kvorum {__version__}: "
        f"{os.cpu_count()} cores, {memory:.0f} GiB of memory, {platform.system()} "
        f"{platform.release()}, Python {platform.python_version()}."
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
