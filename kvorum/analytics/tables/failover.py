"""The way back after faults, by partition: what clients saw, beside what the cluster decided.

The rules are those of a run's report (`kvorum/chaos/outages/blame.py`). An outage belongs to the
faults under which it began, or in whose aftermath; one that began under none belongs to the first
fault that met it. A partition's unavailable time is the sum of such silences, from the fault's
begin on. A decision within an outage belongs to the owners of the outage, also after the next
fault's begin.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from kvorum.analytics.tables.history import ADMINISTRATION

#: The effects of a fault may show this long after its end, and no longer than to the next fault.
AFTERMATH_MS = 3_000.0
#: A silence that the next fault causes begins with the last acknowledgement before it.
SKEW_MS = 250.0
#: Silences that follow each other at once are one outage.
JOINED_MS = 50.0

_FAULT = ("run_id", "fault_id")
_SUBJECT = (*_FAULT, "topic", "partition")
_OUTAGE = ("run_id", "topic", "partition", "since_ms")


@dataclass(frozen=True, slots=True)
class Blame:
    """Faults and the silences that they met. Several tables are made of both: keep them in memory.

    struck: of `windows`.
    met: a row for each fault and each silence that overlaps it or begins in its aftermath;
        since_ms: the begin of the silence's outage; is_owner: the outage belongs to the fault.
    """

    struck: DataFrame
    met: DataFrame


def blame(faults: DataFrame, silences: DataFrame) -> Blame:
    """The silences that each fault met.

    faults: of the lake.
    silences: the table.
    """
    struck = windows(faults)
    return Blame(struck, _met(struck, silences))


def windows(faults: DataFrame) -> DataFrame:
    """The faults with struck_ms and last_ms, the time in which they cause things. last_ms is null
    for a fault that was never undone."""
    struck = F.coalesce("struck_ms", "begin_ms")
    known = faults.withColumn("struck_ms", struck)
    others = known.select(F.col("run_id"), F.col("struck_ms").alias("other_ms"))
    following = (
        known.join(others, "run_id")
        .where("other_ms >= end_ms")
        .groupBy(*_FAULT)
        .agg(F.min("other_ms").alias("next_ms"))
    )
    aftermath = F.least(F.col("end_ms") + AFTERMATH_MS, F.col("next_ms") - SKEW_MS)
    return known.join(following, list(_FAULT), "left").withColumn(
        "last_ms",
        F.when(F.col("end_ms").isNotNull(), F.greatest(F.col("end_ms"), aftermath)),
    )


def recoveries(blamed: Blame, milestones: DataFrame, runs: DataFrame) -> DataFrame:
    """A row for each fault and each partition that the struck nodes held or that it silenced.

    continued_ms: the time of it in which an outage of an earlier fault went on; that belongs to the
    earlier fault's row, so unavailable_ms leaves it out.
    The administration is a subject like a partition, of faults of the active controller. Times
    count from the fault's begin; null if it did not happen.
    """
    struck, met = blamed.struck, blamed.met
    silent = _silent(met)
    subjects = _held(struck).unionByName(silent.select(*_SUBJECT)).distinct()
    of_fault = struck.select(
        *_FAULT, "fault", "struck_ms", "led_partitions", F.col("topic").alias("load")
    )
    named = runs.select("run_id", "system", "version", "experiment", "controllers", "brokers")
    is_led = F.array_contains("led_partitions", F.col("partition")) & (
        F.col("topic") == F.col("load")
    )
    role = (
        F.when(F.col("topic") == ADMINISTRATION, "administration")
        .when(is_led, "led")
        .otherwise("other")
    )
    joined = (
        subjects.join(of_fault, list(_FAULT))
        .join(F.broadcast(named), "run_id")
        .join(silent, list(_SUBJECT), "left")
        .join(_lost(met.where("not is_owner"), "continued_ms"), list(_SUBJECT), "left")
        .join(_fenced(struck, met, milestones), list(_FAULT), "left")
        .join(_elected(struck, met, milestones), list(_SUBJECT), "left")
    )
    since = {
        name: (F.col(f"{name}_at") - F.col("struck_ms")).alias(f"{name}_ms")
        for name in ("fence", "elect", "ack")
    }
    return joined.select(
        "run_id", "experiment", "system", "version", "controllers", "brokers", "fault_id", "fault",
        "topic", "partition", role.alias("role"),
        F.coalesce("unavailable_ms", F.lit(0.0)).alias("unavailable_ms"),
        F.coalesce("continued_ms", F.lit(0.0)).alias("continued_ms"),
        F.coalesce("is_over", F.lit(True)).alias("is_over"),
        (F.least("fence_at", "elect_at") - F.col("struck_ms")).alias("detect_ms"),
        since["fence"], since["elect"], since["ack"],
    ).orderBy("run_id", "fault_id", F.desc("unavailable_ms"), "topic", "partition")  # fmt: skip


def failover_by_fault(recovered: DataFrame) -> DataFrame:
    """Percentiles by system, kind of fault, role of the partition and size of the cluster. A
    partition that was away already, and had no outage of the fault's own, is counted apart: its
    zero would say that the fault cost nothing."""
    groups = ("system", "version", "fault", "role", "controllers", "brokers")
    is_apart = (F.col("continued_ms") > 0) & (F.col("unavailable_ms") == 0)
    measured = ("unavailable_ms", *(f"{name}_ms" for name in STAGES))
    own = {name: F.when(~F.col("is_apart"), F.col(name)) for name in measured}
    return (
        recovered.withColumn("is_apart", is_apart)
        .withColumns(own)
        .groupBy(*groups)
        .agg(
            F.count(F.when(~F.col("is_apart"), 1)).alias("observations"),
            F.count(F.when(F.col("is_apart"), 1)).alias("continued"),
            F.countDistinct(*_FAULT).alias("faults"),
            F.count(F.when(~F.col("is_over"), 1)).alias("never"),
            _rank("unavailable_ms", 0.5).alias("unavailable_p50_ms"),
            _rank("unavailable_ms", 0.95).alias("unavailable_p95_ms"),
            F.max("unavailable_ms").alias("unavailable_max_ms"),
            *(_rank(f"{name}_ms", 0.5).alias(f"{name}_p50_ms") for name in STAGES),
        )
        .orderBy(*groups)
    )


STAGES = ("detect", "fence", "elect", "ack")


def _rank(column: str, share: float) -> Column:
    """The nearest-rank percentile; nulls do not count."""
    return F.expr(f"percentile_disc({share}) within group (order by {column})")


def _held(struck: DataFrame) -> DataFrame:
    held = struck.where("topic is not null").select(
        *_FAULT, "topic", F.explode("held_partitions").alias("partition")
    )
    controllers = struck.where("is_active_controller").select(
        *_FAULT, F.lit(ADMINISTRATION).alias("topic"), F.lit(-1).alias("partition")
    )
    return held.unionByName(controllers)


def _met(struck: DataFrame, silences: DataFrame) -> DataFrame:
    order = Window.partitionBy("run_id", "topic", "partition").orderBy("begin_ms")
    gap_ms = F.col("begin_ms") - F.lag("end_ms").over(order)
    is_first = F.col("gap_ms").isNull() | (F.col("gap_ms") > JOINED_MS)
    since_ms = F.last(F.when(is_first, F.col("begin_ms")), ignorenulls=True).over(order)
    outages = silences.withColumn("gap_ms", gap_ms).withColumn("since_ms", since_ms)
    window = struck.select(*_FAULT, "struck_ms", "last_ms")
    is_within = (F.col("end_ms") >= F.col("struck_ms")) & (
        F.col("last_ms").isNull() | (F.col("begin_ms") < F.col("last_ms"))
    )
    is_begun = (F.col("since_ms") >= F.col("struck_ms") - SKEW_MS) & (
        F.col("last_ms").isNull() | (F.col("since_ms") < F.col("last_ms"))
    )
    outage = Window.partitionBy(*_OUTAGE)
    is_first_met = ~F.max("is_begun").over(outage) & (
        F.col("struck_ms") == F.min("struck_ms").over(outage)
    )
    return (
        outages.join(F.broadcast(window), "run_id")
        .where(is_within)
        .withColumn("is_begun", is_begun)
        .withColumn("is_owner", F.col("is_begun") | is_first_met)
    )


def spells(blamed: Blame) -> DataFrame:
    """Per fault: run_id, fault, struck_ms, until_ms: the time up to its end, and up to the end of
    the outages that it owns. until_ms is null for a fault that was never undone."""
    owned = _owned_to(blamed.met, *_FAULT)
    return blamed.struck.join(owned, list(_FAULT), "left").select(
        "run_id",
        "fault",
        "struck_ms",
        F.when(F.col("end_ms").isNotNull(), F.greatest("end_ms", "owned_to_ms")).alias("until_ms"),
    )


def _silent(met: DataFrame) -> DataFrame:
    """Per fault and subject: unavailable_ms, is_over, and ack_at: the longest silence's end."""
    worst = F.max_by(F.when(F.col("is_over"), F.col("end_ms")), F.col("length_ms"))
    owned = met.where("is_owner")
    ends = owned.groupBy(*_SUBJECT).agg(F.min("is_over").alias("is_over"), worst.alias("ack_at"))
    return _lost(owned, "unavailable_ms").join(ends, list(_SUBJECT))


def _lost(met: DataFrame, name: str) -> DataFrame:
    """Per fault and subject: the sum of the silences, from the fault's begin on."""
    lost = F.col("end_ms") - F.greatest("begin_ms", "struck_ms")
    return met.groupBy(*_SUBJECT).agg(F.sum(lost).alias(name))


def _in_window() -> Column:
    """True for a decision within the fault, its aftermath and the outages that it owns."""
    return (F.col("time_ms") >= F.col("struck_ms")) & (
        F.col("last_ms").isNull() | (F.col("time_ms") < F.greatest("last_ms", "owned_to_ms"))
    )


def _owned_to(met: DataFrame, *key: str) -> DataFrame:
    return met.where("is_owner").groupBy(*key).agg(F.max("end_ms").alias("owned_to_ms"))


def _continued(met: DataFrame) -> DataFrame:
    """The silences that belong to other faults than the one that met them."""
    return met.where("not is_owner").select(
        *_FAULT, "topic", "partition", "since_ms",
        F.col("begin_ms").alias("from_ms"), F.col("end_ms").alias("to_ms"),
    )  # fmt: skip


def _fenced(struck: DataFrame, met: DataFrame, milestones: DataFrame) -> DataFrame:
    """Per fault: when one of the struck brokers was fenced first; any broker if no broker was
    struck. A fault that continues an outage is not to blame if an owner struck the broker, too; an
    owner that struck no broker counts only beside a fault that struck none either."""
    numbers = F.filter(
        F.transform("nodes", lambda node: F.regexp_extract(node, "-([0-9]+)$", 1)),
        lambda number: number != "",
    )
    struck_ids = struck.withColumn("ids", F.transform(numbers, lambda n: n.cast("int")))
    fenced = milestones.where("what = 'fenced'").select("run_id", "time_ms", "broker")
    owners = (
        met.where("is_owner")
        .join(struck_ids.select(*_FAULT, "ids"), list(_FAULT))
        .select(*_OUTAGE, F.col("ids").alias("owner_ids"))
    )
    others = _continued(met).join(owners, list(_OUTAGE)).alias("others")
    found = (
        struck_ids.join(fenced, "run_id")
        .join(_owned_to(met, *_FAULT), list(_FAULT), "left")
        .where(_in_window())
        .where((F.size("ids") == 0) | F.array_contains("ids", F.col("broker")))
        .select(*_FAULT, "time_ms", "broker", "ids")
        .alias("found")
    )
    is_of_another = _is_same(_FAULT) & (
        ((F.size("others.owner_ids") == 0) & (F.size("found.ids") == 0))
        | F.array_contains("others.owner_ids", F.col("found.broker"))
    )
    return (
        found.join(others, is_of_another, "left_anti")
        .groupBy(*_FAULT)
        .agg(F.min("time_ms").alias("fence_at"))
    )


def _is_same(key: tuple[str, ...]) -> Column:
    """A decision (found) and a silence within which it lies (others) have the same key."""
    same = (F.col("found.time_ms") >= F.col("others.from_ms")) & (
        F.col("found.time_ms") < F.col("others.to_ms")
    )
    for name in key:
        same &= F.col(f"found.{name}") == F.col(f"others.{name}")
    return same


def _elected(struck: DataFrame, met: DataFrame, milestones: DataFrame) -> DataFrame:
    """Per fault and subject: when it got another leader. The administration's is the active
    controller."""
    is_controller = F.col("what") == "active-controller"
    led = milestones.where("what in ('leader', 'active-controller') and leader >= 0").select(
        "run_id",
        "time_ms",
        F.when(is_controller, F.lit(ADMINISTRATION)).otherwise(F.col("topic")).alias("topic"),
        F.when(is_controller, F.lit(-1)).otherwise(F.col("partition")).alias("partition"),
        "leader",
        # Milestones have no offset, and several may have the same time: then the epoch orders them.
        F.col("epoch"),
    )
    order = Window.partitionBy("run_id", "topic", "partition").orderBy("time_ms", "epoch")
    moved = (
        led.withColumn("before", F.lag("leader").over(order))
        .where((F.col("before") != F.col("leader")) | (F.col("topic") == ADMINISTRATION))
        .select("run_id", "topic", "partition", "time_ms")
    )
    window = struck.select(*_FAULT, "struck_ms", "last_ms")
    found = (
        moved.join(F.broadcast(window), "run_id")
        .join(_owned_to(met, *_SUBJECT), list(_SUBJECT), "left")
        .where(_in_window())
        .select(*_SUBJECT, "time_ms")
        .alias("found")
    )
    return (
        found.join(_continued(met).alias("others"), _is_same(_SUBJECT), "left_anti")
        .groupBy(*_SUBJECT)
        .agg(F.min("time_ms").alias("elect_at"))
    )
