"""The tables of a lake that the job reads, with their explicit schemas.

The writer (`kvorum lake add`) states the same schemas in its own code; lake.json describes them,
and a test compares the two. A column that a file lacks reads as null.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

LAKE_VERSION = 2
RUN_ID = "run_id"

_INT = IntegerType()
_LONG = LongType()
_TEXT = StringType()
_DOUBLE = DoubleType()
_FLAG = BooleanType()
_INTS = ArrayType(IntegerType())
_TEXTS = ArrayType(StringType())


def _schema(**columns: DataType) -> StructType:
    fields = [StructField(name, kind, nullable=True) for name, kind in columns.items()]
    return StructType([*fields, StructField(RUN_ID, _TEXT, nullable=False)])


SCHEMAS: Mapping[str, StructType] = {
    "runs": _schema(
        id=_TEXT,
        kind=_TEXT,
        experiment=_TEXT,
        system=_TEXT,
        version=_TEXT,
        seed=_LONG,
        verdict=_TEXT,
        is_complete=_FLAG,
        controllers=_INT,
        brokers=_INT,
        topic=_TEXT,
        partitions=_INT,
        replication_factor=_INT,
        records_per_second=_INT,
        broken_promises=_TEXTS,
        lost=_LONG,
        duplicated=_LONG,
        reordered=_LONG,
        started_wall_ms=_LONG,
        report=_TEXT,
        rows=MapType(StringType(), LongType()),
    ),
    "history": _schema(
        index=_LONG,
        time_ms=_DOUBLE,
        type=_TEXT,
        f=_TEXT,
        operation=_TEXT,
        topic=_TEXT,
        partition=_INT,
        offset=_LONG,
        latency_ms=_DOUBLE,
        group=_TEXT,
        error=_TEXT,
        acknowledgement=_TEXT,
    ),
    "faults": _schema(
        fault_id=_INT,
        name=_TEXT,
        fault=_TEXT,
        description=_TEXT,
        nodes=_TEXTS,
        struck_ms=_DOUBLE,
        begin_ms=_DOUBLE,
        end_ms=_DOUBLE,
        begin_wall_ms=_LONG,
        topic=_TEXT,
        led_partitions=_INTS,
        held_partitions=_INTS,
        is_active_controller=_FLAG,
    ),
    "milestones": _schema(
        time_ms=_DOUBLE,
        wall_ms=_DOUBLE,
        what=_TEXT,
        broker=_INT,
        topic=_TEXT,
        partition=_INT,
        leader=_INT,
        epoch=_INT,
        isr=_INTS,
    ),
    "voters": _schema(
        time_ms=_DOUBLE,
        wall_ms=_LONG,
        leader_id=_INT,
        leader_epoch=_INT,
        high_watermark=_LONG,
        voter_id=_INT,
        log_end_offset=_LONG,
        lag=_LONG,
    ),
    "metadata_records": _schema(
        offset=_LONG,
        epoch=_INT,
        timestamp_ms=_LONG,
        record_type=_TEXT,
        record_version=_INT,
        payload_json=_TEXT,
    ),
    "partitions": _schema(
        topic_id=_TEXT,
        topic=_TEXT,
        partition=_INT,
        replicas=_INTS,
        isr=_INTS,
        leader=_INT,
    ),
    "brokers": _schema(
        broker_id=_INT,
        host=_TEXT,
        rack=_TEXT,
        is_fenced=_FLAG,
    ),
    "controllers": _schema(controller_id=_INT, host=_TEXT),
    "configs": _schema(resource_type=_INT, resource_name=_TEXT, name=_TEXT, value=_TEXT),
}
"""Only the columns that the job uses: Parquet reads no other."""


def type_name(kind: DataType) -> str:
    """A Spark type under its name in lake.json."""
    if isinstance(kind, ArrayType):
        return f"list<{type_name(kind.elementType)}>"
    if isinstance(kind, MapType):
        return f"map<string,{type_name(kind.valueType)}>"
    names = {"integer": "int32", "long": "int64", "boolean": "bool", "timestamp": "timestamp"}
    return names.get(kind.typeName(), kind.typeName())
