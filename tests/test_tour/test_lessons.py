"""The tour without a cluster: what a lesson is, how it looks, and what is refused."""

from __future__ import annotations

import os
import pathlib
import re

import pytest
from click.testing import CliRunner

from kvorum.cli.tour import tour
from kvorum.client.failures import CommandFailed
from kvorum.runtime.errors import KvorumError
from kvorum.tour.lesson import find
from kvorum.tour.lessons import LESSONS
from kvorum.tour.printer import LINES_SHOWN, Printer
from kvorum.tour.stage import Stage
from kvorum.tour.telling import NotShown, number_after, rows_of
from tests.polling import eventually

ROOT = pathlib.Path(__file__).parents[2]
TABLE = """TOPIC   PARTITION  LEADER  REPLICAS     ISR  ELR
orders  0          101     101,103,102  101
orders  1          -1      103,101,102       103
"""


def stage() -> Stage:
    return Stage(
        controllers=1,
        brokers=1,
        properties=(),
        on_text=lambda text: None,
        on_command=lambda command: None,
        on_output=lambda output: None,
        on_fact=lambda text, is_held: None,
        on_picture=lambda picture: None,
    )


def test_lessons_have_numbers_and_names_of_their_own_in_order():
    numbers = [lesson.number for lesson in LESSONS]
    assert numbers == sorted(set(numbers))
    assert len({lesson.name for lesson in LESSONS}) == len(LESSONS)


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.name)
def test_a_lesson_leads_to_code_and_a_page_that_are_there(lesson):
    assert (ROOT / lesson.code).exists()
    assert (ROOT / lesson.page.split()[0]).exists()
    row = f"| {lesson.number} | [{lesson.name}](./tour/{lesson.number:02}-{lesson.name}.md) |"
    assert row in (ROOT / "docs/tour.md").read_text(encoding="utf-8")


def test_the_rows_of_a_table_are_read_with_their_empty_cells():
    first, second = rows_of(f"a line before\n{TABLE}")
    assert (first["LEADER"], first["ISR"], first["ELR"]) == ("101", "101", "")
    assert (second["LEADER"], second["ISR"], second["ELR"]) == ("-1", "", "103")
    assert rows_of("no table") == []


def test_the_number_behind_a_label_is_read():
    told = "LeaderId:  -1\nLeaderEpoch:   12\n"
    assert (number_after("LeaderId", told), number_after("LeaderEpoch", told)) == (-1, 12)
    assert number_after("HighWatermark", told) == -1


def test_a_lesson_is_found_by_number_and_name_and_a_typing_error_gets_a_hint():
    assert find(LESSONS, "6") is find(LESSONS, "acks")
    with pytest.raises(KvorumError, match=r"did you mean elections\?"):
        find(LESSONS, "election")


def test_a_fact_that_does_not_hold_ends_the_lesson():
    run = stage()
    with pytest.raises(NotShown, match="this did not hold: water is dry"):
        run.fact("water is dry", False)
    run.stop()
    assert not run.folder.exists()


def test_a_command_that_fails_ends_the_lesson_and_one_in_vain_is_to_fail():
    run = stage()
    try:
        with pytest.raises(NotShown, match="ended with 3"):
            run.run("exit 3")
        assert run.run_in_vain("echo no; exit 3") == "no\n"
        with pytest.raises(NotShown, match="was to fail"):
            run.run_in_vain("true")
        assert [step.exit_code for step in run.telling.steps] == [3, 3, 0]
    finally:
        run.stop()


@pytest.mark.parametrize("width", [20, 60, 200])
def test_no_line_is_wider_than_the_terminal(width):
    printer = Printer(width, is_plain=True)
    lines = [
        *printer.head(LESSONS[0]),
        *printer.output("x" * 500),
        *printer.fact("a fact of many words " * 9, False),
        *printer.end(LESSONS[0], True),
    ]
    assert max(map(len, lines)) <= max(40, min(width, 100))


def test_a_pipe_gets_neither_colours_nor_other_signs():
    printer = Printer(80, is_plain=True)
    lines = [*printer.command("true"), *printer.fact("so it is", True), *printer.head(LESSONS[0])]
    assert all(line.isascii() and "\x1b" not in line for line in lines)


def test_a_long_output_is_cut_in_the_middle():
    lines = Printer(80, is_plain=True).output("\n".join(map(str, range(100))))
    assert (lines[0], lines[-1], len(lines)) == ("0", "99", LINES_SHOWN + 1)
    assert re.search(r"\(86 more lines\)", "\n".join(lines))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [(["nothing"], "there is no lesson 'nothing'"), (["6", "--pause"], "needs a terminal")],
)
def test_what_cannot_be_shown_is_refused_in_a_sentence(arguments, says):
    result = CliRunner().invoke(tour, arguments)
    assert isinstance(result.exception, CommandFailed)
    assert says in str(result.exception)


def test_a_program_that_a_lesson_left_ends_with_it():
    run = stage()
    run.run("(sleep 60 > /dev/null 2>&1 & echo $! > pid)")
    pid = (run.folder / "pid").read_text().strip()
    assert os.readlink(f"/proc/{pid}/cwd") == str(run.folder)
    run.stop()
    eventually(lambda: not has_folder(pid), "the program has ended")


def has_folder(pid: str) -> bool:
    """False for a process that has ended, also if nobody has waited for it yet."""
    try:
        return bool(os.readlink(f"/proc/{pid}/cwd"))
    except OSError:
        return False
