"""Suspects: leaders whose connection to this broker has just broken, and which the metadata still
names.

A Metadata request for their topics waits until the metadata has new leaders, the suspect is reached
again, or SUSPICION_MS are over.

Bad sequence that this prevents: 1. Leader A dies. 2. A few ms later, librdkafka sends Metadata to
broker B, whose image has no new leader yet. 3. B's answer still names A; librdkafka asks again only
a second later, ten times as long as the fail-over takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kvorum.metadata.image.image import ClusterImage

SUSPICION_MS = 500
"""More than a fail-over takes; most of it is the grace of a broken heartbeat stream."""
WAITING_MAX = 100
"""Requests that may wait at once. Each is checked again at every change of the metadata."""


class Suspects:
    """The suspects of one broker, and the requests that wait for them."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        """now_ms: monotonic."""
        self._now_ms = now_ms
        self._until_ms: dict[int, int] = {}
        self._waiting: dict[asyncio.Event, None] = {}

    def suspect(self, leader: int) -> None:
        """Suspect a leader: the connection to it has broken."""
        self._until_ms[leader] = self._now_ms() + SUSPICION_MS

    def clear(self, leader: int) -> None:
        """Clear a suspect: it has been reached."""
        if self._until_ms.pop(leader, None) is not None:
            self._wake()

    def on_image(self, delta: object, image: ClusterImage) -> None:
        """Check waiting requests again: the metadata has changed."""
        self._wake()

    def present(self) -> frozenset[int]:
        """The current suspects."""
        if not self._until_ms:
            return frozenset()
        now_ms = self._now_ms()
        return frozenset(leader for leader, until in self._until_ms.items() if now_ms < until)

    async def wait(self, matters: Callable[[frozenset[int]], bool]) -> None:
        """Wait until `matters`, called with the suspects at every change, returns False. Returns at
        once if WAITING_MAX requests wait."""
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
