"""The common parts of all commands: exit codes, output forms, and errors."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

from kvorum.cli.client_security import command_config_option
from kvorum.cli.profiles import ENVIRONMENT_BOOTSTRAP, OUTPUTS, ProfileOption, profile_option
from kvorum.client.failures import EXIT_FAILED, EXIT_USAGE, CommandFailed
from kvorum.runtime.errors import ConfigError, CorruptData, DirectoryUnusable
from kvorum.runtime.text import address_problem, split_address

EXIT_VERDICT_FAILED = 6

#: The largest values of the protocols' fields.
INT16_MAX, INT32_MAX, INT64_MAX = (1 << 15) - 1, (1 << 31) - 1, (1 << 63) - 1

DEFAULT_BOOTSTRAP = "localhost:9092"
DEFAULT_TIMEOUT_S = 5.0


CommandT = TypeVar("CommandT", bound=Callable[..., Any])


def refused(error: ConfigError | CorruptData) -> CommandFailed:
    """The failure for an error that a node's start would report too: a usage error, unless a disk
    or its files are the cause."""
    is_disk = isinstance(error, CorruptData | DirectoryUnusable)
    return CommandFailed(str(error), EXIT_FAILED if is_disk else EXIT_USAGE)


def number_of(count: int, noun: str) -> str:
    """`1 record`, `2 records`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def confirm(question: str) -> None:
    """Ask before a deletion; returns for a yes. Raises CommandFailed for a no, and if standard
    input ends before an answer. Ctrl-C is a click.Abort."""
    try:
        is_sure = click.confirm(question, err=True)
    except click.Abort as error:
        if isinstance(error.__context__, EOFError):
            click.echo(err=True)
            raise CommandFailed(
                "nothing was changed: standard input ended before an answer; --yes asks no question"
            ) from error
        raise
    if not is_sure:
        raise CommandFailed("nothing was changed")


#: The forms of an answer that a program reads; the others are for people.
STRUCTURED = ("json", "yaml")


def is_structured(output: str) -> bool:
    """True for an output that has every key of an answer, under names that do not change."""
    return output in STRUCTURED


def output_option_of(cls: type[ProfileOption]) -> Callable[[CommandT], CommandT]:
    """-o with every format, as an option of this class."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(OUTPUTS),
        cls=cls,
        default="table",
        help="Format of the output; wide: a table with every column; name: its first column alone.",
    )


output_option = output_option_of(ProfileOption)
#: For a command whose answers are not rows.
plain_output_option = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    help="Format of the output.",
)


def cluster_options(command: CommandT) -> CommandT:
    """Add the options by which a command finds its cluster and prints its answer."""
    return connection_options(output_option(command))


def connection_options(command: CommandT) -> CommandT:
    """Add the options by which a command finds its cluster."""
    for option in (
        click.option(
            "--timeout",
            type=click.FloatRange(min=0.1),
            cls=ProfileOption,
            default=DEFAULT_TIMEOUT_S,
            show_default=True,
            help="Seconds to wait for an answer.",
        ),
        click.option(
            "--bootstrap-controller",
            metavar="HOST:PORT",
            cls=ProfileOption,
            help="Any controller of the cluster.",
        ),
        click.option(
            "-b",
            "--bootstrap-server",
            metavar="HOST:PORT",
            cls=ProfileOption,
            help="Any broker of the cluster. Else $KVORUM_BOOTSTRAP_SERVER, the profile's, or "
            f"{DEFAULT_BOOTSTRAP}.",
        ),
        command_config_option,
        profile_option,
    ):
        command = option(command)
    return command


def bootstrap_of(
    bootstrap_server: str | None, bootstrap_controller: str | None
) -> tuple[str, list[tuple[str, int]]]:
    """("broker" or "controller", addresses), in the order of precedence of the options.

    Raises click.UsageError if both options are given or an address is invalid.
    """
    if bootstrap_server and bootstrap_controller:
        raise click.UsageError("give --bootstrap-server or --bootstrap-controller, not both")
    if bootstrap_controller:
        return "controller", _addresses(bootstrap_controller)
    text = bootstrap_server or os.environ.get(ENVIRONMENT_BOOTSTRAP) or DEFAULT_BOOTSTRAP
    return "broker", _addresses(text)


def broker_addresses(options: Mapping[str, Any], why: str) -> list[tuple[str, int]]:
    """The brokers of a command that controllers cannot serve. why: a clause that says so. Raises
    click.UsageError."""
    if options["bootstrap_controller"]:
        raise click.UsageError(f"{why}: give --bootstrap-server")
    return bootstrap_of(options["bootstrap_server"], None)[1]


def _addresses(text: str) -> list[tuple[str, int]]:
    addresses = []
    for part in text.split(","):
        address = split_address(part.strip())
        if address is None:
            raise click.UsageError(address_problem(part.strip()))
        addresses.append(address)
    return addresses


def show(output: str, data: Any, columns: Sequence[str] | None = None) -> None:
    """Print data: JSON or YAML as it is, or a table of rows (mappings) with these columns; wide:
    with the rows' other keys behind them.

    The keys are snake_case and stable; a table's headings are the same words.
    """
    if output == "json":
        click.echo(json.dumps(data, indent=2))
        return
    if output == "yaml":
        import yaml

        click.echo(yaml.safe_dump(data, sort_keys=False, allow_unicode=True), nl=False)
        return
    rows = data if isinstance(data, list) else [data]
    headings = list(columns or (rows[0] if rows else []))
    if output == "name":
        # A topic's partitions have a row each, and its name is printed once.
        for name in dict.fromkeys(_cell(row.get(headings[0])) for row in rows):
            click.echo(name)
        return
    if output == "wide":
        headings += [key for key in (rows[0] if rows else ()) if key not in headings]
    cells = [[_cell(row.get(column)) for column in headings] for row in rows]
    widths = [
        max(len(heading), *(len(row[i]) for row in cells)) if cells else len(heading)
        for i, heading in enumerate(headings)
    ]
    for line in ([h.upper() for h in headings], *cells):
        click.echo("  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip())


def show_outcomes(
    output: str, rows: Sequence[dict[str, Any]], columns: Sequence[str], *, done: str
) -> None:
    """Print the result of each item of a request.

    columns: the first names the item; the others are shown after the result. A row's `error` is
    NONE if the item succeeded. JSON prints NONE; a table prints `done` instead, since NONE in an
    ERROR column reads like a failure. A row's own `result` is printed as it is.
    """
    if is_structured(output):
        show(output, list(rows))
        return
    shown = [{"result": done if row["error"] == "NONE" else row["error"], **row} for row in rows]
    show(output, shown, columns)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ",".join(str(item) for item in value)
    return str(value)
