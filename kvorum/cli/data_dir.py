"""The data directory of a cluster of `kvorum dev`, as its subcommands are given it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

CommandT = TypeVar("CommandT", bound=Callable[..., Any])

DEFAULT_DATA_DIR = "./kvorum-data"


def data_dir_option(command: CommandT) -> CommandT:
    """--data-dir of a subcommand; `kvorum dev --data-dir X status` means the same."""
    return click.option(
        "--data-dir",
        type=click.Path(readable=False),
        default=None,
        help=f"Where the cluster keeps its data.  [default: {DEFAULT_DATA_DIR}]",
    )(command)


def chosen_data_dir(context: click.Context) -> str:
    """The option of the subcommand, else of the group."""
    here: click.Context | None = context
    while here is not None:
        if here.params.get("data_dir") is not None:
            return str(here.params["data_dir"])
        here = here.parent
    return DEFAULT_DATA_DIR
