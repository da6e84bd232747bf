"""The whole numbers of an experiment: name, default, bounds and meaning of each key.

The parser, the JSON Schema and the reference are made from these tables, so that they agree.
"""

from __future__ import annotations

from dataclasses import dataclass

#: Longest time that an experiment may ask for, in milliseconds: a day.
DURATION_MS_MAX = 86_400_000

#: The number of steps of one method, with its storms expanded.
STEPS_MAX = 2_000

#: The longest pause before or after a step, in seconds.
PAUSE_SECONDS_MAX = 3_600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegerKey:
    """A key whose value is a whole number from `low` to `high`. `default` is None where a missing
    key has a meaning of its own, which `meaning` states."""

    name: str
    default: int | None
    low: int
    high: int
    meaning: str


def _key(name: str, default: int | None, low: int, high: int, meaning: str) -> IntegerKey:
    return IntegerKey(name=name, default=default, low=low, high=high, meaning=meaning)


CONFIGURATION_KEYS = (
    _key("controllers", 3, 1, 9, "controllers of the cluster, all of them voters without `voters`"),
    _key(
        "voters",
        0,
        0,
        9,
        "the first so many controllers vote at the start, in a set that can change (KIP-853), and "
        "the others are observers; 0: all vote, in a static set",
    ),
    _key("brokers", 3, 1, 99, "brokers of the cluster: broker-101, broker-102, ..."),
    _key("seed", 1, 0, 2**63 - 1, "decides storms, and which nodes targets such as `one` pick"),
    _key("warm_up_ms", 2_000, 0, 600_000, "load before the first look at the steady state"),
    _key("cool_down_ms", 3_000, 0, 600_000, "load after the last fault"),
    _key("start_timeout_ms", 60_000, 1_000, 600_000, "limit for the start of the cluster"),
    _key(
        "convergence_timeout_ms",
        60_000,
        1_000,
        600_000,
        "limit for full ISRs after the last fault",
    ),
)

SECURE_MEANING = "true: a cluster as of `kvorum dev --secure`, with TLS, users and ACLs"

TOPIC_KEYS = (
    _key("partitions", 6, 1, 1_000, "partitions of the topic"),
    _key("replication_factor", 3, 1, 99, "replicas of each partition; at most `brokers`"),
    _key(
        "min_insync_replicas",
        2,
        1,
        99,
        "members of the ISR that an acks=all write needs; at most `replication_factor`",
    ),
)

LOAD_KEYS = (
    _key("records_per_second", 1_000, 1, 20_000, "records sent with acks=all, in all partitions"),
    _key("record_bytes", 100, 24, 100_000, "size of a record's value"),
    _key("delivery_timeout_ms", 30_000, 1_000, 600_000, "the producer's delivery.timeout.ms"),
    _key("linger_ms", 2, 0, 1_000, "the producer's linger.ms"),
    _key(
        "topic_creations_per_second",
        0,
        0,
        50,
        "topics created beside the load, to show outages of the controller; 0 for none",
    ),
)

STORM_KEYS = (
    _key("count", 10, 1, STEPS_MAX, "faults to draw"),
    _key("pause_ms_min", 500, 0, 600_000, "shortest pause before a fault"),
    _key("pause_ms_max", 3_000, 0, 600_000, "longest pause before a fault"),
)

PROMISE_KEYS = (
    _key(
        "longest_silence_ms",
        None,
        0,
        DURATION_MS_MAX,
        "at most: the longest time in which no record of any partition was acknowledged; the "
        "producers' first connection does not count, up to 5 s",
    ),
    _key(
        "longest_partition_silence_ms",
        None,
        0,
        DURATION_MS_MAX,
        "at most: the longest time in which one partition acknowledged no record; the producers' "
        "first connection does not count, up to 5 s",
    ),
    _key(
        "unavailable_ms",
        None,
        0,
        DURATION_MS_MAX,
        "at most: the longest time in which one fault made a partition unavailable",
    ),
    _key(
        "latency_p99_ms",
        None,
        0,
        DURATION_MS_MAX,
        "at most: the 99th percentile of the time from send to acknowledgement",
    ),
    _key(
        "time_to_elect_ms",
        None,
        0,
        DURATION_MS_MAX,
        "at most: the longest time from a fault of a leader to its successor's election",
    ),
    _key("isr_shrinks_at_least", None, 0, 10**9, "at least: members that left an ISR"),
    _key("isr_shrinks_at_most", None, 0, 10**9, "at most: members that left an ISR"),
    _key("acknowledged_at_least", None, 0, 10**12, "at least: records acknowledged in the run"),
    _key(
        "failed_topic_changes_at_most",
        None,
        0,
        10**9,
        "at most: creations and deletions of topics that the cluster refused",
    ),
)
