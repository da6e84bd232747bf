"""Tables from histories: fail-over after faults, unavailability, regressions between runs.

An acknowledgement counts for a fault only if its record was written at or after the fault's begin.
Partition -1 is the controller: created topics count in place of acknowledged records.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

#: Limit below which a silence does not count: it comes from the load's own rhythm.
SILENCE_MS_MIN = 200.0

_CONTROLLER = -1


def recoveries(history: DataFrame, faults: DataFrame) -> DataFrame:
    """One row for each fault and affected partition; recovery_ms is null if the partition did not
    recover."""
    outcomes = _outcomes(history)
    concerned = faults.select(
        "run",
        "fault_id",
        "fault",
        "target",
        "controllers",
        "brokers",
        "begin_ms",
        "led_partitions",
        F.explode("held_partitions").alias("partition"),
    ).withColumn(
        "role",
        F.when(F.array_contains("led_partitions", F.col("partition")), "led").otherwise("held"),
    )
    struck_controller = faults.where("is_active_controller").select(
        "run",
        "fault_id",
        "fault",
        "target",
        "controllers",
        "brokers",
        "begin_ms",
        "led_partitions",
        F.lit(_CONTROLLER).alias("partition"),
        F.lit("controller").alias("role"),
    )
    marks = (
        concerned.unionByName(struck_controller)
        .drop("led_partitions")
        .withColumn("at_ms", F.col("begin_ms"))
        .withColumn("kind", F.lit(1))
    )
    # One backward pass with a running minimum finds, for every fault, the first acknowledgement of
    # a request that was sent after it. A join would pair each fault with all later
    # acknowledgements.
    backwards = (
        Window.partitionBy("run", "partition")
        .orderBy(F.col("at_ms").desc(), F.col("kind").asc())
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    both = outcomes.select(
        "run", "partition", F.col("invoked_ms").alias("at_ms"), "time_ms", F.lit(0).alias("kind")
    ).unionByName(marks, allowMissingColumns=True)
    return (
        both.withColumn("next_ms", F.min("time_ms").over(backwards))
        .where("kind = 1")
        .withColumn("recovery_ms", F.col("next_ms") - F.col("begin_ms"))
        .select(
            "run",
            "fault_id",
            "fault",
            "target",
            "role",
            "controllers",
            "brokers",
            "partition",
            "begin_ms",
            "recovery_ms",
        )
    )


def failover_by_fault(recovered: DataFrame) -> DataFrame:
    """Percentiles by kind of fault, role of the partition and size of the cluster."""
    return (
        recovered.groupBy("fault", "role", "controllers", "brokers")
        .agg(*_percentiles(), F.countDistinct("run", "fault_id").alias("faults"))
        .orderBy("fault", "role", "controllers", "brokers")
    )


def regressions(recovered: DataFrame) -> DataFrame:
    """Percentiles by run, fault and role, and the ratio of each median to that of the first run (by
    name) with this fault and role."""
    by_run = recovered.groupBy("run", "fault", "role").agg(*_percentiles())
    order = Window.partitionBy("fault", "role").orderBy("run")
    first = F.first("p50_ms", ignorenulls=True).over(
        order.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    )
    return by_run.withColumn("ratio_to_first", F.when(first > 0, F.col("p50_ms") / first)).orderBy(
        "fault", "role", "run"
    )


def unavailability(history: DataFrame) -> DataFrame:
    """Per run and partition: the longest silence, and the number and sum of the silences of
    SILENCE_MS_MIN or more.

    The load lasts from the first invocation to the last invocation or acknowledgement of the run;
    silences at both ends count too.
    """
    produced = history.where("f = 'produce' and partition is not null")
    bounds = (
        produced.where("type in ('invoke', 'ok')")
        .groupBy("run")
        .agg(
            F.min(F.when(F.col("type") == "invoke", F.col("time_ms"))).alias("begin_ms"),
            F.max("time_ms").alias("end_ms"),
        )
    )
    edges = (
        produced.where("type = 'invoke'")
        .select("run", "partition")
        .distinct()
        .join(F.broadcast(bounds), "run")
        .select("run", "partition", F.explode(F.array("begin_ms", "end_ms")).alias("time_ms"))
    )
    times = produced.where("type = 'ok'").select("run", "partition", "time_ms").unionByName(edges)
    order = Window.partitionBy("run", "partition").orderBy("time_ms")
    gaps = times.withColumn("gap_ms", F.col("time_ms") - F.lag("time_ms").over(order))
    counts = F.col("gap_ms") >= SILENCE_MS_MIN
    return (
        gaps.groupBy("run", "partition")
        .agg(
            F.coalesce(F.max("gap_ms"), F.lit(0.0)).alias("longest_ms"),
            F.count(F.when(counts, 1)).alias("silences"),
            F.coalesce(F.sum(F.when(counts, F.col("gap_ms"))), F.lit(0.0)).alias("unavailable_ms"),
        )
        .orderBy("run", "partition")
    )


def outcomes_by_run(history: DataFrame) -> DataFrame:
    """Per run: records by outcome, and latency percentiles of the acknowledged ones."""
    produced = history.where("f = 'produce' and partition is not null")

    def count(kind: str) -> Column:
        return F.count(F.when(F.col("type") == kind, 1))

    latency = F.when(F.col("type") == "ok", F.col("latency_ms"))
    return (
        produced.groupBy("run")
        .agg(
            count("invoke").alias("invoked"),
            count("ok").alias("acknowledged"),
            count("fail").alias("failed"),
            count("info").alias("unknown"),
            F.percentile_approx(latency, 0.5, 10_000).alias("latency_p50_ms"),
            F.percentile_approx(latency, 0.99, 10_000).alias("latency_p99_ms"),
            F.max(latency).alias("latency_max_ms"),
        )
        .orderBy("run")
    )


def _outcomes(history: DataFrame) -> DataFrame:
    """Acknowledged records, and created topics as partition -1, with their invocation time."""
    is_created = F.col("f") == "create-topic"
    return history.where(
        "type = 'ok' and ((f = 'produce' and partition is not null) or f = 'create-topic')"
    ).select(
        "run",
        F.when(is_created, F.lit(_CONTROLLER)).otherwise(F.col("partition")).alias("partition"),
        "time_ms",
        (F.col("time_ms") - F.coalesce("latency_ms", F.lit(0.0))).alias("invoked_ms"),
    )


def _percentiles() -> list[Column]:
    """Exact nearest-rank percentiles: the groups are small."""
    ranked = F.sort_array(F.collect_list("recovery_ms"))

    def at(share: float) -> Column:
        rank = F.ceil(F.lit(share) * F.count("recovery_ms"))
        return F.try_element_at(ranked, rank.cast("int"))

    return [
        F.count(F.lit(1)).alias("observations"),
        F.count(F.when(F.col("recovery_ms").isNull(), 1)).alias("never"),
        F.when(F.count("recovery_ms") > 0, at(0.5)).alias("p50_ms"),
        F.when(F.count("recovery_ms") > 0, at(0.95)).alias("p95_ms"),
        F.max("recovery_ms").alias("max_ms"),
    ]
