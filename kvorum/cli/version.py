"""`kvorum version`: which build this is."""

from __future__ import annotations

import platform

import click

from kvorum import __version__
from kvorum.cli.common import is_structured, output_option, show


@click.command()
@output_option
def version(output: str) -> None:
    """The version of Kvorum, and of the Python that runs it."""
    if is_structured(output):
        show(output, {"version": __version__, "python": platform.python_version()})
        return
    click.echo(f"kvorum {__version__}, Python {platform.python_version()}")
