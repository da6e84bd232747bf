"""The columns of a record: Spark's schema, and messages of librdkafka as Arrow record batches."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Message
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kvorum.analytics.kafka_source.errors import OptionRefused

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
}
_HEADERS = "headers"
_ARROW_HEADERS = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)
_ARROW_TYPES: dict[str, Any] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    _HEADERS: _ARROW_HEADERS,
}


def full_schema(*, has_headers: bool) -> StructType:
    """The columns of Spark's own Kafka source, in its order."""
    fields = [StructField(name, kind) for name, kind in _TYPES.items()]
    if has_headers:
        fields.append(StructField(_HEADERS, ArrayType(_HEADER)))
    return StructType(fields)


def check_schema(schema: StructType, *, has_headers: bool) -> None:
    """Raise OptionRefused unless the schema is made of columns of the source, with their types."""
    known = {field.name: field.dataType for field in full_schema(has_headers=has_headers).fields}
    for field in schema.fields:
        if field.name not in known:
            hint = " (set includeHeaders to true)" if field.name == _HEADERS else ""
            raise OptionRefused(
                f"the schema has a column {field.name!r}; the columns of a topic are "
                f"{', '.join(known)}{hint}"
            )
        # Elements of an array may be null or not, in a schema that a user writes.
        if field.dataType.simpleString() != known[field.name].simpleString():
            raise OptionRefused(
                f"the schema has {field.name} as {field.dataType.simpleString()}; a topic has it "
                f"as {known[field.name].simpleString()}, which a query can cast"
            )
    if len({field.name for field in schema.fields}) != len(schema.fields) or not schema.fields:
        raise OptionRefused(
            f"the schema is {schema.simpleString()!r}; name one column or more, each once"
        )


class BatchBuilder:
    """Makes Arrow record batches of messages of one partition.

    One call of a builder costs less than a microsecond for each record: every column is one pass
    over the messages, in C, and columns that repeat a value are made once and sliced.
    """

    def __init__(self, columns: Sequence[str], topic: str, partition: int) -> None:
        self._columns = tuple(columns)
        self.schema = pa.schema([pa.field(name, _ARROW_TYPES[name]) for name in columns])
        self._topic = topic
        self._partition = partition
        self._constants: dict[tuple[str, object], Any] = {}
        self._numbers = pa.array([], pa.int64())

    def build(self, messages: list[Any]) -> Any:
        """A record batch. The messages are of the builder's partition, in the order of offsets,
        without events."""
        made: dict[str, Any] = {}
        if "timestamp" in self._columns or "timestampType" in self._columns:
            made["timestamp"], made["timestampType"] = self._timestamps(messages)
        arrays = [
            made[name] if name in made else self._column(name, messages) for name in self._columns
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _column(self, name: str, messages: list[Any]) -> Any:
        match name:
            case "value":
                return pa.array(list(map(Message.value, messages)), pa.binary())
            case "key":
                return pa.array(list(map(Message.key, messages)), pa.binary())
            case "offset":
                return self._offsets(messages)
            case "topic":
                return self._constant("topic", self._topic, len(messages))
            case "partition":
                return self._constant("partition", self._partition, len(messages))
            case _:
                return pa.array([_headers(message) for message in messages], _ARROW_HEADERS)

    def _offsets(self, messages: list[Any]) -> Any:
        first, last, count = messages[0].offset(), messages[-1].offset(), len(messages)
        if last - first != count - 1:
            return pa.array(list(map(Message.offset, messages)), pa.int64())
        # Without a gap, the offsets are known from the first one.
        if len(self._numbers) < count:
            self._numbers = pa.array(range(count), pa.int64())
        return pc.add(self._numbers.slice(0, count), first)

    def _timestamps(self, messages: list[Any]) -> tuple[Any, Any]:
        """librdkafka has 0 for none, 1 for CreateTime; Kafka and Spark have -1 and 0."""
        # Flat, so that no pair outlives its turn: 10,000 living tuples keep the garbage collector
        # busy.
        flat = list(chain.from_iterable(map(Message.timestamp, messages)))
        kinds = flat[::2]
        milliseconds = pa.array(flat[1::2], pa.timestamp("ms", tz="UTC"))
        timestamps = milliseconds.cast(_ARROW_TYPES["timestamp"])
        if len(set(kinds)) == 1:
            return timestamps, self._constant("timestampType", kinds[0] - 1, len(messages))
        return timestamps, pa.array([kind - 1 for kind in kinds], pa.int32())

    def _constant(self, name: str, value: object, count: int) -> Any:
        known = self._constants.get((name, value))
        if known is None or len(known) < count:
            known = pa.repeat(pa.scalar(value, _ARROW_TYPES[name]), count)
            self._constants[name, value] = known
        return known.slice(0, count)


def _headers(message: Any) -> list[dict[str, object]] | None:
    """None for a record without headers, as in Spark."""
    headers = message.headers()
    return [{"key": key, "value": value} for key, value in headers] if headers else None
