"""The deadlines of requests that wait, in coarse buckets: parking and releasing a request costs two
dict operations, and all requests share one timer."""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Protocol

DEADLINE_BUCKET_MS = 10
"""Precision of a deadline in ms: a request may expire this much late, never early."""

OnFailed = Callable[[object, Exception], None]
"""Receives an item that raised, and its error."""


def raise_it(_: object, error: Exception) -> None:
    """Without a listener nobody could close the item's connection."""
    raise error


class Expirable(Protocol):
    """A parked request with a deadline. Deadlines writes `deadline_bucket`; -1 means not parked."""

    deadline_bucket: int

    def expire(self) -> None:
        """The deadline has passed. Called once, after the item was removed."""
        ...


class Deadlines:
    """Parked requests by deadline. on_failed: set by the listener."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.on_failed: OnFailed = raise_it
        self._now_ms = now_ms
        self._buckets: dict[int, dict[Expirable, None]] = {}
        self._order: list[int] = []
        self._timer: asyncio.TimerHandle | None = None
        self._timer_bucket = -1

    def add(self, item: Expirable, deadline_ms: int) -> None:
        """Call item.expire() once `deadline_ms` (monotonic) has passed, unless `remove` comes
        first."""
        bucket = deadline_ms // DEADLINE_BUCKET_MS + 1
        items = self._buckets.get(bucket)
        if items is None:
            items = self._buckets[bucket] = {}
            heapq.heappush(self._order, bucket)
            if self._timer is None or bucket < self._timer_bucket:
                self._arm(bucket)
        items[item] = None
        item.deadline_bucket = bucket

    def remove(self, item: Expirable) -> None:
        """Forget the item's deadline; does nothing if it has none."""
        items = self._buckets.get(item.deadline_bucket)
        if items is not None:
            items.pop(item, None)
        item.deadline_bucket = -1

    def count(self) -> Iterator[Counter[type]]:
        """Numbers of items by type, of one bucket after another; the caller may wait in between."""
        for items in list(self._buckets.values()):
            yield Counter(map(type, items))

    def close(self) -> None:
        """Forget all items; none of them expires any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._buckets.clear()
        self._order.clear()

    def _arm(self, bucket: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        delay_ms = max(bucket * DEADLINE_BUCKET_MS - self._now_ms(), 0)
        self._timer_bucket = bucket
        self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        due = self._now_ms() // DEADLINE_BUCKET_MS
        while self._order and self._order[0] <= due:
            bucket = heapq.heappop(self._order)
            # The bucket stays in `_buckets` while its items expire: an expiry may complete another
            # item, which `remove` must find, or add one that is due already.
            items = self._buckets[bucket]
            while items:
                for item in list(items):
                    if item in items:
                        del items[item]
                        item.deadline_bucket = -1
                        try:
                            item.expire()
                        except Exception as error:  # noqa: BLE001 - of one request
                            self.on_failed(item, error)
            self._buckets.pop(bucket, None)  # an expiry may have called `close`
        # Requests that were answered in time leave empty buckets behind, thousands after a load.
        while self._order and not self._buckets[self._order[0]]:
            del self._buckets[heapq.heappop(self._order)]
        if self._order:
            self._arm(self._order[0])
