"""Tables from the metadata: ISR churn, skew, the cost of losing machines, growth, record mix."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

_GROWTH_BUCKET_MS = 10_000
#: Kafka's numbers of config resources (ConfigResource.Type), and the one config that is needed.
_TOPIC, _BROKER = 2, 4
_MIN_INSYNC = "min.insync.replicas"


def isr_churn(milestones: DataFrame) -> DataFrame:
    """Per run, topic and partition: changes of the ISR by direction, and leader changes.

    The first ISR and the first leader of a partition are no changes.
    """
    order = Window.partitionBy("run_id", "topic", "partition", "what").orderBy("wall_ms", "epoch")
    changes = (
        milestones.where("what in ('isr', 'leader') and topic is not null")
        .withColumn("before_isr", F.lag("isr").over(order))
        .withColumn("before_leader", F.lag("leader").over(order))
    )
    left = F.size(F.array_except("before_isr", "isr"))
    joined = F.size(F.array_except("isr", "before_isr"))
    has_isr = (F.col("what") == "isr") & F.col("before_isr").isNotNull()
    is_move = (
        (F.col("what") == "leader")
        & F.col("before_leader").isNotNull()
        & (F.col("before_leader") != F.col("leader"))
    )
    return (
        changes.groupBy("run_id", "topic", "partition")
        .agg(
            F.count(F.when(has_isr & (left > 0), 1)).alias("shrinks"),
            F.count(F.when(has_isr & (joined > 0), 1)).alias("expands"),
            F.count(F.when(is_move, 1)).alias("leader_changes"),
            F.count(F.when(is_move & (F.col("leader") < 0), 1)).alias("times_offline"),
        )
        .orderBy("run_id", F.desc("shrinks"), "topic", "partition")
    )


def broker_skew(partitions: DataFrame, brokers: DataFrame) -> DataFrame:
    """Per run and broker: partitions led, preferred and held, against an even share."""
    led = partitions.groupBy("run_id", F.col("leader").alias("broker_id")).agg(
        F.count(F.lit(1)).alias("leaders")
    )
    preferred = partitions.groupBy("run_id", F.col("replicas")[0].alias("broker_id")).agg(
        F.count(F.lit(1)).alias("preferred_leaders")
    )
    held = (
        partitions.select("run_id", F.explode("replicas").alias("broker_id"))
        .groupBy("run_id", "broker_id")
        .agg(F.count(F.lit(1)).alias("replicas"))
    )
    joined = brokers.select("run_id", "broker_id", "rack", "is_fenced")
    for part in (led, preferred, held):
        joined = joined.join(part, ["run_id", "broker_id"], "left")
    filled = joined.fillna(0, ["leaders", "preferred_leaders", "replicas"])
    return (
        filled.withColumn("leader_skew", _skew("leaders", "run_id"))
        .withColumn("replica_skew", _skew("replicas", "run_id"))
        .orderBy("run_id", "broker_id")
    )


def rack_skew(skewed: DataFrame) -> DataFrame:
    """Per run and rack, from `broker_skew`: brokers, leaders and replicas, each against an even
    share of a broker."""
    by_rack = (
        skewed.where("rack is not null")
        .groupBy("run_id", "rack")
        .agg(
            F.count(F.lit(1)).alias("brokers"),
            F.sum("leaders").alias("leaders"),
            F.sum("replicas").alias("replicas"),
        )
    )
    whole = Window.partitionBy("run_id")

    def share(column: str) -> Column:
        mean = F.sum(column).over(whole) / F.sum("brokers").over(whole)
        return F.when(mean > 0, F.col(column) / F.col("brokers") / mean)

    return (
        by_rack.withColumn("leader_skew", share("leaders"))
        .withColumn("replica_skew", share("replicas"))
        .orderBy("run_id", "rack")
    )


def _skew(column: str, group: str) -> Column:
    mean = F.avg(column).over(Window.partitionBy(group))
    return F.when(mean > 0, F.col(column) / mean)


def what_if(
    partitions: DataFrame,
    brokers: DataFrame,
    controllers: DataFrame | None,
    configs: DataFrame | None,
) -> DataFrame:
    """Per run and possible loss (a broker, a pair of brokers, a rack, a zone): partitions that
    would be offline, or refuse acks=all for min.insync.replicas, and whether the quorum keeps its
    majority.

    A zone is the part of a rack's name before its last slash. A broker is a process: with it goes a
    controller of the same node id alone. With a rack or a zone go the controllers of its brokers'
    hosts; has_majority is null if all brokers are on one host, which says nothing of racks.
    """
    losses = _losses(brokers).withColumn("brokers_lost", F.size("lost"))
    needed = _with_min_insync(partitions, configs)
    left = needed.join(F.broadcast(losses), "run_id").withColumn(
        "left", F.size(F.array_except("isr", "lost"))
    )
    counted = left.groupBy("run_id", "loss", "kind", "brokers_lost").agg(
        F.count(F.lit(1)).alias("partitions"),
        F.count(F.when(F.size(F.array_intersect("replicas", "lost")) > 0, 1)).alias("hit"),
        F.count(F.when(F.col("left") == 0, 1)).alias("offline"),
        F.count(F.when(F.col("left") < F.col("min_insync"), 1)).alias("not_writable"),
        F.count(F.when(F.col("left") == 1, 1)).alias("one_copy_left"),
    )
    kept = _majorities(losses, brokers, controllers)
    return counted.join(kept, ["run_id", "loss"], "left").orderBy("run_id", "kind", "loss")


def _losses(brokers: DataFrame) -> DataFrame:
    """run_id, loss (its name), kind, lost: broker ids."""
    one = brokers.select("run_id", "broker_id", "rack")
    other = one.select("run_id", F.col("broker_id").alias("second"))
    singles = one.select(
        "run_id",
        F.concat(F.lit("broker "), F.col("broker_id").cast("string")).alias("loss"),
        F.lit("broker").alias("kind"),
        F.array("broker_id").alias("lost"),
    )
    pairs = (
        one.join(other, "run_id")
        .where("broker_id < second")
        .select(
            "run_id",
            F.format_string("brokers %d and %d", "broker_id", "second").alias("loss"),
            F.lit("pair").alias("kind"),
            F.array("broker_id", "second").alias("lost"),
        )
    )
    racks = _grouped(one, F.col("rack"), "rack")
    zones = _grouped(one, F.regexp_extract("rack", "^(.*)/[^/]*$", 1), "zone")
    return singles.unionByName(pairs).unionByName(racks).unionByName(zones)


def _grouped(brokers: DataFrame, name: Column, kind: str) -> DataFrame:
    return (
        brokers.withColumn("name", name)
        .where("name is not null and name != ''")
        .groupBy("run_id", "name")
        .agg(F.sort_array(F.collect_set("broker_id")).alias("lost"))
        .select(
            "run_id",
            F.concat(F.lit(f"{kind} "), F.col("name")).alias("loss"),
            F.lit(kind).alias("kind"),
            "lost",
        )
    )


def _with_min_insync(partitions: DataFrame, configs: DataFrame | None) -> DataFrame:
    """Partitions with min_insync: the topic's config, else the cluster's default, else 1."""
    if configs is None:
        return partitions.withColumn("min_insync", F.lit(1))
    stated = configs.where(F.col("name") == _MIN_INSYNC).withColumn(
        "number", F.col("value").cast("int")
    )
    of_topic = stated.where(F.col("resource_type") == _TOPIC).select(
        "run_id", F.col("resource_name").alias("topic"), F.col("number").alias("of_topic")
    )
    of_cluster = stated.where(
        (F.col("resource_type") == _BROKER) & (F.coalesce("resource_name", F.lit("")) == "")
    ).select("run_id", F.col("number").alias("of_cluster"))
    return (
        partitions.join(F.broadcast(of_topic), ["run_id", "topic"], "left")
        .join(F.broadcast(of_cluster), "run_id", "left")
        .withColumn("min_insync", F.coalesce("of_topic", "of_cluster", F.lit(1)))
    )


def _majorities(losses: DataFrame, brokers: DataFrame, controllers: DataFrame | None) -> DataFrame:
    """run_id, loss, has_majority."""
    if controllers is None:
        return losses.select("run_id", "loss", F.lit(None).cast("boolean").alias("has_majority"))
    hosts = (
        brokers.groupBy("run_id", "host")
        .agg(F.sort_array(F.collect_set("broker_id")).alias("of_host"))
        .where("host is not null")
    )
    placed = controllers.join(hosts, ["run_id", "host"], "left")
    # A host of all brokers (a laptop) says nothing of racks.
    everyone = brokers.groupBy("run_id").agg(F.count(F.lit(1)).alias("everyone"))
    is_placed = F.col("of_host").isNull() | (F.size("of_host") < F.col("everyone"))
    known = placed.join(everyone, "run_id").withColumn("is_placed", is_placed)
    of_machines = F.when(F.col("of_host").isNull(), False).otherwise(
        F.size(F.array_except("of_host", "lost")) == 0
    )
    is_process = F.col("kind").isin("broker", "pair")
    is_lost = F.when(is_process, F.array_contains("lost", F.col("controller_id"))).otherwise(
        of_machines
    )
    voters = controllers.groupBy("run_id").agg(F.count(F.lit(1)).alias("voters"))
    return (
        losses.join(known, "run_id")
        .groupBy("run_id", "loss")
        .agg(
            F.count(F.when(is_process | F.col("is_placed"), 1)).alias("known"),
            F.count(F.when(is_lost, 1)).alias("gone"),
        )
        .join(voters, "run_id")
        .where("known = voters")
        .select(
            "run_id",
            "loss",
            ((F.col("voters") - F.col("gone")) * 2 > F.col("voters")).alias("has_majority"),
        )
    )


def record_mix(records: DataFrame) -> DataFrame:
    """Per run, record type and version: number of records, payload bytes, and share."""
    counts = records.groupBy("run_id", "record_type", "record_version").agg(
        F.count(F.lit(1)).alias("records"),
        F.coalesce(F.sum(F.octet_length("payload_json")), F.lit(0)).alias("payload_bytes"),
    )
    share = F.col("records") / F.sum("records").over(Window.partitionBy("run_id"))
    return counts.withColumn("share", share).orderBy("run_id", F.desc("records"), "record_type")


def metadata_growth(records: DataFrame) -> DataFrame:
    """Per run and ten seconds: records appended to the metadata log, and its end offset then."""
    bucket = F.floor(F.col("timestamp_ms") / _GROWTH_BUCKET_MS) * _GROWTH_BUCKET_MS
    return (
        records.groupBy("run_id", bucket.cast("long").alias("begin_wall_ms"))
        .agg(
            F.count(F.lit(1)).alias("records"),
            (F.max("offset") + 1).alias("end_offset"),
            F.max("epoch").alias("epoch"),
        )
        .orderBy("run_id", "begin_wall_ms")
    )
