"""The load's own start, which counts as no silence, as in a run's report.

The rules are those of `kvorum/chaos/outages/outages.py`: a client's first connection may take a
while, and that is none of the cluster's outages unless a fault explains it.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kvorum.analytics.tables.failover import AFTERMATH_MS, SKEW_MS
from kvorum.analytics.tables.history import SILENCE_MS_MIN, SLICE_MS

#: A first connection that takes longer is an outage.
START_MS = 5_000.0

_GAP = ("run_id", "topic", "partition")


def without_starts(gaps: DataFrame, faults: DataFrame | None) -> DataFrame:
    """The gaps without the loads' starts. faults: of the lake, if it has any.

    A start is the time before the first answer. It ends at the first fault that struck within it:
    what comes after cannot be told from the fault's effect, and stays a gap. A fault that was in
    force at its begin, or ended within AFTERMATH_MS before, explains it.
    """
    is_candidate = F.col("is_first") & F.col("is_over") & (F.col("length_ms") >= SILENCE_MS_MIN)
    met = gaps.withColumn("strike_ms", F.lit(None).cast("double"))
    met = met.withColumn("is_owned", F.lit(False))
    if faults is not None:
        struck = faults.select(
            "run_id",
            F.coalesce("struck_ms", "begin_ms").alias("struck_ms"),
            F.col("end_ms").alias("fault_end_ms"),
        )
        begun_ms = F.col("begin_ms") + F.least(F.lit(SKEW_MS), F.col("length_ms"))
        is_owner = (F.col("struck_ms") <= begun_ms) & (
            F.col("fault_end_ms").isNull()
            | (F.col("fault_end_ms") + AFTERMATH_MS >= F.col("begin_ms"))
        )
        is_within = (F.col("struck_ms") >= F.col("begin_ms") + SKEW_MS) & (
            F.col("struck_ms") < F.col("end_ms")
        )
        explained = (
            gaps.where(is_candidate)
            .join(F.broadcast(struck), "run_id")
            .groupBy(*_GAP)
            .agg(
                F.max(is_owner).alias("is_owned"),
                F.min(F.when(is_within, F.col("struck_ms"))).alias("strike_ms"),
            )
        )
        met = gaps.join(F.broadcast(explained), list(_GAP), "left")
    start_ms = F.coalesce("strike_ms", "end_ms") - F.col("begin_ms")
    is_start = is_candidate & ~F.coalesce("is_owned", F.lit(False)) & (start_ms <= F.lit(START_MS))
    begin_ms = F.when(is_start, F.coalesce("strike_ms", "end_ms")).otherwise(F.col("begin_ms"))
    return (
        met.select(*_GAP, begin_ms.alias("begin_ms"), "end_ms", "is_over")
        .withColumn("length_ms", F.col("end_ms") - F.col("begin_ms"))
        .where(F.col("length_ms") >= SLICE_MS)
    )
