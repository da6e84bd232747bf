"""The fault that an outage and a decision belong to. Pure.

  1. An outage belongs to the faults in whose windows it began. A window reaches from the fault's
     first effect to the end of its aftermath.
  2. An outage that began in no window belongs to the first fault that met it, from there on.
  3. Any other fault that meets the outage did no harm by it: its report calls the outage continued
     from its owners.

A decision belongs to a fault within its window, and within the outages that it owns, however long
they last. Bad sequence otherwise: 1. A leader is killed. 2. Another fault begins. 3. The leader is
elected, eight seconds after the kill, and the election is taken for the second fault's. So a
decision within an outage that a fault continues is not that fault's.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kvorum.chaos.outages.milestones import Milestone
from kvorum.chaos.outages.waits import WaitSpan, outages_in

#: A span that a fault causes may begin up to this long before the fault: a span is counted from the
#: last event before the silence.
SKEW_MS = 250.0

Timed = tuple[float, Milestone]


@dataclass(frozen=True, slots=True, kw_only=True)
class BlameWindow:
    """The time in which a fault causes outages, and the brokers that it struck.

    struck_ms: when its first part was in force.
    end_ms: when it was undone, None if it was not.
    last_ms: the end of its aftermath.
    """

    name: str
    struck_ms: float
    end_ms: float | None
    last_ms: float
    brokers: frozenset[int]

    def began(self, time_ms: float) -> bool:
        """True if an outage that began at that time is the fault's."""
        return self.struck_ms - SKEW_MS <= time_ms < self.last_ms

    def names(self, broker: int | None) -> bool:
        """True for a struck broker."""
        return broker in self.brokers

    def strikes(self, broker: int | None) -> bool:
        """True for a struck broker, and for any broker if the fault struck none."""
        return not self.brokers or self.names(broker)

    def unavailable_ms(self, spans: Iterable[WaitSpan]) -> float:
        """The length of the spans from the fault on."""
        return sum(span.end_ms - max(span.begin_ms, self.struck_ms) for span in spans)


class Blame:
    """The spans without an answer of one thing (a partition, or the administration), ascending, and
    the faults that they belong to."""

    def __init__(self, spans: Sequence[WaitSpan], windows: Sequence[BlameWindow]) -> None:
        self._spans = spans
        #: The begin of each span's outage.
        self._since = [run[0].begin_ms for run in outages_in(spans) for _ in run]
        met: dict[float, list[BlameWindow]] = {}
        for window in sorted(windows, key=lambda item: item.struck_ms):
            for since_ms in dict.fromkeys(self._since[i] for i in self._met(window)):
                met.setdefault(since_ms, []).append(window)
        self._owners = {since_ms: _owners(since_ms, found) for since_ms, found in met.items()}

    def is_met(self, window: BlameWindow) -> bool:
        """True if a span overlaps the fault, or begins within its aftermath."""
        return bool(self._met(window))

    def owned(self, window: BlameWindow) -> list[WaitSpan]:
        """The spans that are the fault's."""
        return [self._spans[i] for i in self._met(window) if window in self._owners[self._since[i]]]

    def continued(self, window: BlameWindow) -> list[tuple[WaitSpan, Sequence[BlameWindow]]]:
        """The spans that the fault met, and that belong to others: with their owners."""
        return [
            (self._spans[i], self._owners[self._since[i]])
            for i in self._met(window)
            if window not in self._owners[self._since[i]]
        ]

    def limit_ms(self, window: BlameWindow) -> float:
        """The end of the time in which decisions are the fault's."""
        return max([window.last_ms, *(span.end_ms for span in self.owned(window))])

    def first(self, window: BlameWindow, entries: Sequence[Timed]) -> Timed | None:
        """The first of the entries, ascending, that belongs to the fault."""
        others = [span for span, _ in self.continued(window)]
        for entry in _between(entries, window.struck_ms, self.limit_ms(window)):
            if not any(span.begin_ms <= entry[0] < span.end_ms for span in others):
                return entry
        return None

    def _met(self, window: BlameWindow) -> range:
        """The places of the spans that overlap the fault, or that begin within its aftermath."""
        # Spans of one thing do not overlap each other, so their ends are ascending too.
        start = bisect_left(self._spans, window.struck_ms, key=lambda span: span.end_ms)
        stop = bisect_left(self._spans, window.last_ms, key=lambda span: span.begin_ms)
        return range(start, stop)


def first_fenced(
    window: BlameWindow, blames: Iterable[Blame], entries: Sequence[Timed]
) -> Timed | None:
    """The first time that a struck broker was fenced by the fault. entries: all fencings.

    A fault that continues an outage is not to blame if an owner of it struck the broker, too. An
    owner that struck no broker counts only beside a fault that struck none either.
    """
    known = list(blames)
    limit_ms = max((blame.limit_ms(window) for blame in known), default=window.last_ms)
    others = [pair for blame in known for pair in blame.continued(window)]
    for entry in _between(entries, window.struck_ms, limit_ms):
        at_ms, broker = entry[0], entry[1].broker
        claims = BlameWindow.names if window.names(broker) else BlameWindow.strikes
        is_of_another = any(
            span.begin_ms <= at_ms < span.end_ms and any(claims(owner, broker) for owner in owners)
            for span, owners in others
        )
        if window.strikes(broker) and not is_of_another:
            return entry
    return None


def _owners(since_ms: float, met: Sequence[BlameWindow]) -> list[BlameWindow]:
    """met: the windows that an outage meets, by their begin."""
    begun = [window for window in met if window.began(since_ms)]
    return begun or [window for window in met if window.struck_ms == met[0].struck_ms]


def _between(entries: Sequence[Timed], begin_ms: float, end_ms: float) -> Iterator[Timed]:
    start = bisect_left(entries, begin_ms, key=lambda entry: entry[0])
    for place in range(start, len(entries)):
        if entries[place][0] >= end_ms:
            return
        yield entries[place]
