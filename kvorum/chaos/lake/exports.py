"""A folder of `kvorum metadata export` as tables of a lake."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kvorum.chaos.lake.parts import Addition
from kvorum.chaos.lake.run_rows import milestone_rows
from kvorum.chaos.lake.tables import MILESTONES, OF_METADATA, RUNS
from kvorum.chaos.outages.milestones import METADATA_LOG, milestones_of
from kvorum.metadata.inspect.export_schema import (
    METADATA_RECORDS,
    SCHEMA_FILE,
    SCHEMA_VERSION,
    Table,
    arrow_fields,
)
from kvorum.runtime.errors import ConfigError, CorruptData


def is_export(folder: Path) -> bool:
    """True if the folder holds exported metadata."""
    return (folder / SCHEMA_FILE).exists()


def export_id_of(folder: Path) -> str:
    """The id of an export without a name: its folder's, and the end of the log."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", folder.absolute().name).strip("-._") or "metadata"
    return f"{name}-{_description(folder).get('end_offset', 0)}"


def check_export(folder: Path) -> None:
    """Refuse an export that cannot be added, before anything is written.

    Raises ConfigError for an export as JSON lines or of a later version, CorruptData for a file
    that is damaged or has a column of another type.
    """
    _description(folder)
    for table in OF_METADATA:
        path = folder / f"{table.name}.parquet"
        if path.exists():
            _check_columns(path, table)
        elif (folder / f"{table.name}.jsonl").exists():
            raise ConfigError(
                f"{folder} is an export as JSON lines; export it again with --format parquet"
            )


def write_metadata(addition: Addition, folder: Path) -> None:
    """Write the tables of an export. Raises CorruptData for a damaged file."""
    for table in OF_METADATA:
        path = folder / f"{table.name}.parquet"
        if path.exists():
            with addition.table(table) as writer:
                for rows in _batches(path):
                    writer.add_table(rows)


def write_milestones(addition: Addition, folder: Path) -> None:
    """Write the milestones of an export that belongs to no run."""
    path = folder / f"{METADATA_RECORDS.name}.parquet"
    if path.exists():
        found = milestones_of(row for batch in _batches(path) for row in batch.to_pylist())
        addition.write(MILESTONES, milestone_rows(found, None))


def _check_columns(path: Path, table: Table) -> None:
    written = _dataset(path).schema
    for field in arrow_fields(table):
        place = written.get_field_index(field.name)
        if place >= 0 and written.field(place).type != field.type:
            found = written.field(place).type
            raise CorruptData(str(path), 0, f"the column {field.name} is {found}, not {field.type}")


def export_row(folder: Path, run_id: str, rows: dict[str, int], wall_ms: int) -> list[Any]:
    """The export's row in the table `runs`, in the order of its columns."""
    values: dict[str, Any] = {
        "id": run_id,
        "kind": "metadata",
        "experiment": f"metadata of {_description(folder).get('source', folder.name)}",
        "system": "kvorum",
        "is_complete": True,
        "started_wall_ms": wall_ms,
        "milestones_source": METADATA_LOG,
        "rows": sorted(rows.items()),
    }
    return [values.get(column.name) for column in RUNS.columns]


def _description(folder: Path) -> dict[str, Any]:
    path = folder / SCHEMA_FILE
    try:
        document: dict[str, Any] = json.loads(path.read_bytes())
        version = int(document["version"])
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptData(str(path), 0, f"not the schema of an export: {error!r}") from error
    if version != SCHEMA_VERSION:
        raise ConfigError(
            f"{path} is of version {version}, this Kvorum knows {SCHEMA_VERSION}; export it again"
        )
    return document


def _dataset(path: Path) -> Any:
    """A table of an export: a file, or a folder of files. Raises CorruptData."""
    import pyarrow as pa
    import pyarrow.dataset as ds

    try:
        return ds.dataset(str(path))
    except (pa.ArrowException, OSError) as error:
        raise CorruptData(str(path), 0, f"not a table of an export: {error}") from error


def _batches(path: Path) -> Iterator[Any]:
    """The rows of a table, as Arrow tables. Raises CorruptData."""
    import pyarrow as pa

    batches = _dataset(path).to_batches(batch_size=50_000)
    while True:
        try:
            batch = next(batches, None)
        except (pa.ArrowException, OSError) as error:
            raise CorruptData(str(path), 0, f"not a table of an export: {error}") from error
        if batch is None:
            return
        yield pa.Table.from_batches([batch])
