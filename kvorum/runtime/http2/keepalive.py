"""Detects a connection whose peer is silent, and does not confuse that with its own stall."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from kvorum.runtime.clock import monotonic_ms

CONNECT_TIMEOUT_MS = 1_000
"""Limit of one attempt to connect, for addresses that never answer."""
KEEPALIVE_TIME_MS = 1_000
"""A connection that was silent for this long is pinged."""
KEEPALIVE_TIMEOUT_MS = 1_000
"""A pinged connection is closed if nothing arrives within this time. Both times are rounded up to
LOOK_MS."""
SERVER_FACTOR = 2
"""Servers wait this many times longer before they ping, because clients usually ping first."""
LOOK_MS = 250
"""Connections are checked when the clock shows a multiple of this, so that a process with many
connections wakes up for all of them at once."""
STALL_MS = 250
"""A timer that fires this late shows that this process was stalled, and not the peer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """The times that a peer may be silent, in ms.

    connect_ms: limit of one attempt to connect.
    time_ms: a connection that was silent for this long is pinged.
    timeout_ms: it is closed if nothing arrives within this time after that. The last two are
        rounded up to LOOK_MS.
    """

    connect_ms: int = CONNECT_TIMEOUT_MS
    time_ms: int = KEEPALIVE_TIME_MS
    timeout_ms: int = KEEPALIVE_TIMEOUT_MS


USUAL_PATIENCE = Patience()


class KeepAlive:
    """The keep-alive of one connection.

    heard_ms: when bytes last arrived; the connection sets it.
    factor: multiplies the time after which it is pinged.
    """

    __slots__ = ("_due_ms", "_give_up", "_patience", "_ping", "_timer", "factor", "heard_ms")

    def __init__(
        self,
        ping: Callable[[], object],
        give_up: Callable[[str], object],
        patience: Patience = USUAL_PATIENCE,
    ) -> None:
        self.heard_ms = 0
        self._patience = patience
        self.factor = 1
        self._ping = ping
        self._give_up = give_up
        self._due_ms = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start, once the connection is established."""
        self.heard_ms = monotonic_ms()
        self._arm(self._patience.time_ms * self.factor)

    def stop(self) -> None:
        """Stop, because the connection has ended."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def on_timer(self) -> None:
        """Ping the peer, wait longer, or give the connection up."""
        now_ms = monotonic_ms()
        silent_ms = now_ms - self.heard_ms
        ping_after_ms, timeout_ms = self._patience.time_ms * self.factor, self._patience.timeout_ms
        if silent_ms < ping_after_ms:
            self._arm(ping_after_ms - silent_ms)
        elif silent_ms < ping_after_ms + timeout_ms or (now_ms - self._due_ms > STALL_MS):
            self._arm(timeout_ms)
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
