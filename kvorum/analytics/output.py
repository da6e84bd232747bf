"""Writes the tables of a job, as Parquet and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame

from kvorum.analytics.catalogue import CATALOGUE
from kvorum.analytics.files import Files

#: Rows of one table that the driver collects, for CSV, plots and the page.
ROWS_COLLECTED_MAX = 200_000

Row = Mapping[str, Any]


class Tables:
    """The written tables.

    rows: of each, up to ROWS_COLLECTED_MAX.
    counts: of all its rows.
    """

    def __init__(self, files: Files, say: Callable[[str], None]) -> None:
        self._files = files
        self._say = say
        self.rows: dict[str, list[Row]] = {}
        self.counts: dict[str, int] = {}
        self.skipped: dict[str, str] = {}

    def skip(self, name: str, reason: str) -> None:
        """Leave a table out, and remove the one of an earlier job."""
        self.skipped[name] = reason
        for suffix in ("parquet", "csv"):
            self._files.remove(f"tables/{name}.{suffix}")

    def write(self, name: str, table: DataFrame) -> None:
        """Compute a table, and write it.

        The driver writes a table that fits, because a Spark job costs more than its rows. Spark
        writes a larger one, and the CSV has its first rows.
        """
        _check_columns(name, table.columns)
        collected = table.limit(ROWS_COLLECTED_MAX + 1).toArrow()
        if collected.num_rows > ROWS_COLLECTED_MAX:
            place = self._files.at(f"tables/{name}.parquet")
            self._files.remove(f"tables/{name}.parquet")
            table.write.parquet(place)
            count = table.sparkSession.read.parquet(place).count()
            self._finish(name, collected.slice(0, ROWS_COLLECTED_MAX).to_pylist(), count)
            return
        self._write_parquet(name, collected)
        self._finish(name, collected.to_pylist(), collected.num_rows)

    def write_rows(self, name: str, rows: Sequence[Row], types: Mapping[str, str]) -> None:
        """Write a table that the driver computed. types: pyarrow's names of its columns' types."""
        import pyarrow as pa

        _check_columns(name, list(types))
        schema = pa.schema([(column, pa.type_for_alias(kind)) for column, kind in types.items()])
        self._write_parquet(name, pa.Table.from_pylist([dict(row) for row in rows], schema=schema))
        self._finish(name, rows, len(rows))

    def _write_parquet(self, name: str, table: Any) -> None:
        import pyarrow.parquet as pq

        content = io.BytesIO()
        pq.write_table(table, content)
        # A larger table of an earlier job is a folder.
        self._files.remove(f"tables/{name}.parquet")
        self._files.write(f"tables/{name}.parquet", content.getvalue())

    def _finish(self, name: str, rows: Sequence[Row], count: int) -> None:
        text = io.StringIO()
        writer = csv.DictWriter(text, list(CATALOGUE[name].columns))
        writer.writeheader()
        writer.writerows(rows)
        self._files.write(f"tables/{name}.csv", text.getvalue().encode())
        self.rows[name] = list(rows)
        self.counts[name] = count
        self._say(f"{name}: {count:,} rows")


def _check_columns(name: str, columns: Sequence[str]) -> None:
    stated = list(CATALOGUE[name].columns)
    if list(columns) != stated:
        raise RuntimeError(f"table {name} has the columns {columns}, the catalogue {stated}")
