"""The files that the job reads, their explicit schemas, and their places in a run folder.

The writers state the same schemas in their own code. A column that a file lacks reads as null.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

_INT = IntegerType()
_LONG = LongType()
_TEXT = StringType()
_DOUBLE = DoubleType()
_FLAG = BooleanType()
_INTS = ArrayType(IntegerType())
_TEXTS = ArrayType(StringType())


def _schema(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind, nullable=True) for name, kind in columns.items()])


SCHEMAS: Mapping[str, StructType] = {
    "history": _schema(
        run_id=_TEXT,
        index=_LONG,
        time_ms=_DOUBLE,
        wall_ms=_LONG,
        process=_TEXT,
        type=_TEXT,
        f=_TEXT,
        partition=_INT,
        value=_LONG,
        offset=_LONG,
        latency_ms=_DOUBLE,
        error=_TEXT,
    ),
    "faults": _schema(
        run_id=_TEXT,
        fault_id=_INT,
        name=_TEXT,
        fault=_TEXT,
        description=_TEXT,
        target=_TEXT,
        nodes=_TEXTS,
        begin_ms=_DOUBLE,
        end_ms=_DOUBLE,
        begin_wall_ms=_LONG,
        led_partitions=_INTS,
        held_partitions=_INTS,
        is_active_controller=_FLAG,
        controllers=_INT,
        brokers=_INT,
    ),
    "metadata_records": _schema(
        offset=_LONG,
        epoch=_INT,
        timestamp_ms=_LONG,
        record_type=_TEXT,
        record_version=_INT,
        topic_id=_TEXT,
        topic=_TEXT,
        partition=_INT,
        broker_id=_INT,
        leader=_INT,
        isr=_INTS,
        leader_epoch=_INT,
        partition_epoch=_INT,
        payload_json=_TEXT,
    ),
    "partitions": _schema(
        topic_id=_TEXT,
        topic=_TEXT,
        partition=_INT,
        replicas=_INTS,
        isr=_INTS,
        leader=_INT,
        leader_epoch=_INT,
        partition_epoch=_INT,
        adding_replicas=_INTS,
        removing_replicas=_INTS,
        leader_recovery_state=_INT,
        elr=_INTS,
        last_known_elr=_INTS,
    ),
    "topics": _schema(topic_id=_TEXT, topic=_TEXT, partitions=_INT, replication_factor=_INT),
    "brokers": _schema(
        broker_id=_INT,
        broker_epoch=_LONG,
        host=_TEXT,
        port=_INT,
        rack=_TEXT,
        is_fenced=_FLAG,
        incarnation_id=_TEXT,
    ),
}

#: Folders within a run folder that may have a file.
PLACES = ("", "metadata")
_HISTORY, _RUN = "history.jsonl", "run.json"


def find_inputs(folders: list[str]) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    """(data set -> run name -> path, run name -> the reason why its folder has no file for the
    job).

    A run is named after its folder; equal names are numbered.
    """
    found: dict[str, dict[str, str]] = {name: {} for name in SCHEMAS}
    left_out: dict[str, str] = {}
    taken: set[str] = set()
    for folder in folders:
        base = Path(folder).resolve()
        run = base.name
        number = 2
        while run in taken:
            run = f"{base.name}-{number}"
            number += 1
        taken.add(run)
        for name in SCHEMAS:
            for place in PLACES:
                path = base / place / f"{name}.parquet"
                if path.exists():
                    found[name][run] = str(path)
                    break
        if (base / _HISTORY).exists() and run not in found["history"]:
            left_out[run] = f"{base} has {_HISTORY} and no history.parquet: it was interrupted"
            if (base / _RUN).exists():
                left_out[run] += f"; kvorum report {base} judges it and writes the file"
        elif not any(run in runs for runs in found.values()):
            left_out[run] = f"{base} holds none of the files that the job reads"
    return found, left_out
