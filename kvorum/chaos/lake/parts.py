"""Writes the rows of a run as Parquet, a row group at a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any

from kvorum.chaos.lake.store import Lake
from kvorum.chaos.lake.tables import arrow_schema
from kvorum.metadata.inspect.export_schema import Table

ROWS_PER_GROUP = 100_000
ROWS_PER_FILE = 10_000_000

_Value = Any


class PartWriter:
    """The files of one table of one run. Memory holds one row group.

    A context manager. When it has ended, the files are whole, under names that readers skip:
    `Addition` or `write_rows` gives them their own. Without a row there is no file.
    """

    def __init__(self, lake: Lake, table: Table, run_id: str) -> None:
        self._lake = lake
        self._table = table
        self._run_id = run_id
        self._schema = arrow_schema(table)
        self._columns: list[list[_Value]] = [[] for _ in table.columns]
        self._writer: Any = None
        self._rows_in_file = 0
        self.paths: list[str] = []
        self.rows = 0

    def add(self, row: Sequence[_Value]) -> None:
        """Append a row: a value for each column, in the table's order."""
        for column, value in zip(self._columns, row, strict=True):
            column.append(value)
        if len(self._columns[0]) >= ROWS_PER_GROUP:
            self._flush()

    def add_table(self, rows: Any) -> None:
        """Append an Arrow table, whose columns have the types of this one's. A column that it lacks
        is null, another one is left out."""
        import pyarrow as pa

        self._flush()
        arrays = [
            rows.column(field.name)
            if field.name in rows.column_names
            else pa.nulls(rows.num_rows, field.type)
            for field in self._schema
        ]
        self._write(pa.Table.from_arrays(arrays, schema=self._schema))

    def __enter__(self) -> PartWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self._flush()
        finally:
            self._close_file()

    def _flush(self) -> None:
        import pyarrow as pa

        if not self._columns[0]:
            return
        arrays = [
            pa.array(values, field.type)
            for values, field in zip(self._columns, self._schema, strict=True)
        ]
        for column in self._columns:
            column.clear()
        self._write(pa.Table.from_arrays(arrays, schema=self._schema))

    def _write(self, rows: Any) -> None:
        import pyarrow.parquet as pq

        if self._writer is None:
            folder = self._lake.folder(self._table, self._run_id)
            path = f"{folder}/part-{len(self.paths):05d}.parquet"
            self.paths.append(path)
            self._writer = pq.ParquetWriter(
                self._lake.begin(path), self._schema, filesystem=self._lake.fs, compression="zstd"
            )
        self._writer.write_table(rows, row_group_size=ROWS_PER_GROUP)
        self.rows += rows.num_rows
        self._rows_in_file += rows.num_rows
        if self._rows_in_file >= ROWS_PER_FILE:
            self._close_file()

    def _close_file(self) -> None:
        writer, self._writer, self._rows_in_file = self._writer, None, 0
        if writer is not None:
            writer.close()


class Addition:
    """The tables of one run, written beside those of the lake until `publish`.

    A context manager: without a `publish`, nothing of the run is left, and a run of that id which
    was there before is untouched. counts: rows of each table.
    """

    def __init__(self, lake: Lake, run_id: str) -> None:
        self._lake = lake
        self._run_id = run_id
        self._writers: list[tuple[Table, PartWriter]] = []

    def table(self, table: Table) -> PartWriter:
        """The writer of a table, to be used as a context manager."""
        writer = PartWriter(self._lake, table, self._run_id)
        self._writers.append((table, writer))
        return writer

    def write(self, table: Table, rows: Iterable[Sequence[_Value]]) -> None:
        """Write all rows of a table."""
        with self.table(table) as writer:
            for row in rows:
                writer.add(row)

    @property
    def counts(self) -> dict[str, int]:
        return {table.name: writer.rows for table, writer in self._writers}

    def publish(self) -> None:
        """Replace the run's files in the lake, its row in `runs` first; that row is written last,
        by the caller, so that a run which is half replaced does not count."""
        self._lake.remove(self._run_id)
        for _, writer in self._writers:
            for path in writer.paths:
                self._lake.finish(path)

    def __enter__(self) -> Addition:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for table, _ in self._writers:
            self._lake.remove_leftovers(table, self._run_id)


def write_rows(lake: Lake, table: Table, run_id: str, rows: Iterable[Sequence[_Value]]) -> int:
    """Write one table of a run; returns the number of rows."""
    try:
        with PartWriter(lake, table, run_id) as writer:
            for row in rows:
                writer.add(row)
        for path in writer.paths:
            lake.finish(path)
    finally:
        lake.remove_leftovers(table, run_id)
    return writer.rows
