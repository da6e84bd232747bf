"""Limits for calls and frames that cost a peer a few bytes and this side much time. Pure."""

from __future__ import annotations

from kvorum.runtime.http2.frames import ENHANCE_YOUR_CALM, ProtocolError

REFUSALS_PER_SECOND_MAX = 100
"""Calls of one connection that are refused before a handler runs. A refusal costs this side 40 us
with its log lines, and the peer 20 bytes."""
SETTINGS_PER_SECOND_MAX = 100
"""SETTINGS of one connection. Each changes the windows of a thousand streams."""
_SECOND_MS = 1_000


class Flood:
    """Counts events of one kind on one connection. what: names the events in the GOAWAY frame."""

    __slots__ = ("_began_ms", "_count", "_limit", "_what")

    def __init__(self, limit: int, what: str) -> None:
        self._limit = limit
        self._what = what
        self._began_ms = 0
        self._count = 0

    def count(self, now_ms: int) -> None:
        """Count one event. Raises ProtocolError above the limit within a second."""
        if now_ms - self._began_ms >= _SECOND_MS:
            self._began_ms = now_ms
            self._count = 0
        self._count += 1
        if self._count > self._limit:
            raise ProtocolError(
                f"more than {self._limit} {self._what} within a second", ENHANCE_YOUR_CALM
            )
