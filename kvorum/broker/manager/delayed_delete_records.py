"""DeleteRecords requests that wait until all live replicas have deleted the records. Kafka calls
this DelayedDeleteRecords.

The low watermark of a partition is the least log start among its live replicas. A follower's fetch,
the death of a broker, and this log's own start can move it; each wakes the waiting requests.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from kvorum.broker.partition.replica import Replica
from kvorum.broker.purgatory.deadlines import Deadlines
from kvorum.runtime.errors import ErrorCode

UNKNOWN_LOW_WATERMARK = -1


class Deleted(NamedTuple):
    """The answer of one partition."""

    low_watermark: int
    error: ErrorCode


class PendingDeletion:
    """One DeleteRecords request; a number identifies each of its partitions."""

    def __init__(self, deadlines: Deadlines) -> None:
        self.deadline_bucket = -1
        self.results: dict[int, Deleted] = {}
        self._deadlines = deadlines
        self._waiting: dict[int, tuple[Replica, int]] = {}
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def wait_for(self, number: int, replica: Replica, offset: int) -> None:
        """Wait until the partition's low watermark is at `offset`."""
        self._waiting[number] = (replica, offset)
        replica.pending_deletions.append(self.check_again)

    def check_again(self, replica: Replica) -> None:
        """Check again: the replica's low watermark or role may have changed."""
        for number, (waiting, offset) in list(self._waiting.items()):
            if waiting is replica:
                result = _result(replica, offset)
                if result is not None:
                    self._settle(number, result)

    async def wait(self, deadline_ms: int) -> None:
        """Wait until every partition has its result. deadline_ms: monotonic; the remaining
        partitions then get REQUEST_TIMED_OUT."""
        for replica in {id(replica): replica for replica, _ in self._waiting.values()}.values():
            self.check_again(replica)
        if not self._waiting:
            return
        self._deadlines.add(self, deadline_ms)
        try:
            await self._done
        finally:
            self._deadlines.remove(self)
            for number in list(self._waiting):
                self._forget(number)

    def expire(self) -> None:
        for number, (replica, _) in list(self._waiting.items()):
            low_watermark = replica.low_watermark()
            self._settle(number, Deleted(low_watermark, ErrorCode.REQUEST_TIMED_OUT))

    def cancel(self) -> None:
        """Stop waiting: the connection is closed."""
        self._done.cancel()

    def _settle(self, number: int, result: Deleted) -> None:
        self.results[number] = result
        replica, offset = self._waiting[number]
        if result.error == ErrorCode.NONE:
            replica.core.deleted_records_offset = max(replica.core.deleted_records_offset, offset)
        self._forget(number)
        if not self._waiting and not self._done.done():
            self._done.set_result(None)

    def _forget(self, number: int) -> None:
        replica, _ = self._waiting.pop(number)
        replica.pending_deletions.remove(self.check_again)


def _result(replica: Replica, offset: int) -> Deleted | None:
    """The result of a deletion up to `offset`; None while replicas are behind."""
    if replica.is_offline:
        return Deleted(UNKNOWN_LOW_WATERMARK, ErrorCode.KAFKA_STORAGE_ERROR)
    if replica.is_closed or not replica.core.is_leader:
        return Deleted(UNKNOWN_LOW_WATERMARK, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    low_watermark = replica.low_watermark()
    return Deleted(low_watermark, ErrorCode.NONE) if low_watermark >= offset else None
