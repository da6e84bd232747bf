"""`kvorum metadata`: the cluster metadata as a tree, its history, its export. Reads only."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import click

from kvorum.cli.common import is_structured, show
from kvorum.cli.metadata_source import (
    LIVE_WORD,
    in_a_sentence,
    open_source,
    place_options,
    read_history,
    read_image,
    source_of_path,
    source_options,
)
from kvorum.client.failures import CommandFailed, warn

if TYPE_CHECKING:
    from kvorum.metadata.image.image import ClusterImage


@click.group()
def metadata() -> None:
    """Inspect the cluster metadata: live, in a checkpoint file, or in a node's folder."""


@metadata.command()
@click.argument("path", default="/")
@source_options
def ls(path: str, **options: Any) -> None:
    """Names below PATH: /brokers, /topics, /configs, /features, ..."""
    from kvorum.metadata.inspect.tree import children

    with in_a_sentence():
        names = children(read_image(options), path)
    if is_structured(options["output"]):
        show(options["output"], names)
    else:
        for name in names:
            click.echo(name)


@metadata.command()
@click.argument("path")
@source_options
def cat(path: str, **options: Any) -> None:
    """All values at or below PATH, as JSON."""
    from kvorum.metadata.inspect.tree import content

    with in_a_sentence():
        found = content(read_image(options), path)
    click.echo(json.dumps(found, indent=2))


@metadata.command()
@click.argument("path", default="/")
@click.option("--depth", type=click.IntRange(min=1), help="Levels to show; all if not given.")
@source_options
def tree(path: str, depth: int | None, **options: Any) -> None:
    """PATH and everything below it, a line each."""
    from kvorum.metadata.inspect.tree import resolve, root
    from kvorum.metadata.inspect.tree_queries import tree_content, tree_lines

    with in_a_sentence():
        node = resolve(root(read_image(options)), path)
    if is_structured(options["output"]):
        show(options["output"], tree_content(node, depth))
        return
    for line in tree_lines(node, depth):
        click.echo(line)


@metadata.command()
@click.argument("pattern")
@click.option("--start", default="/", help="Look only below this path.")
@click.option("--value", metavar="TEXT", help="Only values that contain TEXT.")
@source_options
def find(pattern: str, start: str, value: str | None, **options: Any) -> None:
    """Paths that match PATTERN.

    A PATTERN without a slash is a name at any depth. Otherwise it is a path in which *, ? and [...]
    stand for characters of a name and ** for any number of names. Quote it against your shell.
    """
    from kvorum.metadata.inspect.tree import root
    from kvorum.metadata.inspect.tree_queries import find as find_in
    from kvorum.metadata.inspect.tree_queries import found_line

    with in_a_sentence():
        found = list(find_in(root(read_image(options)), pattern, start=start, value_text=value))
    if is_structured(options["output"]):
        show(options["output"], [{"path": p, "is_folder": f, "value": v} for p, v, f in found])
        return
    for path, leaf, is_folder in found:
        click.echo(found_line(path, leaf, is_folder=is_folder))


@metadata.command()
@click.argument("before")
@click.argument("after")
@place_options
def diff(before: str, after: str, **options: Any) -> None:
    """Differences between BEFORE and AFTER.

    Each is an offset of the source that the options name, or a source of its own: a checkpoint
    file, a node's folder, or `live` for the cluster; @N behind it means at offset N.
    """
    from dataclasses import asdict

    from kvorum.metadata.inspect.tree import root
    from kvorum.metadata.inspect.tree_queries import difference, difference_line

    with in_a_sentence():
        old, new = _two_images(before, after, options)
        differences = list(difference(root(old), root(new)))
    if is_structured(options["output"]):
        show(options["output"], [asdict(each) for each in differences])
        return
    for each in differences:
        click.echo(difference_line(each))


@metadata.command()
@click.option("--from", "start", type=click.IntRange(min=0), help="First offset.")
@click.option("--to", "stop", type=click.IntRange(min=0), help="First offset not shown.")
@place_options
def dump(start: int | None, stop: int | None, **options: Any) -> None:
    """Records of the metadata log, a JSON line each. A checkpoint file has no log."""
    if options["snapshot"]:
        raise click.UsageError(
            f"{options['snapshot']} is a checkpoint, which has no log but records without offsets: "
            f"kvorum snapshot inspect --records {options['snapshot']} prints them"
        )
    from kvorum.metadata.inspect.record_rows import json_line

    with in_a_sentence():
        history = read_history(options)
        first = history.log_start_offset if start is None else start
        last = history.end_offset if stop is None else stop
        history.check_log_range(first, last)
        for entry in history.entries(first, last):
            click.echo(json_line(entry))


@metadata.command()
@click.option(
    "--out",
    required=True,
    type=click.Path(file_okay=False),
    help="Folder for the tables; created if missing.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["parquet", "jsonl"]),
    default="parquet",
    show_default=True,
    help="Format of the tables.",
)
@click.option(
    "--rows-per-file",
    type=click.IntRange(min=1),
    default=1_000_000,
    show_default=True,
    help="A Parquet table with more rows becomes a folder of files.",
)
@source_options
def export(out: str, form: str, rows_per_file: int, **options: Any) -> None:
    """Write metadata log and image as tables, with schema.json beside them."""
    from kvorum.metadata.inspect.export import export_history
    from kvorum.runtime.private_files import private_files

    with in_a_sentence(), private_files():
        try:
            rows = export_history(
                read_history(options),
                out,
                at_offset=options["at_offset"],
                form=form,
                rows_per_file_max=rows_per_file,
            )
        except ImportError as error:
            raise CommandFailed("the export needs pyarrow: pip install 'kvorum[export]'") from error
    table = [{"file": path, "rows": count} for path, count in rows.items()]
    show(options["output"], table, ["file", "rows"])


@metadata.command()
@click.option(
    "--out",
    required=True,
    type=click.Path(file_okay=False),
    help="Folder for the snapshot file; created if missing.",
)
@source_options
def snapshot(out: str, **options: Any) -> None:
    """Write the metadata as a checkpoint file, named by offset and epoch."""
    import asyncio

    from kvorum.metadata.image.snapshot_job import header_of, payloads_of
    from kvorum.runtime.async_disk import OsAsyncDisk
    from kvorum.runtime.private_files import private_files
    from kvorum.snapshots.store import SnapshotStore

    with in_a_sentence():
        history = read_history(options)
        image = history.image_at(options["at_offset"])
        timestamp_ms = history.timestamp_at(options["at_offset"])
    header = header_of(image, timestamp_ms=timestamp_ms)
    with private_files():
        os.makedirs(out, exist_ok=True)
        store = SnapshotStore(OsAsyncDisk(), out)
        path = store.path(asyncio.run(store.write(header, payloads_of(image))))
    show(options["output"], {"file": path, "end_offset": image.end_offset, "epoch": image.epoch})


@metadata.command()
@source_options
def shell(**options: Any) -> None:
    """Browse the metadata; `help` lists the commands. If stdin is not a terminal, it is a
    script."""
    from kvorum.cli.metadata_shell import run_shell

    with in_a_sentence():
        run_shell(open_source(options), at_offset=options["at_offset"])


def _two_images(
    before: str, after: str, options: dict[str, Any]
) -> tuple[ClusterImage, ClusterImage]:
    """The images of both sides of a diff; a source that is on both sides is read once."""
    from kvorum.metadata.inspect.history import MetadataHistory

    held: dict[str, MetadataHistory] = {}

    def image(side: str) -> ClusterImage:
        place, offset = _side(side)
        if place not in held:
            if place == "":
                source = open_source(options)
            elif place == LIVE_WORD:
                source = open_source(options | {"snapshot": None, "directory": None})
            else:
                source = source_of_path(place)
            held[place] = source.read()
            for note in held[place].notes:
                warn(note)
        return held[place].image_at(offset)

    return image(before), image(after)


def _side(text: str) -> tuple[str, int | None]:
    """(path, LIVE_WORD, or "" for the source of the options; offset or None for the end)."""
    if text.isascii() and text.isdigit():
        return "", int(text)
    place, at, number = text.rpartition("@")
    if at and number.isascii() and number.isdigit() and not os.path.exists(text):
        offset: int | None = int(number)
    else:
        place, offset = text, None
    if place != LIVE_WORD and not os.path.exists(place):
        raise click.UsageError(f"{text!r} is no offset, no path that exists, and not {LIVE_WORD}")
    return place, offset
