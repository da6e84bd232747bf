"""Time for drivers. Cores take `now_ms` as an argument and never import this."""

from __future__ import annotations

import time


def monotonic_ms() -> int:
    """Milliseconds of the monotonic clock: for deadlines, never for records."""
    return time.monotonic_ns() // 1_000_000


def wall_ms() -> int:
    """Milliseconds since 1970, for record timestamps and retention."""
    return time.time_ns() // 1_000_000
