"""The wall clocks of the replicas that fetch from a leader. Pure."""

from __future__ import annotations

from kvorum.runtime.clock import CLOCK_MS_MAX

LOOKS = 2
"""Fetches in a row that must show a clock that is off: after this process has stood still, the
fetch that waited for it carries an old time."""


class FollowerClocks:
    """ahead_ms: how far each replica's wall clock was ahead of this node's at its last fetch."""

    def __init__(self) -> None:
        self.ahead_ms: dict[int, int] = {}
        self._off: dict[int, int] = {}
        """Fetches in a row whose clock was off, by replica."""

    def note(self, replica_id: int, sent_at_ms: int, now_ms: int) -> str | None:
        """Note a fetch; a sentence for a clock that is found to be off, once until it is right
        again.

        sent_at_ms: the sender's clock, 0 if its build sends none.
        now_ms: this node's.
        """
        if not sent_at_ms:
            return None
        ahead_ms = self.ahead_ms[replica_id] = sent_at_ms - now_ms
        if abs(ahead_ms) <= CLOCK_MS_MAX:
            self._off.pop(replica_id, None)
            return None
        self._off[replica_id] = self._off.get(replica_id, 0) + 1
        if self._off[replica_id] != LOOKS:
            return None
        way = "ahead of" if ahead_ms > 0 else "behind"
        return (
            f"the clock of node {replica_id} is {abs(ahead_ms) / 1000:,.1f} s {way} this node's; "
            "let NTP set the clocks"
        )
