"""Every Kvorum command line in docs/cli.md is valid: its options and arguments are parsed."""

from __future__ import annotations

import re
import shlex

import click
import pytest

from kvorum.cli.main import cli
from tests.tree import ROOT

PAGE = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
COMMANDS = sorted(set(re.findall(r"`kvorum ([^`]+)`", PAGE)))
FILES = ("orders.txt", "offsets.csv", "moves.json")
COLUMNS = 4


def parsed(text: str) -> None:
    """Parse a command line without running it. Raises click.UsageError."""
    words = shlex.split(text)
    command: click.Command = cli
    context = click.Context(cli, info_name="kvorum")
    while isinstance(command, click.Group):
        name = words.pop(0)
        found = command.get_command(context, name)
        if found is None:
            raise click.UsageError(f"no command {name!r} in {text!r}")
        context = click.Context(found, info_name=name, parent=context)
        command = found
        if not words and isinstance(command, click.Group):
            # `kvorum dev` runs without a command of its own.
            assert command.invoke_without_command, f"{text} lacks a command"
            return
    with command.make_context(words[0] if words else text, list(words), parent=context.parent):
        pass


@pytest.mark.parametrize("text", COMMANDS)
def test_a_command_of_the_page_is_parsed(text, tmp_path, monkeypatch):
    for name in FILES:
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    parsed(text)


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
