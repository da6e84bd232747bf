"""The figures, and the arithmetic over their samples. Pure: no clock, no process, no client.

Every ratio is Kvorum / Kafka, for figures where more is better and where less is; a goal says which
of the two.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

KAFKA = "kafka"
KVORUM = "kvorum"


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """The bound for Kvorum's median.

    bound: in the figure's unit, or a multiple of Kafka's median if is_ratio; is_floor: the bound is
    a minimum (rates), else a maximum (times, memory).
    """

    bound: float
    is_ratio: bool
    is_floor: bool

    def text(self) -> str:
        sign = "≥" if self.is_floor else "≤"
        return f"{sign} {self.bound:g}{'x Kafka' if self.is_ratio else ''}"

    def is_met(self, kvorum: float, kafka: float | None) -> bool | None:
        """True if the goal is met; None if that is unknown, as for a ratio without Kafka's side."""
        value = kvorum
        if self.is_ratio:
            ratio = ratio_of(kvorum, kafka)
            if ratio is None:
                return None
            value = ratio
        return value >= self.bound if self.is_floor else value <= self.bound


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A line of the table. group: the name for `--figures`."""

    key: str
    group: str
    title: str
    unit: str
    goal: Goal


def _at_most(bound: float) -> Goal:
    return Goal(bound=bound, is_ratio=False, is_floor=False)


def _at_least(bound: float) -> Goal:
    return Goal(bound=bound, is_ratio=False, is_floor=True)


def _times_at_most(bound: float) -> Goal:
    return Goal(bound=bound, is_ratio=True, is_floor=False)


def _times_at_least(bound: float) -> Goal:
    return Goal(bound=bound, is_ratio=True, is_floor=True)


def _figure(key: str, group: str, title: str, unit: str, goal: Goal) -> Figure:
    return Figure(key=key, group=group, title=title, unit=unit, goal=goal)


FIGURES: tuple[Figure, ...] = (
    _figure("start_s", "start", "start to first acks=all write", "s", _at_most(0.8)),
    _figure(
        "topics_single_per_s", "topics", "topics created one by one", "topics/s", _at_least(400)
    ),
    _figure(
        "topics_batch_per_s", "topics", "topics created 100 a request", "topics/s", _at_least(5000)
    ),
    _figure(
        "partitions_shown_s",
        "partitions",
        "2 x 1,000 partitions x 3 replicas until every broker shows their leaders",
        "s",
        _at_most(0.2),
    ),
    _figure(
        "partitions_served_s",
        "partitions",
        "2 x 1,000 partitions x 3 replicas until every leader serves",
        "s",
        _at_most(0.2),
    ),
    _figure("produce_one_mb_s", "produce", "produce acks=1, 1,000 B", "MB/s", _times_at_least(2)),
    _figure(
        "produce_all_mb_s", "produce", "produce acks=all, 1,000 B", "MB/s", _times_at_least(2.5)
    ),
    _figure(
        "produce_small_k_s",
        "produce",
        "produce acks=all, 100 B",
        "k records/s",
        _times_at_least(1.5),
    ),
    _figure(
        "cpu_s_per_gb",
        "produce",
        "CPU of the brokers per GB, acks=all, 1,000 B",
        "s/GB",
        _times_at_most(0.25),
    ),
    _figure("consume_mb_s", "consume", "consume, 1,000 B", "MB/s", _times_at_least(1.5)),
    _figure(
        "java_all_mb_s",
        "java",
        "Java's producer, acks=all, 1,000 B, batches of 1 MB",
        "MB/s",
        _times_at_least(1),
    ),
    _figure(
        "java_default_mb_s",
        "java",
        "Java's producer, acks=all, 1,000 B, default batches",
        "MB/s",
        _times_at_least(1),
    ),
    _figure(
        "java_lz4_mb_s",
        "java",
        "Java's producer, acks=all, 100 B, lz4",
        "MB/s",
        _times_at_least(1),
    ),
    _figure(
        "java_one_mb_s",
        "java",
        "Java's producer, acks=1, 1,000 B, batches of 1 MB",
        "MB/s",
        _times_at_least(1),
    ),
    _figure("java_consume_mb_s", "java", "Java's consumer, 1,000 B", "MB/s", _times_at_least(1)),
    _figure(
        "java_cpu_s_per_gb",
        "java",
        "CPU of the brokers per GB, Java's clients, all of the above",
        "s/GB",
        _times_at_most(0.25),
    ),
    _figure(
        "latency_p50_ms", "latency", "latency acks=all, linger 0, p50", "ms", _times_at_most(0.4)
    ),
    _figure(
        "latency_p99_ms", "latency", "latency acks=all, linger 0, p99", "ms", _times_at_most(0.25)
    ),
    _figure(
        "controller_gap_s",
        "controller-gap",
        "gap in topic creation, kill -9 of the active controller",
        "s",
        _at_most(0.3),
    ),
    _figure(
        "controller_hang_s",
        "controller-hang",
        "gap in topic creation, SIGSTOP of the active controller",
        "s",
        _at_most(1.5),
    ),
    _figure(
        "broker_gap_led_s",
        "broker-gap",
        "gap in acks=all produce, kill -9 of a broker, partitions it led",
        "s",
        _at_most(0.5),
    ),
    _figure(
        "broker_gap_others_s",
        "broker-gap",
        "gap in acks=all produce, kill -9 of a broker, other partitions",
        "s",
        _at_most(0.5),
    ),
    _figure("lost", "broker-gap", "acknowledged records lost", "records", _at_most(0)),
    _figure("duplicated", "broker-gap", "records duplicated", "records", _at_most(0)),
    _figure(
        "controller_rss_mb", "memory", "resident memory, largest controller", "MB", _at_most(60)
    ),
    _figure(
        "broker_rss_mb", "memory", "resident memory after load, largest broker", "MB", _at_most(80)
    ),
    _figure(
        "group_join_s",
        "groups",
        "100 members join a group: end of the initial delay to the last assignment",
        "s",
        _at_most(2),
    ),
    _figure(
        "offset_commits_per_s",
        "groups",
        "offset commits on one broker, 500 in flight",
        "commits/s",
        _at_least(5000),
    ),
    _figure(
        "idle_groups_percent",
        "groups",
        "CPU of the brokers for 50 groups of 4 idle members",
        "% of a core",
        _at_most(3),
    ),
    _figure(
        "transaction_p50_ms",
        "transactions",
        "transaction of one record to each of 3 partitions, p50",
        "ms",
        _times_at_most(1),
    ),
    _figure(
        "share_small_k_s",
        "queues",
        "share group, 4 members on one partition, 100 B",
        "k records/s",
        _times_at_least(2),
    ),
    _figure(
        "share_large_k_s",
        "queues",
        "share group, 4 members on one partition, 1,000 B",
        "k records/s",
        _times_at_least(2),
    ),
    _figure(
        "share_cpu_us",
        "queues",
        "CPU of the brokers a record, share group, 100 B",
        "us",
        _times_at_most(0.25),
    ),
    _figure(
        "share_wide_k_s",
        "queues",
        "share group, 100 members on 100 partitions, 100 B",
        "k records/s",
        _times_at_least(1),
    ),
    _figure(
        "share_p99_ms",
        "queues",
        "produce to delivery in a share group of 4, p99",
        "ms",
        _times_at_most(0.5),
    ),
    _figure(
        "streams_k_s",
        "streams",
        "Kafka Streams counts words through a repartition topic, 100 B",
        "k records/s",
        _times_at_least(1),
    ),
    _figure(
        "streams_cpu_us",
        "streams",
        "CPU of the brokers a record, Kafka Streams counts words",
        "us",
        _times_at_most(0.33),
    ),
    _figure(
        "streams_rebalance_s",
        "streams",
        "one more member of a Streams group of 50 with 200 tasks",
        "s",
        _times_at_most(1),
    ),
    _figure(
        "idle_cpu_percent",
        "idle",
        "idle CPU of all processes together",
        "% of a core",
        _times_at_most(0.125),
    ),
)

GROUPS: tuple[str, ...] = tuple(dict.fromkeys(figure.group for figure in FIGURES))
_TLS_GOALS = {
    "produce_one_mb_s": _times_at_least(1),
    "produce_all_mb_s": _times_at_least(1),
    "produce_small_k_s": _times_at_least(1),
    "cpu_s_per_gb": _times_at_most(0.5),
    "consume_mb_s": _times_at_least(1),
    "latency_p50_ms": _times_at_most(1),
    "latency_p99_ms": _times_at_most(1),
}
TLS_FIGURES: tuple[Figure, ...] = tuple(
    dataclasses.replace(figure, goal=_TLS_GOALS[figure.key])
    for figure in FIGURES
    if figure.key in _TLS_GOALS
)
"""The figures of a run with `--tls`. Their goals differ from those of FIGURES, because ciphers are
native code on both sides."""
TLS_GROUPS: tuple[str, ...] = tuple(dict.fromkeys(figure.group for figure in TLS_FIGURES))
#: Apache Kafka needs half a minute to recover from a hung controller, so this group runs only if it
#: is named.
OPTIONAL_GROUPS = frozenset({"controller-hang"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Median and range of a figure's samples on one side."""

    median: float
    least: float
    most: float
    count: int


def summarize(samples: Sequence[float]) -> Summary | None:
    """None without samples."""
    if not samples:
        return None
    return Summary(
        median=statistics.median(samples),
        least=min(samples),
        most=max(samples),
        count=len(samples),
    )


def ratio_of(kvorum: float | None, kafka: float | None) -> float | None:
    """kvorum / kafka; None when a side is missing or Kafka's value is zero."""
    if kvorum is None or not kafka:
        return None
    return kvorum / kafka


def percentile(samples: Sequence[float], percent: float) -> float:
    """The nearest-rank percentile, which is always one of the samples. Raises ValueError without
    samples."""
    if not samples:
        raise ValueError("a percentile needs at least one sample")
    if not 0 < percent <= 100:
        raise ValueError(f"percent must be in (0, 100], got {percent}")
    rank = math.ceil(percent / 100 * len(samples))
    return sorted(samples)[rank - 1]


def longest_gap(successes: Sequence[float], struck_at: float, until: float) -> float:
    """The longest time without a success that ends after `struck_at`, up to `until`.

    successes: their times, in any order, on one clock. A gap that began before the fault counts
    from its beginning; a gap that never ends counts to `until`.
    """
    before = [moment for moment in successes if moment <= struck_at]
    after = sorted(moment for moment in successes if struck_at < moment <= until)
    moments = [max(before, default=struck_at), *after, until]
    return max(late - early for early, late in itertools.pairwise(moments))


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """The fate of the acknowledged records. misplaced: records whose order in the log differs from
    the order of acknowledgement."""

    lost: int
    duplicated: int
    misplaced: int


def compare_deliveries(
    acknowledged: Mapping[int, Sequence[int]], stored: Mapping[int, Sequence[int]]
) -> Delivery:
    """Compare the acknowledged records with the log.

    Both map a partition to record values, unique per partition and sent in rising order. Stored
    values without an acknowledgement count as neither lost nor duplicated: their outcome was
    unknown.
    """
    lost = duplicated = misplaced = 0
    for partition in sorted(set(acknowledged) | set(stored)):
        in_log = stored.get(partition, ())
        distinct = set(in_log)
        lost += len(set(acknowledged.get(partition, ())) - distinct)
        duplicated += len(in_log) - len(distinct)
        misplaced += sum(1 for a, b in itertools.pairwise(in_log) if b < a)
    return Delivery(lost=lost, duplicated=duplicated, misplaced=misplaced)
