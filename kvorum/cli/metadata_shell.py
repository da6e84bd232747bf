"""The terminal of the metadata shell: prompt, completion and history of lines; or a script.

Uses Python's readline; a Python built without it reads plain lines.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any

import click

from kvorum.cli.metadata_source import Source
from kvorum.client.failures import CommandFailed, warn
from kvorum.metadata.inspect.shell import Shell
from kvorum.runtime.errors import KvorumError

HISTORY_LINES_MAX = 1_000
_HISTORY_FILE = "metadata_shell_history"


def run_shell(source: Source, *, at_offset: int | None) -> None:
    """Run lines until `exit` or the end of the input. On a terminal an error is printed and the
    session continues; in a script the first error ends it. Raises CommandFailed, KvorumError."""
    shell = Shell(source.read, source.read_on, at_offset=at_offset)
    for note in shell.history.notes:
        warn(note)
    if sys.stdin.isatty():
        with _line_editing(shell):
            _talk(shell)
    else:
        _run_script(shell)


def history_path() -> str:
    """The file of the typed lines, in the user's state folder (XDG base directories)."""
    base = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return os.path.join(base, "kvorum", _HISTORY_FILE)


def _run_script(shell: Shell) -> None:
    for number, line in enumerate(sys.stdin, 1):
        try:
            _answer(shell, line)
        except CommandFailed as error:
            raise CommandFailed(f"line {number}: {error}", error.exit_code) from error
        except KvorumError as error:
            raise CommandFailed(f"line {number}: {error}") from error
        if shell.is_over:
            return


def _talk(shell: Shell) -> None:
    click.echo("Metadata shell: it only reads. `help` lists the commands.")
    while not shell.is_over:
        try:
            line = input(shell.prompt)
            _answer(shell, line)
        except EOFError:
            click.echo()
            return
        except KeyboardInterrupt:
            click.echo()
        except (CommandFailed, KvorumError) as error:
            click.echo(str(error), err=True)


def _answer(shell: Shell, line: str) -> None:
    for text in shell.run(line):
        click.echo(text)


@contextlib.contextmanager
def _line_editing(shell: Shell) -> Iterator[None]:
    """Completion with Tab, and the lines of earlier sessions."""
    try:
        import readline
    except ImportError:
        yield
        return
    path = history_path()
    _read_lines(readline, path)
    readline.set_completer_delims(" \t\n")
    readline.set_completer(_Completer(shell, readline))
    # libedit, which replaces readline on macOS, has other configuration commands.
    is_libedit = "libedit" in (readline.__doc__ or "")
    readline.parse_and_bind("bind ^I rl_complete" if is_libedit else "tab: complete")
    try:
        yield
    finally:
        readline.set_completer(None)
        _save_lines(readline, path)


class _Completer:
    """readline asks for the first, second, ... completion of a word until there is none."""

    def __init__(self, shell: Shell, readline: Any) -> None:
        self._shell = shell
        self._readline = readline
        self._found: list[str] = []

    def __call__(self, text: str, state: int) -> str | None:
        if state == 0:
            line = self._readline.get_line_buffer()[: self._readline.get_endidx()]
            try:
                self._found = self._shell.complete(line.lstrip())
            except KvorumError:
                # The command itself reports the error when the line is run.
                self._found = []
        return self._found[state] if state < len(self._found) else None


def _read_lines(readline: Any, path: str) -> None:
    try:
        readline.read_history_file(path)
    except FileNotFoundError:
        return
    except OSError as error:
        warn(f"{path}: {error.strerror}; lines of earlier sessions are not there")


def _save_lines(readline: Any, path: str) -> None:
    readline.set_history_length(HISTORY_LINES_MAX)
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        readline.write_history_file(path)
    except OSError as error:
        warn(f"{path}: {error.strerror}; the lines of this session are not kept")
