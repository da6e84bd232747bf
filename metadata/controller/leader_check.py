"""When the periodic walk over all partitions' leaders comes, chunk by chunk. Pure.

The rule is `decide.elections.sweep`; this file only says when. Every interval a walk begins, the
first one at once, and its chunks follow each other with a pause, so that neither the loop nor the
log is held up by a cluster of many partitions.
"""

from __future__ import annotations

from kvorum.metadata.controller.decide.elections import Sweep

CHUNK_PAUSE_MS = 20
"""Between two chunks of one walk: heartbeats and requests come first."""

INTERVAL_MIN_MS = 1_000


class LeaderCheck:
    """Runs while its controller is active. next_deadline_ms: when a chunk is due, None if never.

    at: where the walk under way goes on; None if the next chunk begins one. has_walked: a walk has
    come to its end since the controller became active.
    """

    __slots__ = ("_interval_ms", "at", "has_walked", "next_deadline_ms")

    def __init__(self) -> None:
        self._interval_ms = INTERVAL_MIN_MS
        self.at: Sweep | None = None
        self.has_walked = False
        self.next_deadline_ms: int | None = None

    def start(self, interval_ms: int, now_ms: int) -> None:
        """The controller became active: the first walk begins at once.

        The one before it may have died between the batches of an unfencing that many partitions
        wait for: these would be without a leader for an interval.
        """
        self._interval_ms = max(interval_ms, INTERVAL_MIN_MS)
        self.at, self.has_walked = None, False
        self.next_deadline_ms = now_ms + CHUNK_PAUSE_MS

    def note_chunk(self, goes_on: Sweep | None, now_ms: int) -> None:
        """A chunk was looked at. goes_on: where the next one begins, None when the walk is over."""
        self.at = goes_on
        self.has_walked = self.has_walked or goes_on is None
        self.next_deadline_ms = now_ms + (self._interval_ms if goes_on is None else CHUNK_PAUSE_MS)

    def stop(self) -> None:
        """The controller is active no more."""
        self.at = self.next_deadline_ms = None
