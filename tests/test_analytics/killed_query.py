"""A streaming query in a process of its own, to be killed; arguments: a folder, and the servers.

It copies the topic `orders` into files. While FOLDER/stop-at exists, the task that meets the value
in that file makes FOLDER/reached and never returns, so the query stands in the middle of a batch.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from pyspark.sql import functions as F

from kvorum.analytics.kafka_source import register
from tests.test_analytics.sessions import spark_session

OFFSETS_PER_BATCH = 300


def main(folder: Path, servers: str) -> None:
    """Run the query to the present end of the topic."""
    with spark_session(folder) as spark:
        register(spark)
        frame = (
            spark.readStream.format("kvorum")
            .option("kafka.bootstrap.servers", servers)
            .option("subscribe", "orders")
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", OFFSETS_PER_BATCH)
            .load()
        )
        query = (
            frame.select("partition", "offset", stopping_at(folder)("value").alias("value"))
            .writeStream.format("parquet")
            .option("checkpointLocation", str(folder / "checkpoint"))
            .option("path", str(folder / "out"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()


def stopping_at(folder: Path):
    """A function of values that returns them, or stops for good (see the module)."""
    stop_at, reached = folder / "stop-at", folder / "reached"

    def pass_or_stop(value: bytes) -> bytes:
        if stop_at.exists() and stop_at.read_bytes() == bytes(value):
            reached.touch()
            signal.pause()
        return value

    # Without Arrow, which would need pandas.
    return F.udf(pass_or_stop, "binary", useArrow=False)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
