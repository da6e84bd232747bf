"""Spans in which something waits for the cluster and nothing is answered. Pure, one pass.

A span begins with the last answer if something is still under way then, else with the next
invocation. So a load's own pauses are no unavailability. It ends with the answer to something that
was invoked after it began: bad sequence otherwise: 1. A record is under way when a leader hangs.
2. Its acknowledgement arrives late. 3. It would seem that the partition is back, and nothing else
is acknowledged for seconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

#: Shorter spans come from the load's own rhythm and are not unavailability.
SPAN_MS_MIN = 200.0
#: Spans kept of one thing; beyond twice as many, the shortest are dropped.
SPANS_KEPT_MAX = 10_000
JOINED_MS = 50.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitSpan:
    """A time span without an answer, in the history's milliseconds.

    is_over: an answer ended it; False if the load ended first.
    is_first: nothing had been answered before.
    """

    begin_ms: float
    end_ms: float
    is_over: bool = True
    is_first: bool = False

    @property
    def length_ms(self) -> float:
        return self.end_ms - self.begin_ms


def outages_in(spans: Iterable[WaitSpan]) -> list[list[WaitSpan]]:
    """Outages: spans that follow each other at once, together. spans: ascending."""
    runs: list[list[WaitSpan]] = []
    for span in spans:
        if runs and span.begin_ms - runs[-1][-1].end_ms <= JOINED_MS:
            runs[-1].append(span)
        else:
            runs.append([span])
    return runs


class OpenWaits:
    """The operations under way at one thing: a partition, the cluster, the administration."""

    def __init__(self) -> None:
        self._under_way = 0
        self._waiting_ms: float | None = None
        # A long span that only older operations have ended so far.
        self._open_ms: float | None = None
        self._answered_ms: float | None = None
        self._is_first = True
        #: The longest span, but for `first`.
        self.longest_ms = 0.0
        #: The span before the first answer, if it has SPAN_MS_MIN or more.
        self.first: WaitSpan | None = None
        self.spans: list[WaitSpan] = []
        self.dropped = 0

    def invoked(self, time_ms: float) -> None:
        self._under_way += 1
        if self._waiting_ms is None:
            self._waiting_ms = time_ms

    def answered(self, time_ms: float, invoked_ms: float) -> None:
        """An operation was acknowledged."""
        since_ms = invoked_ms if self._waiting_ms is None else self._waiting_ms
        self._under_way = max(0, self._under_way - 1)
        if self._open_ms is not None:
            if invoked_ms >= self._open_ms:
                self._close(time_ms)
        elif time_ms - since_ms >= SPAN_MS_MIN:
            self._open_ms = since_ms
            if invoked_ms >= since_ms:
                self._close(time_ms)
        else:
            self.longest_ms = max(self.longest_ms, time_ms - since_ms)
            self._is_first = False
        self._answered_ms = time_ms
        self._waiting_ms = time_ms if self._under_way else None

    def gave_up(self) -> None:
        """An operation ended without an acknowledgement; what it waited for has not been seen."""
        self._under_way = max(0, self._under_way - 1)

    def end(self, time_ms: float) -> None:
        """The load is over."""
        if self._open_ms is not None and self._answered_ms is not None:
            self._close(self._answered_ms)
        if self._waiting_ms is not None and time_ms - self._waiting_ms >= SPAN_MS_MIN:
            self._open_ms = self._waiting_ms
            self._close(time_ms, is_over=False)
        self._waiting_ms = None

    def _close(self, time_ms: float, *, is_over: bool = True) -> None:
        begin_ms = self._open_ms
        if begin_ms is None:
            return
        span = WaitSpan(begin_ms=begin_ms, end_ms=time_ms, is_over=is_over, is_first=self._is_first)
        self._open_ms = None
        self._is_first = False
        if span.is_first:
            self.first = span
        else:
            self.longest_ms = max(self.longest_ms, span.length_ms)
        self.spans.append(span)
        if len(self.spans) > 2 * SPANS_KEPT_MAX:
            self.spans.sort(key=lambda item: -item.length_ms)
            self.dropped += len(self.spans) - SPANS_KEPT_MAX
            del self.spans[SPANS_KEPT_MAX:]
            self.spans.sort(key=lambda item: item.begin_ms)


class Lag:
    """A consumer's waits in one partition: its end is ahead of what was read, and no record comes.

    An offset is a record's own; the consumer's position is the last one that it read.
    """

    def __init__(self) -> None:
        self._end = -1
        self._position = -1
        self._waiting_ms: float | None = None
        self.longest_ms = 0.0
        self.spans: list[WaitSpan] = []

    def written(self, time_ms: float, offset: int) -> None:
        """A record was acknowledged at that offset."""
        self._end = max(self._end, offset)
        if self._waiting_ms is None and self._end > self._position:
            self._waiting_ms = time_ms

    def read(self, time_ms: float, offset: int) -> None:
        """Records were read, the last one at that offset."""
        self._position = max(self._position, offset)
        self._end_wait(time_ms, is_over=True)
        self._waiting_ms = time_ms if self._end > self._position else None

    def end(self, time_ms: float) -> None:
        self._end_wait(time_ms, is_over=False)
        self._waiting_ms = None

    def _end_wait(self, time_ms: float, *, is_over: bool) -> None:
        if self._waiting_ms is None:
            return
        length_ms = time_ms - self._waiting_ms
        self.longest_ms = max(self.longest_ms, length_ms)
        if length_ms >= LAG_MS_MIN and len(self.spans) < SPANS_KEPT_MAX:
            self.spans.append(WaitSpan(begin_ms=self._waiting_ms, end_ms=time_ms, is_over=is_over))


#: A consumer polls every 100 ms and hands over what it has, so shorter waits are its own rhythm.
LAG_MS_MIN = 500.0
