"""Tables from histories: outcomes, silences, latency.

A history is reduced twice in parallel, each time with a small result: by slices of a tenth of a
second for outcomes and silences, by seconds and latency for percentiles. Everything else is made
from the two, so that one run of a billion rows uses every core. Silences of a slice or more are
exact, to the microsecond; shorter ones are not looked for.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

SLICE_MS = 100
#: Shorter silences come from the load's own rhythm (`chaos.outages.waits`, SPAN_MS_MIN).
SILENCE_MS_MIN = 200.0

#: Topics created and deleted have this in place of a topic, and the partition -1. No topic can have
#: the name: parentheses are not allowed.
ADMINISTRATION = "(administration)"

#: Refusals that only a working controller gives: the administration is available.
ANSWERS = (
    "TOPIC_ALREADY_EXISTS", "UNKNOWN_TOPIC_OR_PART", "UNKNOWN_TOPIC_OR_PARTITION",
    "UNKNOWN_TOPIC_ID", "INVALID_TOPIC_EXCEPTION", "TOPIC_EXCEPTION", "POLICY_VIOLATION",
    "INVALID_REPLICATION_FACTOR", "INVALID_PARTITIONS", "INVALID_REPLICA_ASSIGNMENT",
    "INVALID_CONFIG", "INVALID_REQUEST",
)  # fmt: skip

#: Latencies are counted in buckets that are 2 % wide, so a percentile is exact to 1 %.
LATENCY_RATIO = 1.02
_LATENCY_MS_MIN = 0.001

_THING = ("run_id", "topic", "partition")


def operations(history: DataFrame) -> DataFrame:
    """The events of sends, and of topics created and deleted: run_id, topic, partition, type,
    time_ms, invoked_ms, latency_ms, is_answer."""
    is_admin = F.col("f").isin("create-topic", "delete-topic")
    is_answer = (F.col("type") == "ok") | (
        is_admin
        & (F.col("type") == "fail")
        & F.regexp_extract(F.coalesce("error", F.lit("")), "^[A-Z_]+", 0).isin(*ANSWERS)
    )
    return history.where((F.col("operation") == "send") | is_admin).select(
        "run_id",
        F.when(is_admin, F.lit(ADMINISTRATION)).otherwise(F.col("topic")).alias("topic"),
        F.when(is_admin, F.lit(-1)).otherwise(F.col("partition")).alias("partition"),
        "type",
        "time_ms",
        (F.col("time_ms") - F.coalesce("latency_ms", F.lit(0.0))).alias("invoked_ms"),
        "latency_ms",
        is_answer.alias("is_answer"),
    )


def slices(sent: DataFrame) -> DataFrame:
    """Per run, topic, partition and slice of SLICE_MS: counts by outcome, first and last answer,
    the oldest invocation among the operations that began or ended there."""

    def count(kind: str) -> Column:
        return F.count(F.when(F.col("type") == kind, 1))

    answered = F.when(F.col("is_answer"), F.col("time_ms"))
    return sent.groupBy(*_THING, F.floor(F.col("time_ms") / SLICE_MS).alias("slice")).agg(
        count("invoke").alias("invoked"),
        count("ok").alias("acknowledged"),
        count("fail").alias("failed"),
        count("info").alias("unknown"),
        F.min(answered).alias("first_ms"),
        F.max(answered).alias("last_ms"),
        F.min("invoked_ms").alias("oldest_ms"),
        F.max("time_ms").alias("latest_ms"),
    )


def gaps(sliced: DataFrame) -> DataFrame:
    """Every time of SLICE_MS or more in which something waited and nothing was answered: begin_ms,
    end_ms, length_ms, is_over, is_first (nothing had been answered before).

    It begins with the last answer if something was under way then, else with the next invocation: a
    pause of the load is no silence. An operation counts as under way if it ended in a later slice.
    is_over is false if the load ended before an answer; the gap then ends with the load.
    """
    later = (
        Window.partitionBy(*_THING)
        .orderBy(F.col("slice").desc())
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    known = _things(sliced)
    between = known.select(
        *_THING,
        F.col("last_ms").alias("answered_ms"),
        F.min("first_ms").over(later).alias("next_ms"),
        F.min("oldest_ms").over(later).alias("waiting_ms"),
    ).where("answered_ms is not null and waiting_ms is not null")
    before = known.groupBy(*_THING).agg(
        F.lit(None).cast("double").alias("answered_ms"),
        F.min("first_ms").alias("next_ms"),
        F.min("oldest_ms").alias("waiting_ms"),
    )
    ends = sliced.groupBy("run_id").agg(F.max("latest_ms").alias("load_end_ms"))
    return (
        between.unionByName(before)
        .join(F.broadcast(ends), "run_id")
        .select(
            *_THING,
            F.greatest("answered_ms", "waiting_ms").alias("begin_ms"),
            F.coalesce("next_ms", "load_end_ms").alias("end_ms"),
            F.col("next_ms").isNotNull().alias("is_over"),
            F.col("answered_ms").isNull().alias("is_first"),
        )
        .withColumn("length_ms", F.col("end_ms") - F.col("begin_ms"))
        .where(F.col("length_ms") >= SLICE_MS)
    )


def _things(sliced: DataFrame) -> DataFrame:
    """The rows of partitions and of the administration. A send whose partition is unknown (the
    client did not report one) is left out."""
    return sliced.where((F.col("partition") >= 0) | (F.col("topic") == ADMINISTRATION))


def silences(found: DataFrame) -> DataFrame:
    """The gaps of SILENCE_MS_MIN or more."""
    return found.where(F.col("length_ms") >= SILENCE_MS_MIN).select(
        *_THING, "begin_ms", "end_ms", "length_ms", "is_over"
    )


def unavailability(sliced: DataFrame, found: DataFrame) -> DataFrame:
    """Per run, topic and partition: the longest silence, and the number and sum of all."""
    length = F.when(F.col("length_ms") >= SILENCE_MS_MIN, F.col("length_ms"))
    by_partition = found.groupBy(*_THING).agg(
        F.max("length_ms").alias("longest_ms"),
        F.count(length).alias("silences"),
        F.sum(length).alias("unavailable_ms"),
    )
    return (
        _things(sliced)
        .select(*_THING)
        .distinct()
        .join(by_partition, list(_THING), "left")
        .select(
            *_THING,
            "longest_ms",
            F.coalesce("silences", F.lit(0)).alias("silences"),
            F.coalesce("unavailable_ms", F.lit(0.0)).alias("unavailable_ms"),
        )
        .orderBy(*_THING)
    )


def latencies(sent: DataFrame) -> DataFrame:
    """Per run, second of the send and of its acknowledgement, and bucket of latency: acknowledged
    sends, and the longest latency."""
    latency = F.greatest(F.col("latency_ms"), F.lit(_LATENCY_MS_MIN))
    bucket = F.floor(F.ln(latency / _LATENCY_MS_MIN) / F.ln(F.lit(LATENCY_RATIO)))
    return (
        sent.where((F.col("topic") != ADMINISTRATION) & (F.col("type") == "ok"))
        .where("latency_ms is not null")
        .groupBy(
            "run_id",
            F.floor(F.col("invoked_ms") / 1000).alias("sent_second"),
            F.floor(F.col("time_ms") / 1000).alias("second"),
            bucket.alias("bucket"),
        )
        .agg(F.count(F.lit(1)).alias("records"), F.max("latency_ms").alias("longest_ms"))
    )


def percentiles(counted: DataFrame, *groups: str) -> DataFrame:
    """Per group: acknowledged, p50_ms, p95_ms, p99_ms, max_ms of rows of `latencies`."""
    by_bucket = counted.groupBy(*groups, "bucket").agg(
        F.sum("records").alias("records"), F.max("longest_ms").alias("longest_ms")
    )
    up_to = Window.partitionBy(*groups).orderBy("bucket").rowsBetween(Window.unboundedPreceding, 0)
    whole = Window.partitionBy(*groups)
    ranked = by_bucket.withColumn("rank", F.sum("records").over(up_to)).withColumn(
        "all", F.sum("records").over(whole)
    )
    middle = F.pow(F.lit(LATENCY_RATIO), F.col("bucket") + 0.5) * _LATENCY_MS_MIN

    def at(share: float, name: str) -> Column:
        reached = F.col("rank") >= F.ceil(F.lit(share) * F.col("all"))
        return F.min(F.when(reached, F.least(middle, F.col("longest_ms")))).alias(name)

    return ranked.groupBy(*groups).agg(
        F.sum("records").alias("acknowledged"),
        at(0.5, "p50_ms"),
        at(0.95, "p95_ms"),
        at(0.99, "p99_ms"),
        F.max("longest_ms").alias("max_ms"),
    )


def outcomes(sliced: DataFrame, counted: DataFrame, runs: DataFrame) -> DataFrame:
    """Per run: records by outcome, rate, and latency of the acknowledged ones."""
    of_sends = (
        sliced.where(F.col("topic") != ADMINISTRATION)
        .groupBy("run_id")
        .agg(
            *(F.sum(name).alias(name) for name in ("invoked", "acknowledged", "failed", "unknown")),
            ((F.max("latest_ms") - F.min("oldest_ms")) / 1000).alias("seconds"),
        )
    )
    latency = percentiles(counted, "run_id").drop("acknowledged")
    named = runs.select("run_id", "experiment", "system", "version", "verdict")
    return (
        of_sends.join(latency, "run_id", "left")
        .join(F.broadcast(named), "run_id")
        .select(
            "run_id", "experiment", "system", "version", "verdict", "invoked", "acknowledged",
            "failed", "unknown", "seconds",
            F.when(F.col("seconds") > 0, F.col("acknowledged") / F.col("seconds")).alias(
                "acknowledged_per_second"
            ),
            "p50_ms", "p95_ms", "p99_ms", "max_ms",
        )
        .orderBy("run_id")
    )  # fmt: skip


def latency_by_fault(counted: DataFrame, spells: DataFrame, runs: DataFrame) -> DataFrame:
    """Latency of acknowledged records, per system and kind of fault. A record counts for a kind if
    it was under way in a second in which such a fault, or an outage of one, lasted; it may count
    for several. Records that met no fault are in the row `none`.

    spells: `failover.spells`. A record is under way from its send to its acknowledgement: one that
    waited through a fault is acknowledged after it.
    """
    last = counted.groupBy("run_id").agg(F.max("second").alias("last"))
    begin = F.greatest(F.floor(F.col("struck_ms") / 1000), F.lit(0))
    end = F.least(F.floor(F.coalesce(F.col("until_ms") / 1000, F.col("last"))), F.col("last"))
    seconds = (
        spells.join(F.broadcast(last), "run_id")
        .where(end >= begin)
        .select("run_id", "fault", F.explode(F.sequence(begin, end)).alias("at"))
        .distinct()
    )
    key = ("run_id", "sent_second", "second", "bucket")
    first = F.greatest("sent_second", F.lit(0))
    touched = (
        counted.select(*key, F.explode(F.sequence(first, F.col("second"))).alias("at"))
        .join(seconds, ["run_id", "at"])
        .select(*key, "fault")
        .distinct()
    )
    by_fault = counted.join(touched, list(key), "left").withColumn(
        "fault", F.coalesce("fault", F.lit("none"))
    )
    named = runs.select("run_id", "system", "version")
    return percentiles(
        by_fault.join(F.broadcast(named), "run_id"), "system", "version", "fault"
    ).orderBy("system", "version", "fault")
