"""Counters, histograms and windows that hot code keeps, and that a metrics page reads later. Pure.

No locks: a node has one event loop, and only code on that loop changes them. A class with many
counters has plain integers as attributes instead of `Counter` objects.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

TIME_BOUNDS_S = (
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0,
)  # fmt: skip
"""Upper bounds in seconds for times between a loop's turn and a client's timeout."""
RECENT_S = 60.0
"""A recent quantile covers at least this long, and at most twice as long while it is read."""


class Counter:
    """A number that only grows: hot code adds to `value`."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0


class Histogram:
    """Counts of observed values by fixed bounds.

    bounds: upper bounds, inclusive and ascending, as Prometheus has them.
    counts: one for each bound, not accumulated, and one for the values above.
    sum: of all values.
    """

    __slots__ = ("_before", "_before_s", "_older", "bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float] = TIME_BOUNDS_S) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0
        self._before: Sequence[int] = tuple(self.counts)
        self._older: Sequence[int] = self._before
        self._before_s = -RECENT_S

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        return sum(self.counts)

    def quantile(self, q: float, counts: Sequence[int] | None = None) -> float:
        """The value below which a share q (0 to 1) lies, by interpolation within its bounds.

        counts: by default all observed values. 0.0 if there are none. A value above the last bound
        counts as that bound.
        """
        counts = self.counts if counts is None else counts
        wanted = q * sum(counts)
        if not wanted:
            return 0.0
        below, low = 0, 0.0
        for bound, count in zip(self.bounds, counts, strict=False):
            if count and below + count >= wanted:
                return low + (bound - low) * (wanted - below) / count
            below += count
            low = bound
        return self.bounds[-1]

    def recent(self, now_s: float) -> list[int]:
        """Counts of the last one or two minutes, or since the reading before the last one.

        Only readers keep the windows, so that observing costs nothing more. Every reader gets the
        same counts, because a window ends by its age.
        """
        if now_s - self._before_s >= RECENT_S:
            self._older, self._before = self._before, tuple(self.counts)
            self._before_s = now_s
        return [now - then for now, then in zip(self.counts, self._older, strict=True)]


class Window:
    """Rate, mean and maximum over the last half to whole window, as Kafka's sampled metrics.

    For events that are rare enough to take the time of each.
    """

    __slots__ = ("_sample_s", "_samples")

    def __init__(self, window_s: float = 60.0) -> None:
        self._sample_s = window_s / 2
        self._samples: list[list[float]] = []
        """[begin in s, events, sum, maximum], the older sample first; two at most."""

    def note(self, value: float, now_s: float) -> None:
        """Count one event with this value."""
        samples = self._current(now_s)
        if not samples or now_s - samples[-1][0] >= self._sample_s:
            samples.append([now_s, 0.0, 0.0, value])
        last = samples[-1]
        last[1] += 1
        last[2] += value
        last[3] = max(last[3], value)

    def rate(self, now_s: float) -> float:
        """Sum of the values a second."""
        samples = self._current(now_s)
        if not samples:
            return 0.0
        elapsed_s = max(now_s - samples[0][0], self._sample_s)
        return sum(sample[2] for sample in samples) / elapsed_s

    def mean(self, now_s: float) -> float | None:
        """The mean value; None without an event."""
        samples = self._current(now_s)
        events = sum(sample[1] for sample in samples)
        return sum(sample[2] for sample in samples) / events if events else None

    def maximum(self, now_s: float) -> float | None:
        samples = self._current(now_s)
        return max((sample[3] for sample in samples), default=None)

    def _current(self, now_s: float) -> list[list[float]]:
        oldest_s = now_s - 2 * self._sample_s
        samples = self._samples
        while samples and (samples[0][0] <= oldest_s or len(samples) > 2):
            samples.pop(0)
        return samples
