"""Decides if a voter fsyncs on its event loop, which blocks it, or in a thread.

An fsync in a thread costs two wake-ups on the way of every commit, about as much as the fsync of a
quick disk. Blocking costs little while the disk is quick:
- A follower has nothing else to do. Its next fetch acknowledges the very bytes that are being
  fsynced.
- A leader has already sent its records, and no voter acknowledges them before its own fsync.

After one slow fsync the thread is used for a while, so that a slow disk cannot delay votes and
requests again and again.
"""

from __future__ import annotations

QUICK_US = 2_000
"""An fsync that took longer is slow. Where several nodes share a healthy disk, 1 ms is common."""

QUICK_IN_A_ROW = 10
"""This many quick fsyncs in a row make the disk count as quick again."""


class FlushPace:
    """The number of quick fsyncs since the last slow one."""

    def __init__(self) -> None:
        self._quick_in_a_row = 0

    @property
    def is_quick(self) -> bool:
        """True if the disk has been quick for long enough to fsync on the event loop."""
        return self._quick_in_a_row >= QUICK_IN_A_ROW

    def note(self, took_us: float) -> None:
        """Count one fsync that took took_us microseconds, on the loop or in the thread."""
        self._quick_in_a_row = self._quick_in_a_row + 1 if took_us <= QUICK_US else 0
