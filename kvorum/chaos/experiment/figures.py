"""The content of report.json: what a run's folder says, in plain values. Pure.

Lists are cut at a fixed length, and say how many entries they leave out, so that the report of a
day-long run stays small.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import Any

from kvorum.chaos.experiment.checks import CheckResult
from kvorum.chaos.experiment.outages import Outage, longest_silence_ms, outages_of
from kvorum.chaos.experiment.promises import judge_promises
from kvorum.chaos.experiment.recovery import FaultSpan, Recovery
from kvorum.chaos.experiment.timeline import Timeline, isr_changes, leader_changes
from kvorum.chaos.experiment.verdict import is_lab_failure, judge
from kvorum.chaos.experiment.wording import milliseconds

REPORT_VERSION = 3

FAULTS_MAX = 200
#: Partitions of one fault, the longest unavailable ones first.
RECOVERIES_MAX = 20
OUTAGES_MAX = 100
PARTITIONS_MAX = 100
EPOCHS_MAX = 200


def build_report(
    record: dict[str, Any], timeline: Timeline, checks: Sequence[CheckResult]
) -> dict[str, Any]:
    """The content of report.json. `record` is run.json's content.

    Raises ConfigError if the experiment states a promise that is not known.
    """
    broken = {check.check: check.count for check in checks}
    outages = outages_of(timeline)
    stated = record["configuration"].get("promises") or {}
    limits = {name: limit for name, limit in stated.items() if limit is not None}
    promised = judge_promises(
        limits,
        timeline,
        is_cut_short=record["error"] is not None,
        is_lab_failure=is_lab_failure(record),
    )
    verdict, reasons = judge(record, timeline, checks, outages, promised)
    is_read = _is_read(record, broken)
    harm: dict[str, int | None] = {}
    for name, check in (
        ("lost", "lost-write"),
        ("duplicated", "duplicate"),
        ("reordered", "reordered"),
    ):
        count = broken.get(check, 0)
        # A count of zero means nothing if the data was not read.
        harm[name] = count if is_read or count else None
    return {
        "version": REPORT_VERSION,
        "title": record["title"],
        "description": "" if record["description"] == "-" else record["description"],
        "tags": record["tags"],
        "verdict": verdict,
        "reasons": reasons,
        "summary": _summary(timeline, harm, is_read=is_read),
        "seed": record["seed"],
        "rerun": record["rerun"],
        "versions": record["versions"],
        "system": record.get("system"),
        "cluster": record.get("cluster", "fresh"),
        "is_secure": bool(record.get("is_secure", False)),
        "configuration": record["configuration"],
        "started_wall_ms": record["started_wall_ms"],
        "ended_wall_ms": record["ended_wall_ms"],
        **harm,
        "is_final_read_complete": is_read,
        "load": _load(timeline),
        "administration": _administration(timeline),
        "promises": [{**dataclasses.asdict(item), "bound": item.bound()} for item in promised],
        "faults": [_fault(fault) for fault in timeline.faults[:FAULTS_MAX]],
        "faults_left_out": max(0, len(timeline.faults) - FAULTS_MAX),
        "outages": _outages(outages),
        "checks": [dataclasses.asdict(check) for check in checks],
        "steady_state_title": record["steady_state_title"],
        "steady_state": _steady_state(record),
        **_partitions(timeline),
        "consumers": [
            {"group": key[0], "topic": key[1], "partition": key[2], "longest_ms": lag.longest_ms}
            for key, lag in sorted(timeline.consumers.items())[:PARTITIONS_MAX]
        ],
        **_epochs(timeline),
        "milestones_source": timeline.milestones_source,
        "series": _series(timeline),
        "errors": dict(sorted(timeline.errors.items())),
        "steps": record["steps"],
        "probes": record["probes"],
        "notes": record["notes"],
    }


def _load(timeline: Timeline) -> dict[str, Any]:
    return {
        "begin_ms": timeline.load_begin_ms,
        "end_ms": timeline.load_end_ms,
        "invoked": timeline.invoked,
        "acknowledged": timeline.acknowledged,
        "failed": timeline.failed,
        "unknown": timeline.unknown,
        "latency_p50_ms": timeline.latencies.percentile(0.5),
        "latency_p99_ms": timeline.latencies.percentile(0.99),
        "latency_max_ms": timeline.latencies.max_ms,
        "longest_cluster_silence_ms": longest_silence_ms(timeline.cluster, timeline),
        "longest_partition_silence_ms": max(
            (longest_silence_ms(waits, timeline) for waits in timeline.partitions.values()),
            default=0.0,
        ),
    }


def _administration(timeline: Timeline) -> dict[str, Any] | None:
    admin = timeline.administration
    if not admin.invoked:
        return None
    return {
        "invoked": admin.invoked,
        "done": admin.done,
        "created": admin.created,
        "failed": admin.failed,
        "unknown": admin.unknown,
        "errors": dict(sorted(admin.errors.items())),
        "latency_p50_ms": admin.latencies.percentile(0.5),
        "longest_gap_ms": longest_silence_ms(admin.waits, timeline),
    }


def _fault(fault: FaultSpan) -> dict[str, Any]:
    # The page draws the split of the first of these: unavailable longest, led partitions first if
    # equal.
    worst = sorted(fault.recoveries, key=lambda item: (-item.unavailable_ms, not item.is_led))
    return {
        "id": fault.fault_id,
        "name": fault.name,
        "fault": fault.fault,
        "description": fault.description,
        "target": fault.target,
        "nodes": list(fault.nodes),
        "roles": list(fault.roles),
        "is_active_controller": fault.is_active_controller,
        "begin_ms": fault.begin_ms,
        "end_ms": fault.end_ms,
        "lasted_ms": fault.lasted_ms,
        "led": _spread([item for item in fault.recoveries if item.is_led]),
        "others": _spread([item for item in fault.recoveries if not item.is_led]),
        "recoveries": [dataclasses.asdict(item) for item in worst[:RECOVERIES_MAX]],
        "recoveries_left_out": max(0, len(worst) - RECOVERIES_MAX),
        "controller_elect_ms": fault.controller_elect_ms,
        "controller_unavailable_ms": fault.controller_unavailable_ms,
        "hits": {node: dict(counts) for node, counts in fault.hits.items()},
        "lost_packets": fault.lost_packets,
        "is_without_hit": fault.is_without_hit,
    }


def _spread(recoveries: Sequence[Recovery]) -> dict[str, Any]:
    """The unavailable times of some partitions. not_back: how many were still unavailable when the
    load ended; continued_from: the earlier faults whose outages went on there."""
    times = sorted(item.unavailable_ms for item in recoveries)
    return {
        "partitions": [item.partition for item in recoveries],
        "unavailable_p50_ms": times[(len(times) - 1) // 2] if times else None,
        "unavailable_max_ms": times[-1] if times else None,
        "not_back": sum(not item.is_over for item in recoveries),
        "continued_from": list(
            dict.fromkeys(name for item in recoveries for name in item.continued_from)
        ),
    }


def _outages(outages: Sequence[Outage]) -> dict[str, Any]:
    """The count of every kind, and the outages: those without an owner, then the longest."""
    chosen = sorted(outages, key=lambda item: (not item.is_unowned, -item.length_ms))
    rows = [
        {**dataclasses.asdict(item), "length_ms": item.length_ms, "is_unowned": item.is_unowned}
        for item in chosen[:OUTAGES_MAX]
    ]
    return {
        "count": len(outages),
        "unowned": sum(item.is_unowned for item in outages),
        "kinds": dict(Counter(item.kind for item in outages)),
        "rows": rows,
        "left_out": max(0, len(outages) - OUTAGES_MAX),
    }


def _partitions(timeline: Timeline) -> dict[str, Any]:
    changed, elected = isr_changes(timeline), leader_changes(timeline)
    rows = [
        {
            "topic": key[0],
            "partition": key[1],
            "longest_silence_ms": longest_silence_ms(waits, timeline),
            "leader_changes": len(elected.get(key, ())),
            "isr_shrinks": sum(left > 0 for _, _, left in changed.get(key, ())),
            "isr_expands": sum(joined > 0 for _, joined, _ in changed.get(key, ())),
        }
        for key, waits in sorted(timeline.partitions.items())
    ]
    return {
        "partitions": rows[:PARTITIONS_MAX],
        "partitions_left_out": max(0, len(rows) - PARTITIONS_MAX),
        "isr_shrinks": sum(row["isr_shrinks"] for row in rows),
        "isr_expands": sum(row["isr_expands"] for row in rows),
        "leader_changes": sum(row["leader_changes"] for row in rows),
    }


def _epochs(timeline: Timeline) -> dict[str, Any]:
    epochs = timeline.controller_epochs()
    return {
        "controller_epochs": [
            {"time_ms": time_ms, "epoch": epoch, "leader_id": leader_id}
            for time_ms, epoch, leader_id in epochs[:EPOCHS_MAX]
        ],
        "controller_epochs_left_out": max(0, len(epochs) - EPOCHS_MAX),
    }


def _series(timeline: Timeline) -> dict[str, Any]:
    """Throughput and latency over time; a bucket without an acknowledgement has no latency."""
    return {
        "begin_ms": timeline.load_begin_ms,
        "bucket_ms": timeline.bucket_ms,
        "acknowledged": [bucket.acknowledged for bucket in timeline.buckets],
        "latency_p50_ms": [bucket.latencies.percentile(0.5) for bucket in timeline.buckets],
        "latency_p99_ms": [bucket.latencies.percentile(0.99) for bucket in timeline.buckets],
    }


def _steady_state(record: dict[str, Any]) -> list[dict[str, Any]]:
    after = {row["name"]: row for row in record["steady_state_after"]}
    rows = []
    for before in record["steady_state_before"]:
        then = after.get(before["name"])
        rows.append(
            {
                "name": before["name"],
                "tolerance": before["tolerance"],
                "before": _measured(before),
                "before_ok": before["is_accepted"],
                "after": "not measured" if then is None else _measured(then),
                "after_ok": then is not None and then["is_accepted"],
            }
        )
    return rows


def _measured(row: dict[str, Any]) -> str:
    return row["reason"] or "no answer" if row["value"] is None else f"{row['value']:g}"


def _is_read(record: dict[str, Any], broken: dict[str, int]) -> bool:
    """True if the final read reached the end of every partition, and the history has it."""
    return bool(record["is_final_read_complete"]) and not broken.get("unread", 0)


def _count_text(name: str, count: int | None, *, is_read: bool) -> str:
    """The count as text. count: None if nothing was found, but not everything was read."""
    if count is None:
        return f"{name} not known"
    return f"{count} {name}" if is_read else f"at least {count} {name}"


def _summary(timeline: Timeline, harm: dict[str, int | None], *, is_read: bool) -> str:
    told = ", ".join(_count_text(name, count, is_read=is_read) for name, count in harm.items())
    doubt = "" if is_read else " (the final read is incomplete)"
    return (
        f"{len(timeline.faults)} faults: {timeline.acknowledged:,} records acknowledged, "
        f"{told}{doubt}, {_silences(timeline)}"
    )


def _silences(timeline: Timeline) -> str:
    of_cluster = longest_silence_ms(timeline.cluster, timeline)
    text = f"longest silence {milliseconds(of_cluster)} of the cluster"
    found = {key: longest_silence_ms(waits, timeline) for key, waits in timeline.partitions.items()}
    if not found:
        return text
    worst = max(found, key=found.__getitem__)
    # Several loads have a partition 2 each.
    topics = {topic for topic, _ in timeline.partitions}
    name = f"{worst[0]}/{worst[1]}" if len(topics) > 1 else f"partition {worst[1]}"
    return f"{text}, {milliseconds(found[worst])} of {name}"
