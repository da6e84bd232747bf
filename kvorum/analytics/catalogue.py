"""Every table that the job writes: its meaning, a question that it answers, and its columns.

docs/spark.md has this catalogue: `python -m kvorum.analytics.catalogue` prints it, and a test
compares the two. The job refuses to write a table whose columns differ from it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """needs: tables of the lake without which it is left out.
    question, query: an example of its use, in words and as SQL.
    columns: name -> meaning and unit.
    """

    meaning: str
    needs: tuple[str, ...]
    question: str
    query: str
    columns: Mapping[str, str]


_RUN = {"run_id": "the run"}
_PARTITION = {
    **_RUN,
    "topic": "the topic; `(administration)` for topics created and deleted",
    "partition": "the partition; -1 for the administration",
}
_NAMED = {
    "experiment": "title of the experiment",
    "system": "system under test",
    "version": "its version",
}
_SHAPE = {"controllers": "controllers of the cluster", "brokers": "brokers of the cluster"}
_LATENCY = {
    "p50_ms": "median latency of acknowledged records, ms, to 1 %",
    "p95_ms": "95th percentile",
    "p99_ms": "99th percentile",
    "max_ms": "longest, exact",
}

CATALOGUE: Mapping[str, Entry] = {
    "outcomes": Entry(
        meaning="A run's records by outcome, and their latency.",
        needs=("history",),
        question="Which run had the worst p99?",
        query="SELECT run_id, p99_ms FROM outcomes ORDER BY p99_ms DESC LIMIT 1",
        columns={
            **_RUN,
            **_NAMED,
            "verdict": "of the run's report",
            "invoked": "records that the load sent",
            "acknowledged": "records that were acknowledged",
            "failed": "records that certainly are not in the log",
            "unknown": "records that may be in the log",
            "seconds": "length of the load",
            "acknowledged_per_second": "records a second, over the whole load",
            **_LATENCY,
        },
    ),
    "silences": Entry(
        meaning="Times of 200 ms or more in which a partition acknowledged nothing that waited. A "
        "load's own start, up to 5 s before the first answer that no fault explains, is none.",
        needs=("history",),
        question="When was orders/0 silent?",
        query=("SELECT begin_ms, length_ms FROM silences WHERE topic = 'orders' AND partition = 0"),
        columns={
            **_PARTITION,
            "begin_ms": "begin, ms of the run",
            "end_ms": "the next acknowledgement, or the end of the load",
            "length_ms": "ms",
            "is_over": "false if the load ended first",
        },
    ),
    "unavailability": Entry(
        meaning="The silences of a run by partition.",
        needs=("history",),
        question="Which partition was away longest in all?",
        query="SELECT * FROM unavailability ORDER BY unavailable_ms DESC LIMIT 1",
        columns={
            **_PARTITION,
            "longest_ms": "longest silence, ms; null if none reached 100 ms",
            "silences": "number of silences of 200 ms or more",
            "unavailable_ms": "their sum, ms",
        },
    ),
    "recoveries": Entry(
        meaning="A partition after a fault: what clients saw, beside what the cluster decided.",
        needs=("history", "faults", "milestones"),
        question="Where does the time of a leader's death go?",
        query=(
            "SELECT fence_ms, elect_ms, ack_ms FROM recoveries "
            "WHERE fault = 'kill' AND role = 'led'"
        ),
        columns={
            **_RUN,
            **_NAMED,
            **_SHAPE,
            "fault_id": "number of the fault in its run",
            "fault": "kind of the fault",
            "topic": "the topic, or `(administration)`",
            "partition": "the partition",
            "role": "led: a struck node led it; other; administration",
            "unavailable_ms": "silences of the outages that are the fault's, from its begin on, ms",
            "continued_ms": "time in which an outage of an earlier fault went on, ms; not in the "
            "above",
            "is_over": "false if it was silent when the load ended",
            "detect_ms": "until the first of the decisions below",
            "fence_ms": "until a struck broker was fenced, in the fault or its outages",
            "elect_ms": "until another leader was elected, in the fault or its outages",
            "ack_ms": "until the end of the longest silence; null without one",
        },
    ),
    "failover_by_fault": Entry(
        meaning="Recoveries by kind of fault, role and size of the cluster.",
        needs=("history", "faults", "milestones"),
        question="How long is a partition away when its leader dies?",
        query=(
            "SELECT system, unavailable_p50_ms, unavailable_p95_ms FROM failover_by_fault "
            "WHERE fault = 'kill' AND role = 'led'"
        ),
        columns={
            "system": "system under test",
            "version": "its version",
            "fault": "kind of the fault",
            "role": "led, other or administration",
            **_SHAPE,
            "observations": "recoveries, without the following",
            "continued": "recoveries with an outage of an earlier fault alone: in no percentile",
            "faults": "faults",
            "never": "recoveries that were not over when the load ended",
            "unavailable_p50_ms": "nearest rank of unavailable_ms, ms",
            "unavailable_p95_ms": "the same, 95th percentile",
            "unavailable_max_ms": "longest",
            "detect_p50_ms": "median of detect_ms",
            "fence_p50_ms": "median of fence_ms",
            "elect_p50_ms": "median of elect_ms",
            "ack_p50_ms": "median of ack_ms",
        },
    ),
    "latency_by_fault": Entry(
        meaning="Latency of the records under way during a kind of fault, or an outage that such a "
        "fault owns, to the second; `none` for the others.",
        needs=("history", "faults"),
        question="How much latency does a slow follower cost the client?",
        query="SELECT fault, p99_ms FROM latency_by_fault WHERE fault IN ('latency', 'none')",
        columns={
            "system": "system under test",
            "version": "its version",
            "fault": "kind of the fault, or none",
            "acknowledged": "records",
            **_LATENCY,
        },
    ),
    "share_deliveries": Entry(
        meaning="Deliveries to the members of a share group, by the fault in force. Of several "
        "faults the one that began last counts; `none` without one.",
        needs=("history", "faults"),
        question="Which fault makes records come again?",
        query="SELECT fault, redeliveries, records FROM share_deliveries",
        columns={
            **_RUN,
            "share_group": "the share group",
            "topic": "the topic",
            "fault": "kind of the fault, or none",
            "records": "records that were delivered for the first time then",
            "redeliveries": "deliveries then of records that had been delivered before",
            "deliveries_max": "most deliveries of one of the records; null without records",
            "accepted": "of the records, those whose accept was confirmed, then or later",
            "accept_p50_ms": "nearest rank of the time from first delivery to accept, ms",
            "accept_p99_ms": "the same, 99th percentile",
            "accept_max_ms": "longest",
        },
    ),
    "isr_churn": Entry(
        meaning="Changes of a partition's ISR and leader.",
        needs=("milestones",),
        question="Which partitions flap?",
        query="SELECT topic, partition, shrinks FROM isr_churn ORDER BY shrinks DESC LIMIT 5",
        columns={
            **_RUN,
            "topic": "the topic",
            "partition": "the partition",
            "shrinks": "changes in which a replica left the ISR",
            "expands": "changes in which a replica joined it",
            "leader_changes": "changes of the leader",
            "times_offline": "changes to no leader",
        },
    ),
    "broker_skew": Entry(
        meaning="Leaders and replicas of a broker against an even share.",
        needs=("partitions", "brokers"),
        question="Which broker leads too much?",
        query=("SELECT broker_id, leader_skew FROM broker_skew ORDER BY leader_skew DESC LIMIT 1"),
        columns={
            **_RUN,
            "broker_id": "the broker",
            "rack": "its rack",
            "is_fenced": "out of service",
            "leaders": "partitions that it leads",
            "preferred_leaders": "partitions whose preferred leader it is",
            "replicas": "replicas that it holds",
            "leader_skew": "leaders / mean of the brokers; 1 is even",
            "replica_skew": "replicas / mean of the brokers",
        },
    ),
    "rack_skew": Entry(
        meaning="The same by rack, a broker's share each.",
        needs=("partitions", "brokers"),
        question="Do racks carry the same?",
        query="SELECT rack, replica_skew FROM rack_skew",
        columns={
            **_RUN,
            "rack": "the rack",
            "brokers": "in it",
            "leaders": "partitions that they lead",
            "replicas": "replicas that they hold",
            "leader_skew": "leaders a broker / mean of all brokers",
            "replica_skew": "replicas a broker / mean of all brokers",
        },
    ),
    "what_if": Entry(
        meaning="The cost of losing a broker, a pair of brokers, a rack, or a zone.",
        needs=("partitions", "brokers"),
        question="Does any pair of brokers hold all copies of a partition?",
        query="SELECT loss, offline FROM what_if WHERE kind = 'pair' AND offline > 0",
        columns={
            **_RUN,
            "loss": "what would be lost, in words",
            "kind": "broker, pair, rack, zone",
            "brokers_lost": "number of brokers",
            "partitions": "partitions of the cluster",
            "hit": "partitions that lose a replica",
            "offline": "partitions without a replica in sync",
            "not_writable": "partitions with fewer in sync than min.insync.replicas",
            "one_copy_left": "partitions with one replica in sync",
            "has_majority": "the quorum keeps its majority; null if not known",
        },
    ),
    "record_mix": Entry(
        meaning="The metadata log by type of record.",
        needs=("metadata_records",),
        question="Which records fill the metadata log?",
        query="SELECT record_type, share FROM record_mix ORDER BY share DESC LIMIT 3",
        columns={
            **_RUN,
            "record_type": "type of the record",
            "record_version": "its version",
            "records": "number",
            "payload_bytes": "bytes of their JSON form",
            "share": "of the run's records",
        },
    ),
    "metadata_growth": Entry(
        meaning="The metadata log's growth in steps of ten seconds.",
        needs=("metadata_records",),
        question="When did the log grow most?",
        query=("SELECT begin_wall_ms, records FROM metadata_growth ORDER BY records DESC LIMIT 1"),
        columns={
            **_RUN,
            "begin_wall_ms": "begin of the step, ms since 1970",
            "records": "appended",
            "end_offset": "of the log at the end of the step",
            "epoch": "of the quorum's leader then",
        },
    ),
    "fencing_causes": Entry(
        meaning="Fencings of a broker by the fault before them.",
        needs=("milestones", "faults"),
        question="Was a broker fenced without a fault?",
        query="SELECT * FROM fencing_causes WHERE cause = 'no fault'",
        columns={
            **_RUN,
            "broker_id": "the broker",
            "cause": "latest fault of the broker in the minute before, or `no fault`",
            "fencings": "number",
        },
    ),
    "voter_lag": Entry(
        meaning="How far voters were behind the quorum's leader.",
        needs=("voters",),
        question="Which voter is slow?",
        query="SELECT voter_id, lag_p99 FROM voter_lag ORDER BY lag_p99 DESC LIMIT 1",
        columns={
            **_RUN,
            "voter_id": "the voter",
            "samples": "descriptions by a leader",
            "never": "descriptions in which its log was not known",
            "lag_p50": "median lag, records",
            "lag_p99": "99th percentile",
            "lag_max": "largest",
            "samples_behind": "descriptions with a lag above 0",
        },
    ),
    "regressions": Entry(
        meaning="Two sides compared: medians, their ratio and its bootstrap interval of 95 %.",
        needs=("history",),
        question="Did the new release get slower?",
        query="SELECT figure, ratio_low FROM regressions WHERE is_regression",
        columns={
            "experiment": "title of the experiment",
            "system": "system under test",
            "figure": "what is compared, with its unit",
            "baseline": "runs of the first side",
            "candidate": "runs of the second side",
            "baseline_samples": "values of the first side",
            "candidate_samples": "values of the second side",
            "baseline_p50": "median of the first side",
            "candidate_p50": "median of the second side",
            "ratio": "candidate / baseline; null if the baseline is 0",
            "ratio_low": "lower end of the interval; null with fewer than three values on a side",
            "ratio_high": "upper end of the interval",
            "is_regression": "ratio_low is above the limit, and the difference above 20 ms",
        },
    ),
    "duels": Entry(
        meaning="One experiment and seed on two systems, each version of them, side by side.",
        needs=("history",),
        question="Which system was silent longer?",
        query=("SELECT experiment, first_longest_silence_ms, second_longest_silence_ms FROM duels"),
        columns={
            "experiment": "title of the experiment",
            "seed": "of both runs",
            **{
                f"{prefix}_{name}": f"{meaning} ({prefix} system)"
                for prefix in ("first", "second")
                for name, meaning in (
                    ("system", "name"),
                    ("version", "its version"),
                    ("run_id", "its last run"),
                    ("verdict", "of the report"),
                    ("acknowledged", "records"),
                    ("p50_ms", "median latency, ms"),
                    ("p99_ms", "99th percentile of the latency, ms"),
                    ("longest_silence_ms", "longest silence of a partition, ms"),
                    ("unavailable_ms", "silences of the worst partition, ms"),
                )
            },
        },
    ),
}


def markdown() -> str:
    """The catalogue for docs/spark.md."""
    parts = []
    for name, entry in CATALOGUE.items():
        rows = "\n".join(f"| `{column}` | {meaning} |" for column, meaning in entry.columns.items())
        parts.append(
            f"### {name}\n\n{entry.meaning} Needs {', '.join(f'`{need}`' for need in entry.needs)}."
            f"\n\n{entry.question}\n\n```sql\n{entry.query}\n```\n\n"
            f"| column | meaning |\n| --- | --- |\n{rows}\n"
        )
    return "\n".join(parts)


if __name__ == "__main__":
    sys.stdout.write(markdown())
