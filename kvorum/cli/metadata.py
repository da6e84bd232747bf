"""`kvorum metadata`: the cluster metadata as a tree, and its export."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import click

from kvorum.cli.common import CommandFailed, cluster_options, show

if TYPE_CHECKING:
    from metadata.snapshot_view import MetadataCopy


@click.group()
def metadata() -> None:
    """Look into the cluster metadata (ls, cat), export it."""


_FROM_SNAPSHOT = click.option(
    "--snapshot",
    type=click.Path(exists=True, dir_okay=False),
    help="Read this checkpoint file instead of a cluster.",
)


@metadata.command()
@click.argument("path", default="/")
@_FROM_SNAPSHOT
@cluster_options
def ls(path: str, **options: Any) -> None:
    """Names below PATH: /brokers, /topics, /configs, /features, ..."""
    from metadata.tree import NoSuchPath, children

    try:
        names = children(_image(options), path)
    except NoSuchPath as error:
        raise CommandFailed(str(error)) from error
    if options["output"] == "json":
        show("json", names)
    else:
        for name in names:
            click.echo(name)


@metadata.command()
@click.argument("path")
@_FROM_SNAPSHOT
@cluster_options
def cat(path: str, **options: Any) -> None:
    """All that lies at or below PATH, as JSON."""
    from metadata.tree import NoSuchPath, content

    try:
        click.echo(json.dumps(content(_image(options), path), indent=2))
    except NoSuchPath as error:
        raise CommandFailed(str(error)) from error


@metadata.command()
@click.option(
    "--out",
    required=True,
    type=click.Path(file_okay=False),
    help="Folder for the Parquet files; made if missing.",
)
@cluster_options
def export(out: str, **options: Any) -> None:
    """Write metadata log and image as Parquet files."""
    from metadata.export import export_metadata

    try:
        rows = export_metadata(_copy(options), out)
    except ImportError as error:
        raise CommandFailed("the export needs pyarrow: pip install 'kvorum[export]'") from error
    table = [{"file": f"{out}/{name}.parquet", "rows": count} for name, count in rows.items()]
    show(options["output"], table, ["file", "rows"])


def _image(options: dict[str, Any]) -> Any:
    if options.get("snapshot"):
        return _image_in(options["snapshot"])
    from metadata.snapshot_view import image_of

    return image_of(_copy(options))


def _image_in(path: str) -> Any:
    import asyncio

    from metadata.record_codec import UnreadableRecord
    from metadata.snapshot_job import image_of_snapshot
    from runtime.async_disk import OsAsyncDisk
    from runtime.errors import CorruptData
    from snapshots.store import read_snapshot

    try:
        return image_of_snapshot(asyncio.run(read_snapshot(OsAsyncDisk(), path)))
    except CorruptData as error:
        raise CommandFailed(str(error)) from error
    except UnreadableRecord as error:
        raise CommandFailed(f"{path}: {error}") from error


def _copy(options: dict[str, Any]) -> MetadataCopy:
    """The committed metadata. A broker names the controllers; one of them sends it."""
    from kvorum.cli.backends import open_controllers

    controllers = open_controllers(
        options["bootstrap_server"], options["bootstrap_controller"], options["timeout"]
    )
    return controllers.read_metadata_log()


@metadata.command()
@click.option(
    "--out",
    required=True,
    type=click.Path(file_okay=False),
    help="Folder for the snapshot file; made if missing.",
)
@cluster_options
def snapshot(out: str, **options: Any) -> None:
    """Write the metadata as a checkpoint file, named by offset and epoch."""
    import asyncio

    from metadata.snapshot_job import header_of, payloads_of
    from metadata.snapshot_view import image_of, timestamp_of
    from runtime.async_disk import OsAsyncDisk
    from snapshots.store import SnapshotStore

    copy = _copy(options)
    image = image_of(copy)
    os.makedirs(out, exist_ok=True)
    header = header_of(image, timestamp_ms=timestamp_of(copy))
    store = SnapshotStore(OsAsyncDisk(), out)
    path = store.path(asyncio.run(store.write(header, payloads_of(image))))
    show(options["output"], {"file": path, "end_offset": image.end_offset, "epoch": image.epoch})
