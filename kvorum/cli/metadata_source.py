"""The sources of the metadata commands: the cluster, a checkpoint file, or a node's folder.

All sources are only read. Warnings about a source go to stderr.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from kvorum.cli.common import CommandT, cluster_options
from kvorum.client.failures import CommandFailed, warn

if TYPE_CHECKING:
    from kvorum.metadata.image.image import ClusterImage
    from kvorum.metadata.inspect.history import MetadataHistory

LIVE = "the cluster"
LIVE_WORD = "live"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A source to read. read: returns the whole history. read_on: returns the given history with
    the records that have been added since; None if the source does not grow."""

    read: Callable[[], MetadataHistory]
    read_on: Callable[[MetadataHistory], MetadataHistory] | None = None


def source_options(command: CommandT) -> CommandT:
    """Options of a command that shows one image; see `open_source`."""
    at_offset = click.option(
        "--at-offset",
        type=click.IntRange(min=0),
        metavar="N",
        help="Show the metadata at offset N (exclusive).",
    )
    return at_offset(place_options(command))


def place_options(command: CommandT) -> CommandT:
    """Options that name a source."""
    command = cluster_options(command)
    for option in (
        click.option(
            "--directory",
            type=click.Path(exists=True, file_okay=False),
            help="Read a node's data directory; the node may be running.",
        ),
        click.option(
            "--snapshot",
            type=click.Path(exists=True, dir_okay=False),
            help="Read this checkpoint file.",
        ),
    ):
        command = option(command)
    return command


def open_source(options: dict[str, Any]) -> Source:
    """The source that a command's options name; the cluster if they name none.

    Raises click.UsageError if they name two.
    """
    named = [
        name
        for name in ("snapshot", "directory", "bootstrap_server", "bootstrap_controller")
        if options.get(name)
    ]
    is_file = "snapshot" in named or "directory" in named
    if is_file and len(named) > 1:
        both = " and ".join(f"--{name.replace('_', '-')}" for name in named)
        raise click.UsageError(f"give one source: {both} name two")
    if is_file:
        return source_of_path(options[named[0]])
    return _live(options)


def source_of_path(path: str) -> Source:
    """A checkpoint file, or a node's folder."""
    from kvorum.metadata.inspect.node_directory import history_of_directory, history_of_file
    from kvorum.runtime.disk import OsDisk

    if os.path.isdir(path):
        return Source(read=lambda: history_of_directory(OsDisk(), path))
    return Source(read=lambda: history_of_file(OsDisk(), path))


def _live(options: dict[str, Any]) -> Source:
    """The committed metadata. A broker names the controllers; one of them sends it."""
    from kvorum.cli.backends import open_controllers
    from kvorum.metadata.inspect.history import history_of

    controllers = open_controllers(
        options["bootstrap_server"], options["bootstrap_controller"], options["timeout"]
    )
    return Source(
        read=lambda: history_of(controllers.read_metadata_log(), name=LIVE),
        read_on=lambda held: held.extended(controllers.read_metadata_log(held.end_offset)),
    )


def read_history(options: dict[str, Any]) -> MetadataHistory:
    """The whole history of a command's source; warnings go to stderr."""
    history = open_source(options).read()
    for note in history.notes:
        warn(note)
    return history


def read_image(options: dict[str, Any]) -> ClusterImage:
    """The image that the command's options select."""
    return read_history(options).image_at(options["at_offset"])


@contextlib.contextmanager
def in_a_sentence() -> Iterator[None]:
    """Turn an error about a source or a path into a failure of the command, which has one
    sentence."""
    from kvorum.runtime.errors import KvorumError

    try:
        yield
    except KvorumError as error:
        raise CommandFailed(str(error)) from error
