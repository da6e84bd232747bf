"""Reads a lake of `kvorum lake add`: one DataFrame a table, whatever the number of runs.

Everything that is wrong with a lake is found before a table is computed: a file with another schema
or a torn one is an error that names it; a run that was never added completely, or whose files were
copied or lost, is left out and named.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from kvorum.analytics.files import Files
from kvorum.analytics.schemas import LAKE_VERSION, RUN_ID, SCHEMAS, type_name
from kvorum.analytics.session import first_line

LAKE_FILE = "lake.json"

_FILE_IN_TEXT = re.compile(r"[a-z0-9]+:/[^\s,;'\"]*?\.parquet")


class UnreadableLake(Exception):
    """A lake that the job must not read; the message names the file, the column, or the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lake:
    """The tables that have rows; the rows of `runs` that count; left_out: run -> reason."""

    tables: Mapping[str, DataFrame]
    runs: Sequence[Mapping[str, Any]]
    left_out: Mapping[str, str] = field(default_factory=dict)


def open_lake(spark: SparkSession, uri: str, *, run_ids: Sequence[str] = ()) -> Lake:
    """Check a lake and return its tables. run_ids: only these runs; empty for all.

    Raises UnreadableLake.
    """
    files = Files(spark, uri)
    _check_version(files)
    found = {name: _read(spark, files, name) for name in SCHEMAS}
    tables = {name: table for name, table in found.items() if table is not None}
    if "runs" not in tables:
        raise UnreadableLake(f"{uri} has no run: add one with kvorum lake add RUN --lake {uri}")
    rows = [row.asDict(recursive=True) for row in _collected(tables["runs"], files, "runs")]
    known = {str(row[RUN_ID]) for row in rows}
    for run_id in run_ids:
        if run_id not in known:
            raise UnreadableLake(f"{uri} has no run {run_id}; kvorum lake list --lake {uri}")
    sizes = _sizes(tables, files)
    left_out = _left_out(sizes, rows)
    counted = [
        row
        for row in rows
        if row[RUN_ID] not in left_out and (not run_ids or row[RUN_ID] in run_ids)
    ]
    if not counted:
        reason = next(iter(left_out.values()), "it is empty")
        raise UnreadableLake(f"no run of {uri} counts: {reason}; kvorum lake list --lake {uri}")
    counted.sort(key=lambda row: (row["started_wall_ms"] or 0, str(row[RUN_ID])))
    chosen = [str(row[RUN_ID]) for row in counted]
    if set(chosen) != known or left_out:
        tables = {name: table.where(_is_one_of(chosen)) for name, table in tables.items()}
    wanted = set(run_ids) or known | set(left_out)
    named = {run: why for run, why in left_out.items() if run in wanted}
    with_rows = {"runs"} | {name for run_id, name in sizes if run_id in chosen}
    return Lake(
        tables={name: table for name, table in tables.items() if name in with_rows},
        runs=counted,
        left_out=named,
    )


def _is_one_of(run_ids: Sequence[str]) -> Any:
    return F.col(RUN_ID).isin(list(run_ids)) if run_ids else F.lit(False)


def _check_version(files: Files) -> None:
    try:
        if not files.exists(LAKE_FILE):
            raise UnreadableLake(f"{files.uri} is no lake: it has no {LAKE_FILE}; kvorum lake add")
        version = json.loads(files.read(LAKE_FILE))["lake"]
    except (ValueError, KeyError, TypeError) as error:
        raise UnreadableLake(
            f"{files.at(LAKE_FILE)} does not describe a lake: {error!r}"
        ) from error
    if version != LAKE_VERSION:
        raise UnreadableLake(
            f"{files.uri} is a lake of version {version}, this job reads {LAKE_VERSION}"
        )


def _read(spark: SparkSession, files: Files, name: str) -> DataFrame | None:
    """One table; None if it has no file. Reads the footer of every file, in one Spark job."""
    place = f"{name}/v={LAKE_VERSION}"
    if not files.names(place):
        return None
    path = files.at(place)
    schema = SCHEMAS[name]
    try:
        written = spark.read.option("mergeSchema", "true").parquet(path)
    except AnalysisException as error:
        if "UNABLE_TO_INFER_SCHEMA" in str(error):
            return None
        raise UnreadableLake(_sentence(path, error)) from error
    except (PySparkException, Py4JJavaError) as error:
        if "CANNOT_MERGE_SCHEMAS" in str(error):
            _refuse_foreign(spark, files, place, schema)
        raise UnreadableLake(_sentence(path, error)) from error
    problem = _difference(written.schema, schema)
    if problem is not None:
        raise UnreadableLake(f"{path}: {problem}")
    has = set(written.columns)
    # Not read again under the schema: that would list every folder of the table once more.
    return written.select(
        *(
            F.col(item.name)
            if item.name in has
            else F.lit(None).cast(item.dataType).alias(item.name)
            for item in schema.fields
        )
    )


def _refuse_foreign(spark: SparkSession, files: Files, place: str, schema: StructType) -> None:
    """Find the run whose files have another schema than the job's."""
    for folder in files.names(place):
        path = files.at(f"{place}/{folder}")
        problem = _difference(spark.read.parquet(path).schema, schema)
        if problem is not None:
            raise UnreadableLake(f"{path}: {problem}; add the run again")


def _difference(written: StructType, schema: StructType) -> str | None:
    """The first column that has another type than the job reads."""
    types = {item.name: type_name(item.dataType) for item in written.fields}
    for item in schema.fields:
        wanted = type_name(item.dataType)
        if types.get(item.name, wanted) != wanted:
            return f"column {item.name} is {types[item.name]}, this job reads {wanted}"
    return None


def _sentence(path: str, error: BaseException) -> str:
    text = str(error)
    file = _FILE_IN_TEXT.search(text)
    if file is not None:
        return (
            f"{file[0]} is torn or no Parquet file; kvorum lake add RUN --replace "
            "writes the run's files again"
        )
    return f"{path} cannot be read: {first_line(error)}"


def _collected(table: DataFrame, files: Files, name: str) -> Sequence[Any]:
    try:
        return table.collect()
    except (PySparkException, Py4JJavaError) as error:
        raise UnreadableLake(_sentence(files.at(name), error)) from error


def _sizes(tables: Mapping[str, DataFrame], files: Files) -> dict[tuple[str, str], int]:
    """(run, table) -> its rows, without a column being read."""
    parts = [
        table.groupBy(RUN_ID).count().withColumn("name", F.lit(name))
        for name, table in tables.items()
        if name != "runs"
    ]
    if not parts:
        return {}
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.unionByName(part)
    return {
        (str(item[RUN_ID]), str(item["name"])): int(item["count"])
        for item in _collected(whole, files, "its tables")
    }


def _left_out(
    sizes: Mapping[tuple[str, str], int], rows: Sequence[Mapping[str, Any]]
) -> dict[str, str]:
    """Run -> why it does not count: no row in `runs`, or another number of rows than stated."""
    reasons: dict[str, str] = {}
    stated: dict[str, Mapping[str, int]] = {}
    for row in rows:
        run_id = str(row[RUN_ID])
        if run_id in stated:
            reasons[run_id] = f"{run_id} is twice in runs: kvorum lake add --replace"
        elif row["id"] != run_id:
            reasons[run_id] = f"{run_id} is a copy of the run {row['id']}"
        stated[run_id] = row["rows"] or {}
    for run_id, _ in sizes:
        if run_id not in stated:
            reasons[run_id] = f"{run_id} was never added completely"
    for run_id, wanted in stated.items():
        for name in SCHEMAS:
            has, says = sizes.get((run_id, name), 0), wanted.get(name, 0)
            if has != says:
                reasons.setdefault(
                    run_id, f"{name} has {has} rows of {run_id} where runs states {says}"
                )
    return reasons
