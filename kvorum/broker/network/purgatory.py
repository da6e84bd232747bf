"""Requests that wait: for replication (acks=all), for data (Fetch), or for their deadline.

Events complete them: an append, a risen high watermark, a lost leadership. Nothing polls. Wake-ups
are gathered until the end of the event loop's turn that caused them. So several pipelined produce
requests give the follower one answer instead of one each, at no added wait.

Deadlines are kept in coarse buckets. Parking and releasing a request costs two dict operations, and
all requests share one timer.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from kvorum.runtime.errors import ErrorCode
from kvorum.wire.produce_codec import ProducedPartition, ProducedTopic

DEADLINE_BUCKET_MS = 10
"""Precision of a deadline in ms: a request may expire this much late, never early."""


class Expirable(Protocol):
    """A parked request with a deadline. Deadlines writes `deadline_bucket`; -1 means not parked."""

    deadline_bucket: int

    def expire(self) -> None:
        """The deadline has passed. Called once, after the item was removed."""
        ...


class Wakeable(Protocol):
    """A parked request to be checked again. LoopTurn writes `is_awake`."""

    is_awake: bool

    def wake(self) -> None: ...


class Flushable(Protocol):
    """A connection with answers to send. LoopTurn writes `is_flush_due`."""

    is_flush_due: bool

    def flush(self) -> None: ...


class Deadlines:
    """Parked requests by deadline."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
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
                        item.expire()
            self._buckets.pop(bucket, None)  # an expiry may have called `close`
        # What was answered in time leaves empty buckets behind, thousands of them after a load.
        while self._order and not self._buckets[self._order[0]]:
            del self._buckets[heapq.heappop(self._order)]
        if self._order:
            self._arm(self._order[0])


class LoopTurn:
    """Work gathered for the end of the event loop's turn: first wake parked requests, then send
    answers."""

    def __init__(self) -> None:
        self._woken: list[Wakeable] = []
        self._to_flush: list[Flushable] = []
        self._is_scheduled = False
        self._is_open = False
        self.is_spent = False
        """True after one connection has held the event loop for long: no other is read in this
        turn. Bad sequence: 1. 24 clients each send a request of 100 KB that unpacks to 100 MB. 2.
        The loop handles them all in one turn, 0.3 s each. 3. No heartbeat leaves for 8 s, and the
        broker is fenced."""

    def spend(self) -> None:
        """Set `is_spent` until the event loop has gone round once, so that timers and other tasks
        run first."""
        if not self.is_spent:
            self.is_spent = True
            asyncio.get_running_loop().call_soon(self._renew)

    def _renew(self) -> None:
        self.is_spent = False

    def wake(self, item: Wakeable) -> None:
        if not item.is_awake:
            item.is_awake = True
            self._woken.append(item)
            self._schedule()

    def flush(self, item: Flushable) -> None:
        if not item.is_flush_due:
            item.is_flush_due = True
            self._to_flush.append(item)
            self._schedule()

    def begin(self) -> None:
        """Announce that a callback starts and will call `run` before it returns."""
        self._is_open = True

    def run(self) -> None:
        """Do all gathered work now, and the work that this causes."""
        self._is_open = True
        try:
            self._run()
        finally:
            self._is_open = False

    def _run(self) -> None:
        while self._woken or self._to_flush:
            woken, self._woken = self._woken, []
            for parked in woken:
                parked.is_awake = False
                parked.wake()
            flushable, self._to_flush = self._to_flush, []
            for connection in flushable:
                connection.is_flush_due = False
                connection.flush()

    def _schedule(self) -> None:
        if not self._is_open and not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._run_scheduled)

    def _run_scheduled(self) -> None:
        self._is_scheduled = False
        self.run()


class AwaitsAcks(Protocol):
    """A request whose appends wait for replication. Its two indexes identify one append; `complete`
    gets them back."""

    @property
    def is_done(self) -> bool: ...

    def complete(self, topic_index: int, partition_index: int, error: ErrorCode) -> None: ...


class PendingAck(NamedTuple):
    """An acks=-1 append waiting until the high watermark reaches required_offset (exclusive)."""

    required_offset: int
    pending: AwaitsAcks
    topic_index: int
    partition_index: int


class PendingProduce:
    """A Produce request with acks=-1 that waits for replication of some of its partitions.

    topics: the answer so far; each topic's list of partitions is changed in place as they complete.
    """

    __slots__ = ("_deadlines", "_respond", "_waiting", "deadline_bucket", "topics")

    def __init__(
        self,
        topics: list[ProducedTopic],
        respond: Callable[[list[ProducedTopic]], None],
        deadlines: Deadlines,
    ) -> None:
        self.topics = topics
        self.deadline_bucket = -1
        self._respond = respond
        self._deadlines = deadlines
        self._waiting: dict[tuple[int, int], None] = {}

    @property
    def is_done(self) -> bool:
        return not self._waiting

    def wait_for(self, topic_index: int, partition_index: int) -> None:
        """Wait for one more partition of the answer."""
        self._waiting[(topic_index, partition_index)] = None

    def put(self, topic_index: int, partition_index: int, answer: ProducedPartition) -> None:
        """Set the answer of a partition that still waits; `complete` may turn it into an error."""
        if (topic_index, partition_index) in self._waiting:
            self.topics[topic_index].partitions[partition_index] = answer  # type: ignore[index]

    def complete(self, topic_index: int, partition_index: int, error: ErrorCode) -> None:
        """Complete one partition; the last one sends the answer. Repeats are ignored."""
        if self._waiting.pop((topic_index, partition_index), 0) == 0:
            return
        if error != ErrorCode.NONE:
            self._fail(topic_index, partition_index, error)
        if not self._waiting:
            self._deadlines.remove(self)
            self._respond(self.topics)

    def expire(self) -> None:
        for topic_index, partition_index in self._waiting:
            self._fail(topic_index, partition_index, ErrorCode.REQUEST_TIMED_OUT)
        self._waiting.clear()
        self._respond(self.topics)

    def cancel(self) -> None:
        """Forget the request: its connection is closed."""
        self._deadlines.remove(self)
        self._waiting.clear()

    def _fail(self, topic_index: int, partition_index: int, error: ErrorCode) -> None:
        partitions = self.topics[topic_index].partitions
        old = partitions[partition_index]
        failed = ProducedPartition(old.partition_id, error.value)
        partitions[partition_index] = failed  # type: ignore[index]
