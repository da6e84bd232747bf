"""Virtual time: a queue of calls, a trace, and a digest of all events.

No real time passes. Calls that are due at the same millisecond run in the order in which they were
scheduled, so a run depends on its seed alone.
"""

from __future__ import annotations

import heapq
import zlib
from collections import deque
from collections.abc import Callable

from kvorum.chaos.sim.kernel.checks import CheckFailed

TRACE_LINES_MAX = 400
"""Lines kept for the report of a failure."""

EVENTS_MAX = 300_000
"""Maximum number of events of one run; more mean an endless loop in which no time passes."""


class SimTimeline:
    """now_ms: virtual time, which no node sees (each has its own clock).

    events: the number of calls so far, which also orders clients' observations.
    digest: of the content and order of every trace line and of every number passed to `fold`.
    """

    def __init__(self) -> None:
        self.now_ms = 0
        self.events = 0
        self.digest = 0
        self.trace: deque[str] = deque(maxlen=TRACE_LINES_MAX)
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0

    def after(self, delay_ms: int, call: Callable[[], None]) -> None:
        """Schedule a call after delay_ms; 0 means at the present time."""
        self._sequence += 1
        heapq.heappush(self._queue, (self.now_ms + delay_ms, self._sequence, call))

    def run_until(self, end_ms: int) -> None:
        """Run all calls that are due up to end_ms (inclusive)."""
        queue = self._queue
        while queue and queue[0][0] <= end_ms:
            self.now_ms, _, call = heapq.heappop(queue)
            self.events += 1
            if self.events > EVENTS_MAX:
                raise CheckFailed("Progress", f"{EVENTS_MAX} events and no end")
            call()
        self.now_ms = end_ms

    def note(self, text: str) -> None:
        """Add a line to the trace."""
        self.trace.append(f"{self.now_ms:>6} {text}")
        self.fold(zlib.crc32(text.encode()))

    def fold(self, number: int) -> None:
        """Add a number and the present time to the digest."""
        self.digest = (self.digest * 1_000_003 + number + self.now_ms) & 0xFFFF_FFFF_FFFF_FFFF
