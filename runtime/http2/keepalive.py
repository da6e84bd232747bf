"""Notices a connection whose peer says nothing, and does not take our own stall for the peer's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kvorum.runtime.clock import monotonic_ms

KEEPALIVE_TIME_MS = 1_000
"""A connection that was silent for so long is pinged,"""
KEEPALIVE_TIMEOUT_MS = 1_000
"""and given up if nothing at all comes within this, rounded up like the other to LOOK_MS."""
SERVER_FACTOR = 2
"""Servers wait so many times longer before they ping: mostly they need not, as clients do."""
LOOK_MS = 250
"""Connections are looked at when the clock shows a multiple of this: a process with many of them
wakes up for all at once."""
STALL_MS = 250
"""A timer that fires so late says that this process stood still, not the peer."""


class KeepAlive:
    """Of one connection. heard_ms: when something last came; the connection sets it. factor: of
    KEEPALIVE_TIME_MS."""

    __slots__ = ("_due_ms", "_give_up", "_ping", "_timer", "factor", "heard_ms")

    def __init__(self, ping: Callable[[], object], give_up: Callable[[str], object]) -> None:
        self.heard_ms = 0
        self.factor = 1
        self._ping = ping
        self._give_up = give_up
        self._due_ms = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """The connection stands."""
        self.heard_ms = monotonic_ms()
        self._arm(KEEPALIVE_TIME_MS * self.factor)

    def stop(self) -> None:
        """The connection is over."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def on_timer(self) -> None:
        """Ping, wait on, or give up."""
        now_ms = monotonic_ms()
        silent_ms = now_ms - self.heard_ms
        ping_after_ms = KEEPALIVE_TIME_MS * self.factor
        if silent_ms < ping_after_ms:
            self._arm(ping_after_ms - silent_ms)
        elif silent_ms < ping_after_ms + KEEPALIVE_TIMEOUT_MS or (now_ms - self._due_ms > STALL_MS):
            self._arm(KEEPALIVE_TIMEOUT_MS)
            self._ping()
        else:
            self._timer = None
            self._give_up(f"nothing came for {silent_ms} ms")

    def _arm(self, delay_ms: int) -> None:
        now_ms = monotonic_ms()
        self._due_ms = -(-(now_ms + delay_ms) // LOOK_MS) * LOOK_MS
        self._timer = asyncio.get_running_loop().call_later(
            (self._due_ms - now_ms) / 1000, self.on_timer
        )
