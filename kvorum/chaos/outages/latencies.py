"""Latencies as a histogram of fixed size: counts on a logarithmic scale.

A bucket is 1 % wide, so a percentile is at most 1 % above the true one. Smallest and largest value
are exact. Ten million latencies take as much memory as ten thousand.
"""

from __future__ import annotations

import math

_GROWTH_LOG = math.log(1.01)
_SMALLEST_MS = 0.001


class Latencies:
    """Counts of latencies in milliseconds."""

    def __init__(self) -> None:
        self.count = 0
        self.max_ms: float | None = None
        self._min_ms = math.inf
        self._counts: dict[int, int] = {}

    def add(self, latency_ms: float) -> None:
        at = 0
        if latency_ms > _SMALLEST_MS:
            at = math.ceil(math.log(latency_ms / _SMALLEST_MS) / _GROWTH_LOG)
        self._counts[at] = self._counts.get(at, 0) + 1
        self.count += 1
        if self.max_ms is None or latency_ms > self.max_ms:
            self.max_ms = latency_ms
        if latency_ms < self._min_ms:
            self._min_ms = latency_ms

    def merge(self, other: Latencies) -> None:
        """Add everything that `other` counted."""
        for at, count in other._counts.items():
            self._counts[at] = self._counts.get(at, 0) + count
        self.count += other.count
        self._min_ms = min(self._min_ms, other._min_ms)
        if other.max_ms is not None:
            self.max_ms = other.max_ms if self.max_ms is None else max(self.max_ms, other.max_ms)

    def percentile(self, share: float) -> float | None:
        """The nearest-rank percentile, None without values; share is in (0, 1]."""
        if self.max_ms is None:
            return None
        rank = max(1, math.ceil(share * self.count))
        passed = 0
        for at in sorted(self._counts):
            passed += self._counts[at]
            if passed >= rank:
                upper_ms = _SMALLEST_MS * math.exp(at * _GROWTH_LOG)
                return min(max(upper_ms, self._min_ms), self.max_ms)
        return self.max_ms
