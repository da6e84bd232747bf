"""--watch: a command that reads is run again and again, until Ctrl-C."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import click

CommandT = TypeVar("CommandT", bound=Callable[..., Any])
_CLEAR = "\x1b[H\x1b[2J"


def watchable(command: CommandT) -> CommandT:
    """Give a command that changes nothing --watch and --interval.

    On a terminal each answer takes the place of the one before. Elsewhere answers follow one
    another: JSON a line each, YAML a document each. An answer that fails is shown as its sentence,
    under the key `error` if the output is structured, and the next one is asked for.
    """

    @functools.wraps(command)
    def run(*args: Any, watch: bool, interval: float, **options: Any) -> Any:
        if not watch:
            return command(*args, **options)
        return _watch(functools.partial(command, *args, **options), options, interval)

    watch = click.option("-w", "--watch", is_flag=True, help="Ask again and again, until Ctrl-C.")
    return watch(_interval_option(run))  # type: ignore[return-value]


def live(command: CommandT) -> CommandT:
    """As `watchable`, for a view that is renewed unless told otherwise: a table on a terminal is
    watched, and anything else is asked for once."""

    @functools.wraps(command)
    def run(*args: Any, watch: bool | None, interval: float, **options: Any) -> Any:
        if watch is None:
            watch = sys.stdout.isatty() and options.get("output") in ("table", "wide")
        if not watch:
            return command(*args, **options)
        return _watch(functools.partial(command, *args, **options), options, interval)

    watch = click.option(
        "-w/-1",
        "--watch/--once",
        default=None,
        help="Ask again and again, until Ctrl-C; the default on a terminal.",
    )
    return watch(_interval_option(run))  # type: ignore[return-value]


_interval_option = click.option(
    "--interval",
    type=click.FloatRange(min=0.1),
    default=2.0,
    show_default=True,
    help="Seconds between two answers of --watch.",
)


def _watch(ask: Callable[[], Any], options: dict[str, Any], interval_s: float) -> None:
    from kvorum.cli.common import is_structured

    output = options.get("output", "table")
    while True:
        text, failure = _answer(ask)
        if not is_structured(output) or not text:
            text = _with_failure(text, failure, output)
        elif failure:
            # The rows are an answer all the same, such as those of `kvorum health`.
            click.echo(failure, err=True)
        sys.stdout.write(_framed(text, output, sys.stdout.isatty()))
        sys.stdout.flush()
        time.sleep(interval_s)


def _answer(ask: Callable[[], Any]) -> tuple[str, str]:
    """The output of the command, and its failure as a sentence; "" for none."""
    from kvorum.client.failures import CommandFailed

    printed = io.StringIO()
    try:
        with one_answer(), contextlib.redirect_stdout(printed):
            ask()
    except CommandFailed as error:
        return printed.getvalue(), f"kvorum: {error}"
    return printed.getvalue(), ""


def _with_failure(text: str, failure: str, output: str) -> str:
    """The text of a table, or of a structured answer without rows, with the failure in it."""
    if not failure:
        return text
    if output == "json":
        return json.dumps({"error": failure})
    if output == "yaml":
        import yaml

        return str(yaml.safe_dump({"error": failure}, allow_unicode=True))
    return f"{text}{failure}\n"


@contextlib.contextmanager
def one_answer() -> Iterator[None]:
    """For a command that asks more than once: close at the end of the block the connections that
    were opened in it."""
    context = click.get_current_context()
    with click.Context(context.command, parent=context) as own:
        own.params = context.params
        yield


def _framed(text: str, output: str, is_terminal: bool) -> str:
    """The text of one answer in a sequence of answers."""
    if is_terminal:
        return f"{_CLEAR}{text}"
    if output == "yaml":
        return f"---\n{text}"
    if output == "json":
        return json.dumps(json.loads(text)) + "\n"
    return f"{text}\n"
