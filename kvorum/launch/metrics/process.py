"""The node's process, as the operating system counts it, and the event loop's lag and progress."""

from __future__ import annotations

import asyncio
import os
import resource
import time
from collections.abc import Callable

from kvorum.runtime.metrics import RECENT_S, Histogram

TICK_S = 0.5
"""Interval of the test of the event loop."""
_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


class ProcessView:
    """Read at the time of a scrape; None where /proc does not tell."""

    @property
    def open_fds(self) -> int | None:
        try:
            return len(os.listdir("/proc/self/fd"))
        except OSError:
            return None

    @property
    def max_fds(self) -> int:
        return resource.getrlimit(resource.RLIMIT_NOFILE)[0]

    @property
    def cpu_s(self) -> float:
        return time.process_time()

    @property
    def resident_bytes(self) -> int | None:
        fields = _read("/proc/self/statm").split()
        return int(fields[1]) * resource.getpagesize() if len(fields) > 1 else None

    @property
    def start_s(self) -> float | None:
        # The name of the process, in brackets, may have blanks.
        fields = _read("/proc/self/stat").rpartition(")")[2].split()
        booted = _line(_read("/proc/stat"), "btime ")
        if len(fields) < 20 or booted is None:
            return None
        return booted + int(fields[19]) / _CLOCK_TICKS

    @property
    def read_bytes(self) -> int | None:
        return _line(_read("/proc/self/io"), "read_bytes: ")

    @property
    def written_bytes(self) -> int | None:
        return _line(_read("/proc/self/io"), "write_bytes: ")


def _read(path: str) -> str:
    """The text of a file in /proc; "" if the system has none or hides it."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _line(text: str, head: str) -> int | None:
    """The number behind `head` at the begin of a line; None without such a line."""
    found = next((line for line in text.splitlines() if line.startswith(head)), None)
    return None if found is None else int(found[len(head) :])


class LoopWatch:
    """Tests the event loop twice a second: how late a timer is, and if the metadata is applied.

    lag_s: the lateness of each test. stuck_ms: for how long nothing was applied although something
    is committed.
    """

    def __init__(self, applied: Callable[[], int], committed: Callable[[], int]) -> None:
        self.lag_s = Histogram()
        self._applied = applied
        self._committed = committed
        self._last_applied = -1
        self._moved_s = time.monotonic()
        self._timer: asyncio.TimerHandle | None = None
        self._due_s = 0.0
        self._cpu: list[tuple[float, float]] = []

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._due_s = loop.time() + TICK_S
        self._timer = loop.call_at(self._due_s, self._tick)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        self.lag_s.observe(max(loop.time() - self._due_s, 0.0))
        self._note_progress()
        self._note_cpu()
        self.start()

    def _note_progress(self) -> None:
        applied = self._applied()
        if applied != self._last_applied or applied >= self._committed():
            self._last_applied = applied
            self._moved_s = time.monotonic()

    def _note_cpu(self) -> None:
        now_s, samples = time.monotonic(), self._cpu
        samples.append((now_s, time.thread_time()))
        while samples[0][0] < now_s - RECENT_S:
            samples.pop(0)

    @property
    def stuck_ms(self) -> int:
        self._note_progress()
        return round((time.monotonic() - self._moved_s) * 1000)

    @property
    def idle_ratio(self) -> float:
        """Share of the last minute in which this thread used no CPU; 1.0 before the first test."""
        if not self._cpu:
            return 1.0
        then_s, used_s = self._cpu[0]
        took_s = time.monotonic() - then_s
        return max(1.0 - (time.thread_time() - used_s) / took_s, 0.0) if took_s > 0 else 1.0
