"""The table of share groups: how often records were delivered, and how soon they were accepted."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

_RECORD = ("run_id", "share_group", "topic", "partition", "offset")
NO_FAULT = "none"


def share_deliveries(history: DataFrame, faults: DataFrame) -> DataFrame:
    """Per run, share group, topic and kind of fault: deliveries, and the time from a record's first
    delivery to its accept.

    A delivery counts for the fault in force then that began last, and a record for the fault of its
    first delivery. Of faults the one with the greatest id began last.
    """
    delivered = _with_fault(_records_of(history, "deliver", "ok"), faults)
    order = Window.partitionBy(*_RECORD).orderBy("time_ms", "index")
    numbered = delivered.withColumn("number", F.row_number().over(order))
    by_record = numbered.groupBy(*_RECORD).agg(
        F.count(F.lit(1)).alias("deliveries"), F.min("time_ms").alias("first_ms")
    )
    accepted = (
        _records_of(history, "acknowledge", "ok")
        .where("acknowledgement = 'accept'")
        .groupBy(*_RECORD)
        .agg(F.min("time_ms").alias("accepted_ms"))
    )
    firsts = (
        numbered.where("number = 1")
        .select(*_RECORD, "fault")
        .join(by_record, list(_RECORD))
        .join(accepted, list(_RECORD), "left")
        .withColumn("accept_ms", F.col("accepted_ms") - F.col("first_ms"))
    )
    again = (
        numbered.where("number > 1")
        .groupBy("run_id", "share_group", "topic", "fault")
        .agg(F.count(F.lit(1)).alias("redeliveries"))
    )

    def rank(share: float) -> Column:
        return F.expr(f"percentile_disc({share}) within group (order by accept_ms)")

    keys = ["run_id", "share_group", "topic", "fault"]
    summed = firsts.groupBy(*keys).agg(
        F.count(F.lit(1)).alias("records"),
        F.max("deliveries").alias("deliveries_max"),
        F.count("accept_ms").alias("accepted"),
        rank(0.5).alias("accept_p50_ms"),
        rank(0.99).alias("accept_p99_ms"),
        F.max("accept_ms").alias("accept_max_ms"),
    )
    # Under a fault there may be redeliveries alone.
    return (
        summed.join(again, keys, "full")
        .select(
            *keys,
            F.coalesce("records", F.lit(0)).alias("records"),
            F.coalesce("redeliveries", F.lit(0)).alias("redeliveries"),
            "deliveries_max",
            F.coalesce("accepted", F.lit(0)).alias("accepted"),
            "accept_p50_ms",
            "accept_p99_ms",
            "accept_max_ms",
        )
        .orderBy(*keys)
    )


def _records_of(history: DataFrame, operation: str, kind: str) -> DataFrame:
    """The records of share groups in the events of this operation and type."""
    return history.where((F.col("operation") == operation) & (F.col("type") == kind)).select(
        "run_id",
        F.col("group").alias("share_group"),
        "topic",
        "partition",
        "offset",
        "index",
        "time_ms",
        "acknowledgement",
    )


def _with_fault(delivered: DataFrame, faults: DataFrame) -> DataFrame:
    """Deliveries with the kind of the fault that was in force, or NO_FAULT."""
    spells = faults.select(
        F.col("run_id").alias("fault_run_id"),
        "fault_id",
        "fault",
        F.coalesce("struck_ms", "begin_ms").alias("struck_ms"),
        "end_ms",
    )
    is_in_force = (
        (F.col("run_id") == F.col("fault_run_id"))
        & (F.col("time_ms") >= F.col("struck_ms"))
        & (F.col("end_ms").isNull() | (F.col("time_ms") < F.col("end_ms")))
    )
    return (
        delivered.join(F.broadcast(spells), is_in_force, "left")
        .groupBy(*_RECORD, "index", "time_ms")
        .agg(F.coalesce(F.max_by("fault", "fault_id"), F.lit(NO_FAULT)).alias("fault"))
    )
