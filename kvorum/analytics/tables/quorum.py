"""Tables of the quorum and its brokers: lag of the voters, and why brokers were fenced."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

#: A fault counts as the cause of a fencing if it began at most this long before.
FENCING_LOOKBACK_MS = 60_000


def voter_lag(voters: DataFrame) -> DataFrame:
    """Per run and voter: how far its log was behind the quorum leader's, in records.

    The leader's own rows do not count. `never` has the descriptions in which the leader did not yet
    know the voter's log.
    """

    def rank(share: float) -> Column:
        return F.expr(f"percentile_disc({share}) within group (order by lag)")

    return (
        voters.where("voter_id != leader_id")
        .groupBy("run_id", "voter_id")
        .agg(
            F.count("lag").alias("samples"),
            F.count(F.when(F.col("lag").isNull(), 1)).alias("never"),
            rank(0.5).alias("lag_p50"),
            rank(0.99).alias("lag_p99"),
            F.max("lag").alias("lag_max"),
            F.count(F.when(F.col("lag") > 0, 1)).alias("samples_behind"),
        )
        .orderBy("run_id", "voter_id")
    )


def fencing_causes(milestones: DataFrame, faults: DataFrame) -> DataFrame:
    """Per run and broker: fencings, by the latest fault of that broker shortly before."""
    fenced = (
        milestones.where("what = 'fenced' and broker is not null")
        .select("run_id", F.col("broker").alias("broker_id"), "wall_ms")
        .distinct()
    )
    # A stopped broker is fenced before its process has ended and the whole fault is in force.
    injection = F.col("begin_ms") - F.coalesce("struck_ms", "begin_ms")
    struck = faults.select(
        "run_id",
        "fault",
        F.floor(F.col("begin_wall_ms") - injection).alias("struck_wall_ms"),
        F.explode("nodes").alias("node"),
    ).where(F.col("node").rlike("^broker-[0-9]+$"))
    struck = struck.withColumn("broker_id", F.substring_index("node", "-", -1).cast("int"))
    age = F.col("wall_ms") - F.col("struck_wall_ms")
    fencing = fenced.join(F.broadcast(struck), ["run_id", "broker_id"], "left").withColumn(
        "is_near", F.coalesce(age.between(0, FENCING_LOOKBACK_MS), F.lit(False))
    )
    cause = F.max_by(
        F.when(F.col("is_near"), F.col("fault")),
        F.when(F.col("is_near"), F.col("struck_wall_ms")),
    )
    by_fencing = fencing.groupBy("run_id", "broker_id", "wall_ms").agg(
        F.coalesce(cause, F.lit("no fault")).alias("cause")
    )
    return (
        by_fencing.groupBy("run_id", "broker_id", "cause")
        .agg(F.count(F.lit(1)).alias("fencings"))
        .orderBy("run_id", "broker_id", "cause")
    )
