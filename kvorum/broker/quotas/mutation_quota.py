"""controller_mutation_rate: partitions that a client may create and delete a second (KIP-599).
Pure.

Each client has a token bucket, which holds what the rate gives in the window of the other quotas. A
partition takes one token, and a request may take more tokens than there are. While tokens are owed,
the next request is refused with THROTTLING_QUOTA_EXCEEDED, and the answer gives the pause. A
request of an older version, which lacks that error code, is carried out; its answer gives the time
until nothing is owed. During a pause the client's connection is not read from.

The broker that gets the request counts; in Apache Kafka the active controller does. While such a
quota is set, Metadata names the same broker as the controller to all clients
(`Services.controller_id`). They send these requests there, so the effect is the same.
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
    """Tokens of one client. Times are in ms, all of one clock."""

    __slots__ = ("_at_ms", "_tokens")

    def __init__(self, capacity: float, now_ms: int) -> None:
        self._tokens = capacity
        self._at_ms = now_ms

    def owed_ms(self, rate: float, capacity: float, now_ms: int) -> int:
        """Time in ms until no tokens are owed, at `rate` tokens a second."""
        self._tokens = min(self._tokens + rate * (now_ms - self._at_ms) / 1000, capacity)
        self._at_ms = now_ms
        return 0 if self._tokens >= 0 else max(bounded_ms(-self._tokens / rate * 1000), 1)

    def take(self, tokens: float) -> None:
        self._tokens -= tokens


class MutationBuckets:
    """The token buckets of one broker. samples_max, sample_ms: the time whose tokens fill a
    bucket."""

    def __init__(self, quotas: ClientQuotas, *, samples_max: int, sample_ms: int) -> None:
        self._quotas = quotas
        self._window_s = samples_max * sample_ms / 1000
        self._buckets: dict[object, TokenBucket] = {}

    def limit(self, user: str, client_id: str | None) -> Limit | None:
        """The limit that applies to this client; None if none does."""
        if not self._quotas.is_active:
            return None
        return self._quotas.limit(QuotaKind.MUTATION, user, client_id)

    def owed_ms(self, limit: Limit, now_ms: int) -> int:
        """Time in ms until the client may send another request."""
        return self._bucket(limit, now_ms).owed_ms(
            limit.bound, limit.bound * self._window_s, now_ms
        )

    def take(self, limit: Limit, partitions: int, now_ms: int) -> None:
        """Take tokens for `partitions` partitions; a negative number returns tokens."""
        self._bucket(limit, now_ms).take(partitions)

    def _bucket(self, limit: Limit, now_ms: int) -> TokenBucket:
        bucket = self._buckets.get(limit.key)
        if bucket is None:
            if len(self._buckets) >= WINDOWS_KEPT_MAX:
                del self._buckets[next(iter(self._buckets))]
            bucket = self._buckets[limit.key] = TokenBucket(limit.bound * self._window_s, now_ms)
        return bucket
