"""`kvorum log`: segments on disk."""

from __future__ import annotations

import click

from kvorum.cli.common import CommandFailed


@click.group()
def log() -> None:
    """Look into log segments on disk; reads only."""


@log.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False))
@click.option("--print-data-log", is_flag=True, help="A line for each record as well.")
def dump(paths: tuple[str, ...], print_data_log: bool) -> None:
    """Print what kafka-dump-log prints for segment files PATHS."""
    from raft.control_text import control_text
    from runtime.disk import OsDisk
    from runtime.errors import KvorumError
    from storage.dump import dump_lines

    for path in paths:
        try:
            lines = dump_lines(
                OsDisk(), path, print_data_log=print_data_log, control_text=control_text
            )
            for line in lines:
                click.echo(line)
        except KvorumError as error:
            raise CommandFailed(str(error)) from error
