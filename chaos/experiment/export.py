"""A run's history as Parquet, for Spark and other readers.

Schemas are explicit and versioned: the file metadata carries `kvorum.schema.version`. A column is
never changed in meaning; new ones are added at the end and the version is raised.

history.parquet has one row per event, and one row per record of a send or a poll; `f` is produce
for a send, consume for a poll:
  run_id string, index int64, time_ms double, wall_ms int64, process string, type string, f string,
  partition int32?, value int64?, offset int64?, latency_ms double?, error string?
faults.parquet has one row per injected fault:
  run_id string, fault_id int32, name string, fault string, description string, target string,
  nodes list<string>, begin_ms double, end_ms double?, begin_wall_ms int64,
  led_partitions list<int32>, held_partitions list<int32>, is_active_controller bool,
  controllers int32, brokers int32
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kvorum.chaos.experiment.history import (
    COMMIT,
    FAULT_BEGIN,
    FAULT_END,
    HISTORY_FILE,
    POLL,
    SEND,
    TRANSACTION,
    Event,
    Poll,
    Send,
    details_of,
    read_header,
    read_history,
)
from kvorum.chaos.experiment.report import RUN_FILE, read_record
from kvorum.runtime.errors import CorruptData

SCHEMA_VERSION = 1
HISTORY_PARQUET = "history.parquet"
FAULTS_PARQUET = "faults.parquet"

#: Rows held in memory before they are written as a row group.
_ROWS_PER_GROUP = 100_000


def export_history(run_dir: str) -> tuple[str, str]:
    """Write both files into the run folder. Returns their paths.

    Memory is bounded by a row group. Raises ConfigError when the folder holds no run, CorruptData
    for a damaged file of it.
    """
    folder = Path(run_dir)
    record = read_record(run_dir)
    run_id = f"{record['started_wall_ms']}-{record['seed']}"
    history_file = str(folder / HISTORY_PARQUET)
    faults_file = str(folder / FAULTS_PARQUET)
    fault_events: list[Event] = []
    wall_start_ms = read_header(str(folder / HISTORY_FILE)).wall_start_ms

    def rows() -> Iterator[dict[str, Any]]:
        for event in read_history(str(folder / HISTORY_FILE)):
            if event.f in (FAULT_BEGIN, FAULT_END):
                fault_events.append(event)
            yield from _history_rows(run_id, wall_start_ms, event)

    _write(history_file, history_schema(), rows())
    try:
        _write(
            faults_file,
            faults_schema(),
            iter(_fault_rows(run_id, wall_start_ms, record, fault_events)),
        )
    except KeyError as missing:
        path = str(folder / HISTORY_FILE)
        raise CorruptData(
            path, 0, f"a fault, or {RUN_FILE} beside it, lacks {missing}"
        ) from missing
    return history_file, faults_file


def history_schema() -> Any:
    """The Arrow schema of history.parquet."""
    import pyarrow as pa

    return pa.schema(
        [
            _required("run_id", pa.string()),
            _required("index", pa.int64()),
            _required("time_ms", pa.float64()),
            _required("wall_ms", pa.int64()),
            _required("process", pa.string()),
            _required("type", pa.string()),
            _required("f", pa.string()),
            pa.field("partition", pa.int32()),
            pa.field("value", pa.int64()),
            pa.field("offset", pa.int64()),
            pa.field("latency_ms", pa.float64()),
            pa.field("error", pa.string()),
        ],
        metadata=_metadata("history"),
    )


def faults_schema() -> Any:
    """The Arrow schema of faults.parquet."""
    import pyarrow as pa

    return pa.schema(
        [
            _required("run_id", pa.string()),
            _required("fault_id", pa.int32()),
            _required("name", pa.string()),
            _required("fault", pa.string()),
            _required("description", pa.string()),
            _required("target", pa.string()),
            _required("nodes", pa.list_(pa.string())),
            _required("begin_ms", pa.float64()),
            pa.field("end_ms", pa.float64()),
            _required("begin_wall_ms", pa.int64()),
            _required("led_partitions", pa.list_(pa.int32())),
            _required("held_partitions", pa.list_(pa.int32())),
            _required("is_active_controller", pa.bool_()),
            _required("controllers", pa.int32()),
            _required("brokers", pa.int32()),
        ],
        metadata=_metadata("faults"),
    )


def _required(name: str, kind: Any) -> Any:
    import pyarrow as pa

    return pa.field(name, kind, nullable=False)


def _metadata(name: str) -> dict[str, str]:
    return {"kvorum.schema": name, "kvorum.schema.version": str(SCHEMA_VERSION)}


#: Functions of the history under their names in history.parquet.
_PARQUET_NAMES = {SEND: "produce", POLL: "consume"}


def _history_rows(run_id: str, wall_start_ms: int, event: Event) -> Iterator[dict[str, Any]]:
    row: dict[str, Any] = {
        "run_id": run_id,
        "index": event.index,
        "time_ms": event.time_ms,
        "wall_ms": wall_start_ms + int(event.time_ms),
        "process": event.process,
        "type": event.type,
        "f": _PARQUET_NAMES.get(event.f, event.f),
        "partition": event.partition,
        "value": None,
        "offset": None,
        "latency_ms": event.latency_ms,
        "error": event.error,
    }
    if not event.ops or event.f in (TRANSACTION, COMMIT):
        yield row
        return
    for op in event.ops:
        row["partition"] = op.partition
        if isinstance(op, Send):
            yield {**row, "value": op.value, "offset": op.offset if op.offset >= 0 else None}
        elif isinstance(op, Poll):
            for value, offset in op.records():
                yield {**row, "value": value, "offset": offset}


def _fault_rows(
    run_id: str, wall_start_ms: int, record: dict[str, Any], events: list[Event]
) -> Iterator[dict[str, Any]]:
    ends = {details_of(event).get("id"): event.time_ms for event in events if event.f == FAULT_END}
    for event in events:
        if event.f != FAULT_BEGIN:
            continue
        details = details_of(event)
        yield {
            "run_id": run_id,
            "fault_id": details["id"],
            "name": details["name"],
            "fault": details["fault"],
            "description": details["description"],
            "target": details["target"],
            "nodes": details["nodes"],
            "begin_ms": event.time_ms,
            "end_ms": ends.get(details["id"]),
            "begin_wall_ms": wall_start_ms + int(event.time_ms),
            "led_partitions": details["led_partitions"],
            "held_partitions": details["held_partitions"],
            "is_active_controller": details["is_active_controller"],
            "controllers": record["configuration"]["controllers"],
            "brokers": record["configuration"]["brokers"],
        }


def _write(path: str, schema: Any, rows: Iterator[dict[str, Any]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    # Written under another name and renamed, so that a reader never finds a partial file.
    beside = f"{path}.tmp"
    with pq.ParquetWriter(beside, schema, compression="zstd") as writer:
        batch: list[dict[str, Any]] = []
        for row in rows:
            batch.append(row)
            if len(batch) >= _ROWS_PER_GROUP:
                writer.write_table(pa.Table.from_pylist(batch, schema=schema))
                batch.clear()
        # An empty group still makes a valid file with the schema.
        writer.write_table(pa.Table.from_pylist(batch, schema=schema))
    Path(beside).replace(path)
