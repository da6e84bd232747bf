"""A reading of the cluster that all viewers share: taken again and again while somebody watches.

The reading blocks, so it runs in a thread of the feed's own. The page shows the last value with its
age if a reading fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

from kvorum.client.failures import CommandFailed
from kvorum.runtime.clock import wall_ms
from kvorum.runtime.errors import KvorumError

T = TypeVar("T")

IDLE_AFTER_S = 10.0
"""How long readings go on after a single request (`ask`), without a watcher."""


class Feed(Generic[T]):
    """read: one reading; it may raise CommandFailed, KvorumError or OSError, whose sentence the
        page shows.
    interval_s: between the begins of two readings.
    on_error: called with an error of a reading, in the event loop.
    """

    def __init__(
        self,
        name: str,
        read: Callable[[], T],
        *,
        interval_s: float,
        on_error: Callable[[Exception], None] | None = None,
    ) -> None:
        self.name = name
        self.value: T | None = None
        self.taken_ms = 0
        self.error = ""
        self.version = 0
        self._read = read
        self._interval_s = interval_s
        self._on_error = on_error
        self._watchers = 0
        self._asked_s = -IDLE_AFTER_S
        self._wanted = asyncio.Event()
        self._changed = asyncio.Condition()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"console-{name}")

    async def run(self) -> None:
        """Read while somebody wants it; ends only when it is cancelled."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                await self._wanted.wait()
                begun = time.monotonic()
                try:
                    self.value = await loop.run_in_executor(self._thread, self._read)
                    self.taken_ms, self.error = wall_ms(), ""
                except (CommandFailed, KvorumError, OSError) as error:
                    self.error = str(error)
                    if self._on_error is not None:
                        self._on_error(error)
                self.version += 1
                async with self._changed:
                    self._changed.notify_all()
                now = time.monotonic()
                if self._watchers == 0 and now - self._asked_s > IDLE_AFTER_S:
                    self._wanted.clear()
                await asyncio.sleep(max(self._interval_s - (now - begun), self._interval_s / 10))
        finally:
            self._thread.shutdown(wait=False, cancel_futures=True)

    @contextlib.contextmanager
    def watch(self) -> Iterator[None]:
        """Readings go on within this block."""
        self._watchers += 1
        self._wanted.set()
        try:
            yield
        finally:
            self._watchers -= 1

    def ask(self) -> None:
        """Readings go on for a while."""
        self._asked_s = time.monotonic()
        self._wanted.set()

    @property
    def is_idle(self) -> bool:
        """True if nothing is read now, so that the value may be old."""
        return not self._wanted.is_set()

    async def next(self, version: int, timeout_s: float) -> bool:
        """Wait for a reading after `version`. Returns False if none came in time."""
        try:
            async with asyncio.timeout(timeout_s), self._changed:
                await self._changed.wait_for(lambda: self.version > version)
        except TimeoutError:
            return False
        return True
