"""`kvorum tour`: lessons on a live cluster, each a claim and the commands that show it."""

from __future__ import annotations

import dataclasses
import shutil
import signal
import sys
from typing import TYPE_CHECKING, Any

import click

from kvorum.cli.common import is_structured, show
from kvorum.client.failures import EXIT_FAILED, CommandFailed
from kvorum.runtime.errors import KvorumError

if TYPE_CHECKING:
    from kvorum.tour.lesson import Lesson
    from kvorum.tour.printer import Printer
    from kvorum.tour.stage import Stage
    from kvorum.tour.telling import Telling


@click.command()
@click.argument("lesson", required=False)
@click.option("--pause", is_flag=True, help="Wait for Enter before each command.")
@click.option("--keep", is_flag=True, help="Leave the cluster running, and say where it is.")
@click.option(
    "-o", "--output", type=click.Choice(("table", "json")), default="table",
    help="json: the facts and commands of a run, or the list of lessons.",
)  # fmt: skip
def tour(lesson: str | None, pause: bool, keep: bool, output: str) -> None:
    """Show a claim about Kafka's architecture on a cluster of its own, in under a minute.

    LESSON is a number or a name; without one the lessons are listed. Each command is real: it can
    be copied. The exit code is 0 if every fact of the lesson held.
    """
    from kvorum.tour.lesson import find
    from kvorum.tour.lessons import LESSONS
    from kvorum.tour.telling import NotShown

    if lesson is None:
        rows = [{"lesson": each.number, "name": each.name, "title": each.title} for each in LESSONS]
        show(output, rows)
        return
    if pause and (not sys.stdin.isatty() or is_structured(output)):
        raise CommandFailed("--pause waits for Enter: it needs a terminal, and no -o json", 2)
    try:
        wanted = find(LESSONS, lesson)
    except KvorumError as error:
        raise CommandFailed(str(error), 2) from error
    stage = _stage(wanted, pause=pause, is_silent=is_structured(output))
    reason = None
    # A kill leaves nothing behind either.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        stage.start()
        wanted.show(stage)
    except NotShown as failure:
        reason = str(failure)
    except (LookupError, ValueError) as unread:
        reason = f"an output was not as expected: {unread!r}"
    except (KeyboardInterrupt, click.Abort):
        keep = False
        raise
    finally:
        if not keep:
            stage.stop()
    if keep and not is_structured(output):
        for line in _printer().way_in(stage.way_in()):
            click.echo(line)
    _finish(wanted, stage, output, reason, keep)


def _finish(lesson: Lesson, stage: Stage, output: str, reason: str | None, keep: bool) -> None:
    is_passed = reason is None and bool(stage.telling.facts)
    if is_structured(output):
        fields = _fields(lesson, stage.telling, is_passed, reason)
        show(output, {**fields, "kept": stage.way_in() if keep else None})
    else:
        for line in _printer().end(lesson, is_passed):
            click.echo(line)
    if not is_passed:
        raise CommandFailed(reason or "no fact was stated", EXIT_FAILED)


def _fields(
    lesson: Lesson, telling: Telling, is_passed: bool, reason: str | None
) -> dict[str, Any]:
    return {
        "lesson": lesson.number,
        "name": lesson.name,
        "claim": lesson.claim,
        "passed": is_passed,
        "reason": reason,
        "facts": [{"fact": fact.text, "holds": fact.is_held} for fact in telling.facts],
        "commands": [dataclasses.asdict(step) for step in telling.steps],
        "remarks": [
            {"after": each.after, "text": each.text, "is_fact": each.is_held is not None}
            for each in telling.remarks
        ],
        "picture": dataclasses.asdict(telling.picture) if telling.picture else None,
    }


def _stage(lesson: Lesson, *, pause: bool, is_silent: bool) -> Stage:
    from kvorum.tour.stage import Stage

    def say(lines: list[str]) -> None:
        if not is_silent:
            for line in lines:
                click.echo(line)

    def wait() -> None:
        if pause:
            click.prompt("", prompt_suffix="[Enter] ", default="", show_default=False, err=True)

    printer = _printer()
    say(printer.head(lesson))
    return Stage(
        controllers=lesson.controllers,
        brokers=lesson.brokers,
        properties=lesson.properties,
        on_text=lambda text: say(printer.text(text)),
        on_command=lambda command: say(printer.command(command)),
        on_output=lambda output: say(printer.output(output)),
        on_fact=lambda text, is_held: say(printer.fact(text, is_held)),
        on_picture=lambda picture: say(printer.picture(picture)),
        pause=wait,
    )


def _printer() -> Printer:
    from kvorum.tour.printer import Printer

    encoding = (sys.stdout.encoding or "").lower()
    is_plain = not sys.stdout.isatty() or "utf" not in encoding
    return Printer(shutil.get_terminal_size((80, 24)).columns, is_plain=is_plain)
