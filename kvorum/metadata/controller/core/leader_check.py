"""The schedule of the periodic sweep over all partitions' leaders, chunk by chunk. Pure.

`decide.elections.sweep` has the rule; this module has the times. A walk starts at each interval,
the first one at once. There is a pause between its chunks, so that a cluster with many partitions
blocks neither the event loop nor the log.
"""

from __future__ import annotations

from kvorum.metadata.controller.decide.elections import Sweep

CHUNK_PAUSE_MS = 20
"""Pause between two chunks of a walk: heartbeats and requests come first."""

INTERVAL_MIN_MS = 1_000


class LeaderCheck:
    """Runs while its controller is active. next_deadline_ms: when the next chunk is due, None if
        never.

    at: where the current walk continues; None if the next chunk starts a walk.
    has_walked: a walk has ended since the controller became active.
    """

    __slots__ = ("_interval_ms", "at", "has_walked", "next_deadline_ms")

    def __init__(self) -> None:
        self._interval_ms = INTERVAL_MIN_MS
        self.at: Sweep | None = None
        self.has_walked = False
        self.next_deadline_ms: int | None = None

    def start(self, interval_ms: int, now_ms: int) -> None:
        """Start the first walk at once: the controller has become active.

        The previous controller may have died between the batches of an unfencing for which many
        partitions waited. Without this walk, they would have no leader for an interval.
        """
        self._interval_ms = max(interval_ms, INTERVAL_MIN_MS)
        self.at, self.has_walked = None, False
        self.next_deadline_ms = now_ms + CHUNK_PAUSE_MS

    def note_chunk(self, goes_on: Sweep | None, now_ms: int) -> None:
        """A chunk was checked. goes_on: where the next one starts, None if the walk has ended."""
        self.at = goes_on
        self.has_walked = self.has_walked or goes_on is None
        self.next_deadline_ms = now_ms + (self._interval_ms if goes_on is None else CHUNK_PAUSE_MS)

    def stop(self) -> None:
        """Stop: the controller is no longer active."""
        self.at = self.next_deadline_ms = None
