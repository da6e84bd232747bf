"""Schedules the periodic walk over all partitions' leaders, in chunks. Pure.

`decide.elections.sweep` holds the rule; this module only holds the times. A walk begins at every
interval, the first one at once. Its chunks follow each other with a pause, so that a cluster of
many partitions blocks neither the loop nor the log.
"""

from __future__ import annotations

from kvorum.metadata.controller.decide.elections import Sweep

CHUNK_PAUSE_MS = 20
"""Pause between two chunks of a walk, so that heartbeats and requests come first."""

INTERVAL_MIN_MS = 1_000


class LeaderCheck:
    """The schedule of the walks, while the controller is active.

    next_deadline_ms: when the next chunk is due, None for never. at: where the present walk
        continues; None if the next chunk begins a walk. has_walked: True once a walk has ended
        since the controller became active.
    """

    __slots__ = ("_interval_ms", "at", "has_walked", "next_deadline_ms")

    def __init__(self) -> None:
        self._interval_ms = INTERVAL_MIN_MS
        self.at: Sweep | None = None
        self.has_walked = False
        self.next_deadline_ms: int | None = None

    def start(self, interval_ms: int, now_ms: int) -> None:
        """Start the first walk at once, because the controller became active.

        The previous controller may have died while it unfenced a broker in several batches.
        Partitions that wait for that broker would otherwise have no leader for an interval.
        """
        self._interval_ms = max(interval_ms, INTERVAL_MIN_MS)
        self.at, self.has_walked = None, False
        self.next_deadline_ms = now_ms + CHUNK_PAUSE_MS

    def note_chunk(self, goes_on: Sweep | None, now_ms: int) -> None:
        """Note a finished chunk. goes_on: where the next one begins, None at the end of a walk."""
        self.at = goes_on
        self.has_walked = self.has_walked or goes_on is None
        self.next_deadline_ms = now_ms + (self._interval_ms if goes_on is None else CHUNK_PAUSE_MS)

    def stop(self) -> None:
        """Stop, because the controller is no longer active."""
        self.at = self.next_deadline_ms = None
