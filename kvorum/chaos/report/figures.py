"""The report of a run: its record, timeline and checks as plain values. Pure.

Lists are cut at a fixed length, so that the report of a day-long run stays small.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from kvorum.chaos.checks import CheckResult
from kvorum.chaos.checks.catalogue import UNREAD
from kvorum.chaos.outages.outages import Outage, longest_silence_ms, outages_of
from kvorum.chaos.outages.promises import Promised, judge_promises
from kvorum.chaos.outages.recovery import FaultSpan, Recovery
from kvorum.chaos.outages.timeline import Timeline, isr_changes, leader_changes
from kvorum.chaos.report.document import (
    REPORT_VERSION,
    ConsumerRow,
    ControllerEpoch,
    FaultRow,
    Load,
    Outages,
    PartitionRow,
    RunReport,
    Series,
    Spread,
    SteadyStateRow,
    TopicChanges,
)
from kvorum.chaos.report.verdict import is_decided, judge
from kvorum.chaos.report.wording import milliseconds
from kvorum.chaos.run_record import Measurement, RunRecord

FAULTS_MAX = 200
#: Partitions of one fault, the longest unavailable ones first.
RECOVERIES_MAX = 20
OUTAGES_MAX = 100
PARTITIONS_MAX = 100
EPOCHS_MAX = 200


@dataclass(frozen=True, slots=True)
class _Judgement:
    """The verdict, and what it rests on. is_read: the final read reached every partition's end, and
    the history has it."""

    verdict: str
    reasons: list[str]
    checks: list[CheckResult]
    promised: list[Promised]
    outages: list[Outage]
    is_read: bool

    def harm(self, check: str) -> int | None:
        """The records that a check found; None for a count of zero if the data was not read."""
        count = sum(one.count for one in self.checks if one.check == check)
        return count if self.is_read or count else None


def _judgement(record: RunRecord, timeline: Timeline, results: Sequence[CheckResult]) -> _Judgement:
    checks = [replace(one, is_decided=is_decided(one.check, record)) for one in results]
    outages = outages_of(timeline)
    promised = judge_promises(
        record.stated_promises,
        timeline,
        is_cut_short=record.error is not None,
        is_lab_failure=record.is_lab_failure,
    )
    verdict, reasons = judge(record, timeline, checks, outages, promised)
    is_unread = any(one.count for one in checks if one.check == UNREAD)
    is_read = record.is_final_read_complete and not is_unread
    return _Judgement(verdict, reasons, checks, promised, outages, is_read)


def build_report(
    record: RunRecord, timeline: Timeline, results: Sequence[CheckResult]
) -> RunReport:
    """Judge a run. Raises ConfigError if the experiment states a promise that is not known."""
    judged = _judgement(record, timeline, results)
    harm = {
        "lost": judged.harm("lost-write"),
        "duplicated": judged.harm("duplicate"),
        "reordered": judged.harm("reordered"),
    }
    partitions = _partitions(timeline)
    epochs = timeline.controller_epochs()
    return RunReport(
        version=REPORT_VERSION,
        title=record.title,
        description="" if record.description == "-" else record.description,
        tags=record.tags,
        verdict=judged.verdict,
        reasons=tuple(judged.reasons),
        summary=_summary(timeline, harm, is_read=judged.is_read),
        seed=record.seed,
        rerun=record.rerun,
        versions=record.versions,
        system=record.system,
        cluster=record.cluster,
        is_secure=record.is_secure,
        configuration=record.configuration,
        started_wall_ms=record.started_wall_ms,
        ended_wall_ms=record.ended_wall_ms,
        **harm,
        is_final_read_complete=judged.is_read,
        load=_load(timeline),
        administration=_administration(timeline),
        promises=tuple(judged.promised),
        faults=tuple(_fault(fault) for fault in timeline.faults[:FAULTS_MAX]),
        faults_left_out=max(0, len(timeline.faults) - FAULTS_MAX),
        outages=_outages(judged.outages),
        checks=tuple(judged.checks),
        is_lab_failure=record.is_lab_failure,
        steady_state_title=record.steady_state_title,
        steady_state=tuple(_steady_state(record)),
        partitions=tuple(partitions[:PARTITIONS_MAX]),
        partitions_left_out=max(0, len(partitions) - PARTITIONS_MAX),
        isr_shrinks=sum(row.isr_shrinks for row in partitions),
        isr_expands=sum(row.isr_expands for row in partitions),
        leader_changes=sum(row.leader_changes for row in partitions),
        consumers=tuple(
            ConsumerRow(group=key[0], topic=key[1], partition=key[2], longest_ms=lag.longest_ms)
            for key, lag in sorted(timeline.consumers.items())[:PARTITIONS_MAX]
        ),
        controller_epochs=tuple(
            ControllerEpoch(time_ms=time_ms, epoch=epoch, leader_id=leader_id)
            for time_ms, epoch, leader_id in epochs[:EPOCHS_MAX]
        ),
        controller_epochs_left_out=max(0, len(epochs) - EPOCHS_MAX),
        milestones_source=timeline.milestones_source,
        series=_series(timeline),
        errors=dict(sorted(timeline.errors.items())),
        steps=record.steps,
        probes=record.probes,
        notes=record.notes,
    )


def _load(timeline: Timeline) -> Load:
    return Load(
        begin_ms=timeline.load_begin_ms,
        end_ms=timeline.load_end_ms,
        invoked=timeline.invoked,
        acknowledged=timeline.acknowledged,
        failed=timeline.failed,
        unknown=timeline.unknown,
        latency_p50_ms=timeline.latencies.percentile(0.5),
        latency_p99_ms=timeline.latencies.percentile(0.99),
        latency_max_ms=timeline.latencies.max_ms,
        longest_cluster_silence_ms=longest_silence_ms(timeline.cluster, timeline),
        longest_partition_silence_ms=max(
            (longest_silence_ms(waits, timeline) for waits in timeline.partitions.values()),
            default=0.0,
        ),
    )


def _administration(timeline: Timeline) -> TopicChanges | None:
    admin = timeline.administration
    if not admin.invoked:
        return None
    return TopicChanges(
        invoked=admin.invoked,
        done=admin.done,
        created=admin.created,
        failed=admin.failed,
        unknown=admin.unknown,
        errors=dict(sorted(admin.errors.items())),
        latency_p50_ms=admin.latencies.percentile(0.5),
        longest_gap_ms=longest_silence_ms(admin.waits, timeline),
    )


def _fault(fault: FaultSpan) -> FaultRow:
    # The page draws the split of the first of these: unavailable longest, led partitions first if
    # equal.
    worst = sorted(fault.recoveries, key=lambda item: (-item.unavailable_ms, not item.is_led))
    return FaultRow(
        id=fault.fault_id,
        name=fault.name,
        fault=fault.fault,
        description=fault.description,
        target=fault.target,
        nodes=fault.nodes,
        roles=fault.roles,
        is_active_controller=fault.is_active_controller,
        begin_ms=fault.begin_ms,
        end_ms=fault.end_ms,
        lasted_ms=fault.lasted_ms,
        led=_spread([item for item in fault.recoveries if item.is_led]),
        others=_spread([item for item in fault.recoveries if not item.is_led]),
        recoveries=tuple(worst[:RECOVERIES_MAX]),
        recoveries_left_out=max(0, len(worst) - RECOVERIES_MAX),
        controller_elect_ms=fault.controller_elect_ms,
        controller_unavailable_ms=fault.controller_unavailable_ms,
        hits={node: dict(counts) for node, counts in fault.hits.items()},
        lost_packets=fault.lost_packets,
        is_without_hit=fault.is_without_hit,
    )


def _spread(recoveries: Sequence[Recovery]) -> Spread:
    times = sorted(item.unavailable_ms for item in recoveries)
    return Spread(
        partitions=tuple(item.partition for item in recoveries),
        unavailable_p50_ms=times[(len(times) - 1) // 2] if times else None,
        unavailable_max_ms=times[-1] if times else None,
        not_back=sum(not item.is_over for item in recoveries),
        continued_from=tuple(
            dict.fromkeys(name for item in recoveries for name in item.continued_from)
        ),
    )


def _outages(outages: Sequence[Outage]) -> Outages:
    """The count of every kind, and the outages: those without an owner, then the longest."""
    chosen = sorted(outages, key=lambda item: (not item.is_unowned, -item.length_ms))
    return Outages(
        count=len(outages),
        unowned=sum(item.is_unowned for item in outages),
        kinds=dict(Counter(item.kind for item in outages)),
        rows=tuple(chosen[:OUTAGES_MAX]),
        left_out=max(0, len(outages) - OUTAGES_MAX),
    )


def _partitions(timeline: Timeline) -> list[PartitionRow]:
    changed, elected = isr_changes(timeline), leader_changes(timeline)
    return [
        PartitionRow(
            topic=key[0],
            partition=key[1],
            longest_silence_ms=longest_silence_ms(waits, timeline),
            leader_changes=len(elected.get(key, ())),
            isr_shrinks=sum(left > 0 for _, _, left in changed.get(key, ())),
            isr_expands=sum(joined > 0 for _, joined, _ in changed.get(key, ())),
        )
        for key, waits in sorted(timeline.partitions.items())
    ]


def _series(timeline: Timeline) -> Series:
    return Series(
        begin_ms=timeline.load_begin_ms,
        bucket_ms=timeline.bucket_ms,
        acknowledged=tuple(bucket.acknowledged for bucket in timeline.buckets),
        latency_p50_ms=tuple(bucket.latencies.percentile(0.5) for bucket in timeline.buckets),
        latency_p99_ms=tuple(bucket.latencies.percentile(0.99) for bucket in timeline.buckets),
    )


def _steady_state(record: RunRecord) -> Iterator[SteadyStateRow]:
    after = {one.name: one for one in record.steady_state_after}
    for before in record.steady_state_before:
        then = after.get(before.name)
        yield SteadyStateRow(
            name=before.name,
            tolerance=before.tolerance,
            before=_measured(before),
            before_ok=before.is_accepted,
            after="not measured" if then is None else _measured(then),
            after_ok=then is not None and then.is_accepted,
        )


def _measured(one: Measurement) -> str:
    return one.reason or "no answer" if one.value is None else f"{one.value:g}"


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
