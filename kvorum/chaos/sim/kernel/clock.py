"""A node's own clock and alarm: the clock runs slightly fast or slow, and may jump forward.

It is monotonic, as a real driver's clock is. It has whole milliseconds only, so that no rounding
differs between machines.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from kvorum.chaos.sim.kernel.timeline import SimTimeline

RATE_EXACT = 1000
"""Rate of an exact clock: local milliseconds in 1000 milliseconds of virtual time."""


class LocalClock:
    """local time = a start + rate / 1000 * virtual time. rate: 950 to 1050 in practice."""

    __slots__ = ("_base_ms", "_local_base_ms", "rate")

    def __init__(self, *, now_ms: int, local_ms: int, rate: int) -> None:
        self._base_ms = now_ms
        self._local_base_ms = local_ms
        self.rate = rate

    def local_ms(self, now_ms: int) -> int:
        """The time on this clock at now_ms of virtual time."""
        return self._local_base_ms + (now_ms - self._base_ms) * self.rate // RATE_EXACT

    def delay_ms(self, deadline_ms: int, now_ms: int) -> int:
        """Virtual milliseconds until this clock shows deadline_ms or more, 0 if it does."""
        elapsed_ms = -(-(deadline_ms - self._local_base_ms) * RATE_EXACT // self.rate)
        return max(self._base_ms + elapsed_ms - now_ms, 0)

    def change(self, now_ms: int, *, jump_ms: int = 0, rate: int | None = None) -> None:
        """Let the clock jump forward, run at another rate from now on, or both."""
        local_ms = self.local_ms(now_ms) + jump_ms
        self._base_ms, self._local_base_ms = now_ms, local_ms
        if rate is not None:
            self.rate = rate


LOCAL_START_MS_MAX = 1_000_000
"""Greatest start value of a clock; each machine's clock starts at a value of its own."""


def drawn_clock(rng: random.Random, drift: int) -> LocalClock:
    """A random machine's clock, whose rate is wrong by up to `drift` thousandths."""
    rate = RATE_EXACT + rng.randint(-drift, drift)
    return LocalClock(now_ms=0, local_ms=rng.randrange(LOCAL_START_MS_MAX), rate=rate)


class Alarm:
    """One alarm on a local clock. If it is set to a later time it still rings at the earlier one:
    the callback checks if anything is due, and sets the alarm again."""

    __slots__ = ("_at_ms", "_clock", "_ring", "_serial", "_timeline")

    def __init__(self, timeline: SimTimeline, clock: LocalClock, ring: Callable[[], None]) -> None:
        self._timeline = timeline
        self._clock = clock
        self._ring = ring
        self._at_ms = -1
        self._serial = 0

    def set(self, deadline_ms: int) -> None:
        """Ring when the clock shows deadline_ms, or earlier."""
        now_ms = self._timeline.now_ms
        delay_ms = self._clock.delay_ms(deadline_ms, now_ms)
        if 0 <= self._at_ms <= now_ms + delay_ms:
            return
        self._at_ms = now_ms + delay_ms
        self._serial += 1
        serial = self._serial

        def fire() -> None:
            if serial == self._serial:
                self.cancel()
                self._ring()

        self._timeline.after(delay_ms, fire)

    def cancel(self) -> None:
        """Cancel the alarm."""
        self._at_ms = -1
        self._serial += 1
