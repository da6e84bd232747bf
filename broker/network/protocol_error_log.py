"""One log line for each connection closed for a protocol error, a few a second. Pure.

A client that speaks another protocol comes again at once, for ever: what is above the limit is
counted, and a line at the end of the second tells the number.
"""

from __future__ import annotations

LINES_PER_SECOND_MAX = 10
REASON_CHARACTERS_MAX = 300
_SECOND_MS = 1_000


class ProtocolErrorLog:
    """`closed` for each connection; while `has_more`, `more` once `more_due_ms` is reached."""

    __slots__ = ("_began_ms", "_held_back", "_written")

    def __init__(self) -> None:
        self._began_ms: int | None = None
        self._written = 0
        self._held_back = 0

    @property
    def has_more(self) -> bool:
        """Some were held back of which no line has told."""
        return self._held_back > 0

    @property
    def more_due_ms(self) -> int:
        """When the present second ends, by the clock of `closed`."""
        return (self._began_ms or 0) + _SECOND_MS

    def closed(self, peer: str, reason: str, now_ms: int) -> list[str]:
        """The lines to write now: of an earlier second's rest, and of this connection."""
        lines = self.more(now_ms)
        if self._began_ms is None or now_ms >= self.more_due_ms:
            self._began_ms = now_ms
            self._written = 0
        if self._written == LINES_PER_SECOND_MAX:
            self._held_back += 1
            return lines
        self._written += 1
        lines.append(f"connection closed: peer={peer} reason={reason[:REASON_CHARACTERS_MAX]}")
        return lines

    def more(self, now_ms: int) -> list[str]:
        """The line about those held back if their second is over; at most one."""
        if not self.has_more or now_ms < self.more_due_ms:
            return []
        count, self._held_back = self._held_back, 0
        return [f"connections closed for protocol errors: {count} more within a second"]
