"""Kafka topics as a source and a sink of Spark, without the JVM's connector.

    from kvorum.analytics.kafka_source import register
    register(spark)
    options = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"}
    spark.read.format("kvorum").options(**options).load()

Options, columns and meanings are those of Spark's own Kafka source; docs/spark.md has them, and
the differences. The driver plans ranges of offsets (`plan`, `resolve`), tasks read them with
librdkafka into Arrow batches (`fetch`, `columns`).
"""

try:
    from kvorum.analytics.kafka_source.source import KvorumDataSource, register
except ModuleNotFoundError as error:
    if (error.name or "").startswith("kvorum"):
        raise
    raise ImportError(
        f"topics in Spark need {error.name}; pip install 'kvorum[spark]' brings it (PySpark 4.2 or "
        "later, pyarrow and confluent-kafka)"
    ) from error

__all__ = ["KvorumDataSource", "register"]
