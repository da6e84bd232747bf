"""AssignReplicas: tells the controller where replicas lie, or that one cannot be read. A driver.

What is to be told gathers while a request is under way and leaves together in the next one. A
broker with one directory has nothing to tell but damaged replicas (KIP-858).
"""

from __future__ import annotations

import asyncio
import logging

from kvorum.broker.controller.controller_api import Controller
from kvorum.broker.failures import report_failure
from kvorum.metadata.requests.directory_requests import AssignReplicas, ReplicaDirectory
from kvorum.metadata.rpc.calls import ASSIGN_REPLICAS
from kvorum.runtime.errors import Rejected
from kvorum.runtime.tasks import TaskGroup

_log = logging.getLogger(__name__)

REPLICAS_PER_REQUEST_MAX = 2_000
"""As many as Kafka puts into one request."""

RETRY_FIRST_MS = 20
RETRY_MAX_MS = 1_000

Key = tuple[bytes, int]


class DirectoryLink:
    """What the controller has still to hear; at most one entry a replica, the newest."""

    def __init__(self, *, broker_id: int, controller: Controller) -> None:
        self._broker_id = broker_id
        self._controller = controller
        self._queue: dict[Key, bytes] = {}
        self._tasks = TaskGroup(report_failure)
        self._task: asyncio.Task[None] | None = None
        self._is_stopped = False

    def tell(self, key: Key, directory_id: bytes) -> None:
        """The replica lies there; LOST_DIRECTORY: it cannot be read. Needs a running loop."""
        if self._is_stopped:
            return
        self._queue[key] = directory_id
        if self._task is None or self._task.done():
            self._task = self._tasks.spawn(self._run(), "directory-link")

    def forget(self, key: Key) -> None:
        """The replica is gone: there is nothing to tell any more."""
        self._queue.pop(key, None)

    async def stop(self) -> None:
        self._is_stopped = True
        self._queue.clear()
        await self._tasks.stop()

    async def _run(self) -> None:
        pause_ms = RETRY_FIRST_MS
        # All that one image brings leaves together.
        await asyncio.sleep(0)
        while self._queue:
            keys = list(self._queue)[:REPLICAS_PER_REQUEST_MAX]
            told = {key: self._queue.pop(key) for key in keys}
            reply = await self._controller.request(
                ASSIGN_REPLICAS,
                AssignReplicas(
                    broker_id=self._broker_id,
                    broker_epoch=self._controller.broker_epoch,
                    replicas=tuple(
                        ReplicaDirectory(topic_id=key[0], partition_id=key[1], directory_id=at)
                        for key, at in told.items()
                    ),
                ),
            )
            if isinstance(reply, Rejected):
                for key, at in told.items():
                    self._queue.setdefault(key, at)
                await asyncio.sleep(pause_ms / 1000)
                pause_ms = min(pause_ms * 2, RETRY_MAX_MS)
                continue
            pause_ms = RETRY_FIRST_MS
            if reply:
                # Deleted or moved away meanwhile, mostly; who is still here is told of again with
                # the next image of the partition.
                _log.info("%d directories of replicas were refused: %s", len(reply), reply[0])
