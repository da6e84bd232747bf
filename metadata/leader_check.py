"""The timer of the periodic walk over all partitions' leaders. A driver.

The rule is `decide.elections.sweep`; this file only says when. Every interval a walk begins, and
its chunks follow each other with a pause, so that neither the loop nor the log is held up by a
cluster of many partitions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from metadata.decide.elections import Sweep

CHUNK_PAUSE_MS = 20
"""Between two chunks of one walk: heartbeats and requests come first."""

INTERVAL_MIN_MS = 1_000


class LeaderCheck:
    """Runs while its controller is active.

    run_chunk: decide one chunk and write its records; None begins a walk, the answer says where
    to go on, None that the walk is over. It must not raise.
    """

    def __init__(self, run_chunk: Callable[[Sweep | None], Sweep | None]) -> None:
        self._run_chunk = run_chunk
        self._interval_ms = INTERVAL_MIN_MS
        self._timer: asyncio.TimerHandle | None = None

    def start(self, interval_ms: int) -> None:
        """The controller became active: the first walk comes after an interval."""
        self.stop()
        self._interval_ms = max(interval_ms, INTERVAL_MIN_MS)
        self._arm(self._interval_ms, None)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, delay_ms: int, at: Sweep | None) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(delay_ms / 1000, self._on_timer, at)

    def _on_timer(self, at: Sweep | None) -> None:
        self._timer = None
        goes_on = self._run_chunk(at)
        self._arm(self._interval_ms if goes_on is None else CHUNK_PAUSE_MS, goes_on)
