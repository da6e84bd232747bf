"""The cost of the Spark job: `python -m bench.spark`, or one line: `--runs 300 --rows 10000`.

The lakes are made here with the columns of `kvorum lake add`: sends that are acknowledged, outages,
faults, milestones. The job runs in a process of its own; its memory is the largest sum of the
resident sizes of its processes, Python and Java. Each line is run once; on a busy machine compare
lines with each other.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from kvorum.chaos.lake.parts import Addition, write_rows
from kvorum.chaos.lake.store import Lake
from kvorum.chaos.lake.tables import FAULTS, HISTORY, MILESTONES, RUNS, arrow_schema
from kvorum.metadata.inspect.export_schema import Table

#: (runs, rows of history in each), as in bench/spark.md.
LINES = ((1, 10_000_000), (300, 10_000), (1_000, 10_000), (1, 100_000_000))
_HEAD = """| runs | rows each | rows | lake, MB | job, s | rows/s | resident, MB |
| --- | --- | --- | --- | --- | --- | --- |
"""
_PARTITIONS = 12
_RECORDS_PER_SECOND = 10_000
_ROWS_AT_ONCE = 1_000_000
_WALL_MS = 1_700_000_000_000
_FAULT_MS, _FAULT_EVERY_MS = 2_000.0, 10_000.0


def make_lake(folder: Path, runs: int, rows: int) -> None:
    """A lake of runs with about that many rows of history each."""
    lake = Lake(str(folder))
    lake.create()
    for number in range(runs):
        _make_run(lake, f"run-{number:06d}", rows, np.random.default_rng(number))


def _make_run(lake: Lake, run_id: str, rows: int, rng: Any) -> None:
    records = rows // 2
    faults = list(_faults(records * 1000 / _RECORDS_PER_SECOND))
    with Addition(lake, run_id) as addition:
        with addition.table(HISTORY) as history:
            for begin in range(0, records, _ROWS_AT_ONCE // 2):
                count = min(_ROWS_AT_ONCE // 2, records - begin)
                history.add_table(_sends(begin, count, rng))
        addition.write(FAULTS, _ordered(FAULTS, faults))
        addition.write(MILESTONES, _ordered(MILESTONES, _milestones(faults)))
        addition.publish()
    row = {
        "id": run_id, "kind": "chaos", "experiment": "made", "system": "kvorum", "version": "1",
        "seed": 1, "verdict": "passed", "is_complete": True, "controllers": 3, "brokers": 3,
        "topic": "orders", "partitions": _PARTITIONS, "started_wall_ms": _WALL_MS,
        "rows": list(addition.counts.items()),
    }  # fmt: skip
    write_rows(lake, RUNS, run_id, _ordered(RUNS, [row]))


def _sends(begin: int, count: int, rng: Any) -> Any:
    """Invocations and acknowledgements, a row each, in the order of time. Nothing is acknowledged
    in the first second of a fault."""
    numbers = np.arange(begin, begin + count)
    invoked = numbers * 1000.0 / _RECORDS_PER_SECOND
    latency = rng.gamma(4.0, 0.5, count) + 0.2
    into_fault = invoked % _FAULT_EVERY_MS
    latency = np.where(into_fault < _FAULT_MS / 2, _FAULT_MS / 2 - into_fault + latency, latency)
    done = invoked + latency
    time_ms = np.round(np.concatenate([invoked, done]), 3)
    order = np.argsort(time_ms, kind="stable")
    is_done = np.concatenate([np.zeros(count, bool), np.ones(count, bool)])[order]
    record = np.concatenate([numbers, numbers])[order]
    value = record // _PARTITIONS
    length = 2 * count
    columns = {
        "index": np.arange(2 * begin, 2 * begin + length),
        "time_ms": time_ms[order],
        "wall_ms": _WALL_MS + time_ms[order].astype(np.int64),
        "process": pa.repeat("producer-1", length),
        "type": pa.array(np.where(is_done, "ok", "invoke")),
        "f": pa.repeat("send", length),
        "operation": pa.repeat("send", length),
        "topic": pa.repeat("orders", length),
        "partition": (record % _PARTITIONS).astype(np.int32),
        "value": value,
        "offset": pa.array(value, mask=~is_done),
        "latency_ms": pa.array(
            np.round(np.concatenate([latency, latency])[order], 3), mask=~is_done
        ),
    }
    schema = arrow_schema(HISTORY)
    return pa.table({name: pa.array(column, schema.field(name).type)
                     if isinstance(column, np.ndarray) else column
                     for name, column in columns.items()})  # fmt: skip


def _faults(end_ms: float) -> Iterator[dict[str, Any]]:
    for number, begin_ms in enumerate(np.arange(0.0, end_ms, _FAULT_EVERY_MS)):
        yield {
            "fault_id": number, "name": f"fault-{number}", "fault": "kill", "description": "",
            "target": "one:brokers", "nodes": ["broker-101"], "roles": [], "topic": "orders",
            "struck_ms": float(begin_ms), "begin_ms": float(begin_ms),
            "end_ms": float(begin_ms) + _FAULT_MS, "begin_wall_ms": _WALL_MS + int(begin_ms),
            "led_partitions": list(range(4)), "held_partitions": list(range(_PARTITIONS)),
            "is_active_controller": False,
        }  # fmt: skip


def _milestones(faults: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for fault in faults:
        at_ms = fault["begin_ms"] + 80.0
        common = {"time_ms": at_ms, "wall_ms": _WALL_MS + at_ms}
        yield {**common, "what": "fenced", "broker": 101}
        for number in range(4):
            yield {
                **common, "what": "leader", "topic": "orders", "partition": number,
                "leader": 101 + fault["fault_id"] % 2, "epoch": fault["fault_id"],
            }  # fmt: skip


def _ordered(table: Table, rows: Iterable[dict[str, Any]]) -> Iterator[list[Any]]:
    """The rows with a value for each column of the table, in its order."""
    names = [column.name for column in table.columns]
    return ([row.get(name) for name in names] for row in rows)


def measure(lake: Path, output: Path, driver_memory: str) -> tuple[float, float]:
    """(seconds, MB) of the job over a lake."""
    command = [sys.executable, "-m", "kvorum.analytics.job", "--lake", str(lake)]
    command += ["--output", str(output), "--driver-memory", driver_memory]
    begun = time.monotonic()
    largest = 0
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        while process.poll() is None:
            largest = max(largest, _resident_bytes(process.pid))
            time.sleep(0.2)
        took = time.monotonic() - begun
        if process.returncode != 0:
            log.seek(0)
            raise SystemExit(log.read().decode()[-2000:])
    return took, largest / 1e6


def _resident_bytes(pid: int) -> int:
    """The resident memory of a process and all its descendants."""
    children: dict[int, list[int]] = {}
    sizes: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(folder.name))
        sizes[int(folder.name)] = int(fields[21]) * 4096
    waiting, total = [pid], 0
    while waiting:
        one = waiting.pop()
        total += sizes.get(one, 0)
        waiting += children.get(one, ())
    return total


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.spark", description=__doc__)
    parser.add_argument("--runs", type=int, help="of one line, with --rows")
    parser.add_argument("--rows", type=int, help="of history, in each run")
    parser.add_argument("--driver-memory", default="2g", help="of the job (default: 2g)")
    options = parser.parse_args()
    lines = LINES if options.rows is None else ((options.runs or 1, options.rows),)
    sys.stdout.write(_HEAD)
    for runs, rows in lines:
        with tempfile.TemporaryDirectory(prefix="kvorum-bench-") as scratch:
            lake = Path(scratch) / "lake"
            make_lake(lake, runs, rows)
            size = sum(file.stat().st_size for file in lake.rglob("*.parquet"))
            took, resident = measure(lake, Path(scratch) / "out", options.driver_memory)
        total = runs * rows
        sys.stdout.write(
            f"| {runs:,} | {rows:,} | {total:,} | {size / 1e6:,.0f} | {took:.1f} | "
            f"{total / took:,.0f} | {resident:,.0f} |\n"
        )
        sys.stdout.flush()


if __name__ == "__main__":
    main()
