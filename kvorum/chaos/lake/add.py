"""Adds runs and exports to a lake, and merges the files of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvorum.chaos.lake import exports, run_rows
from kvorum.chaos.lake.parts import ROWS_PER_GROUP, Addition, write_rows
from kvorum.chaos.lake.store import COMPACTED, RUN_ID, Lake
from kvorum.chaos.lake.tables import RUNS, TABLES, arrow_schema
from kvorum.chaos.outages.milestones import METADATA_FOLDER
from kvorum.metadata.inspect.export_schema import Table
from kvorum.runtime.errors import ConfigError, CorruptData


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    """rows: of each table."""

    run_id: str
    rows: dict[str, int]


def add(
    lake: Lake,
    folder: str,
    *,
    wall_ms: int,
    run_id: str | None = None,
    is_replaced: bool = False,
) -> Added:
    """Add a run's folder, or a folder of exported metadata.

    wall_ms: now, for an export.
    run_id: in place of the run's own.
    is_replaced: replace a run of that id.
    Raises ConfigError for a folder that is neither, an id that is taken or has other characters
    than letters, digits, dot, dash and underscore; CorruptData for a damaged file.
    """
    source = Path(folder)
    is_run = run_rows.is_run(source)
    if not is_run and not exports.is_export(source):
        raise ConfigError(f"{folder} is neither a run nor an export of metadata")
    name = run_id
    if name is None:
        name = run_rows.run_id_of(source) if is_run else exports.export_id_of(source)
    if RUN_ID.fullmatch(name) is None:
        raise ConfigError(
            f"{name!r} cannot be the id of a run: use letters, digits, '.', '_' and '-'"
        )
    lake.create()
    if lake.parts(RUNS, name) and not is_replaced:
        raise ConfigError(f"{lake.uri} has a run {name} already; --replace replaces it")
    with Addition(lake, name) as addition:
        row = (_write_run if is_run else _write_export)(addition, source, name, wall_ms)
        addition.publish()
    write_rows(lake, RUNS, name, [row])
    return Added(run_id=name, rows=addition.counts)


def _write_run(addition: Addition, source: Path, name: str, _: int) -> Sequence[Any]:
    """Write the tables; returns the row of `runs`."""
    metadata = source / METADATA_FOLDER
    has_metadata = exports.is_export(metadata)
    if has_metadata:
        exports.check_export(metadata)
    milestones_source = run_rows.write_run(addition, source)
    if has_metadata:
        exports.write_metadata(addition, metadata)
    return run_rows.runs_row(source, name, addition.counts, milestones_source)


def _write_export(addition: Addition, source: Path, name: str, wall_ms: int) -> Sequence[Any]:
    exports.check_export(source)
    exports.write_metadata(addition, source)
    exports.write_milestones(addition, source)
    return exports.export_row(source, name, addition.counts, wall_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """files_before, files_after: of the whole lake.
    removed: runs that had never been added completely.
    """

    files_before: int
    files_after: int
    removed: tuple[str, ...]


def compact(lake: Lake) -> Compacted:
    """Merge the files of each run's table into one, and remove what adding runs left unfinished.

    No run may be added meanwhile: it would be taken for an unfinished one.

    Raises ConfigError if there is no lake, CorruptData for a damaged file, before any file of that
    table is removed.
    """
    lake.check()
    removed = lake.unfinished()
    for run_id in removed:
        lake.remove(run_id)
    before = after = 0
    for table in TABLES:
        for run_id in lake.run_ids(table):
            lake.remove_leftovers(table, run_id)
            before += len(lake.parts(table, run_id))
            _merge(lake, table, run_id)
            after += len(lake.parts(table, run_id))
    return Compacted(files_before=before, files_after=after, removed=tuple(removed))


def _merge(lake: Lake, table: Table, run_id: str) -> None:
    """Merge the parts of one run's table. Bad sequence that the name COMPACTED prevents: 1. The
    merged file gets a name that readers read. 2. The process dies before the parts are removed.
    3. Every row counts twice."""
    whole = f"{lake.folder(table, run_id)}/{COMPACTED}"
    parts = lake.parts(table, run_id)
    if not lake.exists(whole):
        if len(parts) < 2:
            return
        _write_merged(lake, table, parts, whole)
    lake.delete(parts)
    lake.fs.move(whole, f"{lake.folder(table, run_id)}/part-00000.parquet")


def _write_merged(lake: Lake, table: Table, parts: list[str], whole: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema: Any = arrow_schema(table)
    beside = lake.begin(whole)
    with pq.ParquetWriter(beside, schema, filesystem=lake.fs, compression="zstd") as writer:
        for path in parts:
            try:
                file = pq.ParquetFile(path, filesystem=lake.fs)
                for batch in file.iter_batches(batch_size=ROWS_PER_GROUP):
                    writer.write_table(pa.Table.from_batches([batch]).cast(schema))
            except (pa.ArrowException, OSError) as error:
                raise CorruptData(path, 0, f"not a file of {table.name}: {error}") from error
    lake.finish(whole)
