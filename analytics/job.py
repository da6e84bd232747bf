"""The Spark job: `python -m kvorum.analytics.job --input DIR [DIR...] --output OUT [--master
local[2]]`.

Each input folder is one run or one metadata export (see schemas.py for the files). Tables go to
OUT/tables as Parquet and CSV, plots to OUT/plots, a summary to OUT/summary.json. A table without
input, and a folder without files for the job (an interrupted run), are left out and named in the
summary. Under spark-submit or another master, every executor must be able to read the folders; the
driver writes CSV, plots and summary.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

try:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import functions as F
except ModuleNotFoundError:
    if __name__ != "__main__":
        raise
    sys.exit("the Spark job needs pyspark: pip install 'kvorum[spark]'")

from kvorum.analytics import failover, metadata
from kvorum.analytics.exports import UnreadableExport, check_exports
from kvorum.analytics.plots import draw_all
from kvorum.analytics.schemas import SCHEMAS, find_inputs

SUMMARY_VERSION = 1

#: Rows of one table that are collected at the driver for CSV, plots and summary.
ROWS_COLLECTED_MAX = 200_000
_SHUFFLE_PARTITIONS = 4

_Inputs = Mapping[str, DataFrame]
_TABLES: Mapping[str, tuple[tuple[str, ...], Callable[[_Inputs], DataFrame]]] = {
    "outcomes_by_run": (("history",), lambda data: failover.outcomes_by_run(data["history"])),
    "failover_by_fault": (
        ("recoveries",),
        lambda data: failover.failover_by_fault(data["recoveries"]),
    ),
    "failover_by_run": (("recoveries",), lambda data: failover.regressions(data["recoveries"])),
    "unavailability": (("history",), lambda data: failover.unavailability(data["history"])),
    "isr_churn": (("metadata_records",), lambda data: metadata.isr_churn(data["metadata_records"])),
    "leader_skew": (
        ("partitions", "brokers"),
        lambda data: metadata.leader_skew(data["partitions"], data["brokers"]),
    ),
    "rack_loss": (
        ("partitions", "brokers"),
        lambda data: metadata.rack_loss(data["partitions"], data["brokers"]),
    ),
    "record_mix": (
        ("metadata_records",),
        lambda data: metadata.record_mix(data["metadata_records"]),
    ),
    "metadata_growth": (
        ("metadata_records",),
        lambda data: metadata.metadata_growth(data["metadata_records"]),
    ),
    "fencing_causes": (
        ("metadata_records", "faults"),
        lambda data: metadata.fencing_causes(data["metadata_records"], data["faults"]),
    ),
}


def run_job(
    inputs: Sequence[str],
    output: str,
    *,
    master: str | None = "local[2]",
    driver_memory: str = "1g",
) -> dict[str, Any]:
    """Compute every table that the inputs allow. Returns the content of summary.json.

    master: None leaves the choice to spark-submit. Raises FileNotFoundError if an input folder does
    not exist or no folder has a known file, UnreadableExport for an export with another schema.
    """
    absent = [folder for folder in inputs if not Path(folder).is_dir()]
    if absent:
        raise FileNotFoundError(f"no such folder: {', '.join(absent)}")
    check_exports(list(inputs))
    found, left_out = find_inputs(list(inputs))
    if not any(found.values()):
        names = ", ".join(f"{name}.parquet" for name in SCHEMAS)
        raise FileNotFoundError(f"none of {names} in {', '.join(inputs)}")
    scratch = tempfile.mkdtemp(prefix="kvorum-spark-")
    spark = _session(master, driver_memory, scratch)
    try:
        return _compute(spark, found, left_out, Path(output))
    finally:
        spark.stop()
        shutil.rmtree(scratch, ignore_errors=True)


def _session(master: str | None, driver_memory: str, scratch: str) -> SparkSession:
    # Without this, executors look for a python3, which may differ from the driver's.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master is not None and master.startswith("local"):
        # Without this, Spark looks up the host's name, which may be slow or lead to another
        # interface.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName("kvorum-analytics")
    if master is not None:
        builder = builder.master(master)
        if master.startswith("local"):
            builder = builder.config("spark.driver.bindAddress", "127.0.0.1")
            builder = builder.config("spark.driver.host", "127.0.0.1")
            builder = builder.config("spark.driver.memory", driver_memory)
            builder = builder.config("spark.local.dir", scratch)
    builder = builder.config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.log.level", "ERROR")
    builder = builder.config("spark.sql.shuffle.partitions", str(_SHUFFLE_PARTITIONS))
    builder = builder.config("spark.sql.session.timeZone", "UTC")
    builder = builder.config("spark.sql.warehouse.dir", f"{scratch}/warehouse")
    spark: SparkSession = builder.getOrCreate()
    return spark


def _compute(
    spark: SparkSession,
    found: Mapping[str, Mapping[str, str]],
    left_out: Mapping[str, str],
    output: Path,
) -> dict[str, Any]:
    data = {name: _read(spark, name, runs) for name, runs in found.items() if runs}
    if "history" in data and "faults" in data:
        # Cache the recoveries: two tables need them, and they are the most expensive step.
        data["recoveries"] = failover.recoveries(data["history"], data["faults"]).cache()
    tables: dict[str, list[dict[str, Any]]] = {}
    skipped = dict(left_out)
    for name, (needed, build) in _TABLES.items():
        missing = [need for need in needed if need not in data]
        if missing:
            skipped[name] = f"no input: {', '.join(missing)}"
            continue
        tables[name] = _write(build(data), name, output / "tables")
    plots = draw_all(tables, output / "plots")
    summary = _summary(found, tables, skipped, plots)
    (output / "summary.json").write_text(json.dumps(summary, indent=1), encoding="utf-8")
    return summary


def _read(spark: SparkSession, name: str, runs: Mapping[str, str]) -> DataFrame:
    whole: DataFrame | None = None
    for run, path in sorted(runs.items()):
        part = spark.read.schema(SCHEMAS[name]).parquet(path).withColumn("run", F.lit(run))
        whole = part if whole is None else whole.unionByName(part)
    if whole is None:
        raise ValueError(f"no file of {name}")
    return whole


def _write(table: DataFrame, name: str, folder: Path) -> list[dict[str, Any]]:
    """Write Parquet and CSV. Returns the rows, up to ROWS_COLLECTED_MAX.

    The driver writes a table that fits, because a Spark job costs more than its rows. Spark writes
    a larger table, and the CSV holds its first rows.
    """
    import pyarrow.parquet as pq

    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{name}.parquet"
    if target.is_dir():
        shutil.rmtree(target)
    collected = table.limit(ROWS_COLLECTED_MAX + 1).toArrow()
    if collected.num_rows > ROWS_COLLECTED_MAX:
        target.unlink(missing_ok=True)
        table.write.mode("overwrite").parquet(str(target))
    else:
        pq.write_table(collected, target)
    rows: list[dict[str, Any]] = collected.slice(0, ROWS_COLLECTED_MAX).to_pylist()
    with open(folder / f"{name}.csv", "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, table.columns)
        writer.writeheader()
        writer.writerows(rows)
    return rows


def _summary(
    found: Mapping[str, Mapping[str, str]],
    tables: Mapping[str, list[dict[str, Any]]],
    skipped: Mapping[str, str],
    plots: Sequence[str],
) -> dict[str, Any]:
    worst = max(
        tables.get("unavailability", []), key=lambda row: float(row["longest_ms"]), default=None
    )
    return {
        "version": SUMMARY_VERSION,
        "runs": sorted({run for runs in found.values() for run in runs}),
        "tables": {name: len(rows) for name, rows in tables.items()},
        "skipped": dict(skipped),
        "plots": list(plots),
        "outcomes": tables.get("outcomes_by_run", []),
        "failover": tables.get("failover_by_fault", []),
        "longest_unavailability": worst,
        "isr_changes": sum(row["isr_changes"] for row in tables.get("isr_churn", [])),
        "leader_changes": sum(row["leader_changes"] for row in tables.get("isr_churn", [])),
        "fencings": tables.get("fencing_causes", []),
        "rack_loss": tables.get("rack_loss", []),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. Returns the exit code: 0 done, 2 no input to read."""
    parser = argparse.ArgumentParser(
        prog="python -m kvorum.analytics.job",
        description="Analyse chaos runs and exported metadata.",
    )
    parser.add_argument("--input", nargs="+", action="extend", required=True, metavar="DIR")
    parser.add_argument("--output", required=True, metavar="OUT")
    parser.add_argument(
        "--master",
        default="local[2]",
        help="a Spark master, or 'submit' to leave it to spark-submit (default: local[2])",
    )
    parser.add_argument("--driver-memory", default="1g", help="in local mode (default: 1g)")
    options = parser.parse_args(arguments)
    master = None if options.master == "submit" else options.master
    if "JAVA_HOME" not in os.environ and shutil.which("java") is None:
        sys.stderr.write("the Spark job needs Java 17 or later, on PATH or in JAVA_HOME\n")
        return 2
    try:
        summary = run_job(
            options.input, options.output, master=master, driver_memory=options.driver_memory
        )
    except (FileNotFoundError, UnreadableExport) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    for name, count in summary["tables"].items():
        sys.stdout.write(f"{name}: {count} rows\n")
    for name, reason in summary["skipped"].items():
        sys.stdout.write(f"{name}: left out, {reason}\n")
    sys.stdout.write(f"written to {options.output}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
