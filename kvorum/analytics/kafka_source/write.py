"""Writes, batch and streaming: rows of a query become records.

A write is at least once, as Spark's own: a task that fails, or a micro-batch that is run again,
writes its rows again. The producer is idempotent, so its own retries add no duplicates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
)

from kvorum.analytics.kafka_source.clients import open_producer
from kvorum.analytics.kafka_source.errors import OptionRefused, WriteFailed
from kvorum.analytics.kafka_source.options import WriteOptions

_COLUMNS = ("key", "value", "headers", "topic", "partition")
_NO_PARTITION = -1
_QUEUE_WAIT_S = 0.1

#: The way out for errors that users meet; librdkafka's text says what happened.
_WAYS_OUT = {
    KafkaError.MSG_SIZE_TOO_LARGE: "raise kafka.max.request.size and the topic's max.message.bytes",
    KafkaError._MSG_TIMED_OUT: "check that the partition has a leader and enough in-sync replicas, "
    "or raise kafka.delivery.timeout.ms",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "create the topic, or correct its name",
    KafkaError._UNKNOWN_TOPIC: "create the topic, or correct its name",
    KafkaError._UNKNOWN_PARTITION: "correct the column partition, or add partitions to the topic",
    KafkaError.NOT_ENOUGH_REPLICAS: "bring back replicas, or lower the topic's min.insync.replicas",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "give the user of the query the right to write",
    KafkaError.INVALID_RECORD: "a compacted topic takes no record without a key",
}


def check_write_schema(schema: StructType, options: WriteOptions) -> None:
    """Raise OptionRefused unless the columns can become records.

    Columns that no record has are left out, as Spark's own sink does.
    """
    fields = {field.name: field.dataType for field in schema.fields}
    if "value" not in fields:
        raise OptionRefused(
            f"the rows have no column value, only {', '.join(fields) or 'none'}; name one value"
        )
    if "topic" not in fields and options.topic is None:
        raise OptionRefused("no topic is named; set the option topic, or add a column topic")
    for name in ("key", "value"):
        if name in fields and not isinstance(fields[name], StringType | BinaryType):
            raise _mistyped(name, fields[name], "string or binary")
    if "topic" in fields and not isinstance(fields["topic"], StringType):
        raise _mistyped("topic", fields["topic"], "string")
    if "partition" in fields and not isinstance(fields["partition"], IntegerType):
        raise _mistyped("partition", fields["partition"], "int")
    if "headers" in fields and not _are_headers(fields["headers"]):
        raise _mistyped("headers", fields["headers"], "array<struct<key:string,value:binary>>")


def _are_headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    inner = [(field.name, type(field.dataType)) for field in kind.elementType.fields]
    return inner == [("key", StringType), ("value", BinaryType)]


def _mistyped(name: str, kind: DataType, wanted: str) -> OptionRefused:
    return OptionRefused(f"the column {name} is {kind.simpleString()}; cast it to {wanted}")


class BatchWriter(DataSourceArrowWriter):
    """The writer of a batch query."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Write the rows of one task. Raises WriteFailed."""
        return write_rows(iterator, self._options)


class StreamWriter(DataSourceStreamArrowWriter):
    """The writer of a streaming query."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Write the rows of one task of a micro-batch. Raises WriteFailed."""
        return write_rows(iterator, self._options)


def write_rows(batches: Iterator[Any], options: WriteOptions) -> WriterCommitMessage:
    """Write Arrow batches; returns when every record is acknowledged. Raises WriteFailed."""
    producer = open_producer(options.settings)
    failures: list[tuple[Any, Any]] = []

    def take_report(error: Any, message: Any) -> None:
        if error is not None:
            failures.append((error, message))

    for batch in batches:
        for topic, partition, key, value, headers in _records(batch, options.topic):
            arguments = {} if headers is None else {"headers": headers}
            _produce(producer, topic, value, key=key, partition=partition,
                     on_delivery=take_report, **arguments)  # fmt: skip
        producer.poll(0)
        _raise_first(producer, failures)
    # No time-out: each record ends by itself after kafka.delivery.timeout.ms.
    producer.flush()
    _raise_first(producer, failures)
    return WriterCommitMessage()


def _produce(producer: Any, topic: str, value: bytes | None, **arguments: Any) -> None:
    while True:
        try:
            producer.produce(topic, value, **arguments)
            return
        except BufferError:
            producer.poll(_QUEUE_WAIT_S)
        except KafkaException as error:
            raise _failed(error.args[0], topic, arguments["partition"]) from error


def _raise_first(producer: Any, failures: Sequence[tuple[Any, Any]]) -> None:
    if failures:
        producer.purge()
        error, message = failures[0]
        raise _failed(error, message.topic(), message.partition())


def _failed(error: Any, topic: str, partition: int) -> WriteFailed:
    place = topic if partition in (None, _NO_PARTITION) else f"{topic}-{partition}"
    way_out = _WAYS_OUT.get(error.code(), "mend the cause; Spark writes the rows of the task again")
    reason = error.str().removeprefix("Unable to produce message: ")
    return WriteFailed(f"a record for {place} was not acknowledged: {reason}; {way_out}")


def _records(
    batch: Any, topic_option: str | None
) -> Iterator[tuple[str, int, bytes | None, bytes | None, list[tuple[str, bytes]] | None]]:
    """Topic, partition, key, value and headers of each row."""
    count = batch.num_rows
    columns = {name: batch.column(name) for name in _COLUMNS if name in batch.schema.names}
    keys = _binary(columns["key"]) if "key" in columns else [None] * count
    values = _binary(columns["value"])
    headers = columns["headers"].to_pylist() if "headers" in columns else None
    topics = [topic_option] * count if topic_option else columns["topic"].to_pylist()
    if None in topics:
        raise WriteFailed("a row has topic null; set the option topic, or fill the column topic")
    partitions = [_NO_PARTITION] * count
    if "partition" in columns:
        partitions = [_partition(number) for number in columns["partition"].to_pylist()]
    pairs = [None] * count if headers is None else [_pairs(one) for one in headers]
    return zip(topics, partitions, keys, values, pairs, strict=True)


def _binary(column: Any) -> list[bytes | None]:
    kind = column.type
    if pa.types.is_string(kind):
        column = column.cast(pa.binary())
    elif pa.types.is_large_string(kind):
        column = column.cast(pa.large_binary())
    values: list[bytes | None] = column.to_pylist()
    return values


def _partition(number: int | None) -> int:
    if number is None:
        return _NO_PARTITION
    if number < 0:
        raise WriteFailed(
            f"a row has partition {number}; fill the column with a partition, or with null"
        )
    return number


def _pairs(headers: list[dict[str, Any] | None] | None) -> list[tuple[str, bytes]] | None:
    if not headers:
        return None
    if any(header is None or header["key"] is None for header in headers):
        raise WriteFailed("a row has a header without a key; give each header a key")
    return [(header["key"], header["value"]) for header in headers if header is not None]
