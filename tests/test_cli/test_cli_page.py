"""Every Kvorum command line in docs/cli.md is valid: its options and arguments are parsed."""

from __future__ import annotations

import json
import re
import shlex

import click
import pytest

from kvorum import __version__
from kvorum.cli import examples
from kvorum.cli.main import cli
from tests.command import kvorum
from tests.tree import ROOT

PAGE = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
COMMANDS = sorted(set(re.findall(r"`kvorum ([^`]+)`", PAGE)))
FILES = (
    "orders.txt", "offsets.csv", "moves.json", "topics.json", "plan.json", "flight.jsonl",
    "00000000000000000000.log", "00000000000000000100-0000000001.checkpoint",
)  # fmt: skip
FOLDERS = (
    "cluster/data/controller-1", "data/broker-101/orders-0", "lab", "chaos-runs/RUN",
    "chaos-runs/FIRST", "chaos-runs/SECOND",
)  # fmt: skip
COLUMNS = 4


def parsed(text: str) -> None:
    """Parse a command line without running it. Raises click.UsageError."""
    words = shlex.split(text)
    command: click.Command = cli
    context = click.Context(cli, info_name="kvorum")
    while isinstance(command, click.Group):
        if words and words[0].startswith("-") and command.invoke_without_command:
            break  # `kvorum dev` runs without a command of its own
        name = words.pop(0)
        found = command.get_command(context, name)
        if found is None:
            raise click.UsageError(f"no command {name!r} in {text!r}")
        context = click.Context(found, info_name=name, parent=context)
        command = found
        if not words and isinstance(command, click.Group):
            assert command.invoke_without_command, f"{text} lacks a command"
            return
    with command.make_context(words[0] if words else text, list(words), parent=context.parent):
        pass


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, with every file that the command lines name."""
    for name in FILES:
        (tmp_path / name).touch()
    for name in FOLDERS:
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("text", COMMANDS)
def test_a_command_of_the_page_is_parsed(text, folder):
    parsed(text)


@pytest.mark.parametrize("text", examples.TEXTS)
def test_an_example_of_a_command_s_help_is_parsed(text, folder):
    parsed(text.partition(" > ")[0])


def commands_of(command, path, context):
    """The paths of all commands that run, with their helps."""
    below = command.list_commands(context) if isinstance(command, click.Group) else []
    for name in below:
        found = command.get_command(context, name)
        inner = click.Context(found, info_name=name, parent=context)
        yield from commands_of(found, [*path, name], inner)
    if not below or command.invoke_without_command:
        yield " ".join(path), command.get_help(context)


def test_the_help_of_every_command_has_an_example_of_it():
    found = dict(commands_of(cli, [], click.Context(cli, info_name="kvorum")))
    found.pop("", None)
    assert len(found) > 90
    lacking = [path for path, text in found.items() if f"Examples:\n    kvorum {path}" not in text]
    assert lacking == []
    # An example of a command below `kvorum dev` is none of `kvorum dev` itself.
    assert "kvorum dev stop --data-dir" not in found["dev"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("-b", "h:1", "topics", "list"), "kvorum topics list -b HOST:PORT"),
        (("topics", "-b", "h:1", "list"), "kvorum topics list -b HOST:PORT"),
        (("quorum", "--timeout", "3", "status"), "kvorum quorum add-voter --timeout SECONDS"),
        (("brokers", "-o", "json", "list"), "kvorum brokers list -o json"),
    ],
)
def test_an_option_in_front_of_its_command_is_told_its_place(arguments, line):
    code, out, error = kvorum(*arguments)
    option = next(each for each in arguments if each.startswith("-"))
    assert (code, out) == (2, "")
    assert f"{option} goes behind the command, as in {line}" in " ".join(error.split())


def test_an_unknown_option_has_no_place():
    assert "No such option" in kvorum("--nothing", "topics", "list")[2]


def test_the_version_is_told_by_a_command_and_an_option():
    assert kvorum("version")[1].startswith(f"kvorum {__version__}, Python ")
    assert json.loads(kvorum("version", "-o", "json")[1])["version"] == __version__
    assert kvorum("--version")[1] == f"kvorum, version {__version__}\n"


@pytest.mark.parametrize(
    "text",
    ["topics lst", "topics list --nothing", "topics create", "consume", "groups reset-offsets"],
)
def test_what_is_no_command_is_found(text):
    with pytest.raises(click.UsageError):
        parsed(text)


def test_every_line_has_all_columns_and_says_what_kvorum_does():
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and "---" not in line]
    assert len(rows) > 60
    for row in rows:
        cells = [cell.strip() for cell in row.strip("|").split(" | ")]
        assert len(cells) == COLUMNS and all(cells), row
        assert cells[0] == "task" or cells[3].startswith(("`", "not there")), row
