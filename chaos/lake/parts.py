"""Writes the rows of one table of one run as Parquet, a row group at a time."""

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

    A context manager: files get their names when it ends without an error; without one, nothing of
    it is there.
    """

    def __init__(self, lake: Lake, table: Table, run_id: str) -> None:
        self._lake = lake
        self._table = table
        self._run_id = run_id
        self._schema = arrow_schema(table)
        self._columns: list[list[_Value]] = [[] for _ in table.columns]
        self._writer: Any = None
        self._paths: list[str] = []
        self._rows_in_file = 0
        self.rows = 0

    def add(self, row: Sequence[_Value]) -> None:
        """Append a row: a value for each column, in the table's order."""
        for column, value in zip(self._columns, row, strict=True):
            column.append(value)
        if len(self._columns[0]) >= ROWS_PER_GROUP:
            self._flush()

    def add_table(self, rows: Any) -> None:
        """Append an Arrow table; a column that it lacks is null, another one is left out.

        Raises pyarrow.ArrowException for a column of another type.
        """
        import pyarrow as pa

        self._flush()
        arrays = [
            rows.column(field.name).cast(field.type)
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
        if kind is None:
            self._flush()
            self._close_file()
            for path in self._paths:
                self._lake.finish(path)
            return
        if self._writer is not None:
            self._writer.close()
        self._lake.remove_leftovers(self._table, self._run_id)

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
            path = f"{folder}/part-{len(self._paths):05d}.parquet"
            self._paths.append(path)
            self._writer = pq.ParquetWriter(
                self._lake.begin(path), self._schema, filesystem=self._lake.fs, compression="zstd"
            )
        self._writer.write_table(rows, row_group_size=ROWS_PER_GROUP)
        self.rows += rows.num_rows
        self._rows_in_file += rows.num_rows
        if self._rows_in_file >= ROWS_PER_FILE:
            self._close_file()

    def _close_file(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
            self._rows_in_file = 0


def write_rows(lake: Lake, table: Table, run_id: str, rows: Iterable[Sequence[_Value]]) -> int:
    """Write a table of a run; returns the number of rows. No file without a row."""
    with PartWriter(lake, table, run_id) as writer:
        for row in rows:
            writer.add(row)
    return writer.rows
