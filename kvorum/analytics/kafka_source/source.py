"""The data source that Spark knows as `kvorum`: checks options and makes readers and writers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from kvorum.analytics.kafka_source.batch import BatchReader, PruningBatchReader
from kvorum.analytics.kafka_source.clients import check_consumer, check_producer
from kvorum.analytics.kafka_source.columns import check_schema, full_schema
from kvorum.analytics.kafka_source.errors import OptionRefused
from kvorum.analytics.kafka_source.options import (
    ReadOptions,
    WriteOptions,
    check_batch,
    check_stream,
    parse_read_options,
    parse_write_options,
)
from kvorum.analytics.kafka_source.stream import StreamReader
from kvorum.analytics.kafka_source.write import BatchWriter, StreamWriter, check_write_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMAT = "kvorum"
_FILTER_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


class KvorumDataSource(DataSource):
    """Kafka topics as a source and a sink of Spark. Spark makes one object for each query.

    Every method raises OptionRefused for options that cannot be obeyed.
    """

    _batch_reader = BatchReader

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return FORMAT

    def schema(self) -> StructType:
        """The columns of a record. `load()` asks for it, so it checks the options of reads."""
        return full_schema(has_headers=self._read_options().has_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of a batch query."""
        options = self._read_options()
        check_batch(options)
        check_schema(schema, has_headers=options.has_headers)
        return self._batch_reader(options, schema.fieldNames())

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The reader of a streaming query."""
        options = self._read_options()
        check_stream(options)
        check_schema(schema, has_headers=options.has_headers)
        return StreamReader(options, schema.fieldNames())

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """The writer of a batch query."""
        if overwrite:
            raise OptionRefused("a topic cannot be overwritten; use the save mode append")
        return BatchWriter(self._write_options(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """The writer of a streaming query. Each batch of the output mode complete is appended."""
        return StreamWriter(self._write_options(schema))

    def _write_options(self, schema: StructType) -> WriteOptions:
        options = parse_write_options(dict(self.options))
        check_producer(options.settings)
        check_write_schema(schema, options)
        return options

    def _read_options(self) -> ReadOptions:
        options = parse_read_options(dict(self.options))
        check_consumer(options)
        return options


class PruningDataSource(KvorumDataSource):
    """The same for a session that pushes filters down to Python data sources."""

    _batch_reader = PruningBatchReader


def register(spark: SparkSession) -> None:
    """Make the format `kvorum` known to a session, as a source and a sink.

    Every executor must be able to import `kvorum.analytics.kafka_source` (docs/spark.md). A thread
    that writes and is not the one that made the session calls this, too: Spark looks a sink up in
    the active session of the thread.
    """
    prunes = spark.conf.get(_FILTER_PUSHDOWN, "false") == "true"
    spark.dataSource.register(PruningDataSource if prunes else KvorumDataSource)
    # A session of Spark Connect has no JVM here, and no threads of one.
    jvm: Any = getattr(spark, "_jvm", None)
    if jvm is not None:
        jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)
