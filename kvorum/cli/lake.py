"""`kvorum lake`: runs and exported metadata as partitioned Parquet, which the Spark job reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from kvorum.cli.common import is_structured, output_option, refused, show
from kvorum.client.failures import CommandFailed, warn


@click.group()
def lake() -> None:
    """Runs and exported metadata as Parquet, for Spark."""


lake_option = click.option(
    "--lake", metavar="URI", default=None, help="Also add the run to this lake (kvorum lake add)."
)
"""For commands that make runs: they call `check_lake` before, and `add_made` after them."""

_LAKE = click.option(
    "--lake",
    "uri",
    required=True,
    metavar="URI",
    help="A folder, or a URI of file, s3, gs or hdfs.",
)


@lake.command()
@click.argument("folders", nargs=-1, required=True, type=click.Path(exists=True, file_okay=False))
@_LAKE
@click.option("--run-id", default=None, help="In place of the run's own id; for one folder.")
@click.option("--replace", "is_replaced", is_flag=True, help="Replace a run that is there already.")
def add(folders: tuple[str, ...], uri: str, run_id: str | None, is_replaced: bool) -> None:
    """Add runs, or folders of `kvorum metadata export`. A run that was broken off counts too."""
    from kvorum.runtime.errors import ConfigError

    if run_id is not None and len(folders) > 1:
        raise refused(ConfigError("--run-id names one run; add one folder at a time with it"))
    for folder in folders:
        add_to_lake(uri, folder, run_id=run_id, is_replaced=is_replaced)


def check_lake(uri: str | None) -> None:
    """Raise CommandFailed, before a run, if the URI of `lake_option` cannot hold a lake."""
    if uri is not None:
        from kvorum.chaos.lake.store import Lake

        with _refusals(uri):
            Lake(uri).check_place()


def add_made(uri: str | None, run_dirs: Sequence[str]) -> None:
    """Add runs that were just made to the lake of `lake_option`.

    A failure is a warning: the runs have a verdict, and can be added again.
    """
    for run_dir in run_dirs if uri is not None else ():
        try:
            add_to_lake(str(uri), run_dir)
        except CommandFailed as error:
            warn(f"{error}; add the run again: kvorum lake add {run_dir} --lake {uri}")


def add_to_lake(
    uri: str, folder: str, *, run_id: str | None = None, is_replaced: bool = False
) -> None:
    """Add one folder, and print on stderr how many rows each table got. Raises CommandFailed."""
    from kvorum.chaos.lake.add import add as add_run
    from kvorum.chaos.lake.store import Lake
    from kvorum.runtime.clock import wall_ms

    with _refusals(uri):
        added = add_run(
            Lake(uri), folder, wall_ms=wall_ms(), run_id=run_id, is_replaced=is_replaced
        )
    counts = ", ".join(f"{name} {count:,}" for name, count in sorted(added.rows.items()) if count)
    click.echo(f"{added.run_id} added to {uri}: {counts or 'no rows'}", err=True)


@lake.command("list")
@_LAKE
@output_option
def list_runs(uri: str, output: str) -> None:
    """List the runs of a lake, and those that were never added completely."""
    from kvorum.chaos.lake.store import Lake

    with _refusals(uri):
        opened = Lake(uri)
        opened.check()
        found, unfinished = opened.runs(), opened.unfinished()
    runs = [run for run in found if run["run_id"] == run["id"]]
    copies = {str(run["run_id"]): run["id"] for run in found if run["run_id"] != run["id"]}
    if is_structured(output):
        plain = [_plain(run) for run in runs]
        show(output, {"runs": plain, "unfinished": unfinished, "copies": copies})
        return
    rows = [
        {
            "run": run["id"],
            "system": f"{run['system'] or '-'} {run['version'] or ''}".strip(),
            "verdict": run["verdict"] or (None if run["is_complete"] else "broken off"),
            "history": dict(run["rows"]).get("history", 0),
            "experiment": run["experiment"],
        }
        for run in runs
    ]
    show(output, rows, ("run", "system", "verdict", "history", "experiment"))
    for folder, run_id in copies.items():
        click.echo(f"{folder}: the run {run_id} under a second name; remove its folders")
    for run_id in unfinished:
        click.echo(f"{run_id}: never added completely; add it again, or kvorum lake compact")


@contextmanager
def _refusals(uri: str) -> Iterator[None]:
    """The errors of a lake as failures of the command."""
    from kvorum.runtime.errors import ConfigError, CorruptData

    try:
        yield
    except (ConfigError, CorruptData) as error:
        raise refused(error) from error
    except OSError as error:
        raise CommandFailed(f"{uri}: {error}") from error


def _plain(run: dict[str, Any]) -> dict[str, Any]:
    """A row of `runs` with its maps as objects."""
    return run | {key: dict(run[key] or ()) for key in ("promises", "rows")}


@lake.command()
@_LAKE
def compact(uri: str) -> None:
    """Merge the files of each run, and remove what adding runs left unfinished.

    Let nobody add a run meanwhile: it would be removed as unfinished.
    """
    from kvorum.chaos.lake.add import compact as compact_lake
    from kvorum.chaos.lake.store import Lake

    with _refusals(uri):
        done = compact_lake(Lake(uri))
    click.echo(f"files: {done.files_before} before, {done.files_after} after")
    for run_id in done.removed:
        click.echo(f"removed {run_id}, which was never added completely")
