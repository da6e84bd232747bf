"""A Spark session for tests: local, quiet, on loopback."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import SparkSession

from kvorum.analytics.session import QUICK_JAVA

JOB_DEADLINE_S = 180.0
"""For what a job in a process of its own reaches: JVMs, workers and batches on a busy machine."""


@contextlib.contextmanager
def spark_session(folder: Path) -> Iterator[SparkSession]:
    """A session with two cores that keeps its files in `folder`, stopped at the end."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("kvorum-tests")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.extraJavaOptions", QUICK_JAVA)
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "OFF")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    try:
        yield spark
    finally:
        spark.stop()
