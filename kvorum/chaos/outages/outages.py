"""Every outage and its owner. Pure.

An outage is a span in which a partition, the whole cluster, the administration or a group's readers
got no answer (`waits`); spans that follow each other at once are one outage. Its owners are the
faults that can have caused it:

  1. faults in force when it began
  2. else those that ended within AFTERMATH_MS before that
  3. else those of which a milestone lies within it: a struck broker is fenced, unfenced, or joins
     or leaves the partition's ISR, up to LATE_MS after the fault's end

A group's readers also wait while the group rebalances, which its members may have caused.

An outage that fits none has no owner: the cluster stopped by itself. A client's first connection
is none of the cluster's outages, up to START_MS after its first operation: a client that is refused
once while brokers load may wait half a second until it tries again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kvorum.chaos.outages.blame import SKEW_MS, Timed
from kvorum.chaos.outages.milestones import FENCED, ISR, UNFENCED
from kvorum.chaos.outages.recovery import AFTERMATH_MS, FaultSpan, node_numbers
from kvorum.chaos.outages.timeline import Timeline
from kvorum.chaos.outages.waits import OpenWaits, WaitSpan, outages_in

PARTITION: Final = "partition"
CLUSTER: Final = "cluster"
ADMINISTRATION: Final = "administration"
CONSUMER: Final = "consumer"

#: The owner of what a group's readers miss while partitions move between them.
REBALANCE: Final = "rebalance of the group"

#: An outage of this length without an owner fails the run.
UNOWNED_MS_MAX = 3_000.0
#: A restarted broker may take so long until it is back in every ISR.
LATE_MS = 30_000.0
START_MS = 5_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """One outage.

    kind: PARTITION, CLUSTER, ADMINISTRATION or CONSUMER.
    subject: what got no answer.
    owners: names of faults, empty if no fault explains it.
    parts: the number of spans.
    longest_ms: the longest of them.
    """

    kind: str
    subject: str
    begin_ms: float
    end_ms: float
    is_over: bool
    parts: int
    longest_ms: float
    owners: tuple[str, ...]
    is_start: bool

    @property
    def length_ms(self) -> float:
        return self.end_ms - self.begin_ms

    @property
    def is_unowned(self) -> bool:
        """True if nothing explains the outage."""
        return not self.owners and not self.is_start


def outages_of(timeline: Timeline) -> list[Outage]:
    """Every outage of a run, in the order of their begins."""
    found = _of(CLUSTER, "every partition", timeline.cluster.spans, timeline)
    for (topic, partition), waits in timeline.partitions.items():
        found += _of(PARTITION, f"{topic}/{partition}", waits.spans, timeline)
    admin = timeline.administration
    found += _of(ADMINISTRATION, "topic creation and deletion", admin.waits.spans, timeline)
    for (group, topic, partition), lag in timeline.consumers.items():
        moved_ms = timeline.rebalances.get(group, ())
        subject = f"{f'group {group}' if group else 'readers'} of {topic}/{partition}"
        found += _of(CONSUMER, subject, lag.spans, timeline, moved_ms)
    return sorted(found, key=lambda outage: (outage.begin_ms, outage.subject))


def unowned(outages: Iterable[Outage]) -> list[Outage]:
    """The outages without an owner that are long enough to fail a run: their longest span."""
    return [item for item in outages if item.is_unowned and item.longest_ms > UNOWNED_MS_MAX]


def longest_silence_ms(waits: OpenWaits, timeline: Timeline) -> float:
    """The longest time without an answer, in ms, without the clients' first connection."""
    if waits.first is None:
        return waits.longest_ms
    first = _of(CLUSTER, "the first answer", [waits.first], timeline)
    return max([waits.longest_ms, *(part.length_ms for part in first if not part.is_start)])


def _of(
    kind: str,
    subject: str,
    spans: Sequence[WaitSpan],
    timeline: Timeline,
    rebalances: Sequence[float] = (),
) -> list[Outage]:
    outages = []
    for run in _cut_at_strikes(outages_in(spans), timeline):
        begin_ms, end_ms = run[0].begin_ms, run[-1].end_ms
        owners = owners_of(begin_ms, end_ms, timeline.faults, timeline.milestones)
        if not owners and _is_any_between(rebalances, begin_ms - SKEW_MS, end_ms):
            owners = (REBALANCE,)
        outages.append(
            Outage(
                kind=kind,
                subject=subject,
                begin_ms=begin_ms,
                end_ms=end_ms,
                is_over=run[-1].is_over,
                parts=len(run),
                longest_ms=max(span.length_ms for span in run),
                owners=owners,
                is_start=(
                    not owners
                    and run[0].is_first
                    and run[-1].is_over
                    and end_ms - begin_ms <= START_MS
                ),
            )
        )
    return outages


def _cut_at_strikes(runs: Iterable[list[WaitSpan]], timeline: Timeline) -> Iterator[list[WaitSpan]]:
    """The runs of silences; a run whose begin no fault explains is cut in two where the first fault
    within it begins. The silence before that fault needs another reason; the silence after it
    cannot be told from the fault's effect."""
    strikes = sorted(fault.struck_ms for fault in timeline.faults)
    for run in runs:
        begin_ms, end_ms = run[0].begin_ms, run[-1].end_ms
        at = bisect_left(strikes, begin_ms + SKEW_MS)
        is_met = at < len(strikes) and strikes[at] < end_ms
        if not is_met or owners_of(begin_ms, end_ms, timeline.faults, timeline.milestones):
            yield run
            continue
        struck_ms = strikes[at]
        yield [
            replace(span, end_ms=min(span.end_ms, struck_ms))
            for span in run
            if span.begin_ms < struck_ms
        ]
        yield [
            replace(span, begin_ms=max(span.begin_ms, struck_ms), is_first=False)
            for span in run
            if span.end_ms > struck_ms
        ]


def _is_any_between(times: Sequence[float], begin_ms: float, end_ms: float) -> bool:
    start = bisect_left(times, begin_ms)
    return start < len(times) and times[start] <= end_ms


def owners_of(
    begin_ms: float, end_ms: float, faults: Sequence[FaultSpan], milestones: Sequence[Timed]
) -> tuple[str, ...]:
    """The names of the faults that own an outage; empty if there is none."""
    begun_ms = begin_ms + min(SKEW_MS, end_ms - begin_ms)
    before = [fault for fault in faults if fault.struck_ms <= begun_ms]
    in_force = [fault for fault in before if fault.end_ms is None or fault.end_ms >= begin_ms]
    if in_force:
        return _names(in_force)
    ended = [fault for fault in before if (fault.end_ms or 0.0) + AFTERMATH_MS >= begin_ms]
    if ended:
        return _names(ended)
    late = [fault for fault in before if (fault.end_ms or 0.0) + LATE_MS >= begin_ms]
    moved = _moved(begin_ms - SKEW_MS, end_ms, milestones)
    return _names([fault for fault in late if node_numbers(fault.nodes) & moved])


def _moved(begin_ms: float, end_ms: float, milestones: Sequence[Timed]) -> set[int]:
    """The brokers that were fenced or unfenced, or that joined or left an ISR, in a time span."""
    moved: set[int] = set()
    isrs: dict[tuple[str | None, int | None], set[int]] = {}
    for time_ms, item in milestones:
        if time_ms > end_ms:
            break
        is_within = time_ms >= begin_ms
        if item.what in (FENCED, UNFENCED) and item.broker is not None and is_within:
            moved.add(item.broker)
        elif item.what == ISR:
            isr = set(item.isr or ())
            before = isrs.get((item.topic, item.partition), isr)
            isrs[item.topic, item.partition] = isr
            if is_within:
                moved |= before ^ isr
    return moved


def _names(faults: Iterable[FaultSpan]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(fault.name for fault in faults))
