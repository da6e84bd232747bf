"""Replication quotas (KIP-73): the rate at which replicas that are being moved may be copied. Pure.

Time is an argument. A bucket fills at the rate, up to one second's worth. Bytes sent empty it,
below zero if one answer is larger than the rest; then nothing is sent until it is above zero again.
So within any time the bytes are at most rate * (time + 1 s) and one answer. (Kafka averages over
eleven windows of a second, which allows ten seconds' worth at once.)
"""

from __future__ import annotations

from dataclasses import dataclass

from kvorum.runtime.text import whole_number

BURST_MS = 1_000
"""Size of the bucket, as time at the full rate; it fills while nothing is sent."""

UNLIMITED = (1 << 63) - 1
"""The default of both rates."""

EVERY_REPLICA = "*"


@dataclass(frozen=True, slots=True)
class ThrottledReplicas:
    """Value of `leader.` or `follower.replication.throttled.replicas`.

    is_all: the value is "*". Otherwise `pairs` has (partition, broker id).
    """

    is_all: bool = False
    pairs: frozenset[tuple[int, int]] = frozenset()

    def __contains__(self, pair: object) -> bool:
        return self.is_all or pair in self.pairs

    def __bool__(self) -> bool:
        return self.is_all or bool(self.pairs)


NO_REPLICAS = ThrottledReplicas()


def parse_throttled(text: str) -> ThrottledReplicas:
    """Parse `partition:broker,partition:broker`, `*`, or "".

    The config table has checked the shape. Items that do not parse all the same are ignored, since
    a partition must not go offline over a config.
    """
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if EVERY_REPLICA in parts:
        return ThrottledReplicas(is_all=True)
    pairs = set()
    for part in parts:
        partition_id, _, broker_id = part.partition(":")
        pair = whole_number(partition_id), whole_number(broker_id)
        if pair[0] is not None and pair[1] is not None:
            pairs.add((pair[0], pair[1]))
    return ThrottledReplicas(pairs=frozenset(pairs)) if pairs else NO_REPLICAS


class ReplicationQuota:
    """Bytes that may be copied now, on the leader's or the follower's side of one broker."""

    __slots__ = ("_at_ms", "_bytes", "_rate")

    def __init__(self, now_ms: int) -> None:
        self._rate = UNLIMITED
        self._bytes = 0.0
        self._at_ms = now_ms

    @property
    def is_limited(self) -> bool:
        return self._rate < UNLIMITED

    def set_rate(self, bytes_per_second: int, now_ms: int) -> None:
        """Set the rate; 0 allows nothing."""
        if bytes_per_second == self._rate:
            return
        was_limited = self.is_limited
        self._fill(now_ms)
        self._rate = bytes_per_second
        # A limit that has just been set starts with an empty bucket.
        self._bytes = min(self._bytes, self._burst) if was_limited else 0.0

    def room(self, now_ms: int) -> int:
        """Bytes that may be sent now; 0 if none."""
        if not self.is_limited:
            return UNLIMITED
        self._fill(now_ms)
        return max(int(self._bytes), 0)

    def record(self, size: int, now_ms: int) -> None:
        """Count `size` bytes of throttled replicas as sent."""
        if self.is_limited:
            self._fill(now_ms)
            self._bytes -= size

    def wait_ms(self, now_ms: int, wait_max_ms: int) -> int:
        """Time until bytes may be sent again, 1 to wait_max_ms."""
        if self.room(now_ms) > 0 or self._rate <= 0:
            return 1 if self._rate > 0 else wait_max_ms
        missing_ms = int((1.0 - self._bytes) * 1000 / self._rate) + 1
        return max(1, min(missing_ms, wait_max_ms))

    @property
    def _burst(self) -> float:
        return self._rate * BURST_MS / 1000

    def _fill(self, now_ms: int) -> None:
        if self.is_limited:
            gained = self._rate * (now_ms - self._at_ms) / 1000
            self._bytes = min(self._bytes + gained, self._burst)
        self._at_ms = now_ms
