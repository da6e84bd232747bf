"""A queue of a broker's reports to the active controller: sent in batches, and again until
received."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from kvorum.runtime.tasks import TaskGroup, report_failure

RETRY_FIRST_MS = 20
RETRY_MAX_MS = 1_000

Key = TypeVar("Key")
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Unacknowledged(Generic[Key, Item]):
    """Items to be sent again, unless there are newer ones of their keys.

    is_whole: no controller took the batch, so the pause before the next batch grows.
    """

    items: Mapping[Key, Item] = field(default_factory=dict)
    is_whole: bool = False


class RetryQueue(Generic[Key, Item]):
    """A queue with at most one item for each key, the newest.

    Items gather while a batch is in flight, and the next batch carries them all.
    send: sends a batch and returns the items that were not received.
    batch_max: items in a batch.
    """

    def __init__(
        self,
        send: Callable[[Mapping[Key, Item]], Awaitable[Unacknowledged[Key, Item]]],
        *,
        batch_max: int,
        name: str,
    ) -> None:
        self._send = send
        self._batch_max = batch_max
        self._name = name
        self._queue: dict[Key, Item] = {}
        self._in_flight: Mapping[Key, Item] = {}
        self._tasks = TaskGroup(report_failure)
        self._task: asyncio.Task[None] | None = None
        self.is_stopped = False

    def __contains__(self, key: Key) -> bool:
        """True if an item of this key is waiting or in flight."""
        return key in self._queue or key in self._in_flight

    def put(self, key: Key, item: Item) -> None:
        """Send an item; it replaces a waiting one of the same key. Needs a running event loop."""
        if self.is_stopped:
            return
        self._queue[key] = item
        if self._task is None or self._task.done():
            self._task = self._tasks.spawn(self._run(), self._name)

    def forget(self, key: Key) -> None:
        """Drop the waiting item of this key."""
        self._queue.pop(key, None)

    async def stop(self) -> None:
        self.is_stopped = True
        self._queue.clear()
        await self._tasks.stop()

    async def _run(self) -> None:
        pause_ms = RETRY_FIRST_MS
        # All items of one turn of the event loop are sent together.
        await asyncio.sleep(0)
        while self._queue:
            keys = list(self._queue)[: self._batch_max]
            self._in_flight = {key: self._queue.pop(key) for key in keys}
            unacknowledged = await self._send(self._in_flight)
            self._in_flight = {}
            for key, item in unacknowledged.items.items():
                self._queue.setdefault(key, item)
            if unacknowledged.is_whole:
                await asyncio.sleep(pause_ms / 1000)
                pause_ms = min(pause_ms * 2, RETRY_MAX_MS)
                continue
            pause_ms = RETRY_FIRST_MS
            if unacknowledged.items:
                await asyncio.sleep(pause_ms / 1000)
