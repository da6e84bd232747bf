"""A broker's view of the metadata: follows the log as an observer and publishes each change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from metadata.delta import Delta
from metadata.image import EMPTY_IMAGE, ClusterImage
from metadata.loader import advance
from raft.effects import LeaderChanged
from runtime.errors import required
from runtime.ids import NO_NODE
from storage.log import Log

Publish = Callable[[Delta, ClusterImage], None]


class MetadataPublisher:
    """Turns commitment into (delta, image) for the broker's parts; a `raft.node.RaftListener`.

    `image` is what was last published; `on_election` is told each leader and its epoch;
    wait_for(offset) lets a caller see its own writes.
    """

    def __init__(self, publish: Publish, *, on_failure: Callable[[BaseException], None]) -> None:
        self.image: ClusterImage = EMPTY_IMAGE
        self._publish = publish
        self.on_election: Callable[[int, int], None] = lambda leader_id, epoch: None
        self._on_failure = on_failure
        self._log: Log | None = None
        self._high_watermark = 0
        self._is_running = False
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    def attach(self, log: Log) -> None:
        """Give the publisher its log; once, before the node starts."""
        self._log = log

    def on_committed(self, high_watermark: int) -> None:
        self._high_watermark = high_watermark
        if not self._is_running:
            self._run()

    def on_leader_changed(self, change: LeaderChanged) -> None:
        """Who leads is nothing to the image, but to those who ask the leader things."""
        if change.leader_id != NO_NODE:
            self.on_election(change.leader_id, change.epoch)

    async def wait_for(self, end_offset: int, timeout_ms: int) -> bool:
        """Wait until the published image reaches end_offset; False after timeout_ms."""
        if self.image.end_offset >= end_offset:
            return True
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((end_offset, future))
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await future
        except TimeoutError:
            self._waiting = [entry for entry in self._waiting if entry[1] is not future]
            return False
        return True

    def _run(self) -> None:
        """Publish a chunk; the rest in the next turn of the loop."""
        self._is_running = False
        try:
            if self.image.end_offset < self._high_watermark:
                log = required(self._log, "the publisher has no log yet")
                delta, self.image = advance(log, self.image, self._high_watermark)
                self._publish(delta, self.image)
        except Exception as error:  # noqa: BLE001 - unreadable metadata: the broker must exit
            self._on_failure(error)
            return
        if self._waiting:
            self._release()
        if self.image.end_offset < self._high_watermark:
            self._is_running = True
            asyncio.get_running_loop().call_soon(self._run)

    def _release(self) -> None:
        still = []
        for end_offset, future in self._waiting:
            if end_offset > self.image.end_offset:
                still.append((end_offset, future))
            elif not future.done():
                future.set_result(None)
        self._waiting = still
