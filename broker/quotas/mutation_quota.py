"""controller_mutation_rate: how many partitions a client may make and delete a second (KIP-599).

A token bucket a client: it holds what the rate gives in as many samples as other quotas are
measured over, a partition takes one token, and the last request may take more than there is left.
Whoever comes while that is owed is refused with THROTTLING_QUOTA_EXCEEDED, and the answer tells the
pause; in versions of the APIs that are older than that code everything is served, and whatever is
owed then is the pause. A connection with a pause is not read from for so long.

The broker that a client asks counts; in Apache Kafka it is the active controller. While there is
such a quota, all clients of a cluster take the same broker for the controller
(`Services.controller_id`) and send these requests there, which comes to the same. Pure.
"""

from __future__ import annotations

from kvorum.broker.quotas.client_quotas import (
    WINDOWS_KEPT_MAX,
    ClientQuotas,
    Limit,
    QuotaKind,
    bounded_ms,
)


class TokenBucket:
    """Tokens of one client; times in ms on one clock."""

    __slots__ = ("_at_ms", "_tokens")

    def __init__(self, capacity: float, now_ms: int) -> None:
        self._tokens = capacity
        self._at_ms = now_ms

    def owed_ms(self, rate: float, capacity: float, now_ms: int) -> int:
        """How long until nothing is owed, at `rate` tokens a second."""
        self._tokens = min(self._tokens + rate * (now_ms - self._at_ms) / 1000, capacity)
        self._at_ms = now_ms
        return 0 if self._tokens >= 0 else max(bounded_ms(-self._tokens / rate * 1000), 1)

    def take(self, tokens: float) -> None:
        self._tokens -= tokens


class MutationBuckets:
    """The buckets of one broker. samples_max, sample_ms: what a full bucket is worth."""

    def __init__(self, quotas: ClientQuotas, *, samples_max: int, sample_ms: int) -> None:
        self._quotas = quotas
        self._window_s = samples_max * sample_ms / 1000
        self._buckets: dict[object, TokenBucket] = {}

    def limit(self, client_id: str | None) -> Limit | None:
        """What binds this client; None if nothing does."""
        if not self._quotas.is_active:
            return None
        return self._quotas.limit(QuotaKind.MUTATION, client_id)

    def owed_ms(self, limit: Limit, now_ms: int) -> int:
        """How long the client has to wait before it may ask for more."""
        return self._bucket(limit, now_ms).owed_ms(
            limit.bound, limit.bound * self._window_s, now_ms
        )

    def take(self, limit: Limit, partitions: int, now_ms: int) -> None:
        """Count so many partitions; a negative number gives some back."""
        self._bucket(limit, now_ms).take(partitions)

    def _bucket(self, limit: Limit, now_ms: int) -> TokenBucket:
        bucket = self._buckets.get(limit.key)
        if bucket is None:
            if len(self._buckets) >= WINDOWS_KEPT_MAX:
                del self._buckets[next(iter(self._buckets))]
            bucket = self._buckets[limit.key] = TokenBucket(limit.bound * self._window_s, now_ms)
        return bucket
