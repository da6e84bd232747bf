"""`kvorum raft`: flight records of the quorum's nodes."""

from __future__ import annotations

import contextlib
import difflib
import os
from typing import TYPE_CHECKING, Any

import click

from kvorum.cli.common import cluster_options, is_structured, output_option, show
from kvorum.client.failures import CommandFailed, warn

if TYPE_CHECKING:
    from kvorum.raft.node.flight_recorder import ReplayDifference

EVENT_CHARACTERS_MAX = 2_000
"""Length of one event or effect in a table; JSON output has it whole."""


@click.group()
def raft() -> None:
    """Flight records: the events that a node of the quorum received, and its effects."""


@raft.command()
@click.option("--node", "node_id", type=int, required=True, help="Id of the controller.")
@click.option(
    "--out", required=True, type=click.Path(dir_okay=False), help="File to write; replaced."
)
@cluster_options
def record(node_id: int, out: str, **options: Any) -> None:
    """Fetch the flight record of a running controller."""
    from kvorum.cli.backends import open_controllers
    from kvorum.runtime.private_files import private_files

    controllers = open_controllers(
        options["bootstrap_server"], options["bootstrap_controller"], options["timeout"]
    )
    partial = f"{out}.tmp"
    lines = 0
    try:
        # The record has the metadata log's records, with the keys of users' passwords among them.
        # A file of an earlier attempt would keep its mode.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(partial)
        with private_files(), open(partial, "xb") as file:
            for piece in controllers.read_flight_record(node_id):
                file.write(piece)
                lines += piece.count(b"\n")
        os.replace(partial, out)
    except OSError as error:
        raise CommandFailed(f"cannot write {out}: {error.strerror}") from error
    finally:
        with contextlib.suppress(OSError):
            os.unlink(partial)
    show(options["output"], {"file": out, "node_id": node_id, "lines": lines})


@raft.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@output_option
def replay(file: str, output: str) -> None:
    """Run the flight record FILE through this version's core; show the first difference."""
    from kvorum import __version__
    from kvorum.raft.node.flight_recorder import FlightRecordError
    from kvorum.raft.node.flight_recorder import replay as run_again

    try:
        with open(file, encoding="utf-8") as lines:
            outcome = run_again(lines)
    except UnicodeDecodeError as error:
        raise CommandFailed(f"{file}: no flight record: byte {error.start} is not text") from error
    except FlightRecordError as error:
        raise CommandFailed(f"{file}: {error}") from error
    difference = outcome.first_difference
    if difference is None and not outcome.is_whole:
        warn(f"{file}: the record ends before its last line")
    if difference is not None and outcome.version != __version__:
        warn(f"{file}: recorded by kvorum {outcome.version}, this is {__version__}")
    if is_structured(output):
        found = None
        if difference is not None:
            found = {
                "line_number": difference.line_number,
                "at_ms": difference.at_ms,
                "event": difference.event,
                "recorded": list(difference.recorded),
                "now": list(difference.now),
            }
        row = {
            "node_id": outcome.node_id,
            "version": outcome.version,
            "reason": outcome.reason,
            "events": outcome.events,
            "is_whole": outcome.is_whole,
            "first_difference": found,
        }
        show(output, row)
    elif difference is None:
        click.echo(f"{outcome.events} events, same effects")
    else:
        _print(difference)
    if difference is not None:
        raise CommandFailed(
            f"{file}: event {outcome.events}, line {difference.line_number}, differs"
        )


def _print(difference: ReplayDifference) -> None:
    """Print the event, then the recorded (-) and the present (+) effects; lines with neither mark
    are in both."""
    where = f"line {difference.line_number}, at {difference.at_ms} ms"
    if difference.event:
        click.echo(f"{where}: {_short(difference.event)}")
    else:
        click.echo(f"{where}: the state of the core at a checkpoint")
    for line in difflib.ndiff(difference.recorded, difference.now):
        if not line.startswith("? "):
            click.echo(_short(line))


def _short(text: str) -> str:
    if len(text) <= EVENT_CHARACTERS_MAX:
        return text
    return f"{text[:EVENT_CHARACTERS_MAX]}... ({len(text)} characters)"
