"""Tables from exported metadata: ISR churn, skew, the cost of losing a rack, record mix,
fencing."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

#: A fault counts as the cause of a fencing if it began at most this long before.
FENCING_LOOKBACK_MS = 60_000
_GROWTH_BUCKET_MS = 10_000


def isr_churn(records: DataFrame) -> DataFrame:
    """Per run and partition: records that changed the ISR, by direction, and leader changes.

    The first record of a partition sets its ISR and does not count as a change.
    """
    order = Window.partitionBy("run", "topic_id", "partition").orderBy("offset")
    # A record without an ISR or leader does not change it.
    earlier = order.rowsBetween(Window.unboundedPreceding, -1)
    before_isr = F.last("isr", ignorenulls=True).over(earlier)
    before_leader = F.last("leader", ignorenulls=True).over(earlier)
    changes = (
        records.where("topic_id is not null and partition is not null")
        .withColumn("before", F.sort_array(before_isr))
        .withColumn("now", F.sort_array("isr"))
        .withColumn("before_leader", before_leader)
    )
    is_change = (
        F.col("now").isNotNull() & F.col("before").isNotNull() & (F.col("now") != F.col("before"))
    )
    is_shrink = F.size("now") < F.size("before")
    is_move = (
        F.col("leader").isNotNull()
        & F.col("before_leader").isNotNull()
        & (F.col("leader") != F.col("before_leader"))
    )
    return (
        changes.groupBy("run", "topic_id", "partition")
        .agg(
            F.max("topic").alias("topic"),
            F.count(F.when(is_change, 1)).alias("isr_changes"),
            F.count(F.when(is_change & is_shrink, 1)).alias("shrinks"),
            F.count(F.when(is_change & ~is_shrink, 1)).alias("expands"),
            F.count(F.when(is_move, 1)).alias("leader_changes"),
        )
        .orderBy(F.desc("isr_changes"), "run", "topic_id", "partition")
    )


def leader_skew(partitions: DataFrame, brokers: DataFrame) -> DataFrame:
    """Per run and broker: partitions led, preferred and held, against an even share."""
    led = partitions.groupBy("run", F.col("leader").alias("broker_id")).agg(
        F.count(F.lit(1)).alias("leaders")
    )
    preferred = partitions.groupBy("run", F.col("replicas")[0].alias("broker_id")).agg(
        F.count(F.lit(1)).alias("preferred_leaders")
    )
    held = (
        partitions.select("run", F.explode("replicas").alias("broker_id"))
        .groupBy("run", "broker_id")
        .agg(F.count(F.lit(1)).alias("replicas"))
    )
    joined = brokers.select("run", "broker_id", "rack", "is_fenced")
    for part in (led, preferred, held):
        joined = joined.join(part, ["run", "broker_id"], "left")
    filled = joined.fillna(0, ["leaders", "preferred_leaders", "replicas"])
    everywhere = Window.partitionBy("run")

    def skew(column: str) -> Column:
        mean = F.avg(column).over(everywhere)
        return F.when(mean > 0, F.col(column) / mean)

    return (
        filled.withColumn("leader_skew", skew("leaders"))
        .withColumn("replica_skew", skew("replicas"))
        .orderBy("run", "broker_id")
    )


def rack_loss(partitions: DataFrame, brokers: DataFrame) -> DataFrame:
    """Per run and rack: the partitions that would be offline, or left with one in-sync replica, if
    the rack failed."""
    racks = brokers.where("rack is not null").select("run", "rack", "broker_id")
    members = racks.groupBy("run", "rack").agg(F.collect_set("broker_id").alias("lost"))
    left = partitions.join(F.broadcast(members), "run").withColumn(
        "left", F.size(F.array_except("isr", "lost"))
    )
    return (
        left.groupBy("run", "rack")
        .agg(
            F.count(F.lit(1)).alias("partitions"),
            F.count(F.when(F.col("left") == 0, 1)).alias("offline"),
            F.count(F.when(F.col("left") == 1, 1)).alias("one_copy_left"),
        )
        .orderBy("run", "rack")
    )


def record_mix(records: DataFrame) -> DataFrame:
    """Per run, record type and version: number of records, payload bytes, and share."""
    counts = records.groupBy("run", "record_type", "record_version").agg(
        F.count(F.lit(1)).alias("records"),
        F.coalesce(F.sum(F.octet_length("payload_json")), F.lit(0)).alias("payload_bytes"),
    )
    share = F.col("records") / F.sum("records").over(Window.partitionBy("run"))
    return counts.withColumn("share", share).orderBy("run", F.desc("records"), "record_type")


def metadata_growth(records: DataFrame) -> DataFrame:
    """Per run and ten seconds: records appended to the metadata log, and its end offset then."""
    bucket = F.floor(F.col("timestamp_ms") / _GROWTH_BUCKET_MS) * _GROWTH_BUCKET_MS
    return (
        records.groupBy("run", bucket.cast("long").alias("begin_wall_ms"))
        .agg(
            F.count(F.lit(1)).alias("records"),
            (F.max("offset") + 1).alias("end_offset"),
            F.max("epoch").alias("epoch"),
        )
        .orderBy("run", "begin_wall_ms")
    )


def fencing_causes(records: DataFrame, faults: DataFrame) -> DataFrame:
    """Per run and broker: fencings, by the latest fault of that broker shortly before."""
    fenced = records.where(
        F.lower("record_type").rlike("^broker_?registration_?change")
        & (F.get_json_object("payload_json", "$.is_fenced") == "true")
        & F.col("broker_id").isNotNull()
    ).select("run", "offset", "broker_id", "timestamp_ms")
    struck = faults.select(
        "run",
        "fault",
        "begin_wall_ms",
        F.explode("nodes").alias("node"),
    ).where(F.col("node").rlike("^broker-[0-9]+$"))
    struck = struck.withColumn("broker_id", F.substring_index("node", "-", -1).cast("int"))
    age = F.col("timestamp_ms") - F.col("begin_wall_ms")
    fencing = fenced.join(F.broadcast(struck), ["run", "broker_id"], "left").withColumn(
        "is_near", F.coalesce(age.between(0, FENCING_LOOKBACK_MS), F.lit(False))
    )
    cause = F.max_by(
        F.when(F.col("is_near"), F.col("fault")),
        F.when(F.col("is_near"), F.col("begin_wall_ms")),
    )
    by_record = fencing.groupBy("run", "broker_id", "offset").agg(
        F.coalesce(cause, F.lit("no fault")).alias("cause")
    )
    return (
        by_record.groupBy("run", "broker_id", "cause")
        .agg(F.count(F.lit(1)).alias("fencings"))
        .orderBy("run", "broker_id", "cause")
    )
