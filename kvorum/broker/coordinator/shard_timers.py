"""A shard's timers: by name, and in the order of their deadlines.

`Deadlines` rounds a deadline up, and the event loop reads sockets before it looks at timers. So the
context takes the timers that are due before it gives the shard a request. Bad sequence otherwise:
1. The session of a group's last member ends at 6,000 ms. 2. DeleteGroups arrives at 6,002 ms.
3. The timer would fire at 6,010 ms, and the answer is NON_EMPTY_GROUP.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterator

from kvorum.broker.purgatory.deadlines import Deadlines

_STALE_MIN = 64
"""Cancelled timers that may lie in the heap before it is built anew."""


class _Timer:
    """A shard's timer in the form that `Deadlines` takes."""

    __slots__ = ("_on_fired", "deadline_bucket", "name")

    def __init__(self, name: Hashable, on_fired: Callable[[_Timer], None]) -> None:
        self.name = name
        self.deadline_bucket = -1
        self._on_fired = on_fired

    def expire(self) -> None:
        self._on_fired(self)


class ShardTimers:
    """The timers that a shard has set and that have neither fired nor been cancelled."""

    __slots__ = ("_deadlines", "_fire", "_order", "_sequence", "_timers")

    def __init__(self, deadlines: Deadlines, fire: Callable[[Hashable], None]) -> None:
        """fire: called with the name of a timer whose deadline has passed, unless `take_due`
        was first."""
        self._deadlines = deadlines
        self._fire = fire
        self._timers: dict[Hashable, _Timer] = {}
        #: (deadline in ms, sequence, timer); cancelled timers stay until they come up.
        self._order: list[tuple[int, int, _Timer]] = []
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._timers)

    def set(self, name: Hashable, deadline_ms: int) -> None:
        """Set the timer; it replaces one of the same name."""
        self.cancel(name)
        timer = self._timers[name] = _Timer(name, self._on_expired)
        self._deadlines.add(timer, deadline_ms)
        self._sequence += 1
        heapq.heappush(self._order, (deadline_ms, self._sequence, timer))

    def cancel(self, name: Hashable) -> None:
        """Forget the timer; does nothing if it is not set."""
        timer = self._timers.pop(name, None)
        if timer is None:
            return
        self._deadlines.remove(timer)
        if len(self._order) > 2 * len(self._timers) + _STALE_MIN:
            self._order = [row for row in self._order if self._is_set(row[2])]
            heapq.heapify(self._order)

    def take_due(self, now_ms: int) -> Iterator[Hashable]:
        """The names of the timers whose deadline is `now_ms` or before, in the order of their
        deadlines; none of them is set any more.

        A timer that is set meanwhile is left for later: one of 0 ms could be due without end.
        """
        newest = self._sequence
        while self._order and self._order[0][0] <= now_ms and self._order[0][1] <= newest:
            timer = heapq.heappop(self._order)[2]
            if self._is_set(timer):
                self.cancel(timer.name)
                yield timer.name

    def clear(self) -> None:
        """Forget all timers."""
        for timer in self._timers.values():
            self._deadlines.remove(timer)
        self._timers.clear()
        self._order.clear()

    def _is_set(self, timer: _Timer) -> bool:
        return self._timers.get(timer.name) is timer

    def _on_expired(self, timer: _Timer) -> None:
        if self._is_set(timer):
            del self._timers[timer.name]
            self._fire(timer.name)
