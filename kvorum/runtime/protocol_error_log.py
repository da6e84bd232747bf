"""Log lines for connections closed for a protocol error, limited to a few a second. Pure.

A client that speaks another protocol reconnects at once, for ever. Connections above the limit are
counted, and one line at the end of the second gives their number. A failure that an address repeats
is one line a minute, which says how often it came.
"""

from __future__ import annotations

LINES_PER_SECOND_MAX = 10
REASON_CHARACTERS_MAX = 300
REPEAT_MS = 60_000
"""Pause between two lines of one address and reason."""
REPEATS_KEPT_MAX = 256
"""Limit of remembered pairs of address and reason; the oldest is dropped."""
_SECOND_MS = 1_000


class ProtocolErrorLog:
    """The limit's state. Call `closed` for each connection; while `has_more`, call `more` at
    `more_due_ms`.

    one: begins the line of one connection.
    many: begins the line with the number of connections above the limit.
    """

    __slots__ = ("_began_ms", "_held_back", "_many", "_one", "_repeats", "_written")

    def __init__(
        self,
        one: str = "connection closed",
        many: str = "connections closed for protocol errors",
    ) -> None:
        self._one, self._many = one, many
        self._began_ms: int | None = None
        self._written = 0
        self._held_back = 0
        #: (address, reason) -> (the end of its pause, connections since its line).
        self._repeats: dict[tuple[str, str], tuple[int, int]] = {}

    @property
    def has_more(self) -> bool:
        """True if connections were counted and no line has reported them yet."""
        return self._held_back > 0

    @property
    def more_due_ms(self) -> int:
        """End of the current second, by the clock given to `closed`."""
        return (self._began_ms or 0) + _SECOND_MS

    def closed(self, peer: str, reason: str, now_ms: int, *, address: str = "") -> list[str]:
        """The lines to write now: the count of an earlier second, if any, and this connection.
        address: of the peer, if its repeated failures are one line a minute; else ""."""
        lines = self.more(now_ms)
        since = 0
        if address:
            until_ms, since = self._repeats.pop((address, reason), (now_ms, 0))
            if now_ms < until_ms:
                self._repeats[address, reason] = (until_ms, since + 1)
                return lines
        if self._began_ms is None or now_ms >= self.more_due_ms:
            self._began_ms = now_ms
            self._written = 0
        if self._written == LINES_PER_SECOND_MAX:
            self._held_back += 1
            if since:
                self._repeats[address, reason] = (now_ms, since)
            return lines
        self._written += 1
        if address:
            while len(self._repeats) >= REPEATS_KEPT_MAX:
                del self._repeats[next(iter(self._repeats))]
            self._repeats[address, reason] = (now_ms + REPEAT_MS, 0)
        again = f" (and {since} times since the last line)" if since else ""
        lines.append(f"{self._one}: peer={peer} reason={reason[:REASON_CHARACTERS_MAX]}{again}")
        return lines

    def more(self, now_ms: int) -> list[str]:
        """The line that reports the count of a second that is over; at most one."""
        if not self.has_more or now_ms < self.more_due_ms:
            return []
        count, self._held_back = self._held_back, 0
        return [f"{self._many}: {count} more within a second"]
