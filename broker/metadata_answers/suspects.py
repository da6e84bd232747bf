"""Leaders that have just hung up, as if they had died, and whom the metadata still has as leaders.

Whoever asks for the leaders of topics meanwhile is answered when that is decided: the metadata has
others, the leader is reached again, or SUSPICION_MS are over.
Bad sequence that this prevents: 1. a broker dies, 2. librdkafka asks for metadata a few ms later,
of a broker that has not heard of new leaders yet, 3. it takes the dead one for the answer and asks
again only a second later, ten times as long as the fail-over takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kvorum.metadata.image.image import ClusterImage

SUSPICION_MS = 500
"""More than a fail-over takes; the grace of a broken heartbeat stream is most of it."""
WAITING_MAX = 100
"""Requests that wait at once. Each looks again at every change of the metadata."""


class Suspects:
    """The suspects of one broker, and the requests that wait for what becomes of them."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        """now_ms: monotonic."""
        self._now_ms = now_ms
        self._until_ms: dict[int, int] = {}
        self._waiting: dict[asyncio.Event, None] = {}

    def suspect(self, leader: int) -> None:
        """The connection to it has broken."""
        self._until_ms[leader] = self._now_ms() + SUSPICION_MS

    def clear(self, leader: int) -> None:
        """It has been reached."""
        if self._until_ms.pop(leader, None) is not None:
            self._wake()

    def on_image(self, delta: object, image: ClusterImage) -> None:
        """The metadata has changed."""
        self._wake()

    def present(self) -> frozenset[int]:
        """The brokers that are suspected now."""
        if not self._until_ms:
            return frozenset()
        now_ms = self._now_ms()
        return frozenset(leader for leader, until in self._until_ms.items() if now_ms < until)

    async def wait(self, matters: Callable[[frozenset[int]], bool]) -> None:
        """Return when `matters`, asked with the suspects at every change, is False; at once if too
        many wait."""
        if len(self._waiting) >= WAITING_MAX:
            return
        event = asyncio.Event()
        self._waiting[event] = None
        try:
            async with asyncio.timeout(SUSPICION_MS / 1000):
                while matters(self.present()):
                    event.clear()
                    await event.wait()
        except TimeoutError:
            return
        finally:
            del self._waiting[event]

    def _wake(self) -> None:
        for event in self._waiting:
            event.set()
