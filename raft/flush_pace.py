"""Whether a voter waits for its disk where it stands.

A thread that fsyncs costs two wake-ups on the way of every commit, about as much as the fsync of a
quick disk. A follower has nothing better to do meanwhile: what it would ask the leader for next
vouches for these very bytes. A leader has sent them out by then, and cannot hear of them before
the others have fsynced too. But a disk that is slow, once, must not stop votes and questions again
and again.
"""

from __future__ import annotations

QUICK_US = 2_000
"""An fsync that took longer is slow. Where nodes share a sound disk, many take 1 ms."""

QUICK_IN_A_ROW = 10
"""So many quick fsyncs in the thread, and the disk is trusted again."""


class FlushPace:
    """The times of the last fsyncs, in microseconds."""

    def __init__(self) -> None:
        self._quick_in_a_row = 0

    @property
    def is_quick(self) -> bool:
        """The disk has been quick for a while, and may be waited for in place."""
        return self._quick_in_a_row >= QUICK_IN_A_ROW

    def note(self, took_us: float) -> None:
        """An fsync took so long, in place or in the thread."""
        self._quick_in_a_row = self._quick_in_a_row + 1 if took_us <= QUICK_US else 0
