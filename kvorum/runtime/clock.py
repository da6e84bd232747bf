"""Time for drivers. Cores take `now_ms` as an argument and never import this module.

Drivers read the time through a `Clock`, as they reach files through `runtime.disk`. `SYSTEM_CLOCK`
is the real one; the simulator gives each node a clock that drifts and jumps.
"""

from __future__ import annotations

import time
from typing import Protocol


def monotonic_ms() -> int:
    """Milliseconds of the monotonic clock: for deadlines, never for records."""
    return time.monotonic_ns() // 1_000_000


def wall_ms() -> int:
    """Milliseconds since 1970, for record timestamps and retention."""
    return time.time_ns() // 1_000_000


REARM_MS = 100
"""A timer is set again only if it is due at least this long before its moved deadline. Otherwise it
fires and checks the deadline. Under load, deadlines move with every message."""


CLOCK_MS_MAX = 10_000
"""Wall clocks of two machines that are further apart than this are reported."""


class Clock(Protocol):
    """The two times of this module, for one node."""

    def monotonic_ms(self) -> int: ...

    def wall_ms(self) -> int: ...


class SystemClock:
    """The operating system's clock."""

    __slots__ = ()

    monotonic_ms = staticmethod(monotonic_ms)
    wall_ms = staticmethod(wall_ms)


SYSTEM_CLOCK = SystemClock()
