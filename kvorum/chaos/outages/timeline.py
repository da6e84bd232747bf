"""Figures over time from a history: throughput, latency, unavailability, and the way back after
each fault. Pure: one pass over the history, in memory that does not grow with its length.

Times are the history's `time_ms`. A partition is named by its topic and number. Milestones are what
the cluster decided (`milestones`); `recovery` sets them beside what clients saw.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from kvorum.chaos.history import (
    ASSIGN,
    CREATE_TOPIC,
    DELETE_TOPIC,
    FAIL,
    FAULT_BEGIN,
    FAULT_END,
    FINAL_READ,
    INFO,
    INVOKE,
    OBSERVE,
    OK,
    POLL,
    REVOKE,
    SEND,
    TRANSACTION,
    Event,
    Poll,
    Send,
    details_of,
)
from kvorum.chaos.outages.latencies import Latencies
from kvorum.chaos.outages.milestones import (
    ACTIVE_CONTROLLER,
    ISR,
    LEADER,
    OBSERVER_EVENTS,
    Milestone,
    MilestoneSource,
    RunMilestones,
)
from kvorum.chaos.outages.recovery import FaultSpan, Partition, PartitionAcks, fault_spans, whole
from kvorum.chaos.outages.waits import Lag, OpenWaits, WaitSpan

#: Names of errors that a table keeps; more are counted together.
ERRORS_KEPT_MAX = 50
OTHER_ERRORS = "other errors"
_FIRST_BUCKET_MS = 100.0
#: A wait shorter than RHYTHM_FACTOR usual latencies is normal for this load and is dropped. The
#: usual latency is the 10th percentile: an outage raises the median too.
RHYTHM_FACTOR = 4
RHYTHM_SHARE = 0.1
#: In place of a group: readers without one share one position in each partition.
READERS = ""

#: Refusals that only a working controller gives: the administration is available.
ADMIN_ANSWERS = frozenset(
    {
        "TOPIC_ALREADY_EXISTS", "UNKNOWN_TOPIC_OR_PART", "UNKNOWN_TOPIC_OR_PARTITION",
        "UNKNOWN_TOPIC_ID", "INVALID_TOPIC_EXCEPTION", "TOPIC_EXCEPTION", "POLICY_VIOLATION",
        "INVALID_REPLICATION_FACTOR", "INVALID_PARTITIONS", "INVALID_REPLICA_ASSIGNMENT",
        "INVALID_CONFIG", "INVALID_REQUEST",
    }
)  # fmt: skip


@dataclass(slots=True, kw_only=True)
class Bucket:
    """A slice of time. Latencies are those of records acknowledged in it."""

    begin_ms: float
    acknowledged: int = 0
    unknown: int = 0
    latencies: Latencies = field(default_factory=Latencies)


@dataclass(slots=True, kw_only=True)
class Administration:
    """Topics created and deleted.

    failed: certainly not done.
    unknown: timed out.
    """

    invoked: int = 0
    done: int = 0
    created: int = 0
    failed: int = 0
    unknown: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    waits: OpenWaits = field(default_factory=OpenWaits)
    latencies: Latencies = field(default_factory=Latencies)


@dataclass(slots=True, kw_only=True)
class Timeline:
    """A history reduced to figures.

    milestones: (ms of the run, milestone), ascending, of brokers, the active controller and the
        load's partitions.
    milestones_source: their origin in words.
    """

    load_begin_ms: float = 0.0
    load_end_ms: float = 0.0
    invoked: int = 0
    acknowledged: int = 0
    failed: int = 0
    unknown: int = 0
    latencies: Latencies = field(default_factory=Latencies)
    bucket_ms: float = _FIRST_BUCKET_MS
    buckets: list[Bucket] = field(default_factory=list)
    cluster: OpenWaits = field(default_factory=OpenWaits)
    partitions: dict[Partition, OpenWaits] = field(default_factory=dict)
    #: (group, topic, partition) -> the waits of its readers.
    consumers: dict[tuple[str, str, int], Lag] = field(default_factory=dict)
    #: group -> when its members got or gave up partitions, ascending.
    rebalances: dict[str, list[float]] = field(default_factory=dict)
    administration: Administration = field(default_factory=Administration)
    faults: list[FaultSpan] = field(default_factory=list)
    milestones: list[tuple[float, Milestone]] = field(default_factory=list)
    milestones_source: str = OBSERVER_EVENTS
    errors: dict[str, int] = field(default_factory=dict)

    def controller_epochs(self) -> list[tuple[float, int, int]]:
        """(time, epoch, leader) of each active controller."""
        return [
            (time_ms, whole(item.epoch), whole(item.leader))
            for time_ms, item in self.milestones
            if item.what == ACTIVE_CONTROLLER
        ]


def build_timeline(
    events: Iterable[Event],
    *,
    milestones: tuple[MilestoneSource, Sequence[Milestone]] | None = None,
    wall_start_ms: float = 0.0,
    buckets_max: int = 240,
) -> Timeline:
    """Reduce a history. Buckets are at least 100 ms wide and at most buckets_max in number.

    milestones: from the metadata log; without them the observer's events take their place.
    wall_start_ms: of the history's header.
    """
    fold = _Fold(milestones, wall_start_ms, buckets_max)
    for event in events:
        fold.add(event)
    return fold.end()


class _Fold:
    def __init__(
        self,
        milestones: tuple[MilestoneSource, Sequence[Milestone]] | None,
        wall_start_ms: float,
        buckets_max: int,
    ) -> None:
        self._timeline = Timeline()
        self._buckets = _Buckets(buckets_max)
        self._records: dict[Partition, PartitionAcks] = {}
        self._lags: dict[Partition, list[Lag]] = {}
        self._last_ms: float | None = None
        self._begins: list[Event] = []
        self._ends: dict[int, Event] = {}
        self._decisions = RunMilestones(milestones, wall_start_ms)
        self._timeline.milestones_source = self._decisions.source
        for item in self._decisions.logged:
            self._milestone(item.wall_ms - wall_start_ms, item)

    def add(self, event: Event) -> None:
        f = event.f
        if f in (SEND, TRANSACTION):
            self._sends(event)
        elif f == POLL:
            if event.type == OK and event.process != FINAL_READ:
                self._polls(event)
        elif f in (CREATE_TOPIC, DELETE_TOPIC):
            self._administer(event)
        elif f == OBSERVE:
            for item in self._decisions.seen(event):
                self._milestone(event.time_ms, item)
        elif f in (ASSIGN, REVOKE):
            if event.group is not None:
                self._timeline.rebalances.setdefault(event.group, []).append(event.time_ms)
        elif f == FAULT_BEGIN:
            self._begins.append(event)
            for record in self._records.values():
                record.fault_began(event.time_ms)
        elif f == FAULT_END:
            self._ends[whole(details_of(event).get("id"))] = event

    def _sends(self, event: Event) -> None:
        timeline = self._timeline
        for op in event.ops:
            if not isinstance(op, Send):
                continue
            key = (op.topic, op.partition)
            if event.type == INVOKE:
                timeline.invoked += 1
                if self._last_ms is None:
                    timeline.load_begin_ms = event.time_ms
                    self._buckets.begin_ms = event.time_ms
                timeline.cluster.invoked(event.time_ms)
                if op.partition >= 0:
                    self._waits(key).invoked(event.time_ms)
            elif event.type == OK:
                self._acknowledged(event, key, op.offset)
            elif event.f == TRANSACTION and event.type == FAIL and event.error is None:
                # The client aborted on purpose, and the cluster has confirmed it.
                timeline.failed += 1
                timeline.cluster.answered(event.time_ms, event.invoked_ms)
                self._waits(key).answered(event.time_ms, event.invoked_ms)
            elif event.type == INFO:
                timeline.unknown += 1
                self._buckets.at(event.time_ms).unknown += 1
                self._gave_up(key)
            else:
                timeline.failed += 1
                self._gave_up(key)
            if event.type in (INVOKE, OK):
                self._last_ms = event.time_ms
        if event.error is not None and event.f == SEND:
            _count_error(timeline.errors, event.error, max(1, len(event.ops)))

    def _acknowledged(self, event: Event, key: Partition, offset: int) -> None:
        timeline = self._timeline
        invoked_ms = event.invoked_ms
        timeline.acknowledged += 1
        timeline.cluster.answered(event.time_ms, invoked_ms)
        self._waits(key).answered(event.time_ms, invoked_ms)
        latency_ms = event.time_ms - invoked_ms
        record = self._record(key)
        record.acknowledged(event.time_ms, invoked_ms)
        record.latencies.add(latency_ms)
        timeline.latencies.add(latency_ms)
        bucket = self._buckets.at(event.time_ms)
        bucket.acknowledged += 1
        bucket.latencies.add(latency_ms)
        for lag in self._lags.get(key, ()):
            lag.written(event.time_ms, offset)

    def _gave_up(self, key: Partition) -> None:
        self._timeline.cluster.gave_up()
        if key[1] >= 0:
            self._waits(key).gave_up()

    def _polls(self, event: Event) -> None:
        group = event.group or READERS
        for op in event.ops:
            if isinstance(op, Poll) and op.offsets:
                key = (group, op.topic, op.partition)
                lag = self._timeline.consumers.get(key)
                if lag is None:
                    lag = self._timeline.consumers[key] = Lag()
                    self._lags.setdefault((op.topic, op.partition), []).append(lag)
                lag.read(event.time_ms, op.offsets[-1])

    def _administer(self, event: Event) -> None:
        admin = self._timeline.administration
        if event.type == INVOKE:
            admin.invoked += 1
            admin.waits.invoked(event.time_ms)
            return
        if event.type == OK:
            admin.done += 1
            admin.created += event.f == CREATE_TOPIC
            admin.latencies.add(event.time_ms - event.invoked_ms)
        elif event.type == FAIL:
            admin.failed += 1
        else:
            admin.unknown += 1
        if event.type == OK or event.error in ADMIN_ANSWERS:
            admin.waits.answered(event.time_ms, event.invoked_ms)
        else:
            admin.waits.gave_up()
        if event.type != OK:
            _count_error(admin.errors, event.error or "no reason given", 1)

    def _waits(self, key: Partition) -> OpenWaits:
        waits = self._timeline.partitions.get(key)
        if waits is None:
            waits = self._timeline.partitions[key] = OpenWaits()
        return waits

    def _record(self, key: Partition) -> PartitionAcks:
        record = self._records.get(key)
        if record is None:
            record = self._records[key] = PartitionAcks()
        return record

    def _milestone(self, time_ms: float, item: Milestone) -> None:
        self._timeline.milestones.append((time_ms, item))
        if item.what == "leader" and item.topic is not None and item.partition is not None:
            self._record((item.topic, item.partition)).elected(time_ms)

    def end(self) -> Timeline:
        timeline = self._timeline
        end_ms = timeline.load_end_ms = self._last_ms or timeline.load_begin_ms
        for waits in (timeline.cluster, timeline.administration.waits):
            waits.end(end_ms)
        for waits in timeline.partitions.values():
            waits.end(end_ms)
        for (group, _, _), lag in timeline.consumers.items():
            # Members of a group may have been stopped before the load's end.
            if group == READERS:
                lag.end(end_ms)
        if timeline.acknowledged or timeline.invoked:
            timeline.buckets = self._buckets.finished(end_ms)
            timeline.bucket_ms = self._buckets.width_ms
        loaded = timeline.partitions
        timeline.milestones = sorted(
            (
                entry
                for entry in timeline.milestones
                if entry[1].topic is None or (entry[1].topic, entry[1].partition) in loaded
            ),
            key=lambda entry: entry[0],
        )
        self._check_rhythm()
        timeline.faults = fault_spans(
            self._begins,
            self._ends,
            partitions={key: waits.spans for key, waits in loaded.items()},
            records=self._records,
            administration=timeline.administration.waits.spans,
            milestones=timeline.milestones,
        )
        return timeline

    def _check_rhythm(self) -> None:
        """Drop spans that the load's own rhythm explains: a partition of slow transactions has
        another one than a partition of single records."""
        timeline = self._timeline
        _drop_shorter(timeline.latencies, timeline.cluster)
        _drop_shorter(timeline.administration.latencies, timeline.administration.waits)
        for key, waits in timeline.partitions.items():
            _drop_shorter(self._record(key).latencies, waits)


def _drop_shorter(latencies: Latencies, waits: OpenWaits) -> None:
    limit_ms = RHYTHM_FACTOR * (latencies.percentile(RHYTHM_SHARE) or 0.0)
    waits.spans = [span for span in waits.spans if span.length_ms >= limit_ms]


class _Buckets:
    """Slices of time of equal width, which doubles whenever there are too many."""

    def __init__(self, count_max: int) -> None:
        self.width_ms = _FIRST_BUCKET_MS
        self.begin_ms = 0.0
        self._count_max = count_max
        self._buckets: dict[int, Bucket] = {}

    def at(self, time_ms: float) -> Bucket:
        place = max(0, int((time_ms - self.begin_ms) // self.width_ms))
        while place >= self._count_max:
            self._double()
            place //= 2
        bucket = self._buckets.get(place)
        if bucket is None:
            bucket = self._buckets[place] = Bucket(begin_ms=0.0)
        return bucket

    def finished(self, end_ms: float) -> list[Bucket]:
        """Every bucket up to end_ms, also the empty ones."""
        self.at(end_ms)
        found = []
        for place in range(max(self._buckets) + 1):
            bucket = self._buckets.get(place) or Bucket(begin_ms=0.0)
            bucket.begin_ms = self.begin_ms + place * self.width_ms
            found.append(bucket)
        return found

    def _double(self) -> None:
        self.width_ms *= 2
        merged: dict[int, Bucket] = {}
        for place, bucket in self._buckets.items():
            into = merged.setdefault(place // 2, Bucket(begin_ms=0.0))
            into.acknowledged += bucket.acknowledged
            into.unknown += bucket.unknown
            into.latencies.merge(bucket.latencies)
        self._buckets = merged


def _count_error(errors: dict[str, int], name: str, count: int) -> None:
    kept = name if name in errors or len(errors) < ERRORS_KEPT_MAX else OTHER_ERRORS
    errors[kept] = errors.get(kept, 0) + count


def longest(spans: Sequence[WaitSpan], count: int) -> list[WaitSpan]:
    """The longest spans, the longest first."""
    return sorted(spans, key=lambda span: -span.length_ms)[:count]


def isr_changes(timeline: Timeline) -> dict[Partition, list[tuple[float, int, int]]]:
    """Each partition's ISR changes after its first known ISR: time, members that joined, members
    that left."""
    known: dict[Partition, frozenset[int]] = {}
    changes: dict[Partition, list[tuple[float, int, int]]] = {}
    for time_ms, item in timeline.milestones:
        if item.what != ISR or item.topic is None or item.partition is None:
            continue
        key = (item.topic, item.partition)
        isr = frozenset(item.isr or ())
        before = known.get(key, isr)
        known[key] = isr
        if before != isr:
            change = (time_ms, len(isr - before), len(before - isr))
            changes.setdefault(key, []).append(change)
    return changes


def isr_shrinks(timeline: Timeline) -> int:
    """The number of ISR changes by which a partition lost a member."""
    return sum(left > 0 for found in isr_changes(timeline).values() for _, _, left in found)


def leader_changes(timeline: Timeline) -> dict[Partition, list[tuple[float, int, int]]]:
    """Each partition's elections after its first known leader: time, epoch, leader (-1: none)."""
    known: dict[Partition, int] = {}
    changes: dict[Partition, list[tuple[float, int, int]]] = {}
    for time_ms, item in timeline.milestones:
        if item.what != LEADER or item.topic is None or item.partition is None:
            continue
        key = (item.topic, item.partition)
        leader = whole(item.leader)
        if known.get(key, leader) != leader:
            changes.setdefault(key, []).append((time_ms, whole(item.epoch), leader))
        known[key] = leader
    return changes
