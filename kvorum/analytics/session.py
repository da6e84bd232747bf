"""The Spark session of the job."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from pyspark.sql import SparkSession

#: Settings that the job needs, if spark-submit does not say otherwise.
_DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Spark logs a trace of what the job then says in one sentence.
    "spark.log.level": "FATAL",
    "spark.sql.adaptive.enabled": "true",
    # Without it, a cached table has spark.sql.shuffle.partitions partitions, however small it is.
    "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning": "true",
    # A lake has a folder for each run and table: a task for each would cost more than its listing.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "32",
    # A run's id is text, also if it has digits alone.
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
}

#: For a driver of seconds, in which Java's second compiler takes more time than it saves. Without
#: that compiler Java has a fifth of the usual space for code, which the code that Spark generates
#: fills up: "Out of space in CodeCache".
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"

#: Parquet of about five million rows of history.
SMALL_BYTES = 64_000_000


def has_java() -> bool:
    """True if Spark would find a Java runtime."""
    return "JAVA_HOME" in os.environ or shutil.which("java") is not None


def first_line(error: BaseException) -> str:
    """The first line of an error of Spark or Java that says something; a Java trace stays out."""
    java = getattr(error, "java_exception", None)
    text = str(error if java is None else java).strip()
    return text.splitlines()[0] if text else type(error).__name__


def is_small(lake: str) -> bool:
    """True for a lake on a local disk with a history of less than SMALL_BYTES."""
    local = lake.removeprefix("file://")
    if "://" in local:
        return False
    return (
        sum(file.stat().st_size for file in Path(local).glob("history/**/*.parquet")) < SMALL_BYTES
    )


def open_session(
    master: str | None, driver_memory: str, scratch: str, *, is_short: bool = False
) -> SparkSession:
    """The session.

    master: None leaves it, and memory, to spark-submit.
    scratch: a local folder for a local master's files.
    is_short: the job takes seconds, in which Java's second compiler would take more time than it
        saves (measured: 72 s of CPU with it, 41 s without, over four runs).
    """
    # Without this, executors look for a python3, which may differ from the driver's.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    is_local = master is not None and master.startswith("local")
    if is_local:
        # Without this, Spark looks up the host's name, which may be slow or lead to another
        # interface.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName("kvorum-analytics")
    submitted = _submitted()
    for key, value in _DEFAULTS.items():
        if key not in submitted:
            builder = builder.config(key, value)
    if master is not None:
        builder = builder.master(master)
    if is_local:
        for key, value in (
            ("spark.driver.bindAddress", "127.0.0.1"),
            ("spark.driver.host", "127.0.0.1"),
            ("spark.driver.memory", driver_memory),
            ("spark.local.dir", scratch),
            ("spark.sql.warehouse.dir", f"{scratch}/warehouse"),
        ):
            builder = builder.config(key, value)
        if is_short:
            builder = builder.config("spark.driver.extraJavaOptions", QUICK_JAVA)
    session: SparkSession = builder.getOrCreate()
    return session


def _submitted() -> dict[str, str]:
    """The settings that spark-submit gave to this driver."""
    from pyspark import SparkConf, SparkContext

    if SparkContext._gateway is None and "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    return dict(SparkConf().getAll())
