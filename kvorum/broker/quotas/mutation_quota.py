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

from collections.abc import Callable, Hashable

from kvorum.broker.quotas.client_quotas import (
    WINDOWS_KEPT_MAX,
    ClientQuotas,
    Limit,
    QuotaKind,
    bounded_ms,
)
from kvorum.runtime.errors import ErrorCode, Rejected


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


class MutationCharge:
    """The charge of one request. Call `take` for each item, `give_back` for items that failed, then
    `close`.

    is_strict: the client knows THROTTLING_QUOTA_EXCEEDED.
    """

    def __init__(
        self,
        buckets: MutationBuckets,
        user: str,
        client_id: str | None,
        now_ms: Callable[[], int],
        *,
        is_strict: bool,
    ) -> None:
        self._client_id = client_id
        self._buckets = buckets
        self._limit = buckets.limit(user, client_id)
        self._is_strict = is_strict
        self._now_ms = now_ms
        self._taken: dict[Hashable, int] = {}
        self._has_refused = False

    def take(self, item: Hashable, partitions: int) -> Rejected | None:
        """Charge an item for `partitions` partitions; Rejected if the client must wait."""
        if self._limit is None or not partitions:
            return None
        now_ms = self._now_ms()
        owed_ms = self._buckets.owed_ms(self._limit, now_ms)
        if owed_ms and self._is_strict:
            self._has_refused = True
            return Rejected(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"client {self._client_id or ''!r} has made and deleted more than "
                f"controller_mutation_rate={self._limit.bound:g} partitions a second: ask again "
                f"in {owed_ms} ms",
            )
        self._buckets.take(self._limit, partitions, now_ms)
        self._taken[item] = partitions
        return None

    def give_back(self, item: Hashable) -> None:
        """Return an item's tokens, since the controller refused it; nothing happens if it was not
        charged."""
        if self._limit is not None:
            self._buckets.take(self._limit, -self._taken.get(item, 0), self._now_ms())

    def close(self) -> int:
        """The pause in ms of the client for the tokens that it owes; the answer has it (KIP-219).

        A client that knows the error and was served is not paused: it gets the error with its next
        mutation, and may send other requests until then.
        """
        if self._limit is None or not (self._has_refused or not self._is_strict):
            return 0
        return self._buckets.owed_ms(self._limit, self._now_ms())
