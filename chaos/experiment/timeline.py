"""Figures over time from a history: throughput, latency, gaps, recovery after each fault. Pure.

Times are the history's `time_ms`. A silence is a time span between two acknowledgements. The
recovery time of a partition runs from a fault's begin to the acknowledgement of a record that was
*written after* that begin; an acknowledgement that was already under way when the fault began does
not show recovery.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from kvorum.chaos.experiment.history import (
    CREATE_TOPIC,
    FAIL,
    FAULT_BEGIN,
    FAULT_END,
    INFO,
    INVOKE,
    OBSERVE,
    OK,
    SEND,
    Event,
    Send,
    details_of,
)

#: Shorter silences come from the load's own rhythm and are not unavailability.
SILENCE_MS_MIN = 200.0
_SILENCES_KEPT_MAX = 20
_BUCKET_WIDTHS_MS = (100, 250, 500, 1_000, 2_000, 5_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """The recovery of one partition after one fault. recovery_ms is None if it did not recover."""

    partition: int
    is_led: bool
    recovery_ms: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultSpan:
    """One fault. end_ms is None if the run ended before the fault was undone."""

    fault_id: int
    name: str
    fault: str
    description: str
    target: str
    nodes: tuple[str, ...]
    is_active_controller: bool
    begin_ms: float
    end_ms: float | None
    recoveries: tuple[Recovery, ...]
    controller_recovery_ms: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """A time span without an acknowledgement."""

    begin_ms: float
    end_ms: float

    @property
    def length_ms(self) -> float:
        return self.end_ms - self.begin_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """A slice of time. Latencies are those of records acknowledged in it; None if there are
    none."""

    begin_ms: float
    acknowledged: int
    unknown: int
    latency_p50_ms: float | None
    latency_p99_ms: float | None


@dataclass(slots=True, kw_only=True)
class Timeline:
    """A history reduced to figures."""

    load_begin_ms: float = 0.0
    load_end_ms: float = 0.0
    invoked: int = 0
    acknowledged: int = 0
    failed: int = 0
    unknown: int = 0
    topics_created: int = 0
    latency_p50_ms: float | None = None
    latency_p99_ms: float | None = None
    latency_max_ms: float | None = None
    bucket_ms: float = 250.0
    buckets: list[Bucket] = field(default_factory=list)
    faults: list[FaultSpan] = field(default_factory=list)
    #: Silences of the whole cluster, of at least SILENCE_MS_MIN.
    cluster_silences: list[Silence] = field(default_factory=list)
    #: partition -> its longest silences, the longest first.
    partition_silences: dict[int, list[Silence]] = field(default_factory=dict)
    longest_cluster_silence_ms: float = 0.0
    longest_controller_silence_ms: float | None = None
    isr_changes: dict[int, int] = field(default_factory=dict)
    leader_changes: dict[int, int] = field(default_factory=dict)
    controller_epochs: list[tuple[float, int, int]] = field(default_factory=list)
    error_counts: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class _Gathered:
    acks: dict[int, list[tuple[float, float]]] = field(default_factory=dict)
    invoked_at: list[float] = field(default_factory=list)
    unknown_at: list[float] = field(default_factory=list)
    created: list[tuple[float, float]] = field(default_factory=list)
    fault_begins: list[Event] = field(default_factory=list)
    fault_ends: dict[int, float] = field(default_factory=dict)
    has_topic_load: bool = False


def build_timeline(events: Iterable[Event], *, buckets_max: int = 240) -> Timeline:
    """Reduce a history. Buckets are at least 100 ms wide and at most buckets_max in number."""
    timeline = Timeline()
    gathered = _Gathered()
    seen: dict[int, tuple[object, object]] = {}
    for event in events:
        if event.f == SEND:
            _produced(timeline, gathered, event)
        elif event.f == CREATE_TOPIC:
            gathered.has_topic_load = True
            if event.type == OK:
                gathered.created.append((event.time_ms, event.invoked_ms))
        elif event.f == FAULT_BEGIN:
            gathered.fault_begins.append(event)
        elif event.f == FAULT_END:
            gathered.fault_ends[_whole(details_of(event).get("id"))] = event.time_ms
        elif event.f == OBSERVE and event.type == OK:
            _observed(timeline, seen, event)
    timeline.topics_created = len(gathered.created)
    if gathered.invoked_at:
        timeline.load_begin_ms = gathered.invoked_at[0]
        timeline.load_end_ms = max(
            [gathered.invoked_at[-1], *(acks[-1][0] for acks in gathered.acks.values() if acks)]
        )
    _silences(timeline, gathered)
    _buckets(timeline, gathered, buckets_max)
    timeline.faults = [_span(event, gathered) for event in gathered.fault_begins]
    return timeline


def percentile(sorted_values: Sequence[float], share: float) -> float | None:
    """The nearest-rank percentile of ascending values, None without values; share is in (0, 1]."""
    if not sorted_values:
        return None
    return sorted_values[max(0, math.ceil(share * len(sorted_values)) - 1)]


def _produced(timeline: Timeline, gathered: _Gathered, event: Event) -> None:
    sends = [op for op in event.ops if isinstance(op, Send)]
    if not sends:
        return
    if event.type == INVOKE:
        timeline.invoked += len(sends)
        for send in sends:
            gathered.invoked_at.append(event.time_ms)
            gathered.acks.setdefault(send.partition, [])
        return
    if event.type == OK:
        timeline.acknowledged += len(sends)
        for send in sends:
            acks = gathered.acks.setdefault(send.partition, [])
            acks.append((event.time_ms, event.invoked_ms))
        return
    if event.type == INFO:
        timeline.unknown += len(sends)
        gathered.unknown_at += [event.time_ms] * len(sends)
    elif event.type == FAIL:
        timeline.failed += len(sends)
    reason = event.error or "unknown"
    timeline.error_counts[reason] = timeline.error_counts.get(reason, 0) + len(sends)


def _observed(timeline: Timeline, seen: dict[int, tuple[object, object]], event: Event) -> None:
    details = details_of(event)
    if details.get("what") == "quorum":
        epoch, leader = _whole(details.get("leader_epoch")), _whole(details.get("leader_id"))
        known = timeline.controller_epochs
        if leader >= 0 and (not known or epoch > known[-1][1]):
            known.append((event.time_ms, epoch, leader))
    elif details.get("what") == "partition" and event.partition is not None:
        now = (details.get("leader"), details.get("isr"))
        before = seen.get(event.partition)
        seen[event.partition] = now
        if before is not None:
            timeline.leader_changes[event.partition] = timeline.leader_changes.get(
                event.partition, 0
            ) + (before[0] != now[0])
            timeline.isr_changes[event.partition] = timeline.isr_changes.get(event.partition, 0) + (
                before[1] != now[1]
            )


def _silences(timeline: Timeline, gathered: _Gathered) -> None:
    begin_ms, end_ms = timeline.load_begin_ms, timeline.load_end_ms
    everything: list[float] = []
    for partition, acks in sorted(gathered.acks.items()):
        times = [time_ms for time_ms, _ in acks]
        everything += times
        found = _gaps(times, begin_ms, end_ms)
        found.sort(key=lambda silence: -silence.length_ms)
        timeline.partition_silences[partition] = found[:_SILENCES_KEPT_MAX]
    everything.sort()
    gaps = _gaps(everything, begin_ms, end_ms)
    timeline.longest_cluster_silence_ms = max((gap.length_ms for gap in gaps), default=0.0)
    timeline.cluster_silences = [gap for gap in gaps if gap.length_ms >= SILENCE_MS_MIN]
    if gathered.has_topic_load:
        created = _gaps([time_ms for time_ms, _ in gathered.created], begin_ms, end_ms)
        timeline.longest_controller_silence_ms = max(
            (gap.length_ms for gap in created), default=None
        )


def _gaps(times: Sequence[float], begin_ms: float, end_ms: float) -> list[Silence]:
    """The spans between neighbouring times, from begin to end."""
    edges = [begin_ms, *(time for time in times if begin_ms <= time <= end_ms), end_ms]
    return [Silence(begin_ms=a, end_ms=b) for a, b in itertools.pairwise(edges) if b > a]


def _buckets(timeline: Timeline, gathered: _Gathered, buckets_max: int) -> None:
    length_ms = timeline.load_end_ms - timeline.load_begin_ms
    width_ms = next(
        (
            width
            for width in (100, 250, 500, 1_000, 2_000, 5_000)
            if length_ms / width <= buckets_max
        ),
        math.ceil(length_ms / buckets_max),
    )
    timeline.bucket_ms = float(width_ms)
    count = int(length_ms // width_ms) + 1
    latencies: list[list[float]] = [[] for _ in range(count)]
    unknown = [0] * count
    for acks in gathered.acks.values():
        for time_ms, invoked_ms in acks:
            at = int((time_ms - timeline.load_begin_ms) // width_ms)
            latencies[min(max(at, 0), count - 1)].append(time_ms - invoked_ms)
    for time_ms in gathered.unknown_at:
        at = int((time_ms - timeline.load_begin_ms) // width_ms)
        unknown[min(max(at, 0), count - 1)] += 1
    everything: list[float] = []
    for at, values in enumerate(latencies):
        values.sort()
        everything += values
        timeline.buckets.append(
            Bucket(
                begin_ms=timeline.load_begin_ms + at * width_ms,
                acknowledged=len(values),
                unknown=unknown[at],
                latency_p50_ms=percentile(values, 0.5),
                latency_p99_ms=percentile(values, 0.99),
            )
        )
    everything.sort()
    timeline.latency_p50_ms = percentile(everything, 0.5)
    timeline.latency_p99_ms = percentile(everything, 0.99)
    timeline.latency_max_ms = everything[-1] if everything else None


def _span(event: Event, gathered: _Gathered) -> FaultSpan:
    details = details_of(event)
    fault_id = _whole(details.get("id"))
    led = _numbers(details.get("led_partitions"))
    recoveries = [
        Recovery(
            partition=partition,
            is_led=partition in led,
            recovery_ms=_first_after(gathered.acks.get(partition, []), event.time_ms),
        )
        for partition in _numbers(details.get("held_partitions"))
    ]
    is_active_controller = details.get("is_active_controller") is True
    return FaultSpan(
        fault_id=fault_id,
        name=str(details.get("name", "")),
        fault=str(details.get("fault", "")),
        description=str(details.get("description", "")),
        target=str(details.get("target", "")),
        nodes=tuple(str(node) for node in _items(details.get("nodes"))),
        is_active_controller=is_active_controller,
        begin_ms=event.time_ms,
        end_ms=gathered.fault_ends.get(fault_id),
        recoveries=tuple(recoveries),
        controller_recovery_ms=_first_after(gathered.created, event.time_ms)
        if is_active_controller
        else None,
    )


def _first_after(outcomes: Sequence[tuple[float, float]], begin_ms: float) -> float | None:
    """Time from begin_ms until the first outcome of an operation that was invoked at begin_ms or
    later."""
    start = bisect_left(outcomes, (begin_ms,))
    later = (time_ms for time_ms, invoked_ms in outcomes[start:] if invoked_ms >= begin_ms)
    first = next(later, None)
    return None if first is None else first - begin_ms


def _items(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _numbers(value: object) -> list[int]:
    return [item for item in _items(value) if isinstance(item, int)]


def _whole(value: object) -> int:
    return value if isinstance(value, int) else -1
